package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

// inBubble runs a test under a clock of its own.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	testengine.OnlyEmbedded(t, "a cluster's clock cannot be the test's")
	synctest.Test(t, test)
}

func TestDeliversToEachSink(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.orders("early", 200)
		second := store.SinkID{Tenant: "t1", Name: "second"}
		w.add(hook)
		w.add(second)
		w.add(store.SinkID{Tenant: "t2", Name: "other"}) // another tenant: gets nothing
		r, stop := w.run(testConfig(), w.st, "n1")
		w.orders("late", 300)
		want := 2 * len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= want })
		w.check(hook, second)
		time.Sleep(3 * time.Second)
		st := r.Status(context.Background())
		if st.Partitions != store.Partitions || len(st.Sinks) != 3 {
			t.Errorf("status is %+v", st)
		}
		for _, s := range st.Sinks {
			want := uint64(w.to.delivered / 2)
			if s.Tenant == "t2" {
				want = 0
			}
			if s.Delivered != want || s.Behind != 0 {
				t.Errorf("sink %s: %+v, want %d delivered", s.SinkID, s, want)
			}
		}
		stop()
		w.relays.Wait()
		if w.to.opened != 3 || w.to.closed != 3 {
			t.Errorf("%d drivers opened, %d closed", w.to.opened, w.to.closed)
		}
		v, err := w.st.RelayView(context.Background())
		if err != nil || len(v.Members) != 0 || v.Leases[0].Token != "" {
			t.Errorf("leases were not given back: %+v (%v)", v, err)
		}
		for _, s := range []store.SinkID{hook, {Tenant: "t2", Name: "other"}} {
			cursors, err := w.st.Cursors(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range cursors {
				if end, err := w.st.EndOfEvents(context.Background(), c.At.Partition); err != nil || c.At != end && end.Stamp != [12]byte{} {
					t.Errorf("cursor of %s is %s, the end is %s (%v)", s, c.At, end, err)
				}
			}
		}
	})
}

// Without a sink there is no lease; a sink that is made, paused, resumed, rewound
// and deleted at run time is noticed.
func TestSinksChangeAtRunTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r, stop := w.run(testConfig(), w.st, "n1")
		ctx := context.Background()
		w.orders("a", 20)
		time.Sleep(time.Minute)
		if v, err := w.st.RelayView(ctx); err != nil || len(v.Members) != 0 || w.to.count() != 0 {
			t.Fatalf("without a sink: %+v (%v)", v, err)
		}
		w.add(hook)
		n := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() == n })
		state := func(s store.SinkState) {
			t.Helper()
			if _, err := w.st.ChangeSink(ctx, hook, 0, func(k *store.Sink) { k.State = s }); err != nil {
				t.Fatal(err)
			}
		}
		state(store.SinkPaused)
		time.Sleep(10 * time.Second)
		w.orders("b", 20)
		time.Sleep(time.Minute)
		if w.to.count() != n {
			t.Errorf("a paused sink got %d events", w.to.count()-n)
		}
		if v, err := w.st.RelayView(ctx); err != nil || len(v.Members) != 0 || r.Status(ctx).Partitions != 0 {
			t.Errorf("with a paused sink alone: %+v (%v)", v, err)
		}
		state(store.SinkRunning)
		n = len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() == n })
		time.Sleep(5 * time.Second)
		before := w.to.delivered
		if err := w.st.RewindSink(ctx, hook, store.From{}); err != nil {
			t.Fatal(err)
		}
		w.wait("everything once more", func() bool { w.to.mu.Lock(); defer w.to.mu.Unlock(); return w.to.delivered >= before+n })
		w.check(hook)
		if err := w.st.DeleteSink(ctx, hook); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		before = w.to.delivered
		w.orders("c", 20)
		time.Sleep(time.Minute)
		if w.to.delivered != before {
			t.Errorf("a deleted sink got %d events", w.to.delivered-before)
		}
		stop()
		w.relays.Wait()
	})
}

