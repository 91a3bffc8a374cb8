package ledger

import (
	"fmt"
)

// commit: RESERVED → COMMITTED, or still RESERVED while a rest is held. The
// state decides, not the clock: a reservation that is overdue but not yet
// expired commits.
func commit(v *View, c *Command, a *Attempt) Decision {
	if a.State == StateExpired || (a.State.spent() && a.Leg.Lapsed > 0) {
		return commitLate(v, c, a)
	}
	if a.State != StateReserved {
		return illegal(c, a, "RESERVED")
	}
	n := *a
	amount := c.Amount
	if amount == 0 {
		amount = n.Leg.Held
	}
	taken := min(amount, n.Leg.Held)
	over := amount - taken
	if over > 0 {
		// Taking more than is held ends the hold, so this happens once and
		// the limit bounds the sum of all commits.
		if limit := v.Budget.Policy.OverCommit.Limit(n.Leg.Amount); over > limit {
			return reject(&Rejection{
				Code: OverCommitRefused, Field: "amount_minor", Value: itoa(amount), Limit: itoa(n.Leg.Held + limit),
				State: a.State.String(), Attempt: a.Number, Message: "is above what is reserved",
			})
		}
		if over > v.spendable() {
			return short(v, over)
		}
	}
	rest := n.Leg.Held - taken
	if c.Partial {
		rest = 0
	}
	n.Leg.Held -= taken + rest
	n.Leg.Committed += amount
	if n.Leg.Held == 0 {
		n.State = StateCommitted
	}
	n.CommitSeq = v.Bucket.Seq + 1
	entry := EntryCommit
	if c.Op == OpSettle {
		entry = EntrySettle
	}
	return accept(v, c, change{
		attempt: n, entry: entry, amount: amount,
		delta: Balances{Available: rest - over, Reserved: -(taken + rest), Committed: amount},
	})
}

// commitLate decides a Commit that comes after Expire, by the budget's policy.
// A paid order is never silently uncounted.
func commitLate(v *View, c *Command, a *Attempt) Decision {
	amount := c.Amount
	if amount == 0 {
		amount = a.Leg.Lapsed
	}
	base := Rejection{
		State: a.State.String(), Attempt: a.Number,
		Message: fmt.Sprintf("the hold of attempt %d expired at %s", a.Number, a.Expires.UTC().Format("2006-01-02T15:04:05.000Z")),
	}
	switch v.Budget.Policy.LateCommit {
	case LateReclaim:
	case LateCase:
		r := base
		r.Code = LateCommitCase
		if a.CaseOpened {
			return reject(&r)
		}
		n := *a
		n.CaseOpened = true
		return Decision{Rejection: &r, Attempt: &n, Case: &Case{
			Key: v.Row.Key, Attempt: a.Number, Budget: a.Leg.Bucket.Budget, Amount: a.Leg.Lapsed, Opened: v.Now,
		}}
	default:
		r := base
		r.Code = LateCommitRejected
		return reject(&r)
	}
	if amount > a.Leg.Lapsed {
		return reject(&Rejection{
			Code: OverCommitRefused, Field: "amount_minor", Value: itoa(amount), Limit: itoa(a.Leg.Lapsed),
			State: a.State.String(), Attempt: a.Number, Message: "is above what had been reserved",
		})
	}
	n := *a
	n.Leg.Lapsed -= amount
	if !c.Partial { // final: what is not committed now can no longer be
		n.Leg.Lapsed = 0
	}
	return spendAgain(v, c, &n, amount, true)
}

// reclaim: RELEASED or EXPIRED → COMMITTED, for all that was reserved: the
// order was paid after all. Where a part had been committed before the rest
// expired, it is for that rest.
func reclaim(v *View, c *Command, a *Attempt) Decision {
	n := *a
	amount := n.Leg.Amount
	switch {
	case a.State == StateReleased || a.State == StateExpired:
	case a.State.spent() && n.Leg.Lapsed > 0:
		amount = n.Leg.Lapsed
	default:
		return illegal(c, a, "RELEASED or EXPIRED")
	}
	n.Leg.Lapsed = 0
	return spendAgain(v, c, &n, amount, false)
}

// spendAgain takes money that had gone back to the budget: available →
// committed. A wallet may owe it, since the work was done. n is the attempt to
// change.
func spendAgain(v *View, c *Command, n *Attempt, amount int64, late bool) Decision {
	if h := v.Row.holder(n.Number); h != nil {
		return reject(holdsMoney(h))
	}
	if v.Budget.Kind == KindWallet {
		if d := debt(v, v.Row.Attempt(n.Number), amount); d != nil {
			return *d
		}
	} else if amount > v.Bucket.Available {
		return short(v, amount)
	}
	n.Leg.Committed += amount
	n.State = refundState(&n.Leg)
	n.CommitSeq = v.Bucket.Seq + 1
	ch := change{
		attempt: *n, entry: EntryReclaim, amount: amount, late: late,
		delta: Balances{Available: -amount, Committed: amount},
	}
	if late {
		ch.cause = "late_commit"
	}
	return accept(v, c, ch)
}

// extend gives a hold more time, never less.
func extend(v *View, c *Command, a *Attempt) Decision {
	if a.State != StateReserved {
		return illegal(c, a, "RESERVED")
	}
	n := *a
	until := v.Now.Add(c.TTL)
	if limit := n.Created.Add(v.Budget.Policy.MaxLifetime); until.After(limit) {
		return reject(tooLong("ttl", c.TTL, max(0, limit.Sub(v.Now)), "0s"))
	}
	if until.After(n.Expires) {
		n.Expires = until
	}
	return accept(v, c, change{attempt: n, entry: EntryExtend})
}

// expire: RESERVED and past its expiry → EXPIRED.
func expire(v *View, c *Command, a *Attempt) Decision {
	if a.State != StateReserved {
		return illegal(c, a, "RESERVED")
	}
	if v.Now.Before(a.Expires) {
		return reject(&Rejection{
			Code: NotDue, State: a.State.String(), Attempt: a.Number, RetryAfter: a.Expires.Sub(v.Now),
			Message: fmt.Sprintf("attempt %d expires at %s", a.Number, a.Expires.UTC().Format("2006-01-02T15:04:05.000Z")),
		})
	}
	return lapse(v, c, a, EntryExpire, StateExpired)
}
