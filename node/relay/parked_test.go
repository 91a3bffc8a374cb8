package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

const poison = "t1/reservations/poison-0/coupon"

// A poison event parks its key while 10,000 others pass; what comes later under
// the key joins it, and its release keeps the order.
func TestPoisonParksItsKeyAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.answers(func(e *event.Event) error {
			if e.Key() == poison {
				return &sink.Refused{Reason: "unknown order"}
			}
			return nil
		})
		r, stop := w.run(testConfig(), w.st, "n1")
		w.orders("early", 2500)
		w.orders("poison", 1)
		w.orders("late", 2500)
		k := ledger.OrderKey{Tenant: "t1", Order: "poison-0", Benefit: "coupon"}
		def, err := w.st.Definition(context.Background(), budget)
		if err != nil {
			t.Fatal(err)
		}
		at := def.Route(k)
		n := len(w.ledgerEvents()) - 2
		if n < 10_000 {
			t.Fatalf("only %d others", n)
		}
		w.wait("all others", func() bool { return w.to.count() >= n })
		w.apply(&at, ledger.Command{Op: ledger.OpReverse, Key: k, ID: "r", Amount: 2}) // joins
		ctx := context.Background()
		var keys []store.ParkedKey
		w.wait("the reversal to join", func() bool {
			if keys, _, err = w.st.ParkedKeys(ctx, hook, store.Page{}); err != nil {
				t.Fatal(err)
			}
			return len(keys) == 1 && keys[0].Events == 3
		})
		p := keys[0].Partition
		if keys[0].Key != poison || keys[0].Reason != "unknown order" || keys[0].Tries != 5 {
			t.Errorf("parked: %+v", keys[0])
		}
		if err := w.st.RetryParked(ctx, hook, p, poison); err != nil {
			t.Fatal(err)
		}
		w.wait("another refusal", func() bool { keys, _, _ = w.st.ParkedKeys(ctx, hook, store.Page{}); return keys[0].Tries == 6 })
		if keys[0].Events != 3 || keys[0].Retrying {
			t.Errorf("refused again: %+v", keys[0])
		}
		w.to.answers(nil)
		if err := w.st.RetryParked(ctx, hook, p, poison); err != nil {
			t.Fatal(err)
		}
		w.wait("the release", func() bool { return len(w.to.of(hook, poison)) == 3 })
		w.apply(&at, ledger.Command{Op: ledger.OpReverse, Key: k, ID: "s", Amount: 2})
		w.wait("the next one", func() bool { return len(w.to.of(hook, poison)) == 4 })
		w.check(hook)
		if st := r.Status(ctx); st.Sinks[0].Parked != 3 || st.Sinks[0].Failed != 6 {
			t.Errorf("%d parked and %d failed, want 3 and 6", st.Sinks[0].Parked, st.Sinks[0].Failed)
		}
		w.wait("the count", func() bool { c, _, _ := w.st.Cursor(ctx, hook, p); return c.Parked == 0 })
		stop()
		w.relays.Wait()
	})
}

// An event that fails for ever, without being refused, is parked once the sink
// has shown often enough that it is well otherwise; while the sink is down it is
// not. A retry that fails in the same way puts it back.
func TestFailingEventParksItsKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.answers(func(e *event.Event) error {
			switch {
			case w.to.down.Load():
				return &sink.Trouble{Err: errors.New("connection refused")}
			case e.Key() == poison:
				return &sink.Trouble{Err: errors.New("answered 500")}
			}
			return nil
		})
		w.to.down.Store(true)
		cfg := testConfig()
		_, stop := w.run(cfg, w.st, "n1")
		w.orders("early", 50)
		w.orders("poison", 1)
		w.orders("late", 50)
		ctx := context.Background()
		parked := func() []store.ParkedKey {
			keys, _, err := w.st.ParkedKeys(ctx, hook, store.Page{})
			if err != nil {
				t.Fatal(err)
			}
			return keys
		}
		time.Sleep(time.Hour)
		if keys := parked(); len(keys) != 0 || w.to.count() != 0 {
			t.Fatalf("%d keys parked and %d events delivered while the sink is down, want none", len(keys), w.to.count())
		}
		w.to.down.Store(false)
		n := len(w.ledgerEvents()) - 2
		w.wait("all others", func() bool { return w.to.count() >= n })
		var keys []store.ParkedKey
		w.wait("the key to be parked", func() bool { keys = parked(); return len(keys) == 1 })
		if k := keys[0]; k.Key != poison || k.Events != 2 || int(k.Tries) < cfg.FailingTries || k.Reason != "failed, while the sink answers a ping: answered 500" {
			t.Errorf("parked: %+v", k)
		}
		before := keys[0].Tries
		if err := w.st.RetryParked(ctx, hook, keys[0].Partition, poison); err != nil {
			t.Fatal(err)
		}
		w.wait("the retry to fail", func() bool { keys = parked(); return len(keys) == 1 && keys[0].Tries == before+1 })
		w.orders("later", 50)
		w.wait("what came later", func() bool { return w.to.count() >= len(w.ledgerEvents())-2 })
		w.to.answers(nil)
		if err := w.st.RetryParked(ctx, hook, keys[0].Partition, poison); err != nil {
			t.Fatal(err)
		}
		w.wait("the release", func() bool { return len(w.to.of(hook, poison)) == 2 })
		w.check(hook)
		stop()
		w.relays.Wait()
	})
}

