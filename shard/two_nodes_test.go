package shard

import (
	"context"
	"sync"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Two nodes over one store that know nothing of each other send the same
// commands on one hot bucket: each takes effect once, and no money is lost.
func TestTwoNodesOnOneBucket(t *testing.T) {
	a := open(t, DefaultConfig())
	st, err := store.Open(t.Context(), a.gate, store.Options{Writer: "n2", Prefix: a.prefix})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(DefaultConfig(), st)
	if err != nil {
		t.Fatal(err)
	}
	b := &harness{t: t, gate: a.gate, store: st, Executor: e}
	id := a.funded("hot", 1, 1_000_000, ledger.Policy{})
	const orders = 200
	var wg sync.WaitGroup
	first := make([]int, orders)
	var mu sync.Mutex
	for _, node := range []*harness{a, b} {
		for i := range orders {
			wg.Go(func() {
				for _, c := range []ledger.Command{reserve(id, i, 10), {Op: ledger.OpCommit, Key: orderKey(i), Budget: id}} {
					r, err := again(node.Executor, c)
					if err != nil {
						t.Error(err)
						return
					}
					if c.Op == ledger.OpCommit && !r.Replayed {
						mu.Lock()
						first[i]++
						mu.Unlock()
					}
				}
			})
		}
	}
	wg.Wait()
	for i, n := range first {
		if n != 1 {
			t.Errorf("order %d: %d first answers to its commit, want 1", i, n)
		}
	}
	if got := a.totals(id); got != (ledger.Balances{Funded: 1_000_000, Available: 998_000, Committed: 2000}) {
		t.Errorf("totals %+v", got)
	}
	es := a.entries(id)
	if r, c := count(es, ledger.EntryReserve), count(es, ledger.EntryCommit); r != orders || c != orders {
		t.Errorf("%d RESERVE and %d COMMIT entries, want %d each", r, c, orders)
	}
	report, err := st.Audit(context.Background(), nil)
	if err != nil || !report.OK() {
		t.Errorf("audit %+v, %v", report, err)
	}
}
