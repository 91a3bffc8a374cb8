package ledger

import (
	"fmt"
	"slices"
)

// charge: none → COMMITTED. A charge that the wallet cannot pay is recorded,
// as a refused Reserve is.
func charge(v *View, c *Command) Decision {
	a, done := opening(v, c)
	if done != nil {
		return *done
	}
	n := open(v, c, a)
	n.State = StateCommitted
	n.Leg.Committed = c.Amount
	n.CommitSeq = v.Bucket.Seq + 1
	return accept(v, c, change{
		attempt: n, entry: EntryCharge, amount: c.Amount,
		delta: Balances{Available: -c.Amount, Committed: c.Amount},
	})
}

// onceCharged keeps a job at one charge: once an attempt was charged, its
// refund and its reclaim are the only ways back and forth, so that the net of
// the job is its cost or nothing.
func onceCharged(row *Reservation, c *Command) *Rejection {
	if a := row.Attempt(c.Attempt); a != nil && a.State != StateNone {
		return illegal(c, a, "none").Rejection
	}
	for i := range row.Attempts {
		if a := &row.Attempts[i]; a.State.spent() {
			return &Rejection{
				Code: JobCharged, State: a.State.String(), Attempt: a.Number,
				Message: fmt.Sprintf("attempt %d is %s, and a job is charged once", a.Number, a.State),
			}
		}
	}
	return nil
}

// refund: COMMITTED → REVERSED, by the recorded cost. Work that was delivered
// is not refunded: a failure signal that comes after the success changes
// nothing.
func refund(v *View, c *Command, a *Attempt) Decision {
	switch {
	case a.State == StateCommitted && a.Delivered():
		return reject(&Rejection{
			Code: JobDelivered, State: a.State.String(), Attempt: a.Number,
			Message: fmt.Sprintf("the work of attempt %d was delivered, and stays charged", a.Number),
		})
	case a.State != StateCommitted:
		return illegal(c, a, "COMMITTED")
	}
	n := *a
	amount := n.Leg.Committed
	n.Leg.Reversed = amount
	n.State = StateReversed
	return accept(v, c, change{
		attempt: n, entry: EntryRefund, amount: amount, refers: n.CommitSeq,
		delta: Balances{Available: amount, Reversed: amount},
	})
}

// reclaimCharge is the success of a job: the work was delivered. It takes back
// a refund, or a hold that was given up, and may drive the wallet into debt for
// it; where the charge stands it only notes the delivery, without an entry, so
// that no refund can follow.
func reclaimCharge(v *View, c *Command, a *Attempt) Decision {
	switch a.State {
	case StateCommitted:
		return note(v, c, a)
	case StateReversed, StateReleased, StateExpired:
	default:
		return illegal(c, a, "COMMITTED, REVERSED, RELEASED or EXPIRED")
	}
	if a.State != StateReversed {
		n := *a
		n.Leg.Lapsed = 0
		return spendAgain(v, c, &n, n.Leg.Amount, false)
	}
	if h := v.Row.holder(a.Number); h != nil {
		return reject(holdsMoney(h))
	}
	amount := a.Leg.Reversed
	if d := debt(v, a, amount); d != nil {
		return *d
	}
	n := *a
	n.Leg.Reversed = 0
	n.State = StateCommitted
	return accept(v, c, change{
		attempt: n, entry: EntryReclaim, amount: amount, refers: a.receipt(OpRefund, "").Outcome.Seq,
		delta: Balances{Available: -amount, Reversed: -amount},
	})
}

// note records an accepted command that moves nothing: no entry, no event.
func note(v *View, c *Command, a *Attempt) Decision {
	n := *a
	if r := room(v.Row, c, &n); r != nil {
		return reject(r)
	}
	o := Outcome{
		State: n.State, Held: n.Leg.Held, Committed: n.Leg.Committed, Reversed: n.Leg.Reversed,
		Expires: n.Expires, At: Later(v.Now, v.Bucket.Time), Bucket: v.Bucket.ID,
	}
	n.Receipts = append(slices.Clip(n.Receipts), Receipt{Op: c.Op, ID: c.ID, Request: c.Canonical(), Outcome: o})
	return Decision{Result: resultOf(c, o, false), Attempt: &n}
}

// debt refuses to take more for delivered work than the wallet may owe. The
// first refusal opens a case, so that a person sees work that is not paid; the
// same command goes through once the wallet was funded.
func debt(v *View, a *Attempt, amount int64) *Decision {
	left := v.Bucket.Available + v.Budget.Policy.Debt()
	if amount <= left {
		return nil
	}
	d := reject(&Rejection{
		Code: DebtCapReached, Field: "amount_minor", Value: itoa(amount), Limit: itoa(max(0, left)),
		State: a.State.String(), Attempt: a.Number, Requested: amount, Available: left,
		Message: fmt.Sprintf("would take wallet %s below what it may owe, %d", v.Budget.ID, v.Budget.Policy.Debt()),
	})
	if !a.CaseOpened {
		n := *a
		n.CaseOpened = true
		d.Attempt = &n
		d.Case = &Case{Key: v.Row.Key, Attempt: a.Number, Budget: a.Leg.Bucket.Budget, Amount: amount, Opened: v.Now}
	}
	return &d
}
