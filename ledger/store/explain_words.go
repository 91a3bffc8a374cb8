package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
)

// maxToldLines bounds how many lines of a refund its words name.
const maxToldLines = 8

// jobInWords says what a receipt of a command on a job records; empty for
// commands that are told as those on orders.
func jobInWords(a *ledger.Attempt, rc *ledger.Receipt) string {
	o, cur := &rc.Outcome, a.Leg.Currency
	amount := money(o.Amount, cur)
	switch rc.Op {
	case ledger.OpCharge:
		if rc.Rejection != "" {
			return refusedInWords(a, rc, "wallet")
		}
		return fmt.Sprintf("charged %s to wallet %s", amount, o.Bucket.Budget)
	case ledger.OpHold:
		if rc.Rejection != "" {
			return refusedInWords(a, rc, "wallet")
		}
		return fmt.Sprintf("held %s of wallet %s for %s, until %s", amount, o.Bucket.Budget, span(o.Expires.Sub(a.Created)), clock(o))
	case ledger.OpRefund:
		return fmt.Sprintf("failed: refunded %s, what was charged", amount)
	case ledger.OpReclaimCharge:
		switch {
		case o.Seq == 0:
			return "delivered: the charge stands, nothing moved; a failure that is signalled later refunds nothing"
		case o.Reversed == 0 && receiptOf(a, ledger.OpRefund, "") != nil:
			return fmt.Sprintf("delivered after all: took the refund of %s back", amount)
		default:
			return fmt.Sprintf("delivered after all: took %s, which had been held, from available", amount)
		}
	case ledger.OpSettle:
		return strings.Replace(commitInWords(a, rc), "committed", "settled", 1)
	default:
		return ""
	}
}

// refusedInWords tells of a recorded refusal; from is what was to pay.
func refusedInWords(a *ledger.Attempt, rc *ledger.Receipt, from string) string {
	o, cur := &rc.Outcome, a.Leg.Currency
	if rc.Rejection == ledger.InsufficientBudget {
		return fmt.Sprintf("refused: %s, %s asked of %s %s, %s available", rc.Rejection, money(rc.Requested, cur), from, o.Bucket.Budget, money(rc.Available, cur))
	}
	return fmt.Sprintf("refused: %s, %s asked of %s %s", rc.Rejection, money(a.Leg.Amount, cur), from, o.Bucket.Budget)
}

// tellLines adds to the words of reserves and refunds what was quoted and
// which lines were refunded.
func (s *Store) tellLines(ctx context.Context, ex *Explanation, res *ledger.Reservation) error {
	quoted := slices.ContainsFunc(res.Attempts, func(a ledger.Attempt) bool { return a.Quoted() })
	if !quoted {
		return nil
	}
	views, err := s.Allocations(ctx, res.Key)
	if err != nil || len(views) == 0 {
		return err
	}
	ex.Allocations = append(ex.Allocations, views...)
	for i := range ex.Timeline {
		ev := &ex.Timeline[i]
		if ev.Benefit != res.Key.Benefit || ev.Entry == nil {
			continue
		}
		for j := range views {
			if v := &views[j]; v.Attempt == ev.Attempt {
				ev.Text += linesInWords(res.Attempt(v.Attempt), v, ev)
			}
		}
	}
	return nil
}

func linesInWords(a *ledger.Attempt, v *AllocationView, ev *TimelineEvent) string {
	switch ev.Op {
	case ledger.OpReserve:
		return quoteInWords(v)
	case ledger.OpReverse, ledger.OpReinstate:
		for i := range v.Refunds {
			if r := &v.Refunds[i]; r.ID == ev.id {
				return splitInWords(a, v, &r.Split)
			}
		}
	}
	return ""
}

// quoteInWords: "; quote q-1: 3 lines, funded by brand 60, shop 40".
func quoteInWords(v *AllocationView) string {
	q := &v.Quote
	var b strings.Builder
	b.WriteString("; quote")
	if q.ID != "" {
		b.WriteString(" " + q.ID)
	}
	fmt.Fprintf(&b, ": %d lines", len(q.Lines))
	for i, f := range q.Funders {
		if i == 0 {
			b.WriteString(", funded by ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", f.ID, f.Weight)
	}
	return b.String()
}

// splitInWords: "; line A ×1 3.33 BRL (brand 2.00, shop 1.33)".
func splitInWords(a *ledger.Attempt, v *AllocationView, s *ledger.Split) string {
	cur := a.Leg.Currency
	var b strings.Builder
	for i := range s.Lines {
		if i == maxToldLines {
			fmt.Fprintf(&b, "; and %d more lines", len(s.Lines)-i)
			break
		}
		l := &s.Lines[i]
		fmt.Fprintf(&b, "; line %s", v.Quote.Lines[l.Index].ID)
		if l.Quantity > 0 {
			fmt.Fprintf(&b, " ×%d", l.Quantity)
		}
		b.WriteString(" " + money(l.Amount(), cur))
		for f, x := range l.Amounts {
			if f >= len(v.Quote.Funders) {
				break
			}
			sep := ", "
			if f == 0 {
				sep = " ("
			}
			fmt.Fprintf(&b, "%s%s %s", sep, v.Quote.Funders[f].ID, strings.TrimSuffix(money(x, cur), " "+cur))
			if f == len(l.Amounts)-1 {
				b.WriteString(")")
			}
		}
	}
	return b.String()
}
