package ledger

import (
	"fmt"
	"strings"
	"time"
)

// BudgetView is what a command on a budget is decided on.
type BudgetView struct {
	Now time.Time
	// Budget is nil where none exists. Sink is the budget that Create's
	// policy names as reversal sink, nil where none exists.
	Budget, Sink *Budget
	// Buckets are all buckets of the budget, the unallocated one last if it
	// exists. Empty for Create; for Move those of its two that exist.
	Buckets []*Bucket
	// Receipt is what the command's idempotency key has done, nil if nothing.
	Receipt *BudgetReceipt
}

// BudgetReceipt is what makes a command on a budget idempotent.
type BudgetReceipt struct {
	Op      Op
	Budget  BudgetID
	Request []byte
	// State and Totals are the answer, as it was given first.
	// Totals of a move are the sums of its two buckets.
	State  BudgetState
	Totals Balances
	At     time.Time
	// Epoch is that which a RESHARD began; zero for other commands.
	Epoch Epoch
}

// BucketEntry is an entry and the bucket it goes to.
type BucketEntry struct {
	Bucket BucketID
	Entry  Entry
}

// BudgetDecision is what a command on a budget does.
type BudgetDecision struct {
	Result    Result
	Rejection *Rejection
	// Budget replaces the stored definition; nil: it stays.
	Budget *Budget
	// Entries go to their buckets' ledgers. Create's buckets are new.
	Entries []BucketEntry
	// Receipt is stored under the command's key; nil for Create, whose
	// receipt is the budget itself.
	Receipt *BudgetReceipt
}

// DecideBudget says what a normalized, valid command on a budget does. It is
// a pure function.
func DecideBudget(v *BudgetView, c *Command) BudgetDecision {
	if c.Op == OpCreate {
		return create(v, c)
	}
	if rc := v.Receipt; rc != nil {
		return replayBudget(v, c, rc)
	}
	b := v.Budget
	if b == nil {
		return BudgetDecision{Rejection: BudgetMissing(c.Budget)}
	}
	switch c.Op {
	case OpFund, OpDefund:
		if c.Currency != b.Currency {
			return BudgetDecision{Rejection: &Rejection{
				Code: CurrencyMismatch, Field: "currency", Value: c.Currency, Limit: b.Currency,
				Message: "is not the currency of " + b.named(),
			}}
		}
		if c.Op == OpFund {
			return fund(v, c)
		}
		return defund(v, c)
	case OpFreeze:
		return switchState(v, c, EntryFreeze, BudgetFrozen, BudgetOpen)
	case OpUnfreeze:
		return switchState(v, c, EntryUnfreeze, BudgetOpen, BudgetFrozen)
	case OpClose:
		return switchState(v, c, EntryClose, BudgetClosed, BudgetOpen, BudgetFrozen)
	case OpReshard:
		return reshard(v, c)
	case OpMove:
		return moveBetween(v, c)
	default:
		return BudgetDecision{Rejection: invalid("operation", c.Op.String(), "a command on a budget", "does not work on a budget")}
	}
}

func replayBudget(v *BudgetView, c *Command, rc *BudgetReceipt) BudgetDecision {
	if fields := differing(c.Op, rc.Request, c.Canonical()); fields != nil {
		return BudgetDecision{Rejection: &Rejection{
			Code: IdempotencyConflict, Field: "idempotency_key", Value: clip(c.ID), Fields: fields,
			Message: fmt.Sprintf("was first used for %s of budget %s with other values of %s%s", rc.Op, rc.Budget,
				strings.Join(fields, ", "), firstValues(rc.Op, rc.Request, fields)),
		}}
	}
	if v.Budget == nil {
		return BudgetDecision{Rejection: &Rejection{Code: Corrupt, Message: fmt.Sprintf("budget %s has a receipt but no row", rc.Budget)}}
	}
	def := *v.Budget
	def.State = rc.State
	if rc.Epoch.Number != 0 {
		def.Epoch = rc.Epoch
	}
	return BudgetDecision{Result: Result{Budget: rc.Budget, Definition: &def, Totals: rc.Totals, Replayed: true}}
}

func create(v *BudgetView, c *Command) BudgetDecision {
	def := c.Canonical()
	if b := v.Budget; b != nil {
		if fields := differing(OpCreate, b.Definition, def); fields != nil {
			return BudgetDecision{Rejection: &Rejection{
				Code: IdempotencyConflict, Field: "budget", Value: b.ID.String(), Fields: fields,
				State: b.State.String(), Message: fmt.Sprintf("exists with other values of %s%s",
					strings.Join(fields, ", "), firstValues(OpCreate, b.Definition, fields)),
			}}
		}
		first := *b
		first.State = BudgetOpen
		first.Epoch = Epoch{Number: 1, Buckets: uint16(c.Buckets)}
		return BudgetDecision{Result: Result{Budget: b.ID, Definition: &first, Replayed: true}}
	}
	if r := checkInUse("currency", c.Currency); r != nil {
		return BudgetDecision{Rejection: r}
	}
	if s := c.Policy.ReversalSink; !s.IsZero() {
		if v.Sink == nil {
			r := BudgetMissing(s)
			r.Field = "policy.reversal_sink"
			return BudgetDecision{Rejection: r}
		}
		if v.Sink.Currency != c.Currency {
			return BudgetDecision{Rejection: &Rejection{
				Code: CurrencyMismatch, Field: "policy.reversal_sink", Value: v.Sink.Currency,
				Limit: c.Currency, Message: "has another currency",
			}}
		}
		if v.Sink.Kind != KindPromotion {
			return BudgetDecision{Rejection: &Rejection{
				Code: BudgetKindMismatch, Field: "policy.reversal_sink", Value: s.String(), Limit: "a budget of kind PROMOTION",
				Message: "is of kind " + v.Sink.Kind.String(),
			}}
		}
	}
	b := &Budget{
		ID: c.Budget, Kind: c.Kind, Currency: c.Currency, State: BudgetOpen, Policy: c.Policy,
		Epoch: Epoch{Number: 1, Buckets: uint16(c.Buckets)}, Created: v.Now, Definition: def,
	}
	entry := BucketEntry{Bucket: BucketID{Budget: b.ID}, Entry: Entry{Seq: 1, Type: EntryCreate, Correlation: c.Correlation}}
	return BudgetDecision{Result: Result{Budget: b.ID, Definition: b}, Budget: b, Entries: []BucketEntry{entry}}
}

