package scan

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/shard"
)

// The leader may meet none of a busy budget's buckets, where other nodes have
// them: their ledgers tell that they are in use.
func TestAdaptShrinksNoBudgetThatOthersUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pressed{grows: 1000}
		id := bookID("hot")
		p.view.Budget = ledger.Budget{ID: id, State: ledger.BudgetOpen, Epoch: ledger.Epoch{Number: 1, Buckets: 4}}
		p.view.Total = ledger.Balances{Funded: 100, Available: 100}
		for i := range uint16(4) {
			p.view.Buckets = append(p.view.Buckets, ledger.Bucket{ID: ledger.BucketID{Budget: id, Index: i}})
		}
		adapt := shard.DefaultAdapting()
		adapt.Enabled, adapt.CoolDown = true, time.Minute
		cfg := quick()
		cfg.Enabled = false
		r, err := NewRebalance(cfg, adapt, p, p, p, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		pass := func(n int) uint16 {
			for range n {
				if err := r.Pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
			}
			return p.view.Epoch.Buckets
		}
		if got := pass(60); got != 4 {
			t.Errorf("%d buckets of a budget that takes 400 commands a second", got)
		}
		p.grows = 1
		if got := pass(60); got != 1 {
			t.Errorf("%d buckets when all is quiet, want 1", got)
		}
	})
}
