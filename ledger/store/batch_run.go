package store

import (
	"errors"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// runOrder decides and applies one command on an order.
func (b *batch) runOrder(c *ledger.Command, out *Applied) error {
	if first := b.moved[c.Key]; first != nil {
		out.Reroute, out.Epoch = first.Reroute, first.Epoch
		return nil
	}
	row := b.rows[c.Key]
	v := ledger.View{Now: b.now, Row: &row.Reservation}
	bucket, reroute, err := b.place(c, row, &v)
	if err != nil {
		return answer(err, out)
	}
	if reroute != nil {
		out.Reroute, out.Epoch = reroute, v.Budget.Epoch.Number
		if b.moved == nil {
			b.moved = map[ledger.OrderKey]*Applied{}
		}
		b.moved[c.Key] = out
		return nil
	}
	if bucket != nil {
		v.Bucket = &bucket.Bucket
	}
	var sink *bucketState
	for range 4 { // an allocation, a pull and a sink at most, then a decision
		d := ledger.Decide(&v, c)
		switch d.Need {
		case ledger.NeedPull:
			err = b.pull(bucket, d.Short, &v)
		case ledger.NeedAllocation:
			err = b.allocate(c, &v)
		case ledger.NeedSink:
			sink, err = b.sink(&v, &d)
			if sink != nil {
				v.Sink = &sink.Bucket
			}
		default:
			b.applying = true
			b.write(c, row, bucket, sink, &d, out)
			b.applying = false
			return nil
		}
		if err != nil {
			return answer(err, out)
		}
	}
	out.Err = &ledger.Rejection{Code: ledger.Internal, Message: "the command could not be decided"}
	return nil
}

// answer makes a rejection met while loading the command's own answer; an
// engine's error ends the attempt.
func answer(err error, out *Applied) error {
	var r *ledger.Rejection
	if errors.As(err, &r) {
		out.Err = r
		return nil
	}
	return err
}

// place finds the bucket the command works on, or the one it belongs to when
// this is not its queue. A command whose receipt is there needs no bucket.
func (b *batch) place(c *ledger.Command, row *rowState, v *ledger.View) (st *bucketState, reroute *ledger.BucketID, err error) {
	a := row.Attempt(c.Attempt)
	var id ledger.BudgetID
	var want ledger.BucketID
	switch {
	case a != nil && a.State.HasLeg():
		want = a.Leg.Bucket
		id = want.Budget
	case c.Op.Opens():
		id = c.Budget
	default:
		return nil, nil, nil
	}
	bs, err := b.budget(id)
	if err != nil {
		return nil, nil, err
	}
	v.Budget = bs.budget
	if bs.budget == nil {
		if a != nil && a.State.HasLeg() {
			return nil, nil, corrupt("budget "+id.String(), fmt.Errorf("reservation %s names it, but it has no row", c.Key))
		}
		return nil, nil, nil
	}
	if want.Budget.IsZero() {
		want = bs.budget.Route(c.Key)
	}
	if b.home == nil || want != *b.home {
		elsewhere := want
		return nil, &elsewhere, nil
	}
	if st, err = b.bucket(want); err != nil {
		return nil, nil, err
	}
	if !st.exists {
		return nil, nil, corrupt("bucket "+want.String(), errors.New("it has no row"))
	}
	return st, nil, nil
}

// pull brings money from the budget's other buckets for a command on this one.
func (b *batch) pull(to *bucketState, missing int64, v *ledger.View) (err error) {
	v.Pulled = true
	v.TotalAvailable = to.Available
	if v.Budget.Made() == 1 && v.Budget.State != ledger.BudgetClosed {
		return nil // there is no other bucket
	}
	v.TotalAvailable, err = b.gather(to, missing)
	return err
}

// gather brings what is missing in a bucket from its budget's other buckets,
// if all of them together have it: one MOVE_OUT and one MOVE_IN a donor, in
// this very transaction. It returns what the whole budget has.
func (b *batch) gather(to *bucketState, missing int64) (total int64, err error) {
	all, err := b.wholeBudget(to.ID.Budget, true)
	if err != nil {
		return 0, err
	}
	total = to.Available
	donors := make([]ledger.Bucket, 0, len(all))
	for _, st := range all {
		if st != to {
			donors = append(donors, st.Bucket)
			total += st.Available
		}
	}
	for _, p := range ledger.PlanPull(donors, missing) {
		from := b.buckets[p.From]
		b.pin(from)
		out, in, r := ledger.MoveEntries(&from.Bucket, &to.Bucket, p.Amount, ledger.CausePull)
		if r != nil {
			return 0, r
		}
		b.applying = true
		b.touch(from, &out)
		b.touch(to, &in)
		b.applying = false
	}
	return total, nil
}

// sink finds the bucket that takes the money of a reversal into a closed
// budget, or that gave it and has to give it back: the latter from its
// budget's other buckets where it has it no more.
func (b *batch) sink(v *ledger.View, d *ledger.Decision) (*bucketState, error) {
	if d.SinkBucket != nil {
		st, err := b.bucket(*d.SinkBucket)
		if err != nil {
			return nil, err
		}
		v.TotalAvailable = st.Available
		if missing := d.Short - st.Available; missing > 0 {
			v.TotalAvailable, err = b.gather(st, missing)
		}
		return st, err
	}
	var sink *ledger.Budget
	if id := v.Budget.SinkBudget(); id != v.Budget.ID {
		st, err := b.budget(id)
		if err != nil {
			return nil, err
		}
		sink = st.budget
	}
	return b.bucket(v.Budget.SinkBucket(sink, v.Row.Key))
}

// write applies a decision to the overlay.
func (b *batch) write(c *ledger.Command, row *rowState, bucket, sink *bucketState, d *ledger.Decision, out *Applied) {
	if d.Entry != nil {
		b.touch(bucket, d.Entry)
		row.EventSeq++
	}
	if d.SinkEntry != nil {
		b.touch(sink, d.SinkEntry)
		row.EventSeq++
	}
	if d.Attempt != nil {
		row.dirty = true
		if a := row.Attempt(d.Attempt.Number); a != nil {
			*a = *d.Attempt
		} else {
			row.Attempts = append(row.Attempts, *d.Attempt)
		}
		if d.Entry != nil && d.Attempt.State == ledger.StateReserved && (c.Op.Opens() || c.Op == ledger.OpExtend) {
			b.addDue(d.Attempt, c.Key, d.Entry.Seq)
		}
	}
	if d.Case != nil {
		b.cases = append(b.cases, d.Case)
	}
	b.keepAllocation(c, d)
	if d.Rejection != nil {
		out.Err = d.Rejection
		return
	}
	out.Result = d.Result
}

// runBudget decides and applies one command on a budget.
func (b *batch) runBudget(c *ledger.Command, out *Applied) error {
	v := ledger.BudgetView{Now: b.now}
	st, err := b.budget(c.Budget)
	if err != nil {
		return answer(err, out)
	}
	v.Budget = st.budget
	rs := b.receipts[c.Budget.Tenant+"\x00"+c.ID]
	if rs != nil {
		v.Receipt = rs.receipt
	}
	if c.Op == ledger.OpCreate {
		if sink := c.Policy.ReversalSink; !sink.IsZero() {
			ss, err := b.budget(sink)
			if err != nil {
				return answer(err, out)
			}
			v.Sink = ss.budget
		}
	} else if st.budget != nil && v.Receipt == nil {
		if v.Buckets, err = b.bucketsFor(c, st.budget); err != nil {
			return answer(err, out)
		}
	}
	d := ledger.DecideBudget(&v, c)
	if d.Rejection != nil {
		out.Err = d.Rejection
		return nil //nolint:nilerr // the refusal is the command's own answer
	}
	b.applying = true
	if err := b.writeBudget(c, st, rs, &d, out); err != nil {
		return err // half written: the whole attempt must end
	}
	b.applying = false
	return nil
}

// bucketsFor loads the buckets that a command on a budget looks at.
func (b *batch) bucketsFor(c *ledger.Command, bg *ledger.Budget) ([]*ledger.Bucket, error) {
	var out []*ledger.Bucket
	if c.Op == ledger.OpMove {
		for _, i := range [...]uint16{c.From, c.To} {
			k, err := b.bucket(ledger.BucketID{Budget: bg.ID, Index: i})
			if err != nil {
				return nil, err
			}
			if k.exists {
				out = append(out, &k.Bucket)
			}
		}
		return out, nil
	}
	all, err := b.wholeBudget(bg.ID, false)
	if c.Op == ledger.OpFreeze && (isCorrupt(err) || (err == nil && len(all) < bg.Made())) {
		// Where something is wrong a budget must freeze all the same. Its totals
		// are those of the first bucket then.
		first, err := b.bucket(ledger.BucketID{Budget: bg.ID})
		if err != nil || !first.exists {
			return nil, corrupt("budget "+bg.ID.String(), errors.Join(err, errors.New("its first bucket has no row that can be read")))
		}
		return append(out, &first.Bucket), nil
	}
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		out = append(out, &k.Bucket)
	}
	if len(all) < bg.Made() {
		return nil, corrupt("budget "+bg.ID.String(), fmt.Errorf("it has %d of %d buckets", len(all), bg.Made()))
	}
	return out, nil
}

