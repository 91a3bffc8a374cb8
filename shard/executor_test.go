package shard

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

func TestThousandCallersOfOneKey(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("hot", 16, 1_000_000, ledger.Policy{})
	const callers = 1000
	results := make([]ledger.Result, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			r, err := h.Do(context.Background(), reserve(b, 7, 1200))
			if err != nil {
				t.Error(err)
			}
			results[i] = r
		})
	}
	wg.Wait()
	first := 0
	for _, r := range results {
		if !r.Replayed {
			first++
		}
		r.Replayed = false
		if want := results[0]; r.Outcome != want.Outcome || r.Key != want.Key || r.Attempt != 1 || r.Budget != b {
			t.Fatalf("answers differ: %+v and %+v", r, want)
		}
	}
	if first != 1 {
		t.Errorf("%d answers are not replays, want 1", first)
	}
	if n := count(h.entries(b), ledger.EntryReserve); n != 1 {
		t.Errorf("%d RESERVE entries, want 1", n)
	}
	want := ledger.Balances{Funded: 1_000_000, Available: 998_800, Reserved: 1200}
	if got := h.totals(b); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
}

func TestExactBudgetSpendsItsLastUnit(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("exact", 16, 1003, ledger.Policy{Exhaustion: ledger.Exact})
	ok, short := h.crowd(b, 300, 5)
	if ok != 200 || short != 100 {
		t.Errorf("%d reserved and %d refused, want 200 and 100", ok, short)
	}
	if got := h.totals(b); got != (ledger.Balances{Funded: 1003, Available: 3, Reserved: 1000}) {
		t.Errorf("totals %+v", got)
	}
	r := h.refused(reserve(b, 9000, 4), ledger.InsufficientBudget)
	if r.Requested != 4 || r.Available != 3 {
		t.Errorf("refusal says requested %d, available %d; want 4 and 3", r.Requested, r.Available)
	}
	h.must(reserve(b, 9001, 3))
	if got := h.totals(b).Available; got != 0 {
		t.Errorf("%d left, want 0", got)
	}
}

func TestStrictBudgetNeverOversells(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("strict", 16, 1003, ledger.Policy{Exhaustion: ledger.Strict})
	ok, short := h.crowd(b, 300, 5)
	got := h.totals(b)
	if got.Reserved != int64(ok)*5 || got.Reserved > 1003 || got.Available+got.Reserved != 1003 || ok+short != 300 {
		t.Errorf("%d reserved, %d refused, totals %+v", ok, short, got)
	}
	if n := count(h.entries(b), ledger.EntryMoveIn); n != 0 {
		t.Errorf("%d moves between buckets, want none", n)
	}
}

// crowd sends n reserves at once and counts the accepted and the refused.
func (h *harness) crowd(b ledger.BudgetID, n int, amount int64) (ok, short int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := h.Do(context.Background(), reserve(b, i, amount))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ok++
				return
			}
			h.code(err, ledger.InsufficientBudget)
			short++
		})
	}
	wg.Wait()
	return ok, short
}

func TestRoutes(t *testing.T) {
	h := open(t, DefaultConfig())
	a := h.funded("a", 16, 1000, ledger.Policy{})
	b := h.funded("b", 4, 1000, ledger.Policy{})
	bucket := h.must(reserve(a, 1, 10)).Outcome.Bucket
	if r := h.must(ledger.Command{Op: ledger.OpCommit, Key: orderKey(1)}); r.Outcome.Bucket != bucket || r.Outcome.Committed != 10 {
		t.Errorf("commit without a budget went to %s: %+v", r.Outcome.Bucket, r.Outcome)
	}
	r := h.refused(ledger.Command{Op: ledger.OpReverse, Key: orderKey(1), Budget: b, ID: "r", Amount: 1}, ledger.BudgetMismatch)
	if r.Value != "b" || r.Limit != "a" {
		t.Errorf("mismatch says %s and %s", r.Value, r.Limit)
	}
	h.refused(ledger.Command{Op: ledger.OpCommit, Key: orderKey(2)}, ledger.ReservationNotFound)
	h.refused(ledger.Command{Op: ledger.OpCommit, Key: orderKey(2), Budget: a}, ledger.ReservationNotFound)
	h.refused(reserve(budget("none"), 3, 10), ledger.BudgetNotFound)
	foreign := reserve(ledger.BudgetID{Tenant: "other", Key: "a"}, 3, 10)
	foreign.Key.Tenant = "other"
	got, want := h.refused(foreign, ledger.BudgetNotFound).Error(), ledger.BudgetMissing(a).Error()
	if got != want {
		t.Errorf("another tenant's budget answers %q, an unknown one %q", got, want)
	}
	// Cancelled before reserved, on a bucket-less queue; then the reserve.
	h.must(ledger.Command{Op: ledger.OpRelease, Key: orderKey(4)})
	h.refused(reserve(a, 4, 10), ledger.CancelledBeforeReserve)
}

