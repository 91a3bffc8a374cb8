package ledger

import (
	"fmt"
	"strings"
	"time"
)

// Validate refuses a command that can never be right, whatever the state: a
// missing or malformed field, or a value out of bounds. It expects a
// normalized command.
func (c *Command) Validate() *Rejection {
	if !c.Op.Valid() {
		return invalid("operation", fmt.Sprint(uint8(c.Op)), "a known operation", "is unknown")
	}
	if r := checkOptionalID("correlation_id", c.Correlation); r != nil {
		return r
	}
	if c.Op.OnBudget() {
		return c.validateBudget()
	}
	if r := c.Key.check(); r != nil {
		return r
	}
	if r := c.checkSubject(); r != nil {
		return r
	}
	if c.Attempt > MaxAttempts {
		return invalid("attempt", fmt.Sprint(c.Attempt), fmt.Sprintf("1 to %d", MaxAttempts), "is out of range")
	}
	if !c.Budget.IsZero() || c.Op.Opens() {
		field := "budget"
		if c.Key.IsJob() {
			field = "wallet"
		}
		if r := c.Budget.check(field); r != nil {
			return r
		}
	}
	return c.validateOrder()
}

// idField names the field that carries a command's ID.
func idField(op Op) string {
	switch op {
	case OpCommit:
		return "payment_id"
	case OpReverse, OpReinstate:
		return "refund_id"
	case OpResolve:
		return "id"
	default:
		return "operation_id"
	}
}

func (c *Command) validateOrder() *Rejection {
	check := checkOptionalID
	if c.Op == OpReverse || c.Op == OpReinstate {
		check = checkID
	}
	if r := check(idField(c.Op), c.ID); r != nil {
		return r
	}
	switch c.Op {
	case OpReserve, OpHold, OpCharge:
		return c.validateOpening()
	case OpRefund, OpReclaimCharge:
		return c.withoutID(c.Op)
	case OpSettle:
		// Nothing due is a release: a 0 that was meant so must never take all
		// that is held, as it does in a Commit.
		return checkAmount("amount_minor", c.Amount)
	case OpExtend:
		return checkTTL(c.TTL)
	case OpCommit:
		if c.Amount < 0 {
			return invalid("amount_minor", itoa(c.Amount), "0 (all that is held) to 9223372036854775807 minor units", "is negative")
		}
		if c.Partial && c.Amount == 0 {
			return invalid("amount_minor", "0", "1 to 9223372036854775807 minor units", "must be positive for a partial commit")
		}
	case OpReverse:
		return c.validateReverse()
	case OpResolve:
		return c.validateResolve()
	}
	return nil
}

// validateOpening checks a command that begins an attempt.
func (c *Command) validateOpening() *Rejection {
	if r := checkAmount("amount_minor", c.Amount); r != nil {
		return r
	}
	if r := CheckUnit("currency", c.Currency); r != nil {
		return r
	}
	if c.Op == OpCharge {
		return c.withoutID(c.Op)
	}
	if c.Op == OpReserve && c.Quote != nil {
		if r := c.Quote.validate(c.Amount); r != nil {
			return r
		}
	}
	return checkTTL(c.TTL)
}

// withoutID refuses an id on a command that happens once an attempt: it would
// make a second key of it.
func (c *Command) withoutID(op Op) *Rejection {
	if c.ID == "" {
		return nil
	}
	return invalid("id", clip(c.ID), "empty for "+op.String(), "does not belong to a "+strings.ToLower(op.String()))
}

func (c *Command) validateResolve() *Rejection {
	const orders, jobs = "RESERVE, COMMIT, EXTEND, RELEASE, RECLAIM, REVERSE or REINSTATE", "CHARGE, REFUND, RECLAIM_CHARGE, HOLD, SETTLE, EXTEND or RELEASE"
	limit := orders
	if c.Key.IsJob() {
		limit = jobs
	}
	job, both := c.Target.forJobs()
	if c.Target == OpExpire || c.Target == OpResolve || !c.Target.Valid() || c.Target.OnBudget() || (!both && job != c.Key.IsJob()) {
		return invalid("operation", c.Target.String(), limit, "cannot be resolved")
	}
	switch c.Target {
	case OpReverse, OpReinstate:
		return checkID("id", c.ID)
	case OpReserve, OpHold, OpCharge, OpRefund, OpReclaimCharge:
		return c.withoutID(c.Target)
	default:
		return nil
	}
}

