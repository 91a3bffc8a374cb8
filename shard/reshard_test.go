package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

func reshard(b ledger.BudgetID, key string, n int) ledger.Command {
	return ledger.Command{Op: ledger.OpReshard, Budget: b, ID: key, Buckets: n}
}

// A hot budget goes from 1 bucket to 16 and to 4 while customers spend it: each
// acknowledged command is there afterwards, each of them repeated gets its
// first answer from its first bucket, and the budget's sum is the same at every
// moment.
func TestReshardUnderLoad(t *testing.T) {
	h := open(t, DefaultConfig())
	const funded, callers, phase = 1_000_000_000, 32, 1500
	b := h.funded("hot", 1, funded, ledger.Policy{})
	var mu sync.Mutex
	acked := map[int][]ledger.Result{}
	var done, next atomic.Int64
	stop := make(chan struct{})
	progress := make(chan struct{}, 1)
	tell := func() {
		select {
		case progress <- struct{}{}:
		default:
		}
	}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			defer tell() // of a failure, too
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := int(next.Add(1))
				for _, c := range life(b, i) {
					r, err := h.Do(context.Background(), c)
					if err != nil || r.Replayed {
						t.Errorf("%s of %s: replayed %v, %v", c.Op, c.Key, r.Replayed, err)
						return
					}
					mu.Lock()
					acked[i] = append(acked[i], r)
					mu.Unlock()
					done.Add(1)
					tell()
				}
			}
		})
	}
	until := func(n int64) (perSecond float64) {
		from, start := done.Load(), time.Now()
		for done.Load() < from+n && !t.Failed() {
			<-progress
		}
		return float64(done.Load()-from) / time.Since(start).Seconds()
	}
	rates := []float64{until(phase)}
	var cuts []time.Time
	for _, n := range []int{16, 4} {
		cuts = append(cuts, time.Now())
		if r := h.must(reshard(b, fmt.Sprint("to ", n), n)); r.Definition.Buckets() != n || r.Totals.Funded != funded {
			t.Errorf("reshard to %d left %+v, %+v", n, r.Definition.Epoch, r.Totals)
		}
		cuts = append(cuts, time.Now())
		rates = append(rates, until(phase))
	}
	close(stop)
	wg.Wait()
	t.Logf("commands/s with 1 bucket %.0f, 16 buckets %.0f, 4 buckets %.0f (memory, no fsync)", rates[0], rates[1], rates[2])
	h.checkRetries()
	h.checkAcked(b, acked)
	h.checkCuts(b, cuts, funded)
}

// checkRetries sees that the queues of one node do not get in each other's way.
// A store may ask for a few attempts more for reasons of its own.
func (h *harness) checkRetries() {
	h.t.Helper()
	if n := h.store.Retries(); n > 5 {
		h.t.Errorf("%d transactions were tried again", n)
	}
}

// life is what becomes of order i: paid, paid and refunded, or given up.
func life(b ledger.BudgetID, i int) []ledger.Command {
	cmds := []ledger.Command{reserve(b, i, int64(1+i%50))}
	switch i % 4 {
	case 0:
		return append(cmds, ledger.Command{Op: ledger.OpRelease, Key: orderKey(i)})
	case 1: // names the budget, so that it is routed by the epoch of the moment
		return append(cmds, ledger.Command{Op: ledger.OpCommit, Key: orderKey(i), Budget: b}, ledger.Command{Op: ledger.OpReverse, Key: orderKey(i), ID: "r", Amount: 1})
	case 2:
		return append(cmds, ledger.Command{Op: ledger.OpCommit, Key: orderKey(i)})
	}
	return cmds
}

// checkAcked repeats every acknowledged command.
func (h *harness) checkAcked(b ledger.BudgetID, acked map[int][]ledger.Result) {
	h.t.Helper()
	var want ledger.Balances
	buckets := map[uint16]int{}
	for i, results := range acked {
		replies := h.DoAll(context.Background(), life(b, i)[:len(results)])
		for j, first := range results {
			if got := replies[j]; got.Err != nil || !got.Result.Replayed || got.Result.Outcome != first.Outcome {
				h.t.Fatalf("order %d, command %d again: %+v, %v; first %+v", i, j, got.Result, got.Err, first)
			}
			if first.Outcome.Bucket != results[0].Outcome.Bucket {
				h.t.Fatalf("order %d was reserved in %s, command %d went to %s", i, results[0].Outcome.Bucket, j, first.Outcome.Bucket)
			}
		}
		buckets[results[0].Outcome.Bucket.Index]++
		last := results[len(results)-1].Outcome
		want.Reserved += last.Held
		want.Committed += last.Committed
		want.Reversed += last.Reversed
	}
	got := h.totals(b)
	if got.Reserved != want.Reserved || got.Committed != want.Committed || got.Reversed != want.Reversed {
		h.t.Errorf("the ledger has %+v, acknowledged were %+v", got, want)
	}
	if len(buckets) != 16 {
		h.t.Errorf("orders went to %d buckets, want 16: %v", len(buckets), buckets)
	}
	report, err := h.store.Audit(context.Background(), nil)
	if err != nil || !report.OK() {
		h.t.Errorf("audit %+v, %v", report, err)
	}
}

