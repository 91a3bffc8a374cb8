package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Bounds of a quote and of a refund by lines. They bound the rows that keep
// them well below what a store takes as one value.
const (
	MaxQuoteLines  = 200
	MaxFunders     = 8
	MaxRefundLines = 50
	MaxWeight      = 1_000_000_000
	MaxQuantity    = 1_000_000_000
)

// Rounding says how a line's share of a refund becomes whole minor units.
type Rounding uint8

// Roundings of a quote's money policy.
const (
	RoundHalfUp   Rounding = iota // to the nearest, halves up
	RoundHalfEven                 // to the nearest, halves to the even one
	RoundDown
	RoundUp
)

func (r Rounding) String() string {
	return [...]string{"HALF_UP", "HALF_EVEN", "DOWN", "UP"}[min(int(r), 3)]
}

// Quote is what an order's benefit was priced with, recorded with its Reserve
// and never computed again. Amounts are minor units of the reservation's
// currency.
type Quote struct {
	// ID names the quote at the pricing engine; optional.
	ID       string
	Rounding Rounding
	// Lines are the order's lines with the benefit's amount on each. The
	// amounts add up to what is reserved.
	Lines []QuoteLine
	// Funders share each amount by their weights; empty: one payer, the
	// budget.
	Funders []Funder
}

// QuoteLine is one line of the order.
type QuoteLine struct {
	ID string
	// Quantity counts units, from 1. Amount is the benefit on all of them; it
	// may be 0.
	Quantity, Amount int64
}

// Funder pays a share of the benefit. Its money is the budget's one leg: what
// is kept per funder is who has to bear it.
type Funder struct {
	ID     string
	Weight int64
}

// RefundLine asks for the refund of some units of one line.
type RefundLine struct {
	ID       string
	Quantity int64
}

// validate refuses a quote that cannot be the one of a Reserve of amount.
func (q *Quote) validate(amount int64) *Rejection {
	if r := checkOptionalID("quote.id", q.ID); r != nil {
		return r
	}
	switch {
	case q.Rounding > RoundUp:
		return invalid("quote.rounding", fmt.Sprint(uint8(q.Rounding)), "HALF_UP, HALF_EVEN, DOWN or UP", "is unknown")
	case len(q.Lines) == 0 || len(q.Lines) > MaxQuoteLines:
		return invalid("quote.lines", fmt.Sprint(len(q.Lines)), fmt.Sprintf("1 to %d lines", MaxQuoteLines), "is no legal number of lines")
	case len(q.Funders) > MaxFunders:
		return invalid("quote.funders", fmt.Sprint(len(q.Funders)), fmt.Sprintf("up to %d funders", MaxFunders), "are too many")
	}
	sum := int64(0)
	ids := map[string]bool{}
	for i := range q.Lines {
		l := &q.Lines[i]
		field := fmt.Sprintf("quote.lines[%d]", i)
		if r := checkNew(field+".line_id", l.ID, ids); r != nil {
			return r
		}
		if l.Quantity < 1 || l.Quantity > MaxQuantity {
			return invalid(field+".quantity", itoa(l.Quantity), fmt.Sprintf("1 to %d", MaxQuantity), "is out of range")
		}
		if l.Amount < 0 {
			return invalid(field+".amount_minor", itoa(l.Amount), "0 or more minor units", "is negative")
		}
		var ok bool
		if sum, ok = add(sum, l.Amount); !ok {
			return invalid(field+".amount_minor", itoa(l.Amount), itoa(amount)+" in all", "makes the sum of the lines overflow")
		}
	}
	if sum != amount {
		return invalid("quote.lines", itoa(sum), itoa(amount), "is the sum of the lines, which is not amount_minor")
	}
	ids = map[string]bool{}
	for i := range q.Funders {
		f := &q.Funders[i]
		field := fmt.Sprintf("quote.funders[%d]", i)
		if r := checkNew(field+".funder_id", f.ID, ids); r != nil {
			return r
		}
		if f.Weight < 1 || f.Weight > MaxWeight {
			return invalid(field+".weight", itoa(f.Weight), fmt.Sprintf("1 to %d", MaxWeight), "is out of range")
		}
	}
	return nil
}

func checkNew(field, id string, seen map[string]bool) *Rejection {
	if r := checkID(field, id); r != nil {
		return r
	}
	if seen[id] {
		return invalid(field, clip(id), "each id once", "is there twice")
	}
	seen[id] = true
	return nil
}

// validateReverse wants an amount or lines.
func (c *Command) validateReverse() *Rejection {
	if len(c.Lines) == 0 {
		return checkAmount("amount_minor", c.Amount)
	}
	if c.Amount != 0 {
		return invalid("amount_minor", itoa(c.Amount), "0", "does not go with lines, which have their amounts from the quote")
	}
	if len(c.Lines) > MaxRefundLines {
		return invalid("lines", fmt.Sprint(len(c.Lines)), fmt.Sprintf("up to %d lines", MaxRefundLines), "are too many")
	}
	ids := map[string]bool{}
	for i := range c.Lines {
		l := &c.Lines[i]
		field := fmt.Sprintf("lines[%d]", i)
		if r := checkNew(field+".line_id", l.ID, ids); r != nil {
			return r
		}
		if l.Quantity < 1 || l.Quantity > MaxQuantity {
			return invalid(field+".quantity", itoa(l.Quantity), fmt.Sprintf("1 to %d", MaxQuantity), "is out of range")
		}
	}
	return nil
}

// canonical are the values of a quote in a canonical request: its lists as
// digests, so that a receipt stays small.
func (q *Quote) canonical() []string {
	if q == nil {
		return []string{"", "", "", ""}
	}
	var funders, lines []byte
	for i := range q.Funders {
		funders = appendInt(appendField(funders, q.Funders[i].ID), q.Funders[i].Weight)
	}
	for i := range q.Lines {
		l := &q.Lines[i]
		lines = appendInt(appendInt(appendField(lines, l.ID), l.Quantity), l.Amount)
	}
	return []string{q.ID, q.Rounding.String(), digest(funders), digest(lines)}
}

// canonicalLines is the value of a refund's lines, in whatever order they came.
func canonicalLines(lines []RefundLine) string {
	if len(lines) == 0 {
		return ""
	}
	sorted := slices.Clone(lines)
	slices.SortFunc(sorted, func(a, b RefundLine) int { return cmp.Compare(a.ID, b.ID) })
	var b []byte
	for _, l := range sorted {
		b = appendInt(appendField(b, l.ID), l.Quantity)
	}
	return digest(b)
}

func digest(b []byte) string {
	h := sha256.Sum256(binary.AppendUvarint(b, uint64(len(b))))
	return string(h[:])
}

// Quoted reports whether the attempt was reserved with a quote: then the store
// keeps an Allocation for it.
func (a *Attempt) Quoted() bool {
	rc := a.receipt(OpReserve, "")
	if rc == nil || rc.Void || rc.Rejection != "" || len(rc.Request) == 0 || rc.Request[0] == canonicalVersion {
		return false
	}
	fields, ok := fieldsOf(OpReserve, rc.Request)
	return ok && fields[len(fields)-1] != ""
}

// ByLines reports whether a receipt of REVERSE is of a refund by lines.
func (r *Receipt) ByLines() bool {
	fields, ok := fieldsOf(OpReverse, r.Request)
	return r.Op == OpReverse && ok && len(fields) == 2 && fields[1] != ""
}
