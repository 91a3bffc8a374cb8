package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// reserve: none → RESERVED, of a benefit or, as Hold, of a job. Refusals that
// the code table calls recorded are stored as state REJECTED, so that a stale
// duplicate cannot succeed after its caller was refused.
func reserve(v *View, c *Command) Decision {
	a, done := opening(v, c)
	if done != nil {
		return *done
	}
	n := open(v, c, a)
	n.State = StateReserved
	n.Leg.Held = c.Amount
	n.Expires = v.Now.Add(c.TTL)
	entry := EntryReserve
	if c.Op == OpHold {
		entry = EntryHold
	}
	d := accept(v, c, change{
		attempt: n, entry: entry, amount: c.Amount,
		delta: Balances{Available: -c.Amount, Reserved: c.Amount},
	})
	if d.Rejection == nil && c.Quote != nil {
		d.Allocation = allocate(c.Quote, c.Amount)
	}
	return d
}

// opening is the ladder of every command that begins an attempt. It returns
// what of the attempt is there already (receipts of Resolve), or the decision.
func opening(v *View, c *Command) (*Attempt, *Decision) {
	a := v.Row.Attempt(c.Attempt)
	done := func(d Decision) (*Attempt, *Decision) { return nil, &d }
	if rc := a.receipt(c.Op, ""); rc != nil {
		return done(replay(c, rc))
	}
	if a != nil && a.State == StateCancelled {
		return done(reject(&Rejection{
			Code: CancelledBeforeReserve, State: a.State.String(), Attempt: a.Number,
			Message: fmt.Sprintf("attempt %d was released before this %s arrived", a.Number, strings.ToLower(c.Op.String())),
		}))
	}
	if c.Key.IsJob() {
		if r := onceCharged(v.Row, c); r != nil {
			return done(reject(r))
		}
	}
	if r := checkAttempts(v.Row, c.Attempt); r != nil {
		return done(reject(r))
	}
	b := v.Budget
	if b == nil || v.Bucket == nil {
		return done(reject(BudgetMissing(c.Budget)))
	}
	if r := checkKind(b, c); r != nil {
		return done(reject(r))
	}
	switch {
	case c.Currency != b.Currency:
		return done(reject(&Rejection{
			Code: CurrencyMismatch, Field: "currency", Value: c.Currency, Limit: b.Currency,
			Message: "is not the currency of " + b.named(),
		}))
	case c.TTL > b.Policy.MaxLifetime:
		return done(reject(tooLong("ttl", c.TTL, b.Policy.MaxLifetime, "1ms")))
	case b.State == BudgetFrozen:
		return done(record(v, c, a, &Rejection{Code: BudgetFrozenCode, State: b.State.String(), Message: b.named() + " is frozen"}))
	case b.State == BudgetClosed:
		return done(record(v, c, a, &Rejection{Code: BudgetClosedCode, State: b.State.String(), Message: b.named() + " is closed"}))
	case c.Amount > v.spendable():
		d := short(v, c.Amount)
		if d.Need != NeedNothing {
			return done(d)
		}
		return done(record(v, c, a, d.Rejection))
	}
	return a, nil
}

// BudgetMissing is the answer to a budget that does not exist, and to one that
// belongs to another tenant.
func BudgetMissing(id BudgetID) *Rejection {
	return &Rejection{Code: BudgetNotFound, Field: "budget", Value: id.String(), Message: "does not exist"}
}

func tooLong(field string, v, limit time.Duration, from string) *Rejection {
	return &Rejection{
		Code: TTLTooLong, Field: field, Value: v.String(), Limit: from + " to " + limit.String(),
		Message: "is above the budget's maximum lifetime",
	}
}

// checkAttempts keeps an order from holding a benefit twice: attempts only
// count up, and a new one needs all others to hold no money.
func checkAttempts(row *Reservation, n uint32) *Rejection {
	if h := row.holder(n); h != nil {
		return holdsMoney(h)
	}
	for i := range row.Attempts {
		if m := row.Attempts[i].Number; m > n {
			return &Rejection{
				Code: AttemptSuperseded, Field: "attempt", Value: fmt.Sprint(n), Limit: fmt.Sprintf("above %d", m), Attempt: m,
				State: row.Attempts[i].State.String(), Message: fmt.Sprintf("is below attempt %d, which was made before", m),
			}
		}
	}
	return attemptRoom(row, n)
}

// attemptRoom keeps the row bounded: a new attempt comes after few enough
// operations that its own way back has room.
func attemptRoom(row *Reservation, n uint32) *Rejection {
	if made := row.receipts(); row.Attempt(n) == nil && made > MaxReceipts {
		return &Rejection{
			Code: OperationLimit, Field: "attempt", Value: fmt.Sprint(n), Limit: fmt.Sprintf("%d operations before", MaxReceipts),
			Message: fmt.Sprintf("comes after %d operations on this benefit", made),
		}
	}
	return nil
}

