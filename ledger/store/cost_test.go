package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

func TestCostOfReserves(t *testing.T) {
	for _, tc := range []struct {
		n             int
		reads, writes int64
	}{{1, 4, 6}, {100, 103, 110}} { // incarnation, budget, bucket, and a row each
		b := newBench(t)
		b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 10_000))
		cmds := make([]ledger.Command, tc.n)
		for i := range cmds {
			cmds[i] = reserve("spring", fmt.Sprint("o", i), 10).Normalize()
		}
		b.engine.reset()
		got, err := b.Apply(context.Background(), &ledger.BucketID{Budget: budgetID("spring")}, cmds)
		if err != nil {
			t.Fatal(causes(err))
		}
		for _, g := range got {
			if g.Err != nil || g.Result.Replayed {
				t.Fatalf("%+v", g)
			}
		}
		if r, w, c := b.engine.reads.Load(), b.engine.writes.Load(), b.engine.commits.Load(); r > tc.reads || w > tc.writes || c != 1 {
			t.Errorf("%d reserves cost %d reads, %d writes, %d commits; allowed %d, %d, 1", tc.n, r, w, c, tc.reads, tc.writes)
		}
		if blocks := b.rows(b.key(tableBlock).all()); len(blocks) != 3 {
			t.Errorf("%d reserves in one batch make %d blocks in all, want 3", tc.n, len(blocks))
		}
		b.audit()
	}
}

// A replayed command and one that is refused by the state write nothing.
func TestReplaysWriteNothing(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "a", 10), on(ledger.OpCommit, "a", "p", 0))
	b.engine.reset()
	for _, c := range []ledger.Command{reserve("spring", "a", 10), on(ledger.OpCommit, "a", "p", 0), onBudget(ledger.OpFund, "spring", "f1", 1000), create("spring", 1, ledger.Policy{})} {
		if r := b.ok(c); !r.Replayed {
			t.Errorf("%s again is not replayed", c.Op)
		}
	}
	b.refused(ledger.IllegalState, on(ledger.OpRelease, "a", "", 0))
	b.refused(ledger.IdempotencyConflict, reserve("spring", "a", 11))
	b.refused(ledger.NotDue, on(ledger.OpExpire, b.heldOrder(), "", 0))
	if w := b.engine.writes.Load(); w != 6 { // the six of heldOrder's reserve
		t.Errorf("replays and refusals wrote %d keys, want none beside one reserve", w)
	}
}

func (b *bench) heldOrder() string { b.ok(reserve("spring", "held", 1)); return "held" }
