package ledger

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Apportion divides total over weights by the method of largest remainders
// (Hamilton's method; M. L. Balinski, H. P. Young, "Fair Representation",
// 1982): each share is its exact quota rounded down, and the units that are
// left go, one each, to the largest remainders, the earlier first where they
// are equal. The shares add up to total. Where total is at most the sum of the
// weights no share is above its weight, so that weights may be what is left
// to give; where it equals the sum, each share is its weight: the last one
// takes the exact tail.
//
// total and weights must not be negative, and the sum of the weights must fit
// an int64; with no weights at all every share is zero.
func Apportion(total int64, weights []int64) []int64 {
	shares := make([]int64, len(weights))
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	if sum == 0 || total == 0 {
		return shares
	}
	rest := make([]uint64, len(weights))
	left := total
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(total), uint64(w))
		q, r := bits.Div64(hi, lo, uint64(sum)) // hi < sum, for w ≤ sum and total < 2⁶³
		shares[i], rest[i] = int64(q), r
		left -= shares[i]
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] > rest[b]:
			return -1
		case rest[a] < rest[b]:
			return 1
		default:
			return 0
		}
	})
	for i := range left { // fewer than there are weights with a remainder
		shares[order[i]]++
	}
	return shares
}

// round is a·n/d in whole units, for 0 ≤ n ≤ d and d > 0.
func (r Rounding) round(a, n, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(n))
	q, rest := bits.Div64(hi, lo, uint64(d)) // hi < d, for n ≤ d and a < 2⁶³
	up := false
	switch r {
	case RoundUp:
		up = rest > 0
	case RoundDown:
	case RoundHalfEven:
		up = rest > uint64(d)-rest || (rest == uint64(d)-rest && q%2 == 1)
	default:
		up = rest >= uint64(d)-rest
	}
	if up {
		q++
	}
	return int64(q)
}

// Allocation is who paid what of a quoted benefit and what of it was refunded,
// per order line and funder. The sum of Paid over all cells is Total; the sum of
// Reversed is what the reservation has reversed.
type Allocation struct {
	Quote Quote
	// Total is what the cells divide: what was reserved, and from the first
	// refund on what was committed.
	Total int64
	Lines []LineAllocation
}

// LineAllocation is one line: Returned of its units were refunded by line, and
// its cells are in the order of the quote's funders (one where it has none).
type LineAllocation struct {
	Returned int64
	Cells    []Cell
}

// Cell is one funder's part of one line.
type Cell struct{ Paid, Reversed int64 }

// Split is what one refund took from which line and funder. It is stored with
// the refund, and a reinstatement gives back just that.
type Split struct{ Lines []SplitLine }

// SplitLine is a refund's part on the line at Index: units, and an amount for
// each funder.
type SplitLine struct {
	Index    int
	Quantity int64
	Amounts  []int64
}

// Amount is the line's sum over the funders.
func (l *SplitLine) Amount() int64 { return sumOf(l.Amounts) }

// Amount is the refund's sum.
func (s *Split) Amount() int64 {
	sum := int64(0)
	for i := range s.Lines {
		sum += s.Lines[i].Amount()
	}
	return sum
}

func sumOf(v []int64) int64 {
	sum := int64(0)
	for _, x := range v {
		sum += x
	}
	return sum
}

// Paid and Reversed are a line's sums over its funders.
func (l *LineAllocation) Paid() (paid, reversed int64) {
	for _, c := range l.Cells {
		paid += c.Paid
		reversed += c.Reversed
	}
	return paid, reversed
}

// left is what each of a line's cells may still give back.
func (l *LineAllocation) left() []int64 {
	out := make([]int64, len(l.Cells))
	for i, c := range l.Cells {
		out[i] = c.Paid - c.Reversed
	}
	return out
}

