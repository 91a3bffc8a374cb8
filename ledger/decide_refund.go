package ledger

import "fmt"

// reverse: refunds part or all of what was committed. In a closed budget the
// money goes to the sink in the same transaction; the budget stays closed.
func reverse(v *View, c *Command, a *Attempt) Decision {
	if a.State != StateCommitted && a.State != StatePartlyReversed {
		return illegal(c, a, "COMMITTED or PARTLY_REVERSED")
	}
	n := *a
	if left := n.Leg.Committed - n.Leg.Reversed; c.Amount > left {
		return reject(&Rejection{
			Code: RefundExceedsCommit, Field: "amount_minor", Value: itoa(c.Amount), Limit: itoa(left),
			State: a.State.String(), Attempt: a.Number, Requested: c.Amount, Available: left, Message: "is above what is committed and not yet refunded",
		})
	}
	if !a.Quoted() {
		if len(c.Lines) > 0 {
			return reject(&Rejection{
				Code: QuoteMissing, Field: "lines", Value: clip(c.Lines[0].ID), State: a.State.String(), Attempt: a.Number,
				Message: fmt.Sprintf("are not known: attempt %d was reserved without a quote", a.Number),
			})
		}
		return giveBack(v, c, &n, c.Amount)
	}
	if v.Allocation == nil {
		return Decision{Need: NeedAllocation}
	}
	after, split, r := v.Allocation.split(c, &n.Leg)
	if r != nil {
		r.State, r.Attempt = a.State.String(), a.Number
		return reject(r)
	}
	d := giveBack(v, c, &n, split.Amount())
	if d.Need == NeedNothing && d.Rejection == nil {
		d.Allocation, d.Split = after, split
	}
	return d
}

// giveBack moves the money of a refund. Units whose share rounds to nothing
// move none, but are refunded all the same.
func giveBack(v *View, c *Command, n *Attempt, amount int64) Decision {
	n.Leg.Reversed += amount
	n.State = refundState(&n.Leg)
	ch := change{
		attempt: *n, entry: EntryReverse, amount: amount, refers: n.CommitSeq,
		delta: Balances{Available: amount, Reversed: amount},
	}
	if v.Budget.State != BudgetClosed || amount == 0 {
		return accept(v, c, ch)
	}
	if v.Sink == nil {
		return Decision{Need: NeedSink}
	}
	return acceptWithSink(v, c, ch, amount, EntryMoveIn)
}

func refundState(l *Leg) State {
	switch {
	case l.Reversed == 0:
		return StateCommitted
	case l.Reversed < l.Committed:
		return StatePartlyReversed
	default:
		return StateReversed
	}
}

// reinstate undoes one refund: what it gave back is taken again, from the same
// lines and funders. The REVERSE entry stays.
func reinstate(v *View, c *Command, a *Attempt) Decision {
	rc := a.receipt(OpReverse, c.ID)
	if rc == nil || rc.Void {
		return reject(&Rejection{
			Code: RefundNotFound, Field: "refund_id", Value: clip(c.ID), State: a.State.String(), Attempt: a.Number,
			Message: fmt.Sprintf("is not a refund of attempt %d", a.Number),
		})
	}
	if h := v.Row.holder(a.Number); h != nil {
		return reject(holdsMoney(h))
	}
	if !a.Quoted() {
		return takeAgain(v, c, a, rc)
	}
	if v.Allocation == nil || v.Split == nil {
		return Decision{Need: NeedAllocation}
	}
	d := takeAgain(v, c, a, rc)
	if d.Need == NeedNothing && d.Rejection == nil {
		d.Allocation = v.Allocation.clone()
		d.Allocation.book(v.Split, -1)
	}
	return d
}

// takeAgain moves the money of a reinstatement.
func takeAgain(v *View, c *Command, a *Attempt, rc *Receipt) Decision {
	n := *a
	amount := rc.Outcome.Amount
	n.Leg.Reversed -= amount
	n.State = refundState(&n.Leg)
	ch := change{
		attempt: n, entry: EntryReinstate, amount: amount, refers: rc.Outcome.Seq,
		delta: Balances{Available: -amount, Reversed: -amount},
	}
	if rc.Sink == nil {
		if amount > v.Bucket.Available {
			return short(v, amount)
		}
		return accept(v, c, ch)
	}
	if v.Sink == nil {
		return Decision{Need: NeedSink, SinkBucket: rc.Sink, Short: amount}
	}
	if amount > v.Sink.Available {
		has := max(v.Sink.Available, v.TotalAvailable)
		return reject(&Rejection{
			Code: InsufficientBudget, Field: "refund_id", Value: clip(c.ID), Limit: itoa(has),
			Requested: amount, Available: has,
			Message: fmt.Sprintf("gave %d to budget %s, which has less available now", amount, v.Sink.ID.Budget),
		})
	}
	return acceptWithSink(v, c, ch, -amount, EntryMoveOut)
}

// acceptWithSink accepts a refund command whose money does not stay in its own
// bucket: the bucket's funds shrink (or grow) by what the sink's grow (or
// shrink), one entry in each.
func acceptWithSink(v *View, c *Command, ch change, amount int64, move EntryType) Decision {
	ch.delta.Available -= amount
	ch.delta.Funded -= amount
	sink := v.Sink.ID
	ch.sink = &sink
	d := accept(v, c, ch)
	if d.Rejection != nil {
		return d
	}
	delta := Balances{Funded: amount, Available: amount}
	after, r := apply(v.Sink, delta, 0)
	if r != nil {
		return reject(r)
	}
	source := v.Bucket.ID
	d.Entry.Peer = &sink
	d.SinkEntry = &Entry{
		Seq: v.Sink.Seq + 1, Type: move, Order: v.Row.Key.Order, Benefit: v.Row.Key.Benefit, Attempt: c.Attempt,
		EventSeq: v.Row.EventSeq + 2, Delta: delta, After: after, Cause: c.ID, Correlation: c.Correlation, Peer: &source,
	}
	return d
}

// SinkBudget names where a reversal of a closed budget goes first: its policy's
// sink, or itself.
func (b *Budget) SinkBudget() BudgetID {
	if b.Policy.ReversalSink.IsZero() {
		return b.ID
	}
	return b.Policy.ReversalSink
}

// SinkBucket is the bucket that takes a reversal of closed budget b for an
// order. The sink takes it while it is there, not closed and of the same
// currency; otherwise it stays in b's own unallocated bucket. Either way it is
// not lost, and b stays closed.
func (b *Budget) SinkBucket(sink *Budget, k OrderKey) BucketID {
	if sink != nil && sink.ID != b.ID && sink.State != BudgetClosed && sink.Currency == b.Currency {
		return sink.Route(k)
	}
	return BucketID{Budget: b.ID, Index: Unallocated}
}
