package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// View is all a decision may look at. Decide changes nothing in it.
type View struct {
	// Now is the server's clock, in whole milliseconds.
	Now time.Time
	// Budget is the budget of the reservation (for Reserve: the named one),
	// nil where there is none.
	Budget *Budget
	// Bucket is the reservation's bucket, nil where none is known yet.
	Bucket *Bucket
	// Row is the reservation row; an empty one where none is stored.
	Row *Reservation
	// Pulled: what other buckets could give is in Bucket already, and
	// TotalAvailable is what the whole budget has. For money that has to come
	// back from Sink it is what Sink's budget has.
	Pulled         bool
	TotalAvailable int64
	// Sink is the bucket that takes (or gave) the money of a reversal into a
	// closed budget; set after a decision asked for it.
	Sink *Bucket
	// Allocation is that of the attempt, and Split that of the refund to
	// reinstate; set after a decision asked for them.
	Allocation *Allocation
	Split      *Split
}

// Need says what a decision must see before it can be made.
type Need uint8

// Needs. The store supplies what is asked for and decides again.
const (
	NeedNothing Need = iota
	// NeedPull: the bucket is short by Decision.Short and the policy says
	// that the whole budget counts.
	NeedPull
	// NeedSink: the money of a reversal goes to another bucket, or Short of it
	// has to come back from there.
	NeedSink
	// NeedAllocation: the attempt has a quote, and a refund of it needs the
	// allocation.
	NeedAllocation
)

// Decision is what a command does, as values to be written.
type Decision struct {
	// Need other than NeedNothing: nothing is decided yet.
	Need  Need
	Short int64
	// SinkBucket names the sink where it is already known (reinstatement).
	SinkBucket *BucketID

	Result Result
	// Rejection is the refusal, nil when accepted. A recorded one comes with
	// an Attempt to write.
	Rejection *Rejection
	// Attempt replaces the attempt of its number in the row, or joins it.
	// Nil: the row stays as it is.
	Attempt *Attempt
	// Entry goes to the bucket's ledger; its After are the bucket's new
	// balances. Nil: the bucket stays as it is.
	Entry *Entry
	// SinkEntry goes to View.Sink in the same way.
	SinkEntry *Entry
	// Case is to be stored with the row.
	Case *Case
	// Allocation replaces that of the attempt, Split is stored with the
	// refund.
	Allocation *Allocation
	Split      *Split
}

// Decide says what a normalized, valid command on an order does in the given
// view. It is a pure function: no clock, no I/O, no randomness.
func Decide(v *View, c *Command) Decision {
	switch c.Op {
	case OpReserve, OpHold:
		return reserve(v, c)
	case OpCharge:
		return charge(v, c)
	case OpResolve:
		return resolve(v, c)
	case OpRelease:
		return release(v, c)
	case OpCommit, OpExtend, OpExpire, OpReclaim, OpReverse, OpReinstate, OpSettle, OpRefund, OpReclaimCharge:
	default:
		return reject(invalid("operation", c.Op.String(), "a command on an order", "does not work on an order"))
	}
	a, done := existing(v, c)
	if done != nil {
		return *done
	}
	switch c.Op {
	case OpCommit, OpSettle:
		return commit(v, c, a)
	case OpRefund:
		return refund(v, c, a)
	case OpReclaimCharge:
		return reclaimCharge(v, c, a)
	case OpExtend:
		return extend(v, c, a)
	case OpExpire:
		return expire(v, c, a)
	case OpReclaim:
		return reclaim(v, c, a)
	case OpReverse:
		return reverse(v, c, a)
	default:
		return reinstate(v, c, a)
	}
}

// existing is the top of the ladder of every command that follows a Reserve:
// idempotency first, then whether there is anything to work on.
func existing(v *View, c *Command) (*Attempt, *Decision) {
	a := v.Row.Attempt(c.Attempt)
	if rc := a.receipt(c.Op, c.ID); rc != nil {
		d := replay(c, rc)
		return nil, &d
	}
	if a == nil || a.State == StateNone || a.State == StateVoid {
		r := &Rejection{
			Code: ReservationNotFound, Field: v.Row.Key.field(), Value: clip(v.Row.Key.Order),
			Message: fmt.Sprintf("has no reservation of benefit %s, attempt %d", clip(v.Row.Key.Benefit), c.Attempt),
		}
		if v.Row.Key.IsJob() {
			r.Message = fmt.Sprintf("has no charge and no hold in attempt %d", c.Attempt)
		}
		d := reject(r)
		return nil, &d
	}
	if r := checkBudgetHint(c, a); r != nil {
		d := reject(r)
		return nil, &d
	}
	return a, nil
}