// allocate divides a quote's amounts over its funders. Each line is exact, and
// so is each funder's share of the whole: the funders' totals are apportioned
// first, and every line takes from what is left of them.
func allocate(q *Quote, total int64) *Allocation {
	a := &Allocation{Quote: *q, Total: total, Lines: make([]LineAllocation, len(q.Lines))}
	weights := []int64{1}
	if len(q.Funders) > 0 {
		weights = weights[:0]
		for _, f := range q.Funders {
			weights = append(weights, f.Weight)
		}
	}
	funds := Apportion(total, weights)
	for i := range q.Lines {
		cells := make([]Cell, len(funds))
		for f, v := range Apportion(q.Lines[i].Amount, funds) {
			cells[f].Paid = v
			funds[f] -= v
		}
		a.Lines[i].Cells = cells
	}
	return a
}

// clone copies what a refund changes.
func (a *Allocation) clone() *Allocation {
	c := *a
	c.Lines = slices.Clone(a.Lines)
	for i := range c.Lines {
		c.Lines[i].Cells = slices.Clone(a.Lines[i].Cells)
	}
	return &c
}

// resize makes the cells divide what was committed, where that is not what was
// reserved, in the proportions of the quote. Before the first refund they may
// shrink; afterwards what is committed only grows (a late commit), and so
// does each cell.
func (a *Allocation) resize(committed int64) {
	if committed == a.Total {
		return
	}
	var cells []*Cell
	var weights []int64
	for i := range a.Lines {
		for f := range a.Lines[i].Cells {
			c := &a.Lines[i].Cells[f]
			cells = append(cells, c)
			weights = append(weights, c.Paid)
		}
	}
	if committed < a.Total {
		for i, v := range Apportion(committed, weights) {
			cells[i].Paid = v
		}
	} else {
		for i, v := range Apportion(committed-a.Total, weights) {
			cells[i].Paid += v
		}
	}
	a.Total = committed
}

// byAmount divides a refund over what the lines have left, by largest
// remainder, and each line's part over what its funders have left. amount is at
// most what is left in all.
func (a *Allocation) byAmount(amount int64) *Split {
	left := make([]int64, len(a.Lines))
	for i := range a.Lines {
		left[i] = sumOf(a.Lines[i].left())
	}
	s := &Split{}
	for i, v := range Apportion(amount, left) {
		if v > 0 {
			s.Lines = append(s.Lines, SplitLine{Index: i, Amounts: Apportion(v, a.Lines[i].left())})
		}
	}
	return s
}

// byLines prices the units that come back: of what their line has left, the
// part that they are of the units left, rounded as the quote says. The last
// units take all that is left, so that a line's refunds add up to what was
// paid on it.
func (a *Allocation) byLines(lines []RefundLine) (*Split, *Rejection) {
	s := &Split{}
	for i, l := range lines {
		field := fmt.Sprintf("lines[%d]", i)
		at := slices.IndexFunc(a.Quote.Lines, func(q QuoteLine) bool { return q.ID == l.ID })
		if at < 0 {
			return nil, &Rejection{Code: QuoteLineNotFound, Field: field + ".line_id", Value: clip(l.ID), Message: "is no line of the quote"}
		}
		line := &a.Lines[at]
		units := a.Quote.Lines[at].Quantity - line.Returned
		if l.Quantity > units {
			return nil, &Rejection{
				Code: RefundExceedsCommit, Field: field + ".quantity", Value: itoa(l.Quantity), Limit: itoa(units),
				Message: fmt.Sprintf("is above what of line %s was not refunded yet", clip(l.ID)),
			}
		}
		left := line.left()
		amount := a.Quote.Rounding.round(sumOf(left), l.Quantity, units)
		s.Lines = append(s.Lines, SplitLine{Index: at, Quantity: l.Quantity, Amounts: Apportion(amount, left)})
	}
	slices.SortFunc(s.Lines, func(x, y SplitLine) int { return x.Index - y.Index })
	return s, nil
}

// book takes a split into account; sign −1 undoes it.
func (a *Allocation) book(s *Split, sign int64) {
	for i := range s.Lines {
		l := &s.Lines[i]
		line := &a.Lines[l.Index]
		line.Returned += sign * l.Quantity
		for f, v := range l.Amounts {
			line.Cells[f].Reversed += sign * v
		}
	}
}