// What a person skips is not delivered; what waits behind it is.
func TestSkippedEvent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.answers(func(e *event.Event) error {
			if e.Key() == poison && e.Entry.Type == ledger.EntryReserve {
				return &sink.Refused{Reason: "unknown order"}
			}
			return nil
		})
		_, stop := w.run(testConfig(), w.st, "n1")
		w.orders("poison", 1)
		ctx := context.Background()
		var keys []store.ParkedKey
		w.wait("the key to park", func() bool {
			keys, _, _ = w.st.ParkedKeys(ctx, hook, store.Page{})
			return len(keys) == 1 && keys[0].Events == 2
		})
		if _, err := w.st.SkipParked(ctx, hook, keys[0].Partition, poison, "not for us", false); err != nil {
			t.Fatal(err)
		}
		w.wait("what waited behind", func() bool { return len(w.to.of(hook, poison)) == 1 })
		if got := w.to.of(hook, poison)[0]; got.Entry.Type != ledger.EntryCommit || got.Sequence() != 2 {
			t.Errorf("delivered %s, number %d", got.Type(), got.Sequence())
		}
		stop()
		w.relays.Wait()
	})
}

// At the bound of parked events the sink stands still and says so; it goes on
// when there is room, and nothing is lost.
func TestTooManyParked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.answers(func(e *event.Event) error {
			if strings.HasPrefix(e.Entry.Order, "bad") {
				return &sink.Refused{Reason: "unknown order"}
			}
			return nil
		})
		cfg := testConfig()
		cfg.Tries, cfg.MaxParked = 1, maxBatch
		ctx := context.Background()
		id := ledger.BucketID{Budget: budget}
		id.Budget.Key = "one"
		w.apply(nil, ledger.Command{Op: ledger.OpCreate, Budget: id.Budget, Currency: "BRL", Buckets: 1})
		w.apply(nil, ledger.Command{Op: ledger.OpFund, Budget: id.Budget, ID: "f2", Amount: 1 << 40, Currency: "BRL"})
		reserve := func(prefix string, n int) {
			var cmds []ledger.Command
			for i := range n {
				k := ledger.OrderKey{Tenant: "t1", Order: prefix + string(rune('a'+i/100)) + string(rune('a'+i%100)), Benefit: "coupon"}
				cmds = append(cmds, ledger.Command{Op: ledger.OpReserve, Key: k, Budget: id.Budget, Amount: 1, Currency: "BRL", TTL: time.Hour})
			}
			w.apply(&id, cmds...)
		}
		for i := range 11 {
			reserve("bad"+string(rune('0'+i)), 100)
		}
		reserve("good", 100)
		_, stop := w.run(cfg, w.st, "n1")
		var full store.Cursor
		w.wait("the sink to stand still", func() bool {
			cursors, err := w.st.Cursors(ctx, hook)
			if err != nil {
				t.Fatal(err)
			}
			for _, full = range cursors {
				if strings.Contains(full.Trouble, "and more are refused (allowed: 1024)") {
					return true
				}
			}
			return false
		})
		if full.Parked > maxBatch || full.Parked < maxBatch-uint64(cfg.Batch) {
			t.Errorf("%d events are parked", full.Parked)
		}
		w.to.answers(nil)
		p := store.Page{Size: store.MaxPageSize}
		keys, _, err := w.st.ParkedKeys(ctx, hook, p)
		if err != nil || uint64(len(keys)) != min(full.Parked, store.MaxPageSize) {
			t.Fatal(len(keys), err)
		}
		for _, k := range keys {
			if _, err := w.st.SkipParked(ctx, hook, k.Partition, k.Key, "room", true); err != nil {
				t.Fatal(err)
			}
		}
		goods := func() (n int) {
			w.to.mu.Lock()
			defer w.to.mu.Unlock()
			for k := range w.to.order {
				if strings.Contains(k, "/good") {
					n++
				}
			}
			return n
		}
		w.wait("the good ones", func() bool { return goods() == 100 })
		stop()
		w.relays.Wait()
	})
}

