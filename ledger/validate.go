package ledger

import (
	"fmt"
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
	if c.Attempt > MaxAttempts {
		return invalid("attempt", fmt.Sprint(c.Attempt), fmt.Sprintf("1 to %d", MaxAttempts), "is out of range")
	}
	if !c.Budget.IsZero() || c.Op == OpReserve {
		if r := c.Budget.check("budget"); r != nil {
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
	case OpReserve:
		if r := checkAmount("amount_minor", c.Amount); r != nil {
			return r
		}
		if r := CheckCurrency("currency", c.Currency); r != nil {
			return r
		}
		return checkTTL(c.TTL)
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
		return checkAmount("amount_minor", c.Amount)
	case OpResolve:
		return c.validateResolve()
	}
	return nil
}

func (c *Command) validateResolve() *Rejection {
	switch c.Target {
	case OpReserve, OpCommit, OpExtend, OpRelease, OpReclaim:
	case OpReverse, OpReinstate:
		return checkID("id", c.ID)
	default:
		return invalid("operation", c.Target.String(), "RESERVE, COMMIT, EXTEND, RELEASE, RECLAIM, REVERSE or REINSTATE", "cannot be resolved")
	}
	if c.Target == OpReserve && c.ID != "" {
		return invalid("id", clip(c.ID), "empty for RESERVE", "does not belong to a reserve")
	}
	return nil
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
		return CheckCurrency("currency", c.Currency)
	case OpCreate:
		return c.validateCreate()
	}
	return nil
}

func (c *Command) validateCreate() *Rejection {
	if r := CheckCurrency("currency", c.Currency); r != nil {
		return r
	}
	if c.Buckets < 1 || c.Buckets > MaxBuckets {
		return invalid("buckets", itoa(int64(c.Buckets)), "1 to 256", "is out of range")
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

// checkTTL bounds a time to live from below; the budget bounds it from above.
// Times are kept in milliseconds, so a shorter one would be none at all.
func checkTTL(d time.Duration) *Rejection {
	if d < time.Millisecond {
		return invalid("ttl", d.String(), "1ms up to the budget's maximum lifetime", "must be positive")
	}
	return nil
}
