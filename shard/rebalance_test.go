package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// divided is an open budget whose buckets have so much available, of funds.
func divided(living int, funded int64, available ...int64) *store.BudgetView {
	v := &store.BudgetView{}
	v.Budget = ledger.Budget{ID: budget("b"), State: ledger.BudgetOpen, Epoch: ledger.Epoch{Number: 2, Buckets: uint16(living), Retired: uint16(len(available) - living)}}
	for i, a := range available {
		v.Buckets = append(v.Buckets, ledger.Bucket{ID: ledger.BucketID{Budget: v.ID, Index: uint16(i)}, Balances: ledger.Balances{Available: a}, Seq: uint64(10 + i)})
		v.Total.Available += a
	}
	v.Total.Funded = max(funded, v.Total.Available)
	return v
}

// carry carries moves out, each of which must be possible.
func carry(t interface{ Fatalf(string, ...any) }, v *store.BudgetView, moves []ledger.Move) {
	for _, m := range moves {
		from, to := &v.Buckets[m.From], &v.Buckets[m.To]
		if m.Amount <= 0 || from.Available < m.Amount || int(m.To) >= v.Budget.Buckets() || m.From == m.To {
			t.Fatalf("move %+v from %d in a budget of %d buckets", m, from.Available, v.Budget.Buckets())
		}
		from.Available -= m.Amount
		to.Available += m.Amount
	}
}

func availables(v *store.BudgetView) []int64 {
	out := make([]int64, len(v.Buckets))
	for i := range v.Buckets {
		out[i] = v.Buckets[i].Available
	}
	return out
}

func TestPlanRebalance(t *testing.T) {
	p := DefaultRebalancing()
	for _, c := range []struct {
		name string
		v    *store.BudgetView
		want string // available afterwards; empty: no moves
	}{
		{"level", divided(4, 0, 100, 100, 100, 100), ""},
		{"within the limit", divided(4, 0, 140, 60, 100, 100), ""},
		{"a bucket ran dry", divided(4, 0, 130, 130, 135, 5), "[100 100 100 100]"},
		{"all in one", divided(4, 0, 400, 0, 0, 0), "[100 100 100 100]"},
		{"one bucket", divided(1, 0, 400), ""},
		{"nothing", divided(4, 0, 0, 0, 0, 0), ""},
		{"retired ones go home", divided(2, 0, 100, 90, 7, 0, 20), "[100 117 0 0 0]"},
		{"retired ones are levelled with the others", divided(2, 0, 300, 0, 0, 100), "[200 200 0 0]"},
		{"little left, in many", divided(4, 100_000, 100, 100, 100, 100), "[200 200 0 0]"},
		{"little left, in few", divided(4, 100_000, 200, 200, 0, 0), ""},
		{"the last of it", divided(4, 100_000, 0, 3, 0, 2), "[5 0 0 0]"},
	} {
		moves := PlanRebalance(c.v, p)
		if c.want == "" {
			if moves != nil {
				t.Errorf("%s: %v", c.name, moves)
			}
			continue
		}
		carry(t, c.v, moves)
		if got := fmt.Sprint(availables(c.v)); got != c.want || len(moves) == 0 {
			t.Errorf("%s: %v lead to %s, want %s", c.name, moves, got, c.want)
		}
	}
	strict := divided(4, 100_000, 100, 100, 100, 100)
	strict.Policy.Exhaustion = ledger.Strict
	if moves := PlanRebalance(strict, p); moves != nil {
		t.Errorf("a STRICT budget is folded: %v", moves)
	}
	for _, s := range []ledger.BudgetState{ledger.BudgetFrozen, ledger.BudgetClosed} {
		v := divided(4, 0, 400, 0, 0, 0)
		v.State = s
		if moves := PlanRebalance(v, p); moves != nil {
			t.Errorf("a budget that is %s: %v", s, moves)
		}
	}
	closedSink := divided(2, 0, 100, 100)
	closedSink.Buckets = append(closedSink.Buckets, ledger.Bucket{ID: ledger.BucketID{Budget: closedSink.ID, Index: ledger.Unallocated}, Balances: ledger.Balances{Available: 900}})
	if moves := PlanRebalance(closedSink, p); moves != nil {
		t.Errorf("the unallocated bucket is touched: %v", moves)
	}
}

// Whatever the state: the sum is kept, every move is possible in order, there
// are at most as many as allowed, and repeated plans come to an end soon.
func TestPlanRebalanceProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := Rebalancing{
			SkewLimit: rapid.IntRange(10, 400).Draw(rt, "skew"), LowWater: rapid.IntRange(0, 50).Draw(rt, "low water"),
			MaxMoves: rapid.IntRange(1, 40).Draw(rt, "max moves"),
		}
		limit := rapid.SampledFrom([]int64{1, 5, 1000, ledger.MaxSum}).Draw(rt, "limit")
		have := rapid.SliceOfN(rapid.Int64Range(0, limit), 1, 40).Draw(rt, "available")
		v := divided(rapid.IntRange(1, len(have)).Draw(rt, "living"), rapid.Int64Range(0, limit).Draw(rt, "funded"), have...)
		if rapid.Bool().Draw(rt, "strict") {
			v.Policy.Exhaustion = ledger.Strict
		}
		sum := v.Total.Available
		rounds := 0
		for moves := PlanRebalance(v, p); len(moves) > 0; moves = PlanRebalance(v, p) {
			if len(moves) > p.MaxMoves {
				rt.Fatalf("%d moves, allowed are %d", len(moves), p.MaxMoves)
			}
			carry(rt, v, moves)
			left := int64(0)
			for _, a := range availables(v) {
				left += a
			}
			if left != sum {
				rt.Fatalf("the sum went from %d to %d", sum, left)
			}
			if rounds++; rounds > len(have)+1 {
				rt.Fatalf("after %d rounds there still are moves: %v of %v", rounds, moves, availables(v))
			}
		}
		for i := v.Budget.Buckets(); i < len(v.Buckets); i++ {
			if v.Buckets[i].Available != 0 {
				rt.Fatalf("retired bucket %d keeps %d", i, v.Buckets[i].Available)
			}
		}
	})
}

