package scan

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// stormHolds is how many holds lapse at once; COFFER_TEST_HOLDS sets it.
func stormHolds() int {
	if n, err := strconv.Atoi(os.Getenv("COFFER_TEST_HOLDS")); err == nil && n > 0 {
		return n
	}
	return 3000
}

// Two nodes that both believe to lead, with no fence between them, expire what
// lapses at once: all of it, and each hold once.
func TestStormWithTwoLeaders(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, stormWithTwoLeaders)
}

func stormWithTwoLeaders(t *testing.T) {
	engine, prefix := testengine.Open(t)
	t.Cleanup(func() { _ = engine.Close() })
	node := func(name string) *books {
		st, err := store.Open(t.Context(), engine, store.Options{Writer: name, Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		e, err := shard.New(shard.DefaultConfig(), st)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Drain(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return &books{t: t, store: st, Executor: e}
	}
	a, b := node("n1"), node("n2")
	n := stormHolds()
	id := a.funded("B", 16, int64(n)*2, ledger.Policy{})
	var cmds []ledger.Command
	for i := range n {
		cmds = append(cmds, ledger.Command{
			Op: ledger.OpReserve, Key: ledger.OrderKey{Tenant: "t", Order: fmt.Sprint("o", i), Benefit: "b"},
			Budget: id, Amount: 2, Currency: "BRL", TTL: time.Hour,
		})
	}
	for chunk := range slices.Chunk(cmds, 1000) {
		for _, r := range a.DoAll(t.Context(), chunk) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	time.Sleep(2 * time.Hour)

	cfg := DefaultConfig()
	cfg.Rate, cfg.CatchUpRate = 1<<20, 1<<20
	var wg sync.WaitGroup
	leaders := []*Expiry{}
	for _, n := range []*books{a, b} {
		e, err := New(cfg, n.store, n, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		leaders = append(leaders, e)
		wg.Go(func() {
			for {
				if err := e.Pass(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if _, left, err := n.store.OldestDue(t.Context()); err != nil || !left {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	sa, sb := leaders[0].Status(t.Context()), leaders[1].Status(t.Context())
	t.Logf("%d holds: %d by one, %d by the other; %d and %d batches in conflict",
		n, sa.Expired, sb.Expired, a.Stats().Conflicts, b.Stats().Conflicts)
	if sa.Expired+sb.Expired != uint64(n) {
		t.Errorf("%d and %d expired, want %d together", sa.Expired, sb.Expired, n)
	}
	expired := map[string]int{}
	for p := (store.Page{Size: store.MaxPageSize}); ; {
		entries, next, err := a.store.Entries(t.Context(), id, nil, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Type == ledger.EntryExpire {
				expired[e.Order]++
			}
		}
		if p.Token = next; next == "" {
			break
		}
	}
	for order, times := range expired {
		if times != 1 {
			t.Errorf("%s expired %d times", order, times)
		}
	}
	left := int64(0)
	for _, available := range a.available(id) {
		left += available
	}
	if len(expired) != n || left != int64(n)*2 {
		t.Errorf("%d of %d holds have an EXPIRE entry, %d of %d are available", len(expired), n, left, 2*n)
	}
	rep, err := a.store.Audit(t.Context(), nil)
	if err != nil || !rep.OK() {
		t.Errorf("audit: %v, %+v", err, rep)
	}
}