// split decides what a refund takes from where, and what is left then.
func (a *Allocation) split(c *Command, leg *Leg) (*Allocation, *Split, *Rejection) {
	after := a.clone()
	after.resize(leg.Committed)
	var s *Split
	if len(c.Lines) > 0 {
		var r *Rejection
		if s, r = after.byLines(c.Lines); r != nil {
			return nil, nil, r
		}
	} else {
		s = after.byAmount(c.Amount)
	}
	after.book(s, 1)
	return after, s, nil
}

// Retrace makes the allocation and the splits of a quoted attempt again, from
// its quote, its receipts and the lines that its refunds by line name. The error
// says that these are not the ones that the receipts were made of.
func Retrace(at *Attempt, q *Quote, lines func(refund string) []RefundLine) (*Allocation, map[string]*Split, error) {
	rc := at.receipt(OpReserve, "")
	if rc == nil || !rc.asked(q.canonical()...) {
		return nil, nil, errors.New("it was reserved with another quote")
	}
	a, splits := allocate(q, at.Leg.Amount), map[string]*Split{}
	for i := range at.Receipts {
		rc := &at.Receipts[i]
		switch {
		case rc.Void || rc.Rejection != "":
		case rc.Op == OpReverse:
			c := Command{Op: OpReverse, ID: rc.ID, Amount: rc.Outcome.Amount}
			if rc.ByLines() {
				if c.Amount, c.Lines = 0, lines(rc.ID); !rc.asked(canonicalLines(c.Lines)) {
					return nil, nil, fmt.Errorf("refund %s was of other lines", rc.ID)
				}
			}
			if c.Amount > rc.Outcome.Committed-a.Reversed() {
				return nil, nil, fmt.Errorf("refund %s is above what was left", rc.ID)
			}
			after, split, r := a.split(&c, &Leg{Committed: rc.Outcome.Committed})
			if r != nil {
				return nil, nil, fmt.Errorf("refund %s: %w", rc.ID, r)
			}
			a, splits[rc.ID] = after, split
		case rc.Op == OpReinstate && splits[rc.ID] != nil:
			a.book(splits[rc.ID], -1)
		}
	}
	return a, splits, nil
}

// asked reports whether the last fields of the request are these.
func (r *Receipt) asked(last ...string) bool {
	fields, ok := fieldsOf(r.Op, r.Request)
	return ok && len(fields) >= len(last) && slices.Equal(fields[len(fields)-len(last):], last)
}

// Check returns what is wrong with an allocation, or nil: cells that do not add
// up, more refunded than paid, more units back than there were.
func (a *Allocation) Check() error {
	funders := max(1, len(a.Quote.Funders))
	if len(a.Lines) != len(a.Quote.Lines) {
		return fmt.Errorf("%d lines for a quote of %d", len(a.Lines), len(a.Quote.Lines))
	}
	total := int64(0)
	for i := range a.Lines {
		l := &a.Lines[i]
		id := a.Quote.Lines[i].ID
		if len(l.Cells) != funders {
			return fmt.Errorf("line %s has %d shares for %d funders", id, len(l.Cells), funders)
		}
		if l.Returned < 0 || l.Returned > a.Quote.Lines[i].Quantity {
			return fmt.Errorf("line %s has %d of %d units refunded", id, l.Returned, a.Quote.Lines[i].Quantity)
		}
		for f, c := range l.Cells {
			if c.Paid < 0 || c.Reversed < 0 || c.Reversed > c.Paid {
				return fmt.Errorf("line %s, funder %d has %d of %d refunded", id, f, c.Reversed, c.Paid)
			}
			total += c.Paid
		}
	}
	if total != a.Total {
		return fmt.Errorf("the lines add up to %d, not %d", total, a.Total)
	}
	return nil
}

// Reversed is the sum of what was refunded.
func (a *Allocation) Reversed() int64 {
	sum := int64(0)
	for i := range a.Lines {
		_, r := a.Lines[i].Paid()
		sum += r
	}
	return sum
}
