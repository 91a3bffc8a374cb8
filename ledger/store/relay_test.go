package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

var hook = SinkID{Tenant: "t1", Name: "hook"}

// newSink adds the sink "hook" from the beginning.
func (b *bench) newSink() Sink {
	b.t.Helper()
	s, _, err := b.CreateSink(context.Background(), Sink{SinkID: hook, Config: []byte("{}")}, From{})
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return s
}

// take gives a relay all partitions.
func (b *bench) take(token string) []Fence {
	b.t.Helper()
	v, err := b.RelayView(context.Background())
	if err != nil {
		b.t.Fatal(causes(err))
	}
	held, err := b.BeatRelay(context.Background(), RelayBeat{Token: token, Node: "n1", Take: v.Leases})
	if err != nil || len(held) != Partitions {
		b.t.Fatalf("%d leases (%v)", len(held), err)
	}
	var out []Fence
	for _, l := range held {
		out = append(out, Fence{Partition: l.Partition, Token: l.Token, Epoch: l.Epoch})
	}
	return out
}

func (b *bench) cursor(p uint64) Cursor {
	b.t.Helper()
	c, ok, err := b.Cursor(context.Background(), hook, p)
	if err != nil || !ok {
		b.t.Fatalf("cursor of partition %d: %v %v", p, ok, err)
	}
	return c
}

// A relay that lost its lease moves no cursor, and parks and trims nothing.
func TestAdvanceChecksTheLease(t *testing.T) {
	b := newBench(t)
	b.spring("a", 6)
	b.newSink()
	ctx := context.Background()
	first := b.take("r1")
	second := b.take("r2")
	p := b.everything(ofT1)[0].At.Partition
	events, end := b.readAll(StartOfEvents(p), ofT1, 64)
	adv := Advance{From: b.cursor(p), To: end, Delivered: 3, Park: []Park{{Event: events[0], First: true}}}
	if _, err := b.AdvanceSink(ctx, first[p], hook, adv); !errors.Is(err, ErrLeaseLost) {
		t.Fatalf("a relay without its lease: %v", err)
	}
	if err := b.ReleaseParked(ctx, first[p], hook, Released{Retry: Retry{Key: events[0].Key()}}); !errors.Is(err, ErrLeaseLost) {
		t.Fatalf("a relay without its lease: %v", err)
	}
	if _, err := b.TrimOutbox(ctx, first[p], b.now().Add(time.Hour)); !errors.Is(err, ErrLeaseLost) {
		t.Fatalf("a relay without its lease: %v", err)
	}
	if c := b.cursor(p); c != adv.From {
		t.Fatalf("the cursor is %+v, want %+v", c, adv.From)
	}
	c, err := b.AdvanceSink(ctx, second[p], hook, adv)
	if err != nil || c.At != end || c.Delivered != 3 || c.Parked != 1 || b.cursor(p) != c {
		t.Fatalf("the cursor is %+v (%v)", c, err)
	}
	if _, err := b.AdvanceSink(ctx, second[p], hook, adv); !errors.Is(err, ErrCursorMoved) {
		t.Fatalf("the same step again: %v", err)
	}
	held, err := b.BeatRelay(ctx, RelayBeat{Token: "r1", Keep: []uint64{0, 1}})
	if err != nil || len(held) != 0 {
		t.Errorf("r1 keeps %v (%v)", held, err)
	}
	held, err = b.BeatRelay(ctx, RelayBeat{Token: "r2", Keep: []uint64{0, 1}, Drop: []uint64{2}})
	if err != nil || len(held) != 2 || held[0].Beat != 1 || held[0].Epoch != 2 {
		t.Errorf("r2 keeps %v (%v)", held, err)
	}
}

