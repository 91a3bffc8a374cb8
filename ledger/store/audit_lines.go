package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// seeAllocations checks what a reservation's quoted attempts paid and refunded
// per line and funder. Its rows and the reservation's change together, so they
// are judged as one transaction reads them.
func (a *audit) seeAllocations(ctx context.Context, res *ledger.Reservation) error {
	quoted := false
	for i := range res.Attempts {
		quoted = quoted || res.Attempts[i].Quoted()
	}
	if !quoted || a.exact {
		return nil
	}
	a.count(1, checkLines)
	var problem string
	err := a.s.readTx(ctx, func(r kv.Reader) error {
		problem = ""
		v, ok, err := r.Get(a.s.reservationKey(res.Key)).Wait()
		if err != nil || !ok {
			return err
		}
		now, err := decodeReservation(res.Key, v)
		if err != nil {
			return nil //nolint:nilerr // the scan of the reservations says so
		}
		views, err := a.s.allocationsOf(r, res.Key)
		if isCorrupt(err) {
			problem = unwrapped(err).Error()
			return nil
		}
		problem = judgeLines(now, views)
		return err
	})
	if problem != "" {
		a.report(checkLines, "reservation %s of tenant %s: %s", res.Key, res.Key.Tenant, problem)
	}
	return err
}

// judgeLines compares a reservation with its allocations. It adds the splits up
// by itself: each cell must be the sum of the refunds that were not undone.
func judgeLines(res *ledger.Reservation, views []AllocationView) string {
	seen := map[uint32]*AllocationView{}
	for i := range views {
		v := &views[i]
		seen[v.Attempt] = v
		if at := res.Attempt(v.Attempt); at == nil || !at.Quoted() {
			return fmt.Sprintf("attempt %d has an allocation, but no quote", v.Attempt)
		}
	}
	for i := range res.Attempts {
		at := &res.Attempts[i]
		if !at.Quoted() {
			continue
		}
		v := seen[at.Number]
		if v == nil {
			return fmt.Sprintf("attempt %d has a quote, but no allocation", at.Number)
		}
		if why := judgeAttempt(at, v); why != "" {
			return fmt.Sprintf("attempt %d: %s", at.Number, why)
		}
	}
	return ""
}

func judgeAttempt(at *ledger.Attempt, v *AllocationView) string {
	if err := v.Allocation.Check(); err != nil {
		return err.Error()
	}
	if r := v.Allocation.Reversed(); r != at.Leg.Reversed {
		return fmt.Sprintf("its lines refunded %d, the reservation %d", r, at.Leg.Reversed)
	}
	splits := map[string]*ledger.Split{}
	for i := range v.Refunds {
		splits[v.Refunds[i].ID] = &v.Refunds[i].Split
	}
	sums := make([]ledger.LineAllocation, len(v.Lines))
	for i := range sums {
		sums[i].Cells = make([]ledger.Cell, len(v.Lines[i].Cells))
	}
	refunds := 0
	for i := range at.Receipts {
		rc := &at.Receipts[i]
		if rc.Op != ledger.OpReverse || rc.Void {
			continue
		}
		refunds++
		sp := splits[rc.ID]
		if sp == nil {
			return fmt.Sprintf("refund %s has no split", rc.ID)
		}
		if sp.Amount() != rc.Outcome.Amount {
			return fmt.Sprintf("the split of refund %s adds up to %d, it gave back %d", rc.ID, sp.Amount(), rc.Outcome.Amount)
		}
		if undone := receiptOf(at, ledger.OpReinstate, rc.ID); undone != nil && !undone.Void {
			continue
		}
		for j := range sp.Lines {
			l := &sp.Lines[j]
			sums[l.Index].Returned += l.Quantity
			for f, x := range l.Amounts {
				sums[l.Index].Cells[f].Reversed += x
			}
		}
	}
	if refunds != len(v.Refunds) {
		return fmt.Sprintf("it has %d refunds and %d splits", refunds, len(v.Refunds))
	}
	for i := range sums {
		id := v.Quote.Lines[i].ID
		if sums[i].Returned != v.Lines[i].Returned {
			return fmt.Sprintf("line %s has %d units refunded, its refunds took %d", id, v.Lines[i].Returned, sums[i].Returned)
		}
		for f := range sums[i].Cells {
			if got, want := v.Lines[i].Cells[f].Reversed, sums[i].Cells[f].Reversed; got != want {
				return fmt.Sprintf("line %s, funder %d refunded %d, its refunds took %d", id, f, got, want)
			}
		}
	}
	return judgeShares(at, v, splits)
}

// judgeShares compares who paid and got back what with the quote and the
// receipts, from which it follows.
func judgeShares(at *ledger.Attempt, v *AllocationView, splits map[string]*ledger.Split) string {
	want, taken, err := ledger.Retrace(at, &v.Quote, func(refund string) (lines []ledger.RefundLine) {
		for _, l := range splits[refund].Lines {
			lines = append(lines, ledger.RefundLine{ID: v.Quote.Lines[l.Index].ID, Quantity: l.Quantity})
		}
		return lines
	})
	if err != nil {
		return err.Error()
	}
	for i := range want.Lines {
		if got := v.Lines[i]; !slices.Equal(got.Cells, want.Lines[i].Cells) {
			return fmt.Sprintf("line %s was paid and refunded %v by its funders, its quote and refunds make that %v", v.Quote.Lines[i].ID, got.Cells, want.Lines[i].Cells)
		}
	}
	for id, sp := range taken {
		same := slices.EqualFunc(sp.Lines, splits[id].Lines, func(x, y ledger.SplitLine) bool {
			return x.Index == y.Index && x.Quantity == y.Quantity && slices.Equal(x.Amounts, y.Amounts)
		})
		if !same {
			return fmt.Sprintf("refund %s took %v, its request makes that %v", id, splits[id].Lines, sp.Lines)
		}
	}
	return ""
}

// readAllocations looks for rows of reservations that do not exist.
func (a *audit) readAllocations(ctx context.Context) error {
	return a.s.scan(ctx, a.s.key(tableAllocation).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			a.count(1, checkReadable, checkBelongs)
			k, attempt, refund, err := a.s.allocationOf(row.Key)
			if err != nil {
				a.report(checkReadable, "allocation key %x cannot be read", row.Key)
				continue
			}
			if refund != "" {
				continue // judged with the row of its attempt
			}
			if _, err := decodeAllocation(row.Value); err != nil {
				a.report(checkReadable, "allocation of %s, attempt %d, cannot be read: %v", k, attempt, err)
			}
			ok, err := a.exists(ctx, a.s.reservationKey(k))
			if err != nil {
				return err
			}
			if !ok {
				a.report(checkBelongs, "the allocation of %s of tenant %s, attempt %d, belongs to no reservation", k, k.Tenant, attempt)
			}
		}
		return nil
	})
}
