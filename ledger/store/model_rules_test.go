package store

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger"
)

// decide is the model's answer to a command that comes for the first time; an
// empty code accepts it.
func (m *model) decide(c *ledger.Command) ledger.Code {
	if c.Op.OnBudget() {
		return m.control(c)
	}
	if c.Op == ledger.OpReserve {
		return m.reserve(c)
	}
	a := m.of(c.Key.Order, c.Attempt)
	if a == nil {
		if c.Op == ledger.OpRelease {
			m.put(c, &modelAttempt{state: ledger.StateCancelled})
			return ""
		}
		return ledger.ReservationNotFound
	}
	switch c.Op {
	case ledger.OpCommit:
		return m.commit(c, a)
	case ledger.OpExtend:
		if a.state != ledger.StateReserved {
			return ledger.IllegalState
		}
		if until := m.b.time().Add(c.TTL); until.After(a.expires) {
			a.expires = until
		}
	case ledger.OpRelease, ledger.OpExpire:
		return m.giveBack(c, a)
	case ledger.OpReclaim:
		amount := a.amount
		if a.committed > 0 {
			amount = a.lapsed
		} else if a.state != ledger.StateReleased && a.state != ledger.StateExpired {
			amount = 0
		}
		if amount == 0 {
			return ledger.IllegalState
		}
		if code := m.spendAgain(c, a, amount); code != "" {
			return code
		}
		a.lapsed = 0
	case ledger.OpReverse:
		return m.reverse(c, a)
	case ledger.OpReinstate:
		return m.reinstate(c, a)
	}
	return ""
}

func (m *model) control(c *ledger.Command) ledger.Code {
	b := m.budgets[c.Budget.Key]
	illegal := false
	switch c.Op {
	case ledger.OpFund:
		if illegal = b.state == ledger.BudgetClosed; !illegal {
			b.available += c.Amount
			b.sum += c.Amount
		}
	case ledger.OpDefund:
		if c.Amount > b.available {
			return ledger.InsufficientBudget
		}
		b.available -= c.Amount
		b.sum -= c.Amount
	case ledger.OpFreeze:
		if illegal = b.state != ledger.BudgetOpen; !illegal {
			b.state = ledger.BudgetFrozen
		}
	case ledger.OpUnfreeze:
		if illegal = b.state != ledger.BudgetFrozen; !illegal {
			b.state = ledger.BudgetOpen
		}
	case ledger.OpReshard, ledger.OpMove:
		illegal = b.state == ledger.BudgetClosed
	case ledger.OpClose:
		if illegal = b.state == ledger.BudgetClosed; !illegal {
			b.state = ledger.BudgetClosed
		}
	}
	if illegal {
		return ledger.BudgetIllegalState
	}
	return ""
}

func (m *model) put(c *ledger.Command, a *modelAttempt) {
	if m.attempts[c.Key.Order] == nil {
		m.attempts[c.Key.Order] = map[uint32]*modelAttempt{}
	}
	m.attempts[c.Key.Order][c.Attempt] = a
}

// other says whether an attempt of the order other than n holds money.
func (m *model) other(c *ledger.Command) bool {
	for n, a := range m.attempts[c.Key.Order] {
		if n != c.Attempt && a.state.HoldsMoney() {
			return true
		}
	}
	return false
}

func (m *model) reserve(c *ledger.Command) ledger.Code {
	b := m.budgets[c.Budget.Key]
	if a := m.of(c.Key.Order, c.Attempt); a != nil {
		return ledger.CancelledBeforeReserve // all others have a receipt
	}
	if m.other(c) {
		return ledger.AttemptHoldsMoney
	}
	for n := range m.attempts[c.Key.Order] {
		if n > c.Attempt {
			return ledger.AttemptSuperseded
		}
	}
	a := &modelAttempt{state: ledger.StateRejected, budget: c.Budget.Key, amount: c.Amount, refunds: map[string]int64{}, sinks: map[string]string{}}
	switch {
	case b.state == ledger.BudgetFrozen:
		m.put(c, a)
		return ledger.BudgetFrozenCode
	case b.state == ledger.BudgetClosed:
		m.put(c, a)
		return ledger.BudgetClosedCode
	case c.Amount > b.available:
		m.put(c, a)
		return ledger.InsufficientBudget
	}
	a.state, a.held, a.expires = ledger.StateReserved, c.Amount, m.b.time().Add(c.TTL)
	m.put(c, a)
	b.available -= c.Amount
	b.reserved += c.Amount
	return ""
}