// checkCuts replays the budget at moments around each reshard, and at others.
func (h *harness) checkCuts(b ledger.BudgetID, cuts []time.Time, funded int64) {
	h.t.Helper()
	for i := range len(cuts) - 1 { // and between them
		cuts = append(cuts, cuts[i].Add(cuts[i+1].Sub(cuts[i])/2))
	}
	for i := 0; i < len(cuts) && i < 3; i++ {
		for ms := -5; ms <= 5; ms++ {
			cuts = append(cuts, cuts[i].Add(time.Duration(ms)*time.Millisecond))
		}
	}
	for _, at := range cuts {
		if at.After(time.Now()) {
			continue
		}
		rep, err := h.store.Replay(context.Background(), b, at)
		if err != nil || !rep.OK() || rep.Total.Funded != funded {
			h.t.Errorf("replay at %s: %+v, %v", at, rep.Total, err)
		}
	}
}

// Two nodes spend one budget while one of them reshards it. The other learns of
// it only from what the store hands back to it: all the same each command takes
// effect once, and stays where its order was reserved.
func TestReshardBesideAnotherNode(t *testing.T) {
	a := open(t, DefaultConfig())
	st, err := store.Open(t.Context(), a.gate, store.Options{Writer: "n2", Prefix: a.prefix})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(DefaultConfig(), st)
	if err != nil {
		t.Fatal(err)
	}
	b := a.funded("hot", 1, 1_000_000, ledger.Policy{})
	const perPhase, workers = 60, 4
	acked := map[int][]ledger.Result{}
	var mu sync.Mutex
	for phase, n := range []int{1, 8, 2} {
		var wg sync.WaitGroup
		for w := range workers {
			node := []*Executor{a.Executor, e}[w%2]
			wg.Go(func() {
				for i := range perPhase / workers {
					id := phase*1000 + w*100 + i
					for _, c := range life(b, id) {
						r, err := again(node, c)
						if err != nil {
							t.Errorf("%s: %v", c.Op, err)
							return
						}
						mu.Lock()
						acked[id] = append(acked[id], r)
						mu.Unlock()
					}
				}
			})
		}
		if n > 1 { // beside the customers of both nodes
			if r, err := again(a.Executor, reshard(b, fmt.Sprint("to ", n), n)); err != nil || r.Definition.Buckets() != n {
				t.Errorf("reshard to %d: %+v, %v", n, r, err)
			}
		}
		wg.Wait()
	}
	for id, results := range acked {
		replies := e.DoAll(context.Background(), life(b, id)[:len(results)])
		for i, first := range results {
			if r := replies[i]; r.Err != nil || !r.Result.Replayed || r.Result.Outcome != first.Outcome || first.Outcome.Bucket != results[0].Outcome.Bucket {
				t.Fatalf("order %d, command %d again: %+v, %v; first %+v", id, i, r.Result.Outcome, r.Err, first.Outcome)
			}
		}
	}
	if got := a.totals(b).Funded; got != 1_000_000 || len(acked) != 3*perPhase {
		t.Errorf("funded %d, %d orders", got, len(acked))
	}
	report, err := st.Audit(context.Background(), nil)
	if err != nil || !report.OK() {
		t.Errorf("audit %+v, %v", report, err)
	}
}

// again sends a command until the store takes it: two nodes may keep each other
// from it for longer than one call tries.
func again(e *Executor, c ledger.Command) (r ledger.Result, err error) {
	for range 50 {
		if r, err = e.Do(context.Background(), c); !errors.Is(err, &ledger.Rejection{Code: ledger.Unavailable}) {
			return r, err
		}
	}
	return r, err
}

// A node that has not heard of a reshard sends a call's commands to the old
// bucket, in many batches: they go on to the new ones in the order of the call.
func TestOrderIsKeptOverAReshard(t *testing.T) {
	cfg := DefaultConfig()
	cfg.BatchLimit = 3
	h := open(t, cfg)
	other, err := New(DefaultConfig(), h.store)
	if err != nil {
		t.Fatal(err)
	}
	b := h.funded("b", 1, 100_000, ledger.Policy{})
	h.must(reserve(b, 0, 1)) // the router knows the first epoch
	epoch := 1
	for round, n := range []int{16, 5, 1, 7} {
		if _, err := other.Do(t.Context(), reshard(b, fmt.Sprint(n), n)); err != nil {
			t.Fatal(err)
		}
		epoch++
		var cmds []ledger.Command
		for i := range 40 {
			id := 1 + round*100 + i
			again := reserve(b, id, 10)
			again.Attempt = 2
			cmds = append(cmds, reserve(b, id, 10), ledger.Command{Op: ledger.OpRelease, Key: orderKey(id), Budget: b}, again,
				ledger.Command{Op: ledger.OpCommit, Key: orderKey(id), Budget: b, Attempt: 2}, ledger.Command{Op: ledger.OpReverse, Key: orderKey(id), Budget: b, Attempt: 2, ID: "r", Amount: 4})
		}
		want := []ledger.State{ledger.StateReserved, ledger.StateReleased, ledger.StateReserved, ledger.StateCommitted, ledger.StatePartlyReversed}
		for i, r := range h.DoAll(context.Background(), cmds) {
			if r.Err != nil || r.Result.Outcome.State != want[i%5] {
				t.Fatalf("%d buckets, command %d (%s): %+v, %v", n, i, cmds[i].Op, r.Result.Outcome, r.Err)
			}
		}
	}
	def, err := h.router.definition(t.Context(), b)
	if err != nil || def.Epoch.Number != uint32(epoch) {
		t.Errorf("the router knows epoch %d after %d: %v", def.Epoch.Number, epoch, err)
	}
}