// A relay that hangs in a delivery loses its partitions; what it does afterwards
// moves nothing, and each event has its effect once.
func TestTwoRelaysAndALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		first := &mortal{Store: w.st}
		r1, stop1 := w.run(testConfig(), first, "n1")
		time.Sleep(5 * time.Second)
		r2, stop2 := w.run(testConfig(), w.st, "n2")
		time.Sleep(10 * time.Second)
		ctx := context.Background()
		if a, b := r1.Status(ctx).Partitions, r2.Status(ctx).Partitions; a != 8 || b != 8 {
			t.Errorf("partitions are spread %d to %d, want 8 each", a, b)
		}
		w.to.mu.Lock()
		gate := make(chan struct{})
		w.to.gate = gate
		w.to.mu.Unlock()
		w.orders("a", 400)
		time.Sleep(time.Second)
		if w.to.waiting.Load() == 0 {
			t.Fatal("no delivery hangs")
		}
		first.dead.Store(true) // what hangs in r1 goes on after r2 has taken over
		w.to.mu.Lock()
		w.to.gate = nil
		w.to.mu.Unlock()
		w.orders("b", 400)
		time.Sleep(20 * time.Second)
		if n := r2.Status(ctx).Partitions; n != store.Partitions {
			t.Errorf("the other relay has %d partitions, want all", n)
		}
		first.dead.Store(false)
		close(gate)
		n := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= n })
		time.Sleep(20 * time.Second)
		if a, b := r1.Status(ctx).Partitions, r2.Status(ctx).Partitions; a != 8 || b != 8 {
			t.Errorf("partitions are spread %d to %d after both live, want 8 each", a, b)
		}
		w.check(hook)
		stop1()
		stop2()
		w.relays.Wait()
	})
}

// A sink that is down gets everything later, and says meanwhile what is wrong.
func TestSinkInTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.down.Store(true)
		w.to.answers(func(*event.Event) error {
			return &sink.Trouble{Err: errors.New("connection refused"), After: time.Second}
		})
		_, stop := w.run(testConfig(), w.st, "n1")
		w.orders("a", 100)
		time.Sleep(2 * time.Minute)
		troubled := 0
		cursors, err := w.st.Cursors(context.Background(), hook)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cursors {
			if c.Trouble != "" {
				troubled++
				if !strings.Contains(c.Trouble, "connection refused") || time.Since(c.Since) < 100*time.Second {
					t.Errorf("trouble is %q since %s", c.Trouble, c.Since)
				}
			}
		}
		if troubled == 0 || w.to.count() != 0 {
			t.Errorf("%d cursors in trouble, %d events", troubled, w.to.count())
		}
		w.to.answers(nil)
		n := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= n })
		time.Sleep(time.Minute)
		cursors, _ = w.st.Cursors(context.Background(), hook)
		for _, c := range cursors {
			if c.Trouble != "" || !c.Since.IsZero() {
				t.Errorf("partition %d is still in trouble: %q", c.At.Partition, c.Trouble)
			}
		}
		w.check(hook)
		stop()
		w.relays.Wait()
	})
}

// A driver that panics, gives too few answers, or says held to everything, loses
// nothing.
func TestBadDriver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		n := 0
		w.to.answers(func(*event.Event) error {
			switch n++; {
			case n < 20:
				w.to.mu.Unlock() // Deliver's own unlock follows the panic
				w.to.mu.Lock()
				panic("driver")
			case n < 40:
				return sink.ErrHeld
			}
			return nil
		})
		_, stop := w.run(testConfig(), w.st, "n1")
		w.orders("a", 50)
		want := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= want })
		w.check(hook)
		stop()
		w.relays.Wait()
	})
}