func TestCommandsOnOneOrderRunInTheirOrder(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("b", 16, 1000, ledger.Policy{})
	replies := h.DoAll(context.Background(), []ledger.Command{
		reserve(b, 1, 100),
		{Op: ledger.OpCommit, Key: orderKey(1)},
		{Op: ledger.OpReverse, Key: orderKey(1), ID: "r1", Amount: 40},
		reserve(b, 2, 100),
		{Op: ledger.OpReserve},
	})
	for i, want := range []ledger.State{ledger.StateReserved, ledger.StateCommitted, ledger.StatePartlyReversed, ledger.StateReserved} {
		if replies[i].Err != nil || replies[i].Result.Outcome.State != want {
			t.Errorf("reply %d: %+v, want %s", i, replies[i], want)
		}
	}
	r := h.code(replies[4].Err, ledger.InvalidArgument)
	if r.Field != "tenant" {
		t.Errorf("bad command names %s", r.Field)
	}
}

func TestCallThatEndsEarly(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("b", 1, 1000, ledger.Policy{})
	h.must(reserve(b, 0, 1)) // the router knows the budget
	opened := h.gate.shut()
	running, stop := context.WithCancel(context.Background())
	inFlight, queued := make(chan error, 1), make(chan error, 1)
	go func() { _, err := h.Do(running, reserve(b, 1, 10)); inFlight <- err }()
	<-h.gate.waiting // its commit has begun
	waiting, leave := context.WithCancel(context.Background())
	go func() { _, err := h.Do(waiting, reserve(b, 2, 10)); queued <- err }()
	for h.Stats().Pending < 2 {
		runtime.Gosched() // until the second is admitted
	}
	leave()
	h.code(<-queued, ledger.Unavailable)
	stop()
	h.code(<-inFlight, ledger.OutcomeUnknown)
	opened()
	if err := h.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := h.totals(b); got.Reserved != 11 {
		t.Errorf("reserved %d, want 11: the one in flight landed, the queued one never ran", got.Reserved)
	}
	if p := h.Stats().Pending; p != 0 {
		t.Errorf("%d pending after the drain", p)
	}
}