func holdsMoney(h *Attempt) *Rejection {
	return &Rejection{
		Code: AttemptHoldsMoney, State: h.State.String(), Attempt: h.Number,
		Message: fmt.Sprintf("attempt %d is %s and holds the benefit", h.Number, h.State),
	}
}

// open is a fresh attempt with the request's figures, keeping the VOID
// receipts that other operations may have left.
func open(v *View, c *Command, a *Attempt) Attempt {
	n := Attempt{
		Number: c.Attempt, Created: v.Now, Correlation: c.Correlation,
		Leg: Leg{Bucket: v.Bucket.ID, Currency: c.Currency, Amount: c.Amount},
	}
	if a != nil {
		n.Receipts = a.Receipts
	}
	return n
}

// record stores a refusal of an opening command in the row: no entry, no event.
func record(v *View, c *Command, a *Attempt, r *Rejection) Decision {
	if !r.Code.Info().Recorded {
		return reject(r)
	}
	n := open(v, c, a)
	n.State = StateRejected
	n.Receipts = append(slices.Clip(n.Receipts), Receipt{
		Op: c.Op, Request: c.Canonical(), Rejection: r.Code, Requested: r.Requested, Available: r.Available,
		Outcome: Outcome{State: StateRejected, At: Later(v.Now, v.Bucket.Time), Bucket: v.Bucket.ID},
	})
	r.Attempt = c.Attempt
	return Decision{Rejection: r, Attempt: &n}
}

// release: RESERVED → RELEASED, or COMMITTED when part of it was committed
// before. Where nothing was ever reserved it leaves a tombstone.
func release(v *View, c *Command) Decision {
	a := v.Row.Attempt(c.Attempt)
	if rc := a.receipt(OpRelease, c.ID); rc != nil {
		return replay(c, rc)
	}
	if a == nil || a.State == StateNone {
		return tombstone(v, c, a)
	}
	if r := checkBudgetHint(c, a); r != nil {
		return reject(r)
	}
	if a.State != StateReserved {
		return illegal(c, a, "RESERVED")
	}
	return lapse(v, c, a, EntryRelease, StateReleased)
}

// lapse gives back what is still held.
func lapse(v *View, c *Command, a *Attempt, entry EntryType, to State) Decision {
	n := *a
	held := n.Leg.Held
	n.Leg.Held = 0
	n.State = to
	if n.Leg.Committed > 0 {
		n.State = StateCommitted
	}
	if entry == EntryExpire {
		n.Leg.Lapsed = held
	}
	return accept(v, c, change{attempt: n, entry: entry, amount: held, delta: Balances{Available: held, Reserved: -held}})
}

// tombstone records that the attempt was cancelled before it was reserved:
// normal in a distributed system, where a cancellation may overtake.
func tombstone(v *View, c *Command, a *Attempt) Decision {
	if r := attemptRoom(v.Row, c.Attempt); r != nil {
		return reject(r)
	}
	n := Attempt{Number: c.Attempt, Created: v.Now, Correlation: c.Correlation}
	if a != nil {
		n.Receipts = a.Receipts
	}
	if r := room(v.Row, c, &n); r != nil {
		return reject(r)
	}
	n.State = StateCancelled
	o := Outcome{State: n.State, At: v.Now}
	n.Receipts = append(slices.Clip(n.Receipts), Receipt{Op: c.Op, ID: c.ID, Request: c.Canonical(), Outcome: o})
	return Decision{Result: resultOf(c, o, false), Attempt: &n}
}

// resolve gives the outcome of a command, or writes the VOID receipt that
// keeps it from ever landing. Only a committed VOID proves absence.
func resolve(v *View, c *Command) Decision {
	res := Result{Key: c.Key, Attempt: c.Attempt}
	a := v.Row.Attempt(c.Attempt)
	if rc := a.receipt(c.Target, c.ID); rc != nil {
		got := *rc
		res.Void, res.Replayed, res.Receipt, res.Outcome = rc.Void, true, &got, rc.Outcome
		res.Budget = rc.Outcome.Bucket.Budget
		return Decision{Result: res}
	}
	res.Void = true
	n := Attempt{Number: c.Attempt, Created: v.Now}
	if a != nil {
		n = *a
	}
	if c.Target.Opens() && n.State == StateCancelled {
		res.Outcome = Outcome{State: n.State, At: v.Now}
		return Decision{Result: res} // the tombstone already keeps it out
	}
	if r := attemptRoom(v.Row, c.Attempt); r != nil {
		return reject(r)
	}
	if r := room(v.Row, c, &n); r != nil {
		return reject(r)
	}
	if c.Target.Opens() && n.State == StateNone {
		n.State = StateVoid
	}
	res.Outcome = Outcome{State: n.State, At: v.Now}
	n.Receipts = append(slices.Clip(n.Receipts), Receipt{Op: c.Target, ID: c.ID, Void: true, Outcome: res.Outcome})
	return Decision{Result: res, Attempt: &n}
}
