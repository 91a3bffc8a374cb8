package shard

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Rebalancing says when money moves between the buckets of a budget.
type Rebalancing struct {
	// SkewLimit is how far apart the fullest and the emptiest bucket in use may
	// be, in percent of an equal share, before they are levelled; see Skew.
	SkewLimit int `yaml:"skew_limit"`
	// LowWater is the percentage of a budget's funds below which what is left
	// goes into fewer buckets, the fewer the less is left; 0: never. Only EXACT
	// budgets: a STRICT one needs money in each.
	LowWater int `yaml:"low_water"`
	// MaxMoves is the most moves of one plan, the largest first.
	MaxMoves int `yaml:"max_moves"`
}

// DefaultRebalancing levels a budget whose buckets are a whole share apart.
func DefaultRebalancing() Rebalancing {
	return Rebalancing{SkewLimit: 100, LowWater: 1, MaxMoves: 32}
}

// Validate names every field that is out of range.
func (p Rebalancing) Validate() error {
	var errs []error
	check := func(field string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d (allowed: %d to %d)", field, v, low, high))
		}
	}
	check("skew_limit", p.SkewLimit, 10, 100*ledger.MaxBuckets)
	check("low_water", p.LowWater, 0, 50)
	check("max_moves", p.MaxMoves, 1, ledger.MaxBuckets)
	return errors.Join(errs...)
}

// smallest is the part of an equal share below which a levelling move is not
// worth its transaction.
const smallest = 8

// PlanRebalance says which moves a budget needs now, none for most. Retired
// buckets keep nothing; buckets in use are levelled once they are further apart
// than the limit; and where little is left it is gathered in few of them, once
// it lies in twice as many. It is a pure function; the sum does not change, each
// of the moves is possible by itself, and all of them together are at most
// MaxMoves. Budgets that are not open are left alone.
func PlanRebalance(v *store.BudgetView, p Rebalancing) []ledger.Move {
	if v.State != ledger.BudgetOpen || v.Kind != ledger.KindPromotion {
		return nil
	}
	available := make([]int64, v.Made())
	for i := range v.Buckets {
		if at := int(v.Buckets[i].ID.Index); at < len(available) {
			available[at] = v.Buckets[i].Available
		}
	}
	living := v.Budget.Buckets()
	target := targetBuckets(available, living, v, p)
	var moves []ledger.Move
	if target > 0 {
		moves = ledger.PlanSpread(available, target)
		least := v.Total.Available / int64(target) / smallest
		moves = slices.DeleteFunc(moves, func(m ledger.Move) bool { return int(m.From) < living && m.Amount <= least })
	} else {
		moves = foldRetired(available, living)
	}
	if len(moves) > p.MaxMoves {
		slices.SortStableFunc(moves, func(a, b ledger.Move) int { return cmp.Compare(b.Amount, a.Amount) })
		moves = moves[:p.MaxMoves]
	}
	return moves
}

// targetBuckets is over how many buckets the money should be levelled, 0 where
// it may stay as it is but for retired buckets.
func targetBuckets(available []int64, living int, v *store.BudgetView, p Rebalancing) int {
	if left := Left(v.Total); left < float64(p.LowWater) && v.Policy.Exhaustion == ledger.Exact {
		few := max(1, int(math.Ceil(float64(living)*left/float64(p.LowWater))))
		filled := 0
		for _, a := range available[:living] {
			if a > 0 {
				filled++
			}
		}
		if filled >= 2*few {
			return few
		}
		return 0
	}
	if 100*Skew(available[:living]) > float64(p.SkewLimit) {
		return living
	}
	return 0
}

// Left is the percentage of its funds that a budget has available, 0 where it
// has none.
func Left(total ledger.Balances) float64 {
	if total.Funded <= 0 {
		return 0
	}
	return 100 * float64(total.Available) / float64(total.Funded)
}

// foldRetired sends what retired buckets have to the buckets in use that have
// the least.
func foldRetired(available []int64, living int) []ledger.Move {
	have := slices.Clone(available[:living])
	var moves []ledger.Move
	for from := living; from < len(available); from++ {
		if available[from] <= 0 {
			continue
		}
		to := 0
		for i := range have {
			if have[i] < have[to] {
				to = i
			}
		}
		have[to] += available[from]
		moves = append(moves, ledger.Move{From: uint16(from), To: uint16(to), Amount: available[from]})
	}
	return moves
}

// Skew is how far apart the fullest and the emptiest of the buckets in use are,
// in equal shares of what they have together; 0 is level, and nothing is level.
// available holds what each of them has.
func Skew(available []int64) float64 {
	if len(available) == 0 {
		return 0
	}
	low, high, sum := available[0], available[0], 0.0
	for _, v := range available {
		low, high = min(low, v), max(high, v)
		sum += float64(v)
	}
	if sum <= 0 {
		return 0
	}
	return (float64(high) - float64(low)) / (sum / float64(len(available)))
}

// MoveCommands makes the commands of a plan. Their keys come from the plan and
// the state it was made on: the same plan, made twice at once, moves once.
func MoveCommands(v *store.BudgetView, moves []ledger.Move) []ledger.Command {
	cmds := make([]ledger.Command, 0, len(moves))
	for _, m := range moves {
		seq := uint64(0)
		for i := range v.Buckets {
			if v.Buckets[i].ID.Index == m.From {
				seq = v.Buckets[i].Seq
			}
		}
		cmds = append(cmds, ledger.Command{
			Op: ledger.OpMove, Budget: v.ID, From: m.From, To: m.To, Amount: m.Amount,
			ID: fmt.Sprintf(ledger.KeyRebalance+"%016x:%d:%d:%d", budgetHash(v.ID), m.From, m.To, seq),
		})
	}
	return cmds
}

// budgetHash is short enough for a key of any budget.
func budgetHash(b ledger.BudgetID) uint64 { return ledger.Hash64(0, b.Tenant, b.Funder, b.Key) }
