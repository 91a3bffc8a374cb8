package ledger

import "fmt"

// Causes of moves within a budget. They are part of the stored format: an
// audit tells by them which command a move belongs to.
const (
	// CausePull is a move that an order's own command made, which was short.
	CausePull = "pull"
	// CauseMove and CauseReshard come before the idempotency key of the MOVE
	// or RESHARD.
	CauseMove, CauseReshard = "move:", "reshard:"
)

// reshard begins a new routing epoch and levels what is available over its
// buckets, in one decision: no order meets a bucket that has no money yet, and
// retired buckets keep none but what their reservations give back later.
func reshard(v *BudgetView, c *Command) BudgetDecision {
	b := v.Budget
	switch {
	case b.Kind != KindPromotion:
		return BudgetDecision{Rejection: &Rejection{
			Code: BudgetKindMismatch, Field: "budget", Value: b.ID.String(),
			Limit: "a budget of kind " + KindPromotion.String(), Message: "is a wallet, which has one bucket",
		}}
	case b.State == BudgetClosed:
		return budgetIllegal(b, c, "OPEN or FROZEN")
	case c.Buckets == b.Buckets():
		return BudgetDecision{Rejection: &Rejection{
			Code: BudgetIllegalState, State: b.State.String(), Field: "buckets", Value: itoa(int64(c.Buckets)),
			Limit: "another number than it has", Message: fmt.Sprintf("is what budget %s has already", b.ID),
		}}
	}
	def := *b
	def.Epoch = b.Epoch.next(uint16(c.Buckets))
	w := newWorkingBuckets(v.Buckets)
	for i := b.Made(); i < def.Made(); i++ {
		w[uint16(i)] = &Bucket{ID: BucketID{Budget: b.ID, Index: uint16(i)}}
	}
	last := BucketID{Budget: b.ID, Index: def.Epoch.Buckets - 1}
	d := BudgetDecision{Budget: &def}
	d.Entries = append(d.Entries, w.add(0, Entry{Type: EntryReshard, After: w[0].Balances, Cause: c.ID, Correlation: c.Correlation, Peer: &last}))
	available := make([]int64, def.Made())
	for i := range available {
		available[i] = w[uint16(i)].Available
	}
	for _, m := range PlanSpread(available, def.Buckets()) {
		if r := d.move(w, m, CauseReshard+c.ID, c.Correlation); r != nil {
			return BudgetDecision{Rejection: r}
		}
	}
	d.finish(v, c, b.State, totalOf(v.Buckets))
	d.Result.Definition, d.Receipt.Epoch = &def, def.Epoch
	return d
}

// moveBetween moves available from one bucket of a budget to another. A plan
// is made on balances of the past, so it may find less than it counted on, or
// a bucket that was retired since: then it is refused and nothing moves.
func moveBetween(v *BudgetView, c *Command) BudgetDecision {
	b := v.Budget
	w := newWorkingBuckets(v.Buckets)
	from, to := w[c.From], w[c.To]
	switch {
	case b.State == BudgetClosed:
		return budgetIllegal(b, c, "OPEN or FROZEN")
	case from == nil:
		return BudgetDecision{Rejection: invalid("from", itoa(int64(c.From)), "a bucket of the budget", "does not exist")}
	case to == nil || int(c.To) >= b.Buckets():
		return BudgetDecision{Rejection: &Rejection{
			Code: BudgetIllegalState, State: b.State.String(), Field: "to", Value: itoa(int64(c.To)),
			Limit: fmt.Sprintf("0 to %d", b.Buckets()-1), Message: fmt.Sprintf("is no bucket that budget %s routes to", b.ID),
		}}
	case c.Amount > from.Available:
		return BudgetDecision{Rejection: &Rejection{
			Code: InsufficientBudget, Field: "amount_minor", Value: itoa(c.Amount), Limit: itoa(max(0, from.Available)),
			Requested: c.Amount, Available: from.Available, Message: fmt.Sprintf("exceeds what bucket %s has available", from.ID),
		}}
	}
	var d BudgetDecision
	if r := d.move(w, Move{From: c.From, To: c.To, Amount: c.Amount}, CauseMove+c.ID, c.Correlation); r != nil {
		return BudgetDecision{Rejection: r}
	}
	d.finish(v, c, b.State, totalOf(v.Buckets))
	return d
}

// workingBuckets are copies of a budget's buckets that a decision carries on
// from entry to entry.
type workingBuckets map[uint16]*Bucket

func newWorkingBuckets(buckets []*Bucket) workingBuckets {
	w := make(workingBuckets, len(buckets))
	for _, b := range buckets {
		k := *b
		w[b.ID.Index] = &k
	}
	return w
}

// add numbers an entry and takes it into its bucket.
func (w workingBuckets) add(index uint16, en Entry) BucketEntry {
	k := w[index]
	en.Seq = k.Seq + 1
	k.Seq, k.Balances = en.Seq, en.After
	return BucketEntry{Bucket: k.ID, Entry: en}
}

// move adds the two entries of a move.
func (d *BudgetDecision) move(w workingBuckets, m Move, cause, correlation string) *Rejection {
	out, in, r := MoveEntries(w[m.From], w[m.To], m.Amount, cause)
	if r != nil {
		return r
	}
	out.Correlation, in.Correlation = correlation, correlation
	d.Entries = append(d.Entries, w.add(m.From, out), w.add(m.To, in))
	return nil
}

// totalOf adds up buckets; their sums are bounded so that it fits.
func totalOf(buckets []*Bucket) (total Balances) {
	for _, k := range buckets {
		total, _ = total.Add(k.Balances)
	}
	return total
}