func (m *model) commit(c *ledger.Command, a *modelAttempt) ledger.Code {
	if a.lapsed > 0 {
		return m.commitLate(c, a)
	}
	if a.state != ledger.StateReserved {
		return ledger.IllegalState
	}
	b := m.budgets[a.budget]
	amount := c.Amount
	if amount == 0 {
		amount = a.held
	}
	if over := amount - a.held; over > 0 {
		if over > max(b.policy.OverCommit.Amount, a.amount*int64(b.policy.OverCommit.Percent)/100) {
			return ledger.OverCommitRefused
		}
		if over > m.spendable(a.budget) {
			return ledger.InsufficientBudget
		}
	}
	rest := a.held - amount // what goes back, or below zero what comes
	if rest > 0 && c.Partial {
		a.held, rest = rest, 0
		b.reserved -= amount
	} else {
		b.reserved -= a.held
		a.held = 0
		a.state = ledger.StateCommitted
	}
	b.available += rest
	b.net += amount
	a.committed += amount
	return ""
}

func (m *model) commitLate(c *ledger.Command, a *modelAttempt) ledger.Code {
	switch m.budgets[a.budget].policy.LateCommit {
	case ledger.LateReject:
		return ledger.LateCommitRejected
	case ledger.LateCase:
		return ledger.LateCommitCase
	}
	amount := c.Amount
	if amount == 0 {
		amount = a.lapsed
	}
	if amount > a.lapsed {
		return ledger.OverCommitRefused
	}
	code := m.spendAgain(c, a, amount)
	if code == "" {
		a.lapsed -= amount
		if !c.Partial {
			a.lapsed = 0
		}
	}
	return code
}

func (m *model) spendAgain(c *ledger.Command, a *modelAttempt, amount int64) ledger.Code {
	if m.other(c) {
		return ledger.AttemptHoldsMoney
	}
	if amount > m.spendable(a.budget) {
		return ledger.InsufficientBudget
	}
	b := m.budgets[a.budget]
	b.available -= amount
	b.net += amount
	a.committed += amount
	a.state = ledger.StateCommitted
	if a.reversed > 0 {
		a.state = ledger.StatePartlyReversed
	}
	return ""
}

// spendable is what an order can take of a budget that it has a leg in. Of a STRICT
// one that is what is in its bucket, and so not what refunds have left in the
// unallocated one since it was closed. The model does not follow buckets, so it
// takes the ledger's word for that.
func (m *model) spendable(budget string) int64 {
	b := m.budgets[budget]
	if b.policy.Exhaustion != ledger.Strict {
		return b.available
	}
	view, err := m.b.Budget(context.Background(), budgetID(budget))
	if err != nil {
		m.b.t.Fatal(causes(err))
	}
	for _, k := range view.Buckets {
		if k.ID.Index == ledger.Unallocated {
			return b.available - k.Available
		}
	}
	return b.available
}

func (m *model) giveBack(c *ledger.Command, a *modelAttempt) ledger.Code {
	if a.state != ledger.StateReserved {
		return ledger.IllegalState
	}
	if c.Op == ledger.OpExpire && m.b.time().Before(a.expires) {
		return ledger.NotDue
	}
	b := m.budgets[a.budget]
	b.available += a.held
	b.reserved -= a.held
	a.state = ledger.StateReleased
	if c.Op == ledger.OpExpire {
		a.state, a.lapsed = ledger.StateExpired, a.held
	}
	if a.held = 0; a.committed > 0 {
		a.state = ledger.StateCommitted
	}
	return ""
}

func (m *model) reverse(c *ledger.Command, a *modelAttempt) ledger.Code {
	if a.state != ledger.StateCommitted && a.state != ledger.StatePartlyReversed {
		return ledger.IllegalState
	}
	if c.Amount > a.committed-a.reversed {
		return ledger.RefundExceedsCommit
	}
	to := a.budget
	if b := m.budgets[a.budget]; b.state == ledger.BudgetClosed && !b.policy.ReversalSink.IsZero() && m.budgets[b.policy.ReversalSink.Key].state != ledger.BudgetClosed {
		to = b.policy.ReversalSink.Key
	}
	m.refund(a, to, c.Amount)
	a.refunds[c.ID], a.sinks[c.ID] = c.Amount, to
	return ""
}

// refund moves money from what a committed to a budget's available, or back.
func (m *model) refund(a *modelAttempt, to string, amount int64) {
	own := m.budgets[a.budget]
	own.net -= amount
	own.sum -= amount
	m.budgets[to].available += amount
	m.budgets[to].sum += amount
	a.reversed += amount
	switch a.reversed {
	case 0:
		a.state = ledger.StateCommitted
	case a.committed:
		a.state = ledger.StateReversed
	default:
		a.state = ledger.StatePartlyReversed
	}
}

func (m *model) reinstate(c *ledger.Command, a *modelAttempt) ledger.Code {
	amount := a.refunds[c.ID]
	if amount == 0 {
		return ledger.RefundNotFound
	}
	if m.other(c) {
		return ledger.AttemptHoldsMoney
	}
	to := a.sinks[c.ID]
	if amount > m.budgets[to].available {
		return ledger.InsufficientBudget
	}
	m.refund(a, to, -amount)
	a.refunds[c.ID] = 0
	return ""
}