func checkBudgetHint(c *Command, a *Attempt) *Rejection {
	if c.Budget.IsZero() || a.Leg.Bucket.Budget.IsZero() || c.Budget == a.Leg.Bucket.Budget {
		return nil
	}
	return &Rejection{
		Code: BudgetMismatch, Field: "budget", Value: c.Budget.String(),
		Limit: a.Leg.Bucket.Budget.String(), Message: "is not the reservation's budget",
	}
}

func reject(r *Rejection) Decision { return Decision{Rejection: r} }

func illegal(c *Command, a *Attempt, want string) Decision {
	return reject(&Rejection{
		Code: IllegalState, State: a.State.String(), Attempt: a.Number,
		Message: fmt.Sprintf("%s is legal from %s; attempt %d is %s", c.Op, want, a.Number, a.State),
	})
}

// replay answers a command whose receipt is there.
func replay(c *Command, rc *Receipt) Decision {
	if rc.Void {
		return reject(&Rejection{
			Code: Voided, Attempt: c.Attempt, Replayed: true,
			Message: fmt.Sprintf("a resolve settled that %s of attempt %d never happens", rc.Op, c.Attempt),
		})
	}
	if fields := differing(c.Op, rc.Request, c.Canonical()); fields != nil {
		return reject(&Rejection{
			Code: IdempotencyConflict, Fields: fields, Attempt: c.Attempt, State: rc.Outcome.State.String(),
			Message: fmt.Sprintf("%s with this key was first sent with other values of %s%s; %s",
				c.Op, strings.Join(fields, ", "), firstValues(c.Op, rc.Request, fields), rc.ending()),
		})
	}
	if rc.Rejection != "" {
		return reject(rc.Refusal(c.Attempt))
	}
	return Decision{Result: resultOf(c, rc.Outcome, true)}
}

// ending says in words what became of the command with the receipt.
func (r *Receipt) ending() string {
	if r.Rejection == "" {
		return "that one took effect"
	}
	return fmt.Sprintf("that one was refused (%s), and stays refused", r.Rejection)
}

// Refusal gives a recorded rejection again, with the figures that it had.
func (r *Receipt) Refusal(attempt uint32) *Rejection {
	again := &Rejection{
		Code: r.Rejection, State: r.Outcome.State.String(), Attempt: attempt, Replayed: true,
		Requested: r.Requested, Available: r.Available,
		Message: fmt.Sprintf("attempt %d was refused for this reason and stays refused", attempt),
	}
	if r.Rejection == InsufficientBudget {
		again.Field, again.Value, again.Limit = "amount_minor", itoa(r.Requested), itoa(max(0, r.Available))
		again.Message = fmt.Sprintf("exceeded what %s had available, and attempt %d stays refused", r.Outcome.Bucket.Budget, attempt)
	}
	return again
}

func resultOf(c *Command, o Outcome, replayed bool) Result {
	return Result{Key: c.Key, Attempt: c.Attempt, Budget: o.Bucket.Budget, Outcome: o, Replayed: replayed}
}

// Later is the time a bucket's next block carries: never before its last.
func Later(now, last time.Time) time.Time {
	if last.After(now) {
		return last
	}
	return now
}

// change is an accepted command before it is turned into a Decision.
type change struct {
	attempt Attempt // as it will be, without the new receipt
	entry   EntryType
	delta   Balances
	amount  int64
	refers  uint64
	late    bool
	cause   string
	sink    *BucketID // recorded in the receipt
}

