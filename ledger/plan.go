package ledger

import (
	"cmp"
	"slices"
)

// Pull is how much one bucket gives to another.
type Pull struct {
	From   BucketID
	Amount int64
}

// PlanPull covers a bucket's shortage from the budget's other buckets with as
// few of them as possible, the richest first. Where one donor suffices it
// gives half of what it has, if that is more: near the end of a budget each
// pull then serves many orders. It returns nil when all donors together are
// short: nothing is moved in vain.
func PlanPull(donors []Bucket, missing int64) []Pull {
	order := make([]int, 0, len(donors))
	sum := int64(0)
	for i := range donors {
		if donors[i].Available > 0 {
			order = append(order, i)
			sum += donors[i].Available
		}
	}
	if missing <= 0 || sum < missing {
		return nil
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(donors[b].Available, donors[a].Available) })
	var pulls []Pull
	for _, i := range order {
		d := &donors[i]
		if d.Available >= missing {
			return append(pulls, Pull{From: d.ID, Amount: max(missing, d.Available/2)})
		}
		pulls = append(pulls, Pull{From: d.ID, Amount: d.Available})
		missing -= d.Available
	}
	return pulls
}

// Move is an amount of available that goes from one bucket of a budget to
// another.
type Move struct {
	From, To uint16
	Amount   int64
}

// PlanSpread levels what is available: each of the first living buckets gets an
// equal share, what does not divide goes to the first ones, and the buckets
// after them keep nothing. It makes fewer moves than there are buckets, and
// none where a bucket is in debt.
func PlanSpread(available []int64, living int) []Move {
	total := int64(0)
	for _, v := range available {
		if v < 0 {
			return nil
		}
		total += v // bounded: see MaxSum
	}
	excess := make([]int64, len(available)) // above the share; below zero: missing
	for i, v := range available {
		excess[i] = v
		if i < living {
			excess[i] -= total / int64(living)
			if int64(i) < total%int64(living) {
				excess[i]--
			}
		}
	}
	var moves []Move
	to := 0
	for from := range excess {
		for excess[from] > 0 {
			for excess[to] >= 0 {
				to++
			}
			n := min(excess[from], -excess[to])
			excess[from] -= n
			excess[to] += n
			moves = append(moves, Move{From: uint16(from), To: uint16(to), Amount: n})
		}
	}
	return moves
}

// MoveEntries are the two entries of a pull, for the giving and the taking
// bucket. Neither bucket's funds in sum change.
func MoveEntries(from, to *Bucket, amount int64, cause string) (out, in Entry, r *Rejection) {
	f, t := from.ID, to.ID
	out = Entry{Seq: from.Seq + 1, Type: EntryMoveOut, Cause: cause, Peer: &t, Delta: Balances{Funded: -amount, Available: -amount}}
	in = Entry{Seq: to.Seq + 1, Type: EntryMoveIn, Cause: cause, Peer: &f, Delta: Balances{Funded: amount, Available: amount}}
	if out.After, r = apply(from, out.Delta, 0); r != nil {
		return
	}
	in.After, r = apply(to, in.Delta, 0)
	return
}