// A lease that changed since it was seen is not taken.
func TestLeaseTakenOnceOnly(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	v, err := b.RelayView(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, token := range []string{"r1", "r2"} {
		held, err := b.BeatRelay(ctx, RelayBeat{Token: token, Node: token, Take: v.Leases[:4]})
		if want := 4 - 4*i; err != nil || len(held) != want {
			t.Errorf("%s takes %d, want %d (%v)", token, len(held), want, err)
		}
	}
	if v, err = b.RelayView(ctx); err != nil || len(v.Members) != 2 || v.Leases[0].Token != "r1" || v.Leases[4].Token != "" {
		t.Errorf("view is %+v (%v)", v, err)
	}
	if _, err := b.BeatRelay(ctx, RelayBeat{Token: "r1", Gone: true, Drop: []uint64{0, 1, 2, 3}, Forget: v.Members}); err != nil {
		t.Fatal(err)
	}
	if v, err = b.RelayView(ctx); err != nil || len(v.Members) != 0 || v.Leases[0].Token != "" || v.Leases[0].Epoch != 1 {
		t.Errorf("view is %+v (%v)", v, err)
	}
}

// parkAll parks a partition's first key with all its events.
func (b *bench) parkAll(f []Fence) (name string, events []*event.Event) {
	b.t.Helper()
	p := b.everything(&event.Filter{Tenant: "t1", Types: []string{"coffer.reservation.committed.v1"}})[0].At.Partition
	all, end := b.readAll(StartOfEvents(p), &event.Filter{Tenant: "t1", Types: []string{"coffer.reservation.*"}}, 64)
	name = all[0].Key()
	var parks []Park
	for _, e := range all {
		if e.Key() == name {
			events = append(events, e)
			parks = append(parks, Park{Event: e, First: len(parks) == 0, Reason: "no such order", Tries: 5})
		}
	}
	if _, err := b.AdvanceSink(context.Background(), f[p], hook, Advance{From: b.cursor(p), To: end, Park: parks}); err != nil {
		b.t.Fatal(causes(err))
	}
	return name, events
}

func TestParkedKeys(t *testing.T) {
	b := newBench(t)
	b.spring("a", 8)
	b.newSink()
	f := b.take("r1")
	ctx := context.Background()
	name, events := b.parkAll(f)
	p := events[0].At.Partition
	keys, next, err := b.ParkedKeys(ctx, hook, Page{})
	if err != nil || next != "" || len(keys) != 1 || keys[0].Key != name || keys[0].Reason != "no such order" || keys[0].Tries != 5 || keys[0].Events != 2 || keys[0].Retrying {
		t.Fatalf("parked keys are %+v (%v)", keys, err)
	}
	_, got, err := b.ParkedEvents(ctx, hook, p, name, 10)
	if err != nil || len(got) != 2 || got[0].At != events[0].At || got[1].At != events[1].At || got[1].Entry.Type != ledger.EntryCommit {
		t.Fatalf("parked events are %v (%v)", got, err)
	}
	if in, err := b.ParkedIn(ctx, hook, name); err != nil || len(in) != 1 || in[0] != p {
		t.Fatalf("parked in %v (%v)", in, err)
	}
	if err := b.RetryParked(ctx, hook, p, name); err != nil {
		t.Fatal(err)
	}
	if again, err := b.ParkedRetries(ctx, hook, p, 4); err != nil || len(again) != 1 || again[0] != (Retry{name, 1}) {
		t.Fatalf("to be tried again: %v (%v)", again, err)
	}
	if err := b.RetryParked(ctx, hook, p, name); err != nil { // while the first is under way
		t.Fatal(err)
	}
	if err := b.ReleaseParked(ctx, f[p], hook, Released{Retry: Retry{name, 1}, Refused: true}); err != nil {
		t.Fatal(err)
	}
	if again, err := b.ParkedRetries(ctx, hook, p, 4); err != nil || len(again) != 1 || again[0] != (Retry{name, 2}) {
		t.Fatalf("to be tried once more: %v (%v)", again, err)
	}
	rel := Released{Retry: Retry{name, 2}, Delivered: []event.Position{events[0].At}, Refused: true, Reason: "still not"}
	if err := b.ReleaseParked(ctx, f[p], hook, rel); err != nil {
		t.Fatal(err)
	}
	keys, _, _ = b.ParkedKeys(ctx, hook, Page{})
	if len(keys) != 1 || keys[0].Events != 1 || keys[0].Tries != 7 || keys[0].Reason != "still not" || keys[0].Retrying {
		t.Fatalf("parked keys are %+v", keys)
	}
	skipped, err := b.SkipParked(ctx, hook, p, name, "known to be wrong", false)
	if err != nil || len(skipped) != 1 || skipped[0] != events[1].At {
		t.Fatalf("skipped %v (%v)", skipped, err)
	}
	record, _, err := b.Skipped(ctx, hook, Page{})
	if err != nil || len(record) != 1 || record[0].At != events[1].At || record[0].Reason != "known to be wrong" || record[0].Key != name {
		t.Fatalf("the record is %+v (%v)", record, err)
	}
	if c := b.cursor(p); c.Parked != 0 || c.Delivered != 1 {
		t.Fatalf("the cursor is %+v", c)
	}
	wantCode(t, ledger.ParkedNotFound, b.RetryParked(ctx, hook, p, name))
	_, err = b.SkipParked(ctx, hook, p, name, "again", true)
	wantCode(t, ledger.ParkedNotFound, err)
}

// An event joins the others of its key only while that key is parked, and the
// bound holds the cursor.
func TestParkingIsChecked(t *testing.T) {
	b := newBench(t)
	b.spring("a", 8)
	b.newSink()
	f := b.take("r1")
	ctx := context.Background()
	e := b.everything(&event.Filter{Tenant: "t1"})[0]
	p := e.At.Partition
	from := b.cursor(p)
	adv := Advance{From: from, To: e.At, Park: []Park{{Event: e}}}
	if _, err := b.AdvanceSink(ctx, f[p], hook, adv); !errors.Is(err, ErrParkedChanged) {
		t.Errorf("joining a key that is not parked: %v", err)
	}
	adv.Park = nil
	for i := range MaxParked + 1 {
		other := *e
		other.At.Index = uint32(i)
		adv.Park = append(adv.Park, Park{Event: &other, First: true})
	}
	if _, err := b.AdvanceSink(ctx, f[p], hook, adv); !errors.Is(err, ErrParkedFull) {
		t.Errorf("parking too much: %v", err)
	}
	if c := b.cursor(p); c != from {
		t.Errorf("the cursor is %+v", c)
	}
}

func TestTrimOutbox(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 1, ledger.Policy{}), onBudget(ledger.OpFund, "a", "f", 1_000_000))
	b.orders("a", "o", 300)
	ctx := context.Background()
	p := partitionOf(ledger.BucketID{Budget: budgetID("a")})
	f := b.take("r1")
	soon := b.now().Add(time.Second)
	trim := func(before time.Time, want int) {
		t.Helper()
		if n, err := b.TrimOutbox(ctx, f[p], before); err != nil || n != want {
			t.Fatalf("trimmed %d, want %d (%v)", n, want, err)
		}
	}
	trim(soon, 0) // no sink
	b.newSink()
	slow, _, err := b.CreateSink(ctx, Sink{SinkID: SinkID{"t2", "slow"}}, From{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ChangeSink(ctx, slow.SinkID, 0, func(s *Sink) { s.State = SinkPaused }); err != nil {
		t.Fatal(err)
	}
	all, end := b.readAll(StartOfEvents(p), ofT1, 64)
	if _, err := b.AdvanceSink(ctx, f[p], hook, Advance{From: b.cursor(p), To: end}); err != nil {
		t.Fatal(err)
	}
	trim(soon, 0) // the paused sink counts
	if err := b.RewindSink(ctx, slow.SinkID, From{Cursors: []event.Position{all[300].At}}); err != nil {
		t.Fatal(causes(err))
	}
	trim(b.now(), 0) // too young
	trim(soon, 256)
	trim(soon, 0) // the next page is not behind the slow one
	if rest, _ := b.readAll(StartOfEvents(p), ofT1, 64); len(rest) != len(all)-256 || rest[0].At != all[256].At {
		t.Fatalf("%d events are left", len(rest))
	}
	if rest, _ := b.readAll(all[255].At, ofT1, 64); len(rest) != len(all)-256 {
		t.Fatalf("%d events after the last that was trimmed", len(rest))
	}
	_, err = b.ReadEvents(ctx, all[254].At, ofT1, 64)
	wantCode(t, ledger.EventsTrimmed, err)
	wantCode(t, ledger.EventsTrimmed, b.RewindSink(ctx, hook, From{Cursors: []event.Position{all[10].At}}))
	b.audit()
	id := ledger.BucketID{Budget: budgetID("a")}
	b.tamper(func(tx kv.Tx) { // a pointer that was not trimmed is lost
		rows, _, err := tx.Range(b.pointersOf(1, p).all(), kv.RangeOptions{Limit: 1}).Wait()
		if err != nil || len(rows) != 1 {
			t.Errorf("%d pointers (%v)", len(rows), err)
			return
		}
		tx.Clear(rows[0].Key)
	})
	rep, err := b.Audit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := rep.Checks[checkOutbox]; c.Problems != 1 || c.Examples[0] != fmt.Sprintf("block 257 of bucket %s has no outbox pointer", id) {
		t.Errorf("the audit says %+v", c)
	}
}

// What is trimmed while an audit runs is no loss.
func TestAuditWhileTrimming(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 1, ledger.Policy{}), onBudget(ledger.OpFund, "a", "f", 1_000_000))
	b.orders("a", "o", 400)
	b.newSink()
	ctx := context.Background()
	p := partitionOf(ledger.BucketID{Budget: budgetID("a")})
	f := b.take("r1")
	_, end := b.readAll(StartOfEvents(p), ofT1, 64)
	if _, err := b.AdvanceSink(ctx, f[p], hook, Advance{From: b.cursor(p), To: end}); err != nil {
		t.Fatal(err)
	}
	trimmed := 0
	rep, err := b.Audit(ctx, func(phase string, _ uint64) {
		if phase == "reservations" {
			n, err := b.TrimOutbox(ctx, f[p], b.now().Add(time.Hour))
			if err != nil {
				t.Error(err)
			}
			trimmed += n
		}
	})
	if err != nil || trimmed < 256 {
		t.Fatalf("trimmed %d (%v)", trimmed, err)
	}
	for _, c := range rep.Checks {
		if c.Problems > 0 {
			t.Errorf("%s: %v", c.Name, c.Examples)
		}
	}
	b.tamper(func(tx kv.Tx) { // a sink behind what is trimmed
		c := Cursor{At: event.Position{Incarnation: 1, Partition: p}}
		tx.Set(b.cursorKey(hook, p), encodeCursor(&c))
	})
	rep, err = b.Audit(ctx, nil)
	if err != nil || rep.Checks[checkSinks].Problems != 1 {
		t.Errorf("the audit says %+v (%v)", rep.Checks[checkSinks], err)
	}
}

