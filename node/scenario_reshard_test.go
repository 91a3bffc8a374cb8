package node_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// A live budget goes from 1 bucket to 16 and to 4 over the public API, while
// customers spend it and send everything twice at the same moment.
func TestReshardLiveBudget(t *testing.T) {
	onEngine(t, func(w *world) {
		const funded, callers, phase = 1_000_000, 16, 150
		w.budget("hot", 1, funded, nil)
		var done, next, paid atomic.Int64
		var mu sync.Mutex
		at := map[string]*cofferv1.Outcome{} // the first answers to reserves
		stop, progress := make(chan struct{}), make(chan struct{}, 1)
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
					order := fmt.Sprint("o", next.Add(1))
					held := w.twice(func() (*cofferv1.Outcome, error) { return w.client.Reserve(w.Context(), hotReserve(order)) })
					settled := w.twice(func() (*cofferv1.Outcome, error) {
						return w.client.Commit(w.Context(), &cofferv1.CommitRequest{OrderId: order, BenefitKey: "b", Budget: "hot"})
					})
					if held == nil || settled == nil {
						return
					}
					if held.GetBucket() != settled.GetBucket() {
						w.Errorf("%s was reserved in bucket %d and committed in %d", order, held.GetBucket(), settled.GetBucket())
					}
					paid.Add(settled.GetCommittedMinor())
					mu.Lock()
					at[order] = held
					mu.Unlock()
					done.Add(1)
					tell()
				}
			})
		}
		run := func(label string) {
			from, start := done.Load(), time.Now()
			for done.Load() < from+phase && !w.Failed() {
				<-progress
			}
			w.Logf("%s: %.0f orders/s, each sent twice", label, float64(done.Load()-from)/time.Since(start).Seconds())
		}
		run("1 bucket")
		for _, n := range []uint32{16, 4} {
			res, err := w.client.ReshardBudget(w.Context(), &cofferv1.ReshardBudgetRequest{Budget: "hot", Buckets: n, IdempotencyKey: fmt.Sprint("to ", n)})
			if err != nil || res.GetBudget().GetBuckets() != n {
				w.Errorf("reshard to %d: %v, %v", n, res, err)
			}
			w.advance(time.Second)
			run(fmt.Sprint(n, " buckets"))
		}
		close(stop)
		wg.Wait()
		w.checkResharded(at, paid.Load(), funded)
	})
}

func hotReserve(order string) *cofferv1.ReserveRequest {
	return &cofferv1.ReserveRequest{OrderId: order, BenefitKey: "b", Budget: "hot", AmountMinor: 3, Currency: "BRL", Ttl: durationpb.New(time.Hour)}
}

// twice makes a call two times at once: both must give the same, one of them
// as a replay.
func (w *world) twice(call func() (*cofferv1.Outcome, error)) *cofferv1.Outcome {
	var got [2]*cofferv1.Outcome
	var errs [2]error
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], errs[i] = call() })
	}
	wg.Wait()
	if errs[0] != nil || errs[1] != nil {
		w.Errorf("%v, %v", errs[0], errs[1])
		return nil
	}
	if got[0].GetReplayed() == got[1].GetReplayed() || got[0].GetBucket() != got[1].GetBucket() || got[0].GetEntrySeq() != got[1].GetEntrySeq() {
		w.Errorf("a command sent twice gives %v and %v", got[0], got[1])
		return nil
	}
	return got[0]
}

// checkResharded repeats every order's reserve and compares the sums.
func (w *world) checkResharded(at map[string]*cofferv1.Outcome, paid, funded int64) {
	w.Helper()
	used := map[uint32]bool{}
	for order, first := range at {
		again, err := w.client.Reserve(w.Context(), hotReserve(order))
		if err != nil || !again.GetReplayed() || again.GetBucket() != first.GetBucket() || again.GetEntrySeq() != first.GetEntrySeq() {
			w.Errorf("%s again: %v, %v; first %v", order, again, err, first)
		}
		used[first.GetBucket()] = true
	}
	if len(used) < 8 {
		w.Errorf("orders are in %d buckets only", len(used))
	}
	b, err := w.client.GetBuckets(w.Context(), "hot")
	if err != nil {
		w.Fatal(err)
	}
	if m := b.GetBudget().GetBalances(); m.GetFundedMinor() != funded || m.GetCommittedMinor() != paid || m.GetAvailableMinor() != funded-paid || m.GetReservedMinor() != 0 {
		w.Errorf("the budget has %v, acknowledged were %d", m, paid)
	}
	retired := 0
	for _, k := range b.GetBuckets() {
		if k.GetBalances().GetRetired() {
			retired++
		}
	}
	if b.GetBudget().GetRoutingEpoch() != 3 || b.GetBudget().GetBuckets() != 4 || retired != 12 {
		w.Errorf("epoch %d, %d buckets, %d retired", b.GetBudget().GetRoutingEpoch(), b.GetBudget().GetBuckets(), retired)
	}
	for s := range 3 { // each cutoff: the clock moved after each reshard
		rep, err := w.store.Replay(w.Context(), ledger.BudgetID{Tenant: "default", Key: "hot"}, w.clock().Add(time.Duration(-s)*time.Second))
		if err != nil || !rep.OK() || rep.Total.Funded != funded {
			w.Errorf("%d s back the replay gives %+v, %v", s, rep, err)
		}
	}
}