func TestMoveCommands(t *testing.T) {
	v := divided(2, 0, 400, 0)
	v.ID.Funder = strings.Repeat("f", 128)
	a, b := MoveCommands(v, PlanRebalance(v, DefaultRebalancing())), MoveCommands(v, PlanRebalance(v, DefaultRebalancing()))
	if len(a) != 1 || a[0].ID != b[0].ID || a[0].Amount != 200 || a[0].From != 0 || a[0].To != 1 || a[0].Validate() != nil {
		t.Fatalf("%+v, %v", a, a[0].Validate())
	}
	v.Buckets[0].Seq++
	if c := MoveCommands(v, PlanRebalance(v, DefaultRebalancing())); c[0].ID == a[0].ID {
		t.Error("another state has the same key")
	}
	if got := Skew([]int64{ledger.MaxSum, 0}); got != 2 {
		t.Errorf("skew %g", got)
	}
	if err := (Rebalancing{}).Validate(); err == nil || !strings.Contains(err.Error(), "skew_limit is 0 (allowed: 10 to 25600)") || !strings.Contains(err.Error(), "max_moves is 0") {
		t.Error(err)
	}
}

func TestAdapt(t *testing.T) {
	p := DefaultAdapting()
	p.Enabled, p.Max = true, 32
	calm := Pressure{Buckets: 8, Queued: 10, Rate: 100, Left: 50, SinceChange: time.Hour}
	for _, c := range []struct {
		name   string
		change func(*Pressure)
		want   int
	}{
		{"in between", func(*Pressure) {}, 8},
		{"much waits", func(m *Pressure) { m.Queued = 200 }, 16},
		{"many conflicts", func(m *Pressure) { m.Conflicts = 30 }, 16},
		{"cool-down", func(m *Pressure) { m.Queued, m.SinceChange = 200, time.Minute }, 8},
		{"at the most", func(m *Pressure) { m.Buckets, m.Queued = 32, 200 }, 32},
		{"near the most", func(m *Pressure) { m.Buckets, m.Queued = 20, 200 }, 32},
		{"above the most", func(m *Pressure) { m.Buckets = 200 }, 32},
		{"nothing happens", func(m *Pressure) { m.Queued, m.Rate = 0, 1 }, 4},
		{"nothing waits, but it is busy", func(m *Pressure) { m.Queued = 0 }, 8},
		{"idle and one bucket", func(m *Pressure) { m.Buckets, m.Queued, m.Rate = 1, 0, 0 }, 1},
		{"little left", func(m *Pressure) { m.Left, m.Queued = 0.5, 500 }, 4},
		{"not much left", func(m *Pressure) { m.Left, m.Queued = 1.5, 500 }, 8},
	} {
		m := calm
		c.change(&m)
		if got := Adapt(m, p); got != c.want {
			t.Errorf("%s: %d buckets, want %d", c.name, got, c.want)
		}
	}
	m := calm
	m.Queued = 1000
	if got := Adapt(m, DefaultAdapting()); got != 8 {
		t.Errorf("adapting is on by default: %d", got)
	}
	b := &ledger.Budget{ID: budget("b"), Epoch: ledger.Epoch{Number: 3, Buckets: 8}}
	c := AdaptCommand(b, 16)
	if c.Validate() != nil || c.Op != ledger.OpReshard || c.Buckets != 16 || c.ID != AdaptCommand(b, 4).ID {
		t.Errorf("%+v", c)
	}
	if err := (Adapting{GrowQueued: 3, ShrinkQueued: 1}).Validate(); err == nil || !strings.Contains(err.Error(), "grow_queued is 3 (allowed: at least four times shrink_queued") || !strings.Contains(err.Error(), "cool_down is 0s") {
		t.Error(err)
	}
	if err := DefaultAdapting().Validate(); err != nil {
		t.Error(err)
	}
}

// Under a load that stays, the number settles and does not swing: what waits
// for a bucket, and its rate, fall as the number grows.
func TestAdaptSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := DefaultAdapting()
		p.Enabled = true
		load, rate := rapid.Float64Range(0, 20_000).Draw(t, "waiting in all"), rapid.Float64Range(0, 20_000).Draw(t, "rate in all")
		n := rapid.IntRange(1, 64).Draw(t, "buckets")
		var seen []int
		for range 20 {
			m := Pressure{Buckets: n, Queued: load / float64(n), Rate: rate / float64(n), Left: 50, SinceChange: time.Hour}
			next := Adapt(m, p)
			if next == n {
				return
			}
			if slices.Contains(seen, next) {
				t.Fatalf("with %g waiting and %g a second the number swings: %v, %d, %d", load, rate, seen, n, next)
			}
			seen, n = append(seen, n), next
		}
		t.Fatalf("it does not settle: %v", seen)
	})
}
