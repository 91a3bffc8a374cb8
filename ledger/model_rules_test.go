package ledger

// The rules of the model, one command after the other.

func (m *model) decide(r *modelRow, c *Command) Code {
	a := r.attempts[c.Attempt]
	if c.Op.Opens() {
		return m.open(r, c, a)
	}
	if c.Op == OpRelease && a == nil {
		r.attempts[c.Attempt] = &modelAttempt{state: StateCancelled}
		return ""
	}
	if a == nil {
		return ReservationNotFound
	}
	held := a.state == StateReserved
	switch c.Op {
	case OpExtend:
		return m.extend(c, a)
	case OpRelease:
		if !held {
			return IllegalState
		}
		m.lapse(a, StateReleased)
	case OpExpire:
		if !held {
			return IllegalState
		}
		if m.w.now.Before(a.expires) {
			return NotDue
		}
		a.lapsed = a.held
		m.lapse(a, StateExpired)
	case OpCommit, OpSettle:
		return m.commit(r, c, a)
	case OpReclaim:
		return m.reclaim(r, c, a)
	case OpRefund:
		switch {
		case a.state != StateCommitted:
			return IllegalState
		case a.delivered:
			return JobDelivered
		}
		a.reversed, a.state = a.committed, StateReversed
		m.available += a.committed
	case OpReclaimCharge:
		return m.success(r, c, a)
	case OpReverse:
		return a.refund(m, c)
	case OpReinstate:
		return m.reinstate(r, c, a)
	}
	return ""
}

func (m *model) overdraft() int64 { return m.w.budget.Policy.Overdraft }

// other says whether another attempt holds money.
func (r *modelRow) other(n uint32, of func(*modelAttempt) bool) bool {
	for k, a := range r.attempts {
		if k != n && of(a) {
			return true
		}
	}
	return false
}

func holds(a *modelAttempt) bool {
	return a.state == StateReserved || a.state == StateCommitted || a.state == StatePartlyReversed
}

func charged(a *modelAttempt) bool { return a.committed > 0 && a.state != StateReserved }

func (m *model) open(r *modelRow, c *Command, a *modelAttempt) Code {
	switch {
	case a != nil && a.state == StateCancelled:
		return CancelledBeforeReserve
	case m.wallet && a != nil:
		return IllegalState
	case m.wallet && r.other(c.Attempt, charged):
		return JobCharged
	case r.other(c.Attempt, holds):
		return AttemptHoldsMoney
	}
	for n := range r.attempts {
		if n > c.Attempt {
			return AttemptSuperseded
		}
	}
	n := &modelAttempt{amount: c.Amount, refunds: map[string]*modelRefund{}}
	r.attempts[c.Attempt] = n
	if c.Amount > m.available+m.overdraft() {
		n.state = StateRejected
		return InsufficientBudget
	}
	m.available -= c.Amount
	if c.Op == OpCharge {
		n.state, n.committed = StateCommitted, c.Amount
		return ""
	}
	n.state, n.held = StateReserved, c.Amount
	n.expires, n.limit = m.w.now.Add(c.TTL), m.w.now.Add(m.w.budget.Policy.MaxLifetime)
	if c.Quote != nil {
		n.priced(c.Quote)
	}
	return ""
}

func (m *model) extend(c *Command, a *modelAttempt) Code {
	until := m.w.now.Add(c.TTL)
	switch {
	case a.state != StateReserved:
		return IllegalState
	case until.After(a.limit):
		return TTLTooLong
	case until.After(a.expires):
		a.expires = until
	}
	return ""
}

func (m *model) lapse(a *modelAttempt, to State) {
	m.available += a.held
	a.held, a.state = 0, to
	if a.committed > 0 {
		a.state = StateCommitted
	}
}

func (m *model) commit(r *modelRow, c *Command, a *modelAttempt) Code {
	if a.state == StateExpired || (a.committed > 0 && a.lapsed > 0 && a.state != StateReserved) {
		amount := c.Amount
		if amount == 0 {
			amount = a.lapsed
		}
		if amount > a.lapsed {
			return OverCommitRefused
		}
		code := m.spend(r, c, a, amount)
		if code == "" {
			a.delivered = a.delivered || m.wallet
			if a.lapsed -= amount; !c.Partial {
				a.lapsed = 0
			}
		}
		return code
	}
	if a.state != StateReserved {
		return IllegalState
	}
	amount := c.Amount
	if amount == 0 {
		amount = a.held
	}
	over := max(0, amount-a.held)
	if over > a.amount/5 {
		return OverCommitRefused
	}
	if over > 0 && over > m.available+m.overdraft() {
		return InsufficientBudget
	}
	rest := max(0, a.held-amount)
	a.held = 0
	if c.Partial {
		a.held = rest
	} else {
		m.available += rest
	}
	m.available -= over
	a.committed += amount
	a.delivered = m.wallet
	if a.held == 0 {
		a.state = StateCommitted
	}
	return ""
}

// spend takes money again that had gone back.
func (m *model) spend(r *modelRow, c *Command, a *modelAttempt, amount int64) Code {
	switch {
	case r.other(c.Attempt, holds):
		return AttemptHoldsMoney
	case m.wallet && amount > m.available+m.w.budget.Policy.DebtCap:
		return DebtCapReached
	case !m.wallet && amount > m.available:
		return InsufficientBudget
	}
	m.available -= amount
	a.committed += amount
	a.settleState()
	return ""
}

