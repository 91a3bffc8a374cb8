package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

var ofT1 = &event.Filter{Tenant: "t1", Internal: true}

// readAll reads a partition's events page by page.
func (b *bench) readAll(after event.Position, f *event.Filter, blocks int) (events []*event.Event, end event.Position) {
	b.t.Helper()
	for {
		page, err := b.ReadEvents(context.Background(), after, f, blocks)
		if err != nil {
			b.t.Fatal(causes(err))
		}
		events = append(events, page.Events...)
		if after = page.Next; !page.More {
			return events, after
		}
	}
}

// everything reads all partitions from the beginning.
func (b *bench) everything(f *event.Filter) (events []*event.Event) {
	b.t.Helper()
	for p := range uint64(Partitions) {
		part, _ := b.readAll(StartOfEvents(p), f, 3)
		events = append(events, part...)
	}
	return events
}

// spring is a budget with orders that were reserved, half of them committed.
func (b *bench) spring(name string, orders int) {
	b.t.Helper()
	b.ok(create(name, 4, ledger.Policy{}), onBudget(ledger.OpFund, name, name+"-f", 1_000_000))
	b.orders(name, name, orders)
}

func (b *bench) orders(budget, prefix string, n int) {
	b.t.Helper()
	for i := range n {
		o := fmt.Sprintf("%s-%d", prefix, i)
		b.ok(reserve(budget, o, 100))
		if i%2 == 0 {
			b.ok(on(ledger.OpCommit, o, "", 0))
		}
	}
}

// Every entry is an event, once, with its reservation's events in order.
func TestEventsAreTheEntries(t *testing.T) {
	b := newBench(t)
	b.spring("a", 20)
	b.spring("b", 10)
	got := map[string]bool{}
	next := map[string]uint64{}
	for _, e := range b.everything(ofT1) {
		got[fmt.Sprintf("%v %d %s", e.Bucket, e.Entry.Seq, e.Type())] = true
		if e.Currency != "BRL" || e.Writer != "n1" || !e.Time.Equal(clockStart) {
			t.Fatalf("event %s has currency %q, writer %q, time %s", e.ID(), e.Currency, e.Writer, e.Time)
		}
		if want := next[e.Key()]; e.Entry.Order != "" && want != 0 && e.Sequence() != want {
			t.Fatalf("event of %s has sequence %d, want %d", e.Key(), e.Sequence(), want)
		}
		next[e.Key()] = e.Next()
	}
	want := 0
	for _, name := range []string{"a", "b"} {
		for _, en := range b.entries(budgetID(name)) {
			want++
			e := event.Event{Bucket: en.Bucket, Entry: en.Entry}
			if !got[fmt.Sprintf("%v %d %s", en.Bucket, en.Seq, e.Type())] {
				t.Errorf("entry %d of %v is no event", en.Seq, en.Bucket)
			}
		}
	}
	if len(got) != want || want != 2*(1+4)+30+15 {
		t.Errorf("%d events, %d entries", len(got), want)
	}
}

// A cursor may be any event's position: what comes after is what came after.
func TestEventsResumeAnywhere(t *testing.T) {
	b := newBench(t)
	b.spring("a", 12)
	id := ledger.BucketID{Budget: budgetID("a"), Index: 0}
	var cmds []ledger.Command
	for i := 0; len(cmds) < 5; i++ { // several entries in one block
		c := reserve("a", fmt.Sprint("many", i), 1).Normalize()
		if b.route("a", c.Key) == id {
			cmds = append(cmds, c)
		}
	}
	if _, err := b.Apply(context.Background(), &id, cmds); err != nil {
		t.Fatal(err)
	}
	middle := 0
	for p := range uint64(Partitions) {
		all, end := b.readAll(StartOfEvents(p), ofT1, MaxEventBlocks)
		for i, e := range all {
			rest, at := b.readAll(e.At, ofT1, 2)
			if len(rest) != len(all)-i-1 || len(rest) > 0 && rest[0].At != all[i+1].At {
				t.Fatalf("after %s come %d events, want %d", e.At, len(rest), len(all)-i-1)
			}
			if len(rest) > 0 && at != end {
				t.Fatalf("the end is %s, then %s", end, at)
			}
			if e.At.Index > 0 {
				middle++
			}
		}
		if got, err := b.EndOfEvents(context.Background(), p); err != nil || len(all) > 0 && got != end {
			t.Fatalf("partition %d ends at %s, want %s (%v)", p, got, end, err)
		}
	}
	if middle == 0 {
		t.Error("no cursor was inside a block")
	}
}