// Commands on a budget get through while all of its buckets are busy, and none
// of the transactions has to be tried twice.
func TestBudgetCommandsAmongBusyBuckets(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("hot", 16, 1_000_000, ledger.Policy{})
	stop := make(chan struct{})
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h.must(reserve(b, int(next.Add(1)), 1))
			}
		})
	}
	for i := range uint16(30) {
		h.must(ledger.Command{Op: ledger.OpFund, Budget: b, Amount: 1600, Currency: "BRL", ID: fmt.Sprint("more ", i)})
		h.must(ledger.Command{Op: ledger.OpMove, Budget: b, Amount: 5, From: i % 16, To: (i + 1) % 16, ID: fmt.Sprint("move ", i)})
	}
	close(stop)
	wg.Wait()
	h.checkRetries()
	if got := h.totals(b).Funded; got != 1_048_000 {
		t.Errorf("funded %d", got)
	}
	for i, l := range h.Loads(b) {
		if l.Commands == 0 || l.Batches == 0 || l.Rate <= 0 || l.Queued != 0 {
			t.Errorf("bucket %d: %+v", i, l)
		}
	}
	if n := len(h.Loads(b)); n != 16 {
		t.Errorf("%d buckets have a load", n)
	}
}

func TestTurnstile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turnstiles
		b := budget("b")
		first, second := ts.enter(b, false), ts.enter(b, false)
		order := make(chan string, 4)
		note := func(s string, alone bool) {
			leave := ts.enter(b, alone)
			order <- s
			time.Sleep(time.Second) // the clock runs: waiting here is seen as waiting
			leave()
		}
		go note("alone", true)
		synctest.Wait()
		go note("bucket", false) // comes after the one that waits
		synctest.Wait()
		other := ts.enter(budget("other"), true)
		other()
		first()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("%s went in beside a batch of a bucket", <-order)
		}
		second()
		synctest.Wait()
		if got := <-order; got != "alone" || len(order) != 0 {
			t.Fatalf("%s went in first, then %d more", got, len(order))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := <-order; got != "bucket" || len(ts.open) != 0 {
			t.Errorf("%s went in next, %d turnstiles are left", got, len(ts.open))
		}
	})
}

// Commands on a budget that come one after the other without end keep none of
// its buckets waiting: those that wait when one batch leaves go before the next.
func TestTurnstileIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turnstiles
		b := budget("b")
		leave := ts.enter(b, true)
		var through atomic.Int32
		busy := make(chan struct{})
		for range 3 {
			go func() {
				out := ts.enter(b, false)
				through.Add(1)
				<-busy
				out()
			}()
			synctest.Wait()
		}
		next := make(chan int32)
		go func() {
			for range 2 {
				leave()
				leave = ts.enter(b, true)
				next <- through.Load()
			}
			leave()
		}()
		synctest.Wait()
		select {
		case <-next:
			t.Fatal("the next batch on the budget went in before buckets that had waited")
		default:
		}
		close(busy)
		for range 2 {
			if got := <-next; got != 3 {
				t.Errorf("%d of 3 buckets had their turn", got)
			}
		}
		synctest.Wait()
		if len(ts.open) != 0 {
			t.Errorf("%d turnstiles are left", len(ts.open))
		}
	})
}

// The load of a bucket fades, and the number of buckets that are counted is
// bounded.
func TestLoads(t *testing.T) {
	var l loads
	now := time.Unix(0, 0)
	id := ledger.BucketID{Budget: budget("b"), Index: 3}
	for range 100 { // 100 commands a second for a long time
		now = now.Add(time.Second)
		l.batch(id, 100, 1, now)
	}
	k := l.of[id]
	if r := k.rate(now); r < 95 || r > 110 || k.Commands != 10_000 || k.Batches != 100 || k.Conflicts != 0 {
		t.Errorf("rate %.1f, %+v", r, k.BucketLoad)
	}
	if r := k.rate(now.Add(time.Minute)); r > 1 {
		t.Errorf("a minute later the rate is %.2f", r)
	}
	l.batch(id, 1, 3, now)
	if k.Conflicts != 1 || k.Retries != 2 {
		t.Errorf("%+v", k.BucketLoad)
	}
	for i := range maxLoads + 5 {
		l.batch(ledger.BucketID{Budget: budget(fmt.Sprint(i))}, 1, 1, now)
	}
	if n := len(l.of); n > maxLoads {
		t.Errorf("%d buckets are counted", n)
	}
}