func (c *Command) validateBudget() *Rejection {
	if r := c.Budget.check("budget"); r != nil {
		return r
	}
	if c.Op != OpCreate {
		if r := checkID("idempotency_key", c.ID); r != nil {
			return r
		}
	}
	switch c.Op {
	case OpFund, OpDefund:
		if r := checkAmount("amount_minor", c.Amount); r != nil {
			return r
		}
		return CheckUnit("currency", c.Currency)
	case OpCreate:
		return c.validateCreate()
	case OpReshard:
		return checkBuckets(c.Buckets)
	case OpMove:
		return c.validateMove()
	}
	return nil
}

func checkBuckets(n int) *Rejection {
	if n < 1 || n > MaxBuckets {
		return invalid("buckets", itoa(int64(n)), "1 to 256", "is out of range")
	}
	return nil
}

func (c *Command) validateMove() *Rejection {
	switch {
	case c.From > Unallocated:
		return invalid("from", itoa(int64(c.From)), "0 to 256", "is out of range")
	case c.To >= MaxBuckets:
		return invalid("to", itoa(int64(c.To)), "0 to 255", "is out of range")
	case c.From == c.To:
		return invalid("to", itoa(int64(c.To)), "another bucket than from", "is the same bucket")
	}
	return checkAmount("amount_minor", c.Amount)
}

func (c *Command) validateCreate() *Rejection {
	if r := CheckTenant("tenant", c.Budget.Tenant); r != nil {
		return r
	}
	if r := CheckUnit("currency", c.Currency); r != nil {
		return r
	}
	if r := checkBuckets(c.Buckets); r != nil {
		return r
	}
	if r := c.validateKind(); r != nil {
		return r
	}
	p := &c.Policy
	if p.LateCommit > LateCase || p.Exhaustion > Strict || p.OnUnavailable > SkipBenefit {
		return invalid("policy", fmt.Sprintf("%d/%d/%d", p.LateCommit, p.Exhaustion, p.OnUnavailable), "a known policy", "is unknown")
	}
	if o := p.OverCommit; o.Percent < 0 || o.Percent > 1000 {
		return invalid("policy.over_commit.percent", itoa(int64(o.Percent)), "0 to 1000", "is out of range")
	} else if o.Amount < 0 {
		return invalid("policy.over_commit.amount_minor", itoa(o.Amount), "0 or more", "is negative")
	}
	if d := p.MaxLifetime; d < time.Second || d > MaxLifetimeLimit {
		return invalid("policy.max_lifetime", d.String(), "1s to "+MaxLifetimeLimit.String(), "is out of range")
	}
	if p.ReversalSink != (BudgetID{}) {
		if r := p.ReversalSink.check("policy.reversal_sink"); r != nil {
			return r
		}
		if p.ReversalSink.Tenant != c.Budget.Tenant {
			return BudgetMissing(p.ReversalSink)
		}
		if p.ReversalSink == c.Budget {
			return invalid("policy.reversal_sink", p.ReversalSink.String(), "another budget, or empty for the unallocated bucket", "is the budget itself")
		}
	}
	return nil
}

// validateKind checks what only a wallet has, and what it may not have.
func (c *Command) validateKind() *Rejection {
	p := &c.Policy
	switch {
	case c.Kind > KindWallet:
		return invalid("kind", fmt.Sprint(uint8(c.Kind)), "PROMOTION or WALLET", "is unknown")
	case c.Kind == KindWallet && c.Buckets != 1:
		return invalid("buckets", itoa(int64(c.Buckets)), "1", "is not what a wallet has")
	case c.Kind == KindWallet && p.ReversalSink != (BudgetID{}):
		return invalid("policy.reversal_sink", p.ReversalSink.String(), "empty", "is not for a wallet, whose refunds stay in it")
	}
	for _, f := range [...]struct {
		name string
		v    int64
	}{{"policy.overdraft_minor", p.Overdraft}, {"policy.debt_cap_minor", p.DebtCap}} {
		if c.Kind != KindWallet && f.v != 0 {
			return invalid(f.name, itoa(f.v), "0", "is for wallets only")
		}
		if f.v < 0 || f.v > MaxSum {
			return invalid(f.name, itoa(f.v), fmt.Sprintf("0 to %d minor units", int64(MaxSum)), "is out of range")
		}
	}
	return nil
}

// checkTTL bounds a time to live from below; the budget bounds it from above.
// Times are kept in milliseconds, so a shorter one would be none at all.
func checkTTL(d time.Duration) *Rejection {
	if d < time.Millisecond {
		return invalid("ttl", d.String(), "1ms up to the budget's maximum lifetime", "must be positive")
	}
	return nil
}