func (b *bench) route(budget string, k ledger.OrderKey) ledger.BucketID {
	b.t.Helper()
	def, err := b.Definition(context.Background(), budgetID(budget))
	if err != nil {
		b.t.Fatal(err)
	}
	return def.Route(k)
}

// A page of full blocks ends early, and the next one goes on behind it.
func TestEventPagesAreBounded(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 1, ledger.Policy{}), onBudget(ledger.OpFund, "a", "f", 1_000_000))
	id := ledger.BucketID{Budget: budgetID("a")}
	for batch := range 20 {
		var cmds []ledger.Command
		for i := range 200 {
			cmds = append(cmds, reserve("a", fmt.Sprint(batch, "-", i), 1).Normalize())
		}
		if _, err := b.Apply(context.Background(), &id, cmds); err != nil {
			t.Fatal(err)
		}
	}
	at, total, pages := StartOfEvents(partitionOf(id)), 0, 0
	for {
		page, err := b.ReadEvents(context.Background(), at, ofT1, MaxEventBlocks)
		if err != nil {
			t.Fatal(causes(err))
		}
		if n := len(page.Events); n > enoughEvents+blocksAtOnce*200 {
			t.Errorf("a page has %d events", n)
		}
		for _, e := range page.Events {
			if total++; e.Entry.Seq != uint64(total) {
				t.Fatalf("event %d is entry %d", total, e.Entry.Seq)
			}
		}
		pages++
		if at = page.Next; !page.More {
			break
		}
	}
	if total != 4002 || pages < 3 {
		t.Errorf("%d events on %d pages", total, pages)
	}
}

func TestEventFilters(t *testing.T) {
	b := newBench(t)
	b.spring("a", 10)
	b.spring("b", 4)
	other := create("a", 1, ledger.Policy{})
	other.Budget.Tenant = "t2"
	b.ok(other)
	for _, tc := range []struct {
		filter event.Filter
		want   int
	}{
		{event.Filter{Tenant: "t1"}, 10 + 15 + 6},
		{event.Filter{Tenant: "t2"}, 1},
		{event.Filter{Tenant: "t3"}, 0},
		{event.Filter{Tenant: "t1", Budgets: []ledger.BudgetID{budgetID("b")}}, 5 + 6},
		{event.Filter{Tenant: "t2", Budgets: []ledger.BudgetID{budgetID("a")}}, 0},
		{event.Filter{Tenant: "t1", Types: []string{"coffer.reservation.committed.v1"}}, 7},
		{event.Filter{Tenant: "t1", Types: []string{"coffer.reservation.*"}}, 21},
		{event.Filter{Tenant: "t1", Types: []string{"coffer.budget.*"}, Budgets: []ledger.BudgetID{budgetID("b")}}, 5},
	} {
		if got := len(b.everything(&tc.filter)); got != tc.want {
			t.Errorf("filter %+v passes %d events, want %d", tc.filter, got, tc.want)
		}
	}
}

// Moves are events of an internal kind.
func TestInternalEventsOnlyWhenAsked(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 4, ledger.Policy{}), onBudget(ledger.OpFund, "a", "f", 400), reserve("a", "big", 300))
	all, asked := b.everything(&event.Filter{Tenant: "t1"}), b.everything(ofT1)
	if slices.ContainsFunc(all, func(e *event.Event) bool { return e.Internal() }) {
		t.Error("an internal event came without being asked for")
	}
	if len(all) != 1+4+1 || len(asked) <= len(all) || (len(asked)-len(all))%2 != 0 {
		t.Errorf("%d events, %d with internal ones", len(all), len(asked))
	}
}