func (a *modelAttempt) settleState() {
	switch {
	case a.reversed == 0:
		a.state = StateCommitted
	case a.reversed < a.committed:
		a.state = StatePartlyReversed
	default:
		a.state = StateReversed
	}
}

func (m *model) reclaim(r *modelRow, c *Command, a *modelAttempt) Code {
	amount := a.amount
	switch {
	case a.state == StateReleased || a.state == StateExpired:
	case a.committed > 0 && a.lapsed > 0 && a.state != StateReserved:
		amount = a.lapsed
	default:
		return IllegalState
	}
	code := m.spend(r, c, a, amount)
	if code == "" {
		a.lapsed = 0
	}
	return code
}

func (m *model) success(r *modelRow, c *Command, a *modelAttempt) Code {
	switch a.state {
	case StateCommitted:
		a.delivered = true
		return ""
	case StateReversed:
		if r.other(c.Attempt, holds) {
			return AttemptHoldsMoney
		}
		if a.reversed > m.available+m.w.budget.Policy.DebtCap {
			return DebtCapReached
		}
		m.available -= a.reversed
		a.reversed, a.state, a.delivered = 0, StateCommitted, true
		return ""
	case StateReleased, StateExpired:
		code := m.spend(r, c, a, a.amount)
		if code == "" {
			a.lapsed, a.delivered = 0, true
		}
		return code
	default:
		return IllegalState
	}
}

// priced divides a quote: each funder's total first, then line by line of what
// is left of them.
func (a *modelAttempt) priced(q *Quote) {
	a.quote = q
	weights := []int64{1}
	if len(q.Funders) > 0 {
		weights = nil
		for _, f := range q.Funders {
			weights = append(weights, f.Weight)
		}
	}
	totals := share(a.amount, weights)
	a.units = make([]int64, len(q.Lines))
	for _, l := range q.Lines {
		cells := share(l.Amount, totals)
		for f := range cells {
			totals[f] -= cells[f]
		}
		a.paid = append(a.paid, cells)
		a.back = append(a.back, make([]int64, len(cells)))
	}
}

// grown is what the cells paid, once what was committed is known.
func (a *modelAttempt) grown() [][]int64 {
	var flat []int64
	total := int64(0)
	for _, cells := range a.paid {
		for _, v := range cells {
			flat = append(flat, v)
			total += v
		}
	}
	switch {
	case a.committed < total:
		flat = share(a.committed, flat)
	case a.committed > total:
		for i, v := range share(a.committed-total, flat) {
			flat[i] += v
		}
	}
	out := make([][]int64, len(a.paid))
	for i := range a.paid {
		n := len(a.paid[i])
		out[i], flat = flat[:n], flat[n:]
	}
	return out
}

func (a *modelAttempt) refund(m *model, c *Command) Code {
	switch {
	case a.state != StateCommitted && a.state != StatePartlyReversed:
		return IllegalState
	case c.Amount > a.committed-a.reversed:
		return RefundExceedsCommit
	case a.quote == nil && len(c.Lines) > 0:
		return QuoteMissing
	}
	rf := &modelRefund{amount: c.Amount}
	if a.quote != nil {
		paid := a.grown()
		if code := rf.divide(a, paid, c); code != "" {
			return code
		}
		a.paid = paid
		for i := range rf.cells {
			a.units[i] += rf.units[i]
			for f, v := range rf.cells[i] {
				a.back[i][f] += v
			}
		}
	}
	a.reversed += rf.amount
	m.available += rf.amount
	a.refunds[c.ID] = rf
	a.settleState()
	return ""
}

// divide fills in what a refund takes from which cell.
func (rf *modelRefund) divide(a *modelAttempt, paid [][]int64, c *Command) Code {
	n := len(paid)
	rf.units, rf.cells = make([]int64, n), make([][]int64, n)
	left, sums := make([][]int64, n), make([]int64, n)
	for i := range paid {
		for f, v := range paid[i] {
			left[i] = append(left[i], v-a.back[i][f])
			sums[i] += v - a.back[i][f]
		}
	}
	parts := share(c.Amount, sums)
	for _, l := range c.Lines {
		at := -1
		for i := range a.quote.Lines {
			if a.quote.Lines[i].ID == l.ID {
				at = i
			}
		}
		if at < 0 {
			return QuoteLineNotFound
		}
		units := a.quote.Lines[at].Quantity - a.units[at]
		if l.Quantity > units {
			return RefundExceedsCommit
		}
		parts[at] = rounded(a.quote.Rounding, sums[at], l.Quantity, units)
		rf.units[at] = l.Quantity
		rf.amount += parts[at]
	}
	for i := range parts {
		rf.cells[i] = share(parts[i], left[i])
	}
	return ""
}

func (m *model) reinstate(r *modelRow, c *Command, a *modelAttempt) Code {
	rf := a.refunds[c.ID]
	switch {
	case rf == nil:
		return RefundNotFound
	case r.other(c.Attempt, holds):
		return AttemptHoldsMoney
	case rf.amount > m.available:
		return InsufficientBudget
	}
	m.available -= rf.amount
	a.reversed -= rf.amount
	for i := range rf.cells {
		a.units[i] -= rf.units[i]
		for f, v := range rf.cells[i] {
			a.back[i][f] -= v
		}
	}
	a.settleState()
	return ""
}