// accept is the only way a decision changes a balance: it checks the sums,
// makes the entry and the receipt.
func accept(v *View, c *Command, ch change) Decision {
	a := ch.attempt
	if r := room(v.Row, c, &a); r != nil {
		return reject(r)
	}
	after, r := apply(v.Bucket, ch.delta, v.Budget.Policy.Floor())
	if r != nil {
		return reject(r)
	}
	at := Later(v.Now, v.Bucket.Time)
	o := Outcome{
		State: a.State, Amount: ch.amount, Held: a.Leg.Held, Committed: a.Leg.Committed, Reversed: a.Leg.Reversed,
		Expires: a.Expires, At: at, Bucket: v.Bucket.ID, Seq: v.Bucket.Seq + 1, Late: ch.late,
	}
	a.Receipts = append(slices.Clip(a.Receipts), Receipt{Op: c.Op, ID: c.ID, Request: c.Canonical(), Outcome: o, Sink: ch.sink})
	cause := ch.cause
	if cause == "" {
		cause = c.ID
	}
	return Decision{
		Result:  resultOf(c, o, false),
		Attempt: &a,
		Entry: &Entry{
			Seq: o.Seq, Type: ch.entry, Order: v.Row.Key.Order, Benefit: v.Row.Key.Benefit, Attempt: a.Number,
			EventSeq: v.Row.EventSeq + 1, Delta: ch.delta, After: after, RefersTo: ch.refers, Cause: cause, Correlation: c.Correlation,
		},
	}
}

// apply adds a delta to a bucket and refuses sums that break an invariant. The
// ladders above it make that impossible but for overflow; if they have a hole,
// the command fails loudly and nothing is written. floor is the lowest legal
// available.
func apply(b *Bucket, d Balances, floor int64) (Balances, *Rejection) {
	after, ok := b.Balances.Add(d)
	if !ok || max(after.Funded, after.Available, after.Reserved, after.Committed, after.Reversed) > MaxSum {
		return after, &Rejection{
			Code: AmountOverflow, Field: "amount_minor", Value: itoa(max(d.Funded, d.Available, d.Reserved, d.Committed, d.Reversed)),
			Limit: itoa(MaxSum) + " minor units in each sum of a bucket", Message: "makes a sum of bucket " + b.ID.String() + " overflow",
		}
	}
	if err := after.Check(floor); err != nil {
		return after, &Rejection{Code: Corrupt, Message: "bucket " + b.ID.String() + " would break an invariant", Cause: err}
	}
	return after, nil
}

// room keeps receipts bounded, and always leaves some for the way back. a is
// the attempt as the command would leave it.
func room(row *Reservation, c *Command, a *Attempt) *Rejection {
	limit, rowLimit := MaxReceipts, 2*MaxReceipts
	switch {
	case c.Op == OpExtend || ((c.Op == OpCommit || c.Op == OpSettle) && c.Partial):
		limit, rowLimit = MaxRepeats, 2*MaxReceipts-MaxRepeats
	case c.Op != OpResolve && (c.Op != OpReverse || a.Leg.Reversed == a.Leg.Committed):
		limit, rowLimit = 2*MaxReceipts, MaxRowReceipts
	}
	if len(a.Receipts) < limit && row.receipts() < rowLimit {
		return nil
	}
	return &Rejection{
		Code: OperationLimit, Field: "operation", Value: c.Op.String(),
		Limit: fmt.Sprintf("%d operations an attempt, %d a benefit", limit, rowLimit), State: a.State.String(), Attempt: a.Number,
		Message: fmt.Sprintf("comes after %d operations on attempt %d", len(a.Receipts), a.Number),
	}
}

// short decides what happens when the bucket lacks money: ask for a pull from
// the budget's other buckets if its policy and shape allow one, else refuse.
func short(v *View, want int64) Decision {
	missing := want - v.spendable()
	if v.Budget.Policy.Exhaustion == Exact && !v.Pulled {
		return Decision{Need: NeedPull, Short: missing}
	}
	available := v.Bucket.Available
	if v.Pulled {
		available = v.TotalAvailable
	}
	available += v.Budget.Policy.Overdraft
	return reject(&Rejection{
		Code: InsufficientBudget, Field: "amount_minor", Value: itoa(want), Limit: itoa(max(0, available)),
		Requested: want, Available: available, Message: "exceeds what " + v.Budget.named() + " has available",
	})
}