// All of an older incarnation comes before the next, also where the new stamps
// are lower, and a cursor that this store never gave is refused.
func TestEventsAcrossIncarnations(t *testing.T) {
	b := newBench(t)
	b.spring("a", 8)
	before := b.everything(ofT1)
	cursors := map[uint64]event.Position{}
	for p := range uint64(Partitions) {
		_, cursors[p] = b.readAll(StartOfEvents(p), ofT1, 64)
	}
	if _, err := b.SetIncarnation(context.Background(), 7); err != nil {
		t.Fatal(err)
	}
	b.orders("a", "later", 8)
	var after []*event.Event
	for p := range uint64(Partitions) {
		part, _ := b.readAll(cursors[p], ofT1, 64)
		after = append(after, part...)
	}
	if len(after) != 12 {
		t.Errorf("%d events after the cursors, want 12", len(after))
	}
	for _, e := range after {
		if e.At.Incarnation != 7 {
			t.Errorf("event %s was repeated", e.At)
		}
	}
	if all := b.everything(ofT1); len(all) != len(before)+len(after) {
		t.Errorf("%d events in all, want %d", len(all), len(before)+len(after))
	}
	ahead := after[0].At
	ahead.Stamp[0] = 0xFF
	for _, bad := range []event.Position{{Incarnation: 8}, ahead, {Incarnation: 1, Partition: Partitions}} {
		_, err := b.ReadEvents(context.Background(), bad, ofT1, 1)
		wantCode(t, ledger.BadCursor, err)
	}
	old := after[0].At
	old.Incarnation, old.Stamp[0] = 1, 0xFF // of the time that the restored copy does not know
	part, _ := b.readAll(old, ofT1, 64)
	if len(part) == 0 || part[0].At != after[0].At {
		t.Errorf("a cursor of the lost time goes on with %v, want %s", part, after[0].At)
	}
}

func TestEventsAtATime(t *testing.T) {
	b := newBench(t)
	b.spring("a", 6)
	b.advance(time.Hour)
	b.orders("a", "second", 6)
	if _, err := b.SetIncarnation(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	b.advance(time.Hour)
	b.orders("a", "third", 6)
	for _, tc := range []struct {
		at   time.Duration
		want int
	}{{0, 5 + 27}, {time.Minute, 18}, {time.Hour, 18}, {time.Hour + 1, 9}, {2 * time.Hour, 9}, {3 * time.Hour, 0}} {
		n := 0
		for p := range uint64(Partitions) {
			from, err := b.EventsAt(context.Background(), p, clockStart.Add(tc.at))
			if err != nil {
				t.Fatal(causes(err))
			}
			part, _ := b.readAll(from, ofT1, 64)
			n += len(part)
		}
		if n != tc.want {
			t.Errorf("from %s on there are %d events, want %d", tc.at, n, tc.want)
		}
	}
}

// A read sees all that was committed before it, and a wait ends with a commit.
func TestWaitEvents(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 1, ledger.Policy{}))
	p := partitionOf(ledger.BucketID{Budget: budgetID("a")})
	now, err := b.WaitEvents(context.Background(), p, 0, time.Hour, true)
	if err != nil || now == 0 {
		t.Fatalf("signal is %d (%v)", now, err)
	}
	done := make(chan uint64)
	go func() {
		n, _ := b.WaitEvents(context.Background(), p, now, time.Hour, true)
		done <- n
	}()
	b.ok(onBudget(ledger.OpFund, "a", "f", 10))
	if got := <-done; got <= now {
		t.Errorf("signal is %d after a commit, was %d", got, now)
	}
	if got, err := b.WaitEvents(context.Background(), p, now+1, 0, false); err != nil || got != now+1 {
		t.Errorf("signal is %d (%v), want %d", got, err, now+1)
	}
}

// A block that a pointer names and that is not there is corruption, not silence.
func TestEventsOfALostBlock(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 1, ledger.Policy{}))
	id := ledger.BucketID{Budget: budgetID("a")}
	b.tamper(func(tx kv.Tx) { tx.Clear(b.blockKey(id, 1)) })
	_, err := b.ReadEvents(context.Background(), StartOfEvents(partitionOf(id)), ofT1, 8)
	wantCode(t, ledger.Corrupt, err)
}