// Where all of a partition's pointers were trimmed, the beginning is behind the
// mark and not before it: readers and sinks wait there for what comes.
func TestBeginningOfATrimmedPartition(t *testing.T) {
	b := newBench(t)
	b.ok(create("a", 1, ledger.Policy{}), onBudget(ledger.OpFund, "a", "f", 1_000_000))
	ctx := context.Background()
	p := partitionOf(ledger.BucketID{Budget: budgetID("a")})
	all, _ := b.readAll(StartOfEvents(p), ofT1, 64)
	for i := len(all); i < trimPage; i++ {
		b.ok(reserve("a", fmt.Sprintf("o-%d", i), 100))
	}
	b.newSink()
	f := b.take("r1")
	all, end := b.readAll(StartOfEvents(p), ofT1, 64)
	if len(all) != trimPage {
		t.Fatalf("%d events, want %d, each in a block of its own", len(all), trimPage)
	}
	if _, err := b.AdvanceSink(ctx, f[p], hook, Advance{From: b.cursor(p), To: end}); err != nil {
		t.Fatal(causes(err))
	}
	if n, err := b.TrimOutbox(ctx, f[p], b.now().Add(time.Hour)); err != nil || n != trimPage {
		t.Fatalf("trimmed %d (%v)", n, err)
	}
	if _, _, err := b.CreateSink(ctx, Sink{SinkID: SinkID{"t1", "new"}, Config: []byte("{}")}, From{}); err != nil {
		t.Fatal(causes(err))
	}
	b.audit() // a new sink at the beginning is not behind what was trimmed
	page, err := b.ReadEvents(ctx, StartOfEvents(p), ofT1, 64)
	if err != nil || len(page.Events) != 0 {
		t.Fatalf("%d events of a trimmed partition (%v)", len(page.Events), causes(err))
	}
	if lag, err := b.Lag(ctx, page.Next, 10); err != nil || lag.Blocks != 0 {
		t.Fatalf("%d blocks behind %s (%v)", lag.Blocks, page.Next, causes(err))
	}
	b.ok(reserve("a", "later", 100))
	if page, err = b.ReadEvents(ctx, page.Next, ofT1, 64); err != nil || len(page.Events) != 1 || page.Events[0].Entry.Order != "later" {
		t.Fatalf("%d events after it (%v)", len(page.Events), causes(err))
	}
}

// A relay that still delivers to a sink that was deleted and made again under the
// same name moves the cursor of neither.
func TestAdvanceOfADeletedSink(t *testing.T) {
	b := newBench(t)
	b.spring("a", 6)
	b.newSink()
	ctx := context.Background()
	f := b.take("r1")
	p := b.everything(ofT1)[0].At.Partition
	events, end := b.readAll(StartOfEvents(p), ofT1, 64)
	late := Advance{From: b.cursor(p), To: end, Delivered: len(events)}
	if err := b.DeleteSink(ctx, hook); err != nil {
		t.Fatal(causes(err))
	}
	b.newSink()
	if _, err := b.AdvanceSink(ctx, f[p], hook, late); !errors.Is(err, ErrCursorMoved) {
		t.Errorf("a delivery to the sink before it: %v, want %v", err, ErrCursorMoved)
	}
	if c := b.cursor(p); c.At != StartOfEvents(p) || c.Delivered != 0 {
		t.Errorf("the new sink is at %s with %d delivered, and got nothing", c.At, c.Delivered)
	}
}