// A sink that is full of parked events goes on when a person has them tried
// again: that makes room, too.
func TestRetryWhileFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.answers(func(e *event.Event) error {
			if strings.HasPrefix(e.Entry.Order, "bad") {
				return &sink.Refused{Reason: "unknown order"}
			}
			return nil
		})
		cfg := testConfig()
		cfg.Tries, cfg.MaxParked, cfg.Batch = 1, maxBatch, 128
		w.apply(nil, ledger.Command{Op: ledger.OpCreate, Budget: ledger.BudgetID{Tenant: "t1", Key: "one"}, Currency: "BRL", Buckets: 1})
		id := ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t1", Key: "one"}}
		w.apply(nil, ledger.Command{Op: ledger.OpFund, Budget: id.Budget, ID: "f2", Amount: 1 << 40, Currency: "BRL"})
		for block := range 10 {
			var cmds []ledger.Command
			for i := range 120 {
				k := ledger.OrderKey{Tenant: "t1", Order: fmt.Sprintf("bad-%d-%d", block, i), Benefit: "coupon"}
				cmds = append(cmds, ledger.Command{Op: ledger.OpReserve, Key: k, Budget: id.Budget, Amount: 1, Currency: "BRL", TTL: time.Hour})
			}
			w.apply(&id, cmds...)
		}
		_, stop := w.run(cfg, w.st, "n1")
		ctx := context.Background()
		w.wait("the sink to stand still", func() bool {
			cursors, err := w.st.Cursors(ctx, hook)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(cursors, func(c store.Cursor) bool { return strings.Contains(c.Trouble, "and more are refused") })
		})
		keys, _, err := w.st.ParkedKeys(ctx, hook, store.Page{Size: store.MaxPageSize})
		if err != nil || len(keys) < 512 {
			t.Fatal(len(keys), err)
		}
		w.to.answers(nil)
		keys = keys[:10*retryKeys]
		asked := time.Now()
		for _, k := range keys {
			if err := w.st.RetryParked(ctx, hook, k.Partition, k.Key); err != nil {
				t.Fatal(err)
			}
		}
		w.wait("what was tried again", func() bool {
			return !slices.ContainsFunc(keys, func(k store.ParkedKey) bool { return len(w.to.of(hook, k.Key)) != 1 })
		})
		if took := time.Since(asked); took > 2*time.Minute {
			t.Errorf("%d keys were tried again in %s", len(keys), took)
		}
		stop()
		w.relays.Wait()
	})
}

// What the receiver needs is down, and it answers pings all the same: that is no
// reason to park every key.
func TestOutageBehindTheSinkParksLittle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(hook)
		w.to.answers(func(*event.Event) error { return &sink.Trouble{Err: errors.New("answered 500")} })
		cfg := testConfig()
		cfg.Lease, cfg.Poll = 5*time.Minute, time.Minute // an hour of them
		_, stop := w.run(cfg, w.st, "n1")
		w.orders("early", 200)
		time.Sleep(time.Hour)
		cursors, err := w.st.Cursors(context.Background(), hook)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cursors {
			if c.Parked > 24 { // twelve keys: twenty-one tries, at least 15 s apart, for each
				t.Errorf("%d events of partition %d are parked after an hour", c.Parked, c.At.Partition)
			}
		}
		stop()
		w.relays.Wait()
	})
}