// A relay that is killed again and again, at any moment, delivers every event,
// and repeats only what has the same id.
func TestRelayKilledAgainAndAgain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inBubble(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		w.add(hook)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 50 {
				w.orders(fmt.Sprint("o", i), transitions(5000)/2/50)
				time.Sleep(time.Second)
			}
		}()
		w.to.answers(func(e *event.Event) error { // now and then the answer is lost, or the sink is down
			if e.Entry.Seq%41 == 0 && len(w.to.seen)%7 == 0 {
				return &sink.Trouble{Err: errors.New("no answer")}
			}
			return nil
		})
		for range 20 {
			st := &mortal{Store: w.st}
			st.left.Store(rnd.Int64N(12)) // it dies between a delivery and its cursor
			_, stop := w.run(testConfig(), st, "n")
			time.Sleep(time.Duration(rnd.Int64N(int64(6 * time.Second))))
			st.dead.Store(true)
			stop()
			w.relays.Wait()
		}
		<-done
		w.to.answers(nil)
		_, stop := w.run(testConfig(), w.st, "n")
		want := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= want })
		w.check(hook)
		t.Logf("%d events, %d deliveries", want, w.to.delivered)
		if w.to.delivered == want {
			t.Error("no kill came between a delivery and its cursor")
		}
		stop()
		w.relays.Wait()
	})
}

// transitions is how many a test of kills runs; COFFER_TEST_TRANSITIONS sets it
// for longer runs by hand.
func transitions(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("COFFER_TEST_TRANSITIONS")); err == nil && n >= 100 {
		return n
	}
	return usual
}

// An older copy of the store, on an engine whose stamps begin again, goes on
// under a new incarnation: nothing is left out, and what comes again has the id
// it had.
func TestRestoredCopy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		_, stop := w.run(testConfig(), w.st, "n1")
		w.orders("a", 100)
		n := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= n })
		stop()
		w.relays.Wait()
		w.orders("undelivered", 10)
		restored := newWorld(t)
		copyStore(t, restored.engine, w.engine)
		_, stop = w.run(testConfig(), w.st, "n1") // the old one goes on for a while
		w.orders("lost", 100)
		lost := len(w.ledgerEvents())
		w.wait("all events", func() bool { return w.to.count() >= lost })
		stop()
		w.relays.Wait()

		restored.to = w.to // the consumer knows what it has seen
		if _, err := restored.st.SetIncarnation(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		restored.orders("b", 100)
		_, stop = restored.run(testConfig(), restored.st, "n2")
		total := lost + 200
		w.wait("all events", func() bool { return w.to.count() >= total })
		time.Sleep(time.Minute)
		if w.to.count() != total {
			t.Errorf("the consumer has %d events, want %d", w.to.count(), total)
		}
		for e := range restored.ledgerEvents() {
			if !w.to.ledger[hook.String()+" "+e] {
				t.Errorf("%s was skipped", e)
			}
		}
		for k, es := range w.to.order {
			for i, e := range es {
				if strings.Contains(k, "/b-") && (e.At.Incarnation != 2 || e.Sequence() != uint64(i+1)) {
					t.Errorf("event %d of %s is %s, number %d", i, k, e.At, e.Sequence())
				}
			}
		}
		stop()
		restored.relays.Wait()
	})
}

// copyStore copies all rows of one engine to another.
func copyStore(t *testing.T, to, from kv.Store) {
	t.Helper()
	rng := kv.Range{Begin: []byte{0}, End: []byte{0xFF}}
	ctx := context.Background()
	if _, err := kv.Transact(ctx, to, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error { tx.ClearRange(rng); return nil }); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var rows []kv.KeyValue
		err := kv.Read(ctx, from, kv.Options{}, func(r kv.Reader) (err error) {
			rows, more, err = r.Range(rng, kv.RangeOptions{Limit: 500}).Wait()
			for i := range rows {
				rows[i] = kv.KeyValue{Key: append([]byte(nil), rows[i].Key...), Value: append([]byte(nil), rows[i].Value...)}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Transact(ctx, to, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			for _, row := range rows {
				tx.Set(row.Key, row.Value)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(rows) > 0 {
			rng.Begin = append(rows[len(rows)-1].Key, 0)
		}
	}
}