// fund spreads money evenly; what does not divide goes to the first buckets.
func fund(v *BudgetView, c *Command) BudgetDecision {
	if v.Budget.State == BudgetClosed {
		return budgetIllegal(v.Budget, c, "OPEN or FROZEN")
	}
	n := int64(v.Budget.Buckets())
	shares := make([]int64, len(v.Buckets))
	for i := range n {
		shares[i] = c.Amount / n
		if i < c.Amount%n {
			shares[i]++
		}
	}
	return move(v, c, EntryFund, shares, 1)
}

func defund(v *BudgetView, c *Command) BudgetDecision {
	have := make([]int64, len(v.Buckets))
	total := int64(0)
	for i, b := range v.Buckets {
		have[i] = b.Available
		total += b.Available // bounded by the funded total, which fits
	}
	if c.Amount > total {
		return BudgetDecision{Rejection: &Rejection{
			Code: InsufficientBudget, Field: "amount_minor", Value: itoa(c.Amount), Limit: itoa(max(0, total)),
			Requested: c.Amount, Available: total, Message: "exceeds what " + v.Budget.named() + " has available",
		}}
	}
	return move(v, c, EntryDefund, Apportion(c.Amount, have), -1)
}

// move writes one entry for each bucket with a share.
func move(v *BudgetView, c *Command, t EntryType, shares []int64, sign int64) BudgetDecision {
	var d BudgetDecision
	var totals Balances
	for i, b := range v.Buckets {
		after := b.Balances
		if s := shares[i] * sign; s != 0 {
			var r *Rejection
			delta := Balances{Funded: s, Available: s}
			if after, r = apply(b, delta, v.Budget.Policy.Floor()); r != nil {
				if r.Code == AmountOverflow {
					r.Value = itoa(c.Amount) // and not the bucket's share of it
				}
				return BudgetDecision{Rejection: r}
			}
			d.Entries = append(d.Entries, BucketEntry{Bucket: b.ID, Entry: Entry{
				Seq: b.Seq + 1, Type: t, Delta: delta, After: after, Cause: c.ID, Correlation: c.Correlation,
			}})
		}
		var ok bool
		if totals, ok = totals.Add(after); !ok {
			return BudgetDecision{Rejection: &Rejection{
				Code: AmountOverflow, Field: "amount_minor", Value: itoa(c.Amount),
				Limit: "9223372036854775807 minor units in all", Message: "makes the total of " + v.Budget.named() + " overflow",
			}}
		}
	}
	d.finish(v, c, v.Budget.State, totals)
	return d
}

func (d *BudgetDecision) finish(v *BudgetView, c *Command, s BudgetState, totals Balances) {
	def := *v.Budget
	def.State = s
	d.Result = Result{Budget: def.ID, Definition: &def, Totals: totals}
	d.Receipt = &BudgetReceipt{Op: c.Op, Budget: def.ID, Request: c.Canonical(), State: s, Totals: totals, At: v.Now}
}

// switchState moves the budget to another state. Asking for the state it is
// in already is refused: two people who freeze one budget should both know.
func switchState(v *BudgetView, c *Command, t EntryType, to BudgetState, from ...BudgetState) BudgetDecision {
	b := *v.Budget
	legal, names := false, ""
	for _, s := range from {
		legal = legal || b.State == s
		if names != "" {
			names += " or "
		}
		names += s.String()
	}
	if !legal {
		return budgetIllegal(v.Budget, c, names)
	}
	b.State = to
	first := v.Buckets[0]
	d := BudgetDecision{Budget: &b, Entries: []BucketEntry{{Bucket: first.ID, Entry: Entry{
		Seq: first.Seq + 1, Type: t, After: first.Balances, Cause: c.ID, Correlation: c.Correlation,
	}}}}
	d.finish(v, c, to, totalOf(v.Buckets))
	return d
}

func budgetIllegal(b *Budget, c *Command, want string) BudgetDecision {
	return BudgetDecision{Rejection: &Rejection{
		Code: BudgetIllegalState, State: b.State.String(),
		Message: fmt.Sprintf("%s is legal from %s; %s is %s", c.Op, want, b.named(), b.State),
	}}
}