func (b *batch) writeBudget(c *ledger.Command, st *budgetState, rs *receiptState, d *ledger.BudgetDecision, out *Applied) error {
	if d.Budget != nil {
		if c.Op == ledger.OpCreate {
			if err := b.newBuckets(d.Budget); err != nil {
				return err
			}
			st.whole = true
		}
		if c.Op == ledger.OpReshard {
			if err := b.moreBuckets(d.Budget, st.budget.Made()); err != nil {
				return err
			}
		}
		st.budget, st.dirty = d.Budget, true
	}
	for i := range d.Entries {
		en := &d.Entries[i]
		k, err := b.bucket(en.Bucket)
		if err != nil {
			return err
		}
		b.touch(k, &en.Entry)
	}
	if d.Receipt != nil {
		rs.receipt, rs.dirty = d.Receipt, true
	}
	out.Result = d.Result
	return nil
}

// moreBuckets makes the empty buckets that a budget gets when it is resharded;
// it has the first have of them.
func (b *batch) moreBuckets(bg *ledger.Budget, have int) error {
	for i := have; i < bg.Made(); i++ {
		st, err := b.bucket(ledger.BucketID{Budget: bg.ID, Index: uint16(i)})
		if err != nil {
			return err
		}
		if st.exists {
			return corrupt("budget "+bg.ID.String(), fmt.Errorf("it has a bucket %d that no epoch made", i))
		}
		st.exists = true
		b.tx.Set(st.key, encodeBucket(&st.Bucket))
	}
	return nil
}

// newBuckets makes the empty buckets of a new budget. A row that is there
// already belongs to nobody: nothing is overwritten.
func (b *batch) newBuckets(bg *ledger.Budget) error {
	rows, _, err := b.tx.Range(b.s.bucketsOf(bg.ID), kv.RangeOptions{Limit: 1}).Wait()
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		return corrupt("budget "+bg.ID.String(), errors.New("it has buckets but no row"))
	}
	for i := range bg.Epoch.Buckets {
		id := ledger.BucketID{Budget: bg.ID, Index: i}
		st := b.buckets[id]
		if st == nil {
			st = &bucketState{Bucket: ledger.Bucket{ID: id}, key: b.s.bucketKey(id)}
			b.buckets[id] = st
		}
		st.exists = true
		if i > 0 {
			b.tx.Set(st.key, encodeBucket(&st.Bucket))
		}
	}
	return nil
}
