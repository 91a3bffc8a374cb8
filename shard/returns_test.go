package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

// fates gives commits conflicts and lost answers, each twice in a row at most.
func fates(seed uint64) func(int) (error, bool) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 1))
	return func(int) (error, bool) {
		mu.Lock()
		defer mu.Unlock()
		switch rnd.IntN(12) {
		case 0, 1:
			return &kv.Error{Code: kv.CodeConflict, Op: "commit"}, false
		case 2:
			return &kv.Error{Code: kv.CodeCommitUnknown, Op: "commit"}, true
		case 3:
			return &kv.Error{Code: kv.CodeCommitUnknown, Op: "commit"}, false
		}
		return nil, false
	}
}

// Whatever becomes of commands (refused at every limit there is, given up by
// their callers, forwarded to a node that fails, moved by a reshard, repeated
// after conflicts), each place, turn and queue comes back, every answer is that of
// its own command, and nobody is let in above the limits.
func TestEverythingComesBack(t *testing.T) {
	testengine.OnlyEmbedded(t, "it gives commits many fates")
	const tenants, callers, calls = 4, 6, 60
	a, b, p, _ := pair(t)
	cfg := DefaultConfig()
	cfg.TotalLimit, cfg.QueueLimit, cfg.BatchLimit = 40, 12, 8
	for _, h := range []*harness{a, b} {
		h.cfg, h.places, h.turns.limit = cfg, cfg.places(), 3
	}
	b.inCrowd()
	var budgets [tenants]ledger.BudgetID
	for i := range budgets {
		budgets[i] = a.fundedFor(fmt.Sprint("t", i), "b", 4)
		budgets[i].Tenant = fmt.Sprint("t", i)
	}
	lane := a.lane("n2")
	var lost atomic.Int64
	p.answer = func(call int, cmds []ledger.Command) ([]ledger.Reply, error) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		switch call % 16 {
		case 5:
			go leave()
		case 2:
			lost.Add(1)
			b.Here().DoAll(ctx, cmds)
			return nil, errors.New("the answer was lost")
		}
		return b.Here().DoAll(ctx, cmds), nil
	}
	a.gate.answer = fates(3)
	var accepted, most atomic.Int64
	var wg sync.WaitGroup
	for n := range tenants * callers {
		tenant, id := fmt.Sprint("t", n%tenants), budgets[n%tenants]
		at := []*harness{a, b}[n/tenants%2]
		rnd := rand.New(rand.NewPCG(5, uint64(n)))
		wg.Go(func() {
			for call := range calls {
				ctx, leave := context.WithCancel(t.Context())
				switch rnd.IntN(4) {
				case 0:
					go leave()
				case 1:
					go func() { runtime.Gosched(); leave() }()
				}
				var cmds []ledger.Command
				for i := range 1 + rnd.IntN(1+rnd.IntN(12)) {
					c := of(tenant, reserve(id, 100_000*n+100*call+i, int64(1+i)))
					cmds = append(cmds, c)
					if rnd.IntN(3) == 0 {
						cmds = append(cmds, ledger.Command{Op: ledger.OpCommit, Key: c.Key})
					}
				}
				if n < tenants && call%20 == 10 {
					cmds = []ledger.Command{of(tenant, ledger.Command{Op: ledger.OpReshard, Budget: id, Buckets: 1 + rnd.IntN(8), ID: fmt.Sprint("r", call)})}
				}
				lane.mu.Lock()
				lane.rest = time.Time{} // the other node needs none
				lane.mu.Unlock()
				for i, r := range at.DoAll(ctx, cmds) {
					accepted.Add(checkReply(t, &cmds[i], r))
				}
				most.Store(max(most.Load(), a.Stats().Pending))
				leave()
			}
		})
	}
	wg.Wait()
	a.gate.mu.Lock()
	a.gate.answer = nil
	a.gate.mu.Unlock()
	for _, h := range []*harness{a, b} {
		if err := h.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for s := h.Stats(); s.Queues > 0; s = h.Stats() { // turns end a moment after their answers
			runtime.Gosched()
		}
		if s := h.Stats(); s.Pending != 0 || s.Tenants != 0 || s.TenantMost != 0 {
			t.Errorf("stats %+v", s)
		}
		h.turns.mu.Lock()
		defer h.turns.mu.Unlock()
		if h.turns.running != 0 || h.turns.waiting.Len() != 0 || len(h.gates.open) != 0 {
			t.Errorf("%d turns and %d turnstiles are still in use", h.turns.running, len(h.gates.open))
		}
	}
	for lane.works() {
		runtime.Gosched()
	}
	if n := lane.tasks.Len(); n != 0 {
		t.Errorf("%d commands wait for the other node", n)
	}
	if s := a.Stats(); accepted.Load() == 0 || s.Overloaded == 0 || s.Retries+b.Stats().Retries == 0 || s.Forwarded == 0 || lost.Load() == 0 {
		t.Errorf("%d commands were accepted, %d answers lost, and it was too quiet to tell: %+v", accepted.Load(), lost.Load(), s)
	}
	if most.Load() > int64(cfg.TotalLimit) {
		t.Errorf("%d commands were pending on the first node, which has %d places", most.Load(), cfg.TotalLimit)
	}
	for _, id := range budgets {
		a.totals(id)
	}
	report, err := a.store.Audit(t.Context(), nil)
	if err != nil || !report.OK() {
		t.Errorf("audit: %v %+v", err, report)
	}
}

func (l *lane) works() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// checkReply says whether a command was accepted, and that its answer is its own.
func checkReply(t *testing.T, c *ledger.Command, r ledger.Reply) int64 {
	var rej *ledger.Rejection
	switch {
	case c.Op == ledger.OpReshard: // to the number that it has, perhaps
	case r.Err == nil && (r.Result.Key != c.Key || c.Op == ledger.OpReserve && r.Result.Outcome.Amount != c.Amount):
		t.Errorf("%s %s of %d got %+v", c.Op, c.Key, c.Amount, r.Result)
	case r.Err == nil:
		return 1
	case !errors.As(r.Err, &rej):
		t.Errorf("%s: %v", c.Op, r.Err)
	case rej.Code == ledger.Overloaded && (rej.RetryAfter <= 0 || rej.Field != "" && (rej.Value == "" || rej.Limit == "")):
		t.Errorf("%v says nothing of what to do", rej)
	case !rej.Code.SendAgain() && rej.Code != ledger.ReservationNotFound:
		t.Errorf("%s %s: %v", c.Op, c.Key, rej)
	}
	return 0
}