func TestDrainAnswersEverything(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("b", 4, 1000, ledger.Policy{})
	opened := h.gate.shut()
	const n = 50
	answers := make(chan error, n)
	for i := range n {
		go func() { _, err := h.Do(context.Background(), reserve(b, i, 1)); answers <- err }()
	}
	<-h.gate.waiting
	for h.Stats().Pending < n {
		runtime.Gosched()
	}
	drained := make(chan error, 1)
	go func() { drained <- h.Drain(context.Background()) }()
	for draining := false; !draining; {
		draining = h.draining.Load()
	}
	h.refused(reserve(b, n, 1), ledger.Draining)
	opened()
	for range n {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if got := h.totals(b).Reserved; got != n {
		t.Errorf("reserved %d, want %d", got, n)
	}
}

func TestFullQueueRefusesEarly(t *testing.T) {
	cfg := DefaultConfig()
	cfg.QueueLimit = 2
	h := open(t, cfg)
	b := h.funded("b", 1, 1000, ledger.Policy{})
	h.must(reserve(b, 0, 1))
	opened := h.gate.shut()
	done := make(chan []ledger.Reply, 1)
	go func() { done <- []ledger.Reply{reply(h.Do(context.Background(), reserve(b, 1, 1)))} }()
	<-h.gate.waiting
	second := make(chan []ledger.Reply, 1)
	go func() {
		second <- h.DoAll(context.Background(), []ledger.Command{reserve(b, 2, 1), reserve(b, 3, 1), reserve(b, 4, 1)})
	}()
	for h.Stats().Overloaded == 0 {
		runtime.Gosched()
	}
	opened()
	if r := (<-done)[0]; r.Err != nil {
		t.Error(r.Err)
	}
	replies := <-second
	if replies[0].Err != nil || replies[1].Err != nil {
		t.Errorf("commands within the limit: %v, %v", replies[0].Err, replies[1].Err)
	}
	r := h.code(replies[2].Err, ledger.Overloaded)
	if r.RetryAfter <= 0 || r.Limit != "2" {
		t.Errorf("refusal has limit %s and retry delay %s", r.Limit, r.RetryAfter)
	}
}

func reply(r ledger.Result, err error) ledger.Reply { return ledger.Reply{Result: r, Err: err} }

func TestUnknownOutcomes(t *testing.T) {
	for _, land := range []bool{true, false} {
		h := open(t, DefaultConfig())
		b := h.funded("b", 4, 1000, ledger.Policy{})
		first := true
		h.gate.answer = func(int) (error, bool) {
			if first {
				first = false
				return &kv.Error{Code: kv.CodeCommitUnknown, Op: "commit"}, land
			}
			return nil, false
		}
		r := h.must(reserve(b, 1, 10))
		if r.Replayed || r.Outcome.State != ledger.StateReserved {
			t.Errorf("landed %v: %+v, want a first answer", land, r)
		}
		if got := h.totals(b).Reserved; got != 10 {
			t.Errorf("landed %v: reserved %d, want 10", land, got)
		}
	}
}

// A commit that times out may land later: the caller is told so, and only a
// resolve settles it, both ways.
func TestLateLandingIsSettledByResolve(t *testing.T) {
	for _, land := range []bool{true, false} {
		h := open(t, DefaultConfig())
		b := h.funded("b", 1, 1000, ledger.Policy{})
		h.gate.answer = func(int) (error, bool) { return &kv.Error{Code: kv.CodeTimedOut, Op: "commit"}, land }
		h.refused(reserve(b, 1, 10), ledger.OutcomeUnknown)
		h.gate.answer = nil
		r := h.must(ledger.Command{Op: ledger.OpResolve, Key: orderKey(1), Target: ledger.OpReserve})
		if r.Void == land {
			t.Errorf("landed %v: resolve says void %v", land, r.Void)
		}
		if !land {
			h.refused(reserve(b, 1, 10), ledger.Voided)
		}
		want := map[bool]int64{true: 10, false: 0}[land]
		if got := h.totals(b).Reserved; got != want {
			t.Errorf("landed %v: reserved %d, want %d", land, got, want)
		}
	}
}

func TestSkipBenefit(t *testing.T) {
	h := open(t, DefaultConfig())
	skip := h.funded("skip", 1, 1000, ledger.Policy{OnUnavailable: ledger.SkipBenefit})
	fail := h.funded("fail", 1, 1000, ledger.Policy{})
	h.must(reserve(skip, 0, 1))
	h.must(reserve(fail, 1, 1))
	h.gate.answer = func(int) (error, bool) { return &kv.Error{Code: kv.CodeDatabaseLocked, Op: "commit"}, false }
	if r := h.must(reserve(skip, 2, 10)); !r.Skipped || r.Outcome.Seq != 0 {
		t.Errorf("got %+v, want a skipped benefit", r)
	}
	h.refused(reserve(fail, 3, 10), ledger.Unavailable)
	h.gate.answer = func(int) (error, bool) { return &kv.Error{Code: kv.CodeTimedOut, Op: "commit"}, false }
	h.refused(reserve(skip, 4, 10), ledger.OutcomeUnknown) // it may have been reserved: no skip
	h.gate.answer = nil
	if got := h.totals(skip).Reserved; got != 1 {
		t.Errorf("reserved %d, want 1", got)
	}
	if n := h.Stats().Skipped; n != 1 {
		t.Errorf("%d skipped, want 1", n)
	}
}

// A row that cannot be read fails the commands on it alone, also when they
// share a batch with others.
func TestOneBadRowHarmsNoOther(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("b", 1, 1000, ledger.Policy{})
	h.must(reserve(b, 3, 1))
	h.tamper(orderKey(3).Order, []byte{1, 0xFF})
	var cmds []ledger.Command
	for i := range 8 {
		cmds = append(cmds, reserve(b, i, 1))
	}
	for i, r := range h.DoAll(context.Background(), cmds) {
		if i == 3 {
			h.code(r.Err, ledger.Corrupt)
		} else if r.Err != nil {
			t.Errorf("command %d: %v", i, r.Err)
		}
	}
	if got := h.totals(b).Reserved; got != 8 {
		t.Errorf("reserved %d, want 8", got)
	}
	if h.Stats().Splits == 0 {
		t.Error("the batch was not split")
	}
}

// A damaged store takes no command: a benefit is skipped where the policy says
// so, and a batch is not sent again in parts.
func TestDamagedStore(t *testing.T) {
	h := open(t, DefaultConfig())
	skip := h.funded("skip", 1, 1000, ledger.Policy{OnUnavailable: ledger.SkipBenefit})
	fail := h.funded("fail", 1, 1000, ledger.Policy{})
	h.must(reserve(skip, 0, 1))
	h.must(reserve(fail, 1, 1))
	h.gate.answer = func(int) (error, bool) {
		return &kv.Error{Code: kv.CodeDatabaseLocked, Op: "commit", Cause: kv.ErrDamaged}, false
	}
	if r := h.must(reserve(skip, 2, 10)); !r.Skipped || r.Outcome.Seq != 0 {
		t.Errorf("got %+v, want a skipped benefit", r)
	}
	var cmds []ledger.Command
	for i := range 8 {
		cmds = append(cmds, reserve(fail, 10+i, 1))
	}
	for _, r := range h.DoAll(context.Background(), cmds) {
		h.code(r.Err, ledger.Corrupt)
	}
	if n := h.Stats().Splits; n != 0 {
		t.Errorf("the batch was split %d times", n)
	}
}

// tamper overwrites the rows whose key names an order.
func (h *harness) tamper(order string, value []byte) {
	h.t.Helper()
	n := 0
	_, err := kv.Transact(context.Background(), h.gate.Store, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		n = 0
		rows, _, err := tx.Range(kv.PrefixRange(append(bytes.Clone(h.prefix), "\x02R"...)), kv.RangeOptions{}).Wait()
		for _, row := range rows {
			if strings.Contains(string(row.Key), order) {
				tx.Set(row.Key, value)
				n++
			}
		}
		return err
	})
	if err != nil || n != 1 {
		h.t.Fatalf("tampered with %d rows: %v", n, err)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	_, err := New(Config{}, nil)
	for _, want := range []string{
		"batch_limit is 0 (allowed: 1 to 1024)", "queue_limit is 0", "total_limit is 0", "commit_timeout is 0s (allowed: 100ms to 1m)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

// Commands on one benefit keep their order within a call, also where they go
// to different queues.
func TestOrderIsKeptAcrossQueues(t *testing.T) {
	for range 20 {
		h := open(t, DefaultConfig())
		a := h.funded("a", 4, 1000, ledger.Policy{})
		b := h.funded("b", 4, 1000, ledger.Policy{})
		next := func(id ledger.BudgetID, i int, amount int64) ledger.Command {
			c := reserve(id, i, amount)
			c.Attempt = 2
			return c
		}
		h.must(reserve(a, 1, 10))
		replies := h.DoAll(context.Background(), []ledger.Command{
			{Op: ledger.OpRelease, Key: orderKey(1)}, next(b, 1, 10), // the other budget takes over
			reserve(a, 2, 5000), next(b, 2, 10), {Op: ledger.OpCommit, Key: orderKey(2), Attempt: 2}, // too large, then not
			{Op: ledger.OpRelease, Key: orderKey(3)}, reserve(a, 3, 10), // cancelled first
		})
		for i, want := range map[int]ledger.State{0: ledger.StateReleased, 1: ledger.StateReserved, 3: ledger.StateReserved, 4: ledger.StateCommitted, 5: ledger.StateCancelled} {
			if replies[i].Err != nil || replies[i].Result.Outcome.State != want {
				t.Fatalf("reply %d: %+v, want %s", i, replies[i], want)
			}
		}
		h.code(replies[2].Err, ledger.InsufficientBudget)
		h.code(replies[6].Err, ledger.CancelledBeforeReserve)
	}
}
