package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

// A pull's end in the bucket that gives says nothing of the order. Another batch
// that pulls just as much, at the same time and by a node of the same name, must
// not be taken for an attempt that was lost.
func TestAnotherBatchWithTheSamePullHasNotLanded(t *testing.T) {
	testengine.OnlyEmbedded(t, "it injects faults")
	b := newBench(t)
	b.ok(create("spring", 2, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	def, err := b.Definition(context.Background(), budgetID("spring"))
	if err != nil {
		t.Fatal(err)
	}
	home := ledger.BucketID{Budget: budgetID("spring")}
	var orders []string
	for i := 0; len(orders) < 4; i++ {
		if c := reserve("spring", fmt.Sprint("o", i), 1); def.Route(c.Key) == home {
			orders = append(orders, c.Key.Order)
		}
	}
	batch := func(first, second string) []ledger.Command {
		cmds := []ledger.Command{reserve("spring", first, 10), reserve("spring", second, 495)}
		for i := range cmds {
			cmds[i] = cmds[i].Normalize()
		}
		return cmds
	}
	var commits atomic.Int64
	fate := func() embedded.Fault {
		if commits.Add(1) != 1 {
			return embedded.Fault{}
		}
		if got, err := b.Apply(context.Background(), &home, batch(orders[0], orders[1])); err != nil || got[0].Err != nil || got[1].Err != nil {
			t.Errorf("the other batch: %+v, %v", got, err)
		}
		return embedded.Fault{Kind: embedded.FaultUnknownLost}
	}
	b.fate.Store(&fate)
	got, err := b.Apply(context.Background(), &home, batch(orders[2], orders[3]))
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Err != nil || got[0].Result.Outcome.Seq == 0 {
		t.Errorf("the first reserve: %+v, %v", got[0].Result, got[0].Err)
	}
	rows, err := b.Locate(context.Background(), []ledger.OrderKey{reserve("spring", orders[2], 1).Key})
	if err != nil || rows[0].Attempt(1) == nil || rows[0].Attempt(1).State != ledger.StateReserved {
		t.Errorf("it was acknowledged, and there is %+v, %v", rows[0], err)
	}
	if got := b.totals(budgetID("spring")); got.Reserved < 515 {
		t.Errorf("after it: %+v", got)
	}
	b.audit()
}
