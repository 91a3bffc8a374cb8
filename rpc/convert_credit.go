package rpc

import (
	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// onJob is what all requests on a job have.
type onJob interface {
	GetJobId() string
	GetAttempt() uint32
	GetWallet() string
	GetCorrelationId() string
}

func jobCommand(op ledger.Op, tenant string, m onJob) ledger.Command {
	c := ledger.Command{Op: op, Key: ledger.JobKey(tenant, m.GetJobId()), Attempt: m.GetAttempt(), Correlation: m.GetCorrelationId()}
	c.Budget = optionalBudget(tenant, m.GetWallet())
	if op.Opens() {
		c.Budget.Tenant = tenant // also of a wallet that was left out: it is the key that is missing
	}
	return c
}

func chargeOf(tenant string, m *cofferv1.ChargeRequest) ledger.Command {
	c := jobCommand(ledger.OpCharge, tenant, m)
	c.Amount, c.Currency = m.GetAmountMinor(), m.GetCurrency()
	return c
}

func holdOf(tenant string, m *cofferv1.HoldRequest) (ledger.Command, *ledger.Rejection) {
	c := jobCommand(ledger.OpHold, tenant, m)
	c.Amount, c.Currency = m.GetAmountMinor(), m.GetCurrency()
	var r *ledger.Rejection
	c.TTL, r = durationOf("ttl", m.GetTtl())
	return c, r
}

func settleOf(tenant string, m *cofferv1.SettleRequest) ledger.Command {
	c := jobCommand(ledger.OpSettle, tenant, m)
	c.ID, c.Amount, c.Partial = m.GetOperationId(), m.GetAmountMinor(), m.GetPartial()
	return c
}

func releaseHoldOf(tenant string, m *cofferv1.ReleaseHoldRequest) ledger.Command {
	c := jobCommand(ledger.OpRelease, tenant, m)
	c.ID = m.GetOperationId()
	return c
}

func createWalletOf(tenant string, m *cofferv1.CreateWalletRequest) (ledger.Command, *ledger.Rejection) {
	c := ledger.Command{Op: ledger.OpCreate, Kind: ledger.KindWallet, Budget: ledger.ParseBudget(tenant, m.GetWallet()), Currency: m.GetCurrency(), Buckets: 1}
	p := m.GetPolicy()
	c.Policy = ledger.Policy{
		LateCommit: ledger.LateReclaim, Overdraft: p.GetOverdraftMinor(), DebtCap: p.GetDebtCapMinor(),
		OverCommit: ledger.OverCommit{Percent: p.GetOverCommit().GetPercent(), Amount: p.GetOverCommit().GetAmountMinor()},
	}
	if late := p.GetLateSettle(); late != cofferv1.LateCommit_LATE_COMMIT_UNSPECIFIED {
		c.Policy.LateCommit = lateCommits.from(late)
	}
	if p.GetMaxLifetime() == nil {
		return c, nil
	}
	var r *ledger.Rejection
	c.Policy.MaxLifetime, r = durationOf("policy.max_lifetime", p.GetMaxLifetime())
	return c, r
}

func walletOf(b *ledger.Budget, total ledger.Balances) *cofferv1.Wallet {
	p := policyOf(&b.Policy)
	return &cofferv1.Wallet{
		Wallet: b.ID.String(), Currency: b.Currency, State: budgetStates.to(b.State), CreateTime: stamp(b.Created),
		Policy: &cofferv1.WalletPolicy{
			OverdraftMinor: b.Policy.Overdraft, DebtCapMinor: b.Policy.Debt(), OverCommit: p.GetOverCommit(),
			LateSettle: p.GetLateCommit(), MaxLifetime: p.GetMaxLifetime(),
		},
		BalanceMinor: total.Available, DebtMinor: max(0, -total.Available), SpendableMinor: max(0, total.Available+b.Policy.Overdraft),
		HeldMinor: total.Reserved, SpentMinor: total.Committed - total.Reversed, GrantedMinor: total.Funded,
	}
}

func statementOf(v *store.StatementView, next string) *cofferv1.StatementResponse {
	m := &cofferv1.StatementResponse{
		Wallet: v.Wallet.ID.String(), Currency: v.Wallet.Currency, FromTime: stamp(v.From), CutoffTime: stamp(v.Cutoff),
		OpeningBalanceMinor: v.Opening.Available, ClosingBalanceMinor: v.Closing.Available,
		Rows: make([]*cofferv1.StatementRow, len(v.Rows)), NextPageToken: next,
	}
	for i := range v.Rows {
		e := &v.Rows[i]
		m.Rows[i] = &cofferv1.StatementRow{
			Time: stamp(e.Time), Type: entryTypes.to(e.Type), JobId: e.Order, Attempt: e.Attempt, AmountMinor: e.Delta.Available,
			BalanceMinor: e.After.Available, EntrySeq: e.Seq, RefersTo: e.RefersTo, Cause: e.Cause,
		}
	}
	return m
}

// jobsOf gives all attempts at a job.
func jobsOf(r *ledger.Reservation) []*cofferv1.Job {
	var out []*cofferv1.Job
	for _, m := range attemptsOf(r) {
		a := r.Attempt(m.GetAttempt())
		out = append(out, &cofferv1.Job{
			JobId: m.GetOrderId(), Attempt: m.GetAttempt(), Wallet: m.GetBudget(), Currency: m.GetCurrency(), State: jobStateOf(a),
			AmountMinor: m.GetAmountMinor(), HeldMinor: m.GetHeldMinor(), ChargedMinor: m.GetCommittedMinor(), RefundedMinor: m.GetReversedMinor(),
			CreateTime: m.GetCreateTime(), ExpireTime: m.GetExpireTime(), Receipts: m.GetReceipts(),
		})
	}
	return out
}

func jobStateOf(a *ledger.Attempt) cofferv1.JobState {
	if a.State == ledger.StateCommitted && a.Delivered() {
		return cofferv1.JobState_JOB_STATE_DELIVERED
	}
	return jobStates.to(a.State)
}

// quoteOf reads the quote of a Reserve; nil where there is none.
func quoteOf(m *cofferv1.Quote) *ledger.Quote {
	if m == nil {
		return nil
	}
	q := &ledger.Quote{ID: m.GetQuoteId(), Rounding: roundings.from(m.GetRounding())}
	for _, l := range m.GetLines() {
		q.Lines = append(q.Lines, ledger.QuoteLine{ID: l.GetLineId(), Quantity: l.GetQuantity(), Amount: l.GetAmountMinor()})
	}
	for _, f := range m.GetFunders() {
		q.Funders = append(q.Funders, ledger.Funder{ID: f.GetFunderId(), Weight: f.GetWeight()})
	}
	return q
}

func refundLinesOf(lines []*cofferv1.RefundLine) []ledger.RefundLine {
	var out []ledger.RefundLine
	for _, l := range lines {
		out = append(out, ledger.RefundLine{ID: l.GetLineId(), Quantity: l.GetQuantity()})
	}
	return out
}

// withAllocations adds what each quoted attempt of a reservation paid and
// refunded by line.
func withAllocations(attempts []*cofferv1.Reservation, views []store.AllocationView) []*cofferv1.Reservation {
	for _, m := range attempts {
		for i := range views {
			if v := &views[i]; v.Attempt == m.GetAttempt() && v.Key.Benefit == m.GetBenefitKey() {
				m.Allocation = allocationOf(v, m.GetReceipts())
			}
		}
	}
	return attempts
}

func allocationOf(v *store.AllocationView, receipts []*cofferv1.Receipt) *cofferv1.Allocation {
	m := &cofferv1.Allocation{QuoteId: v.Quote.ID, Rounding: roundings.to(v.Quote.Rounding), TotalMinor: v.Total}
	for i := range v.Lines {
		l, q := &v.Lines[i], &v.Quote.Lines[i]
		paid, refunded := l.Paid()
		line := &cofferv1.AllocationLine{LineId: q.ID, Quantity: q.Quantity, RefundedQuantity: l.Returned, PaidMinor: paid, RefundedMinor: refunded}
		for f, c := range l.Cells {
			share := &cofferv1.FunderShare{PaidMinor: c.Paid, RefundedMinor: c.Reversed}
			if f < len(v.Quote.Funders) {
				share.FunderId, share.Weight = v.Quote.Funders[f].ID, v.Quote.Funders[f].Weight
			}
			line.Funders = append(line.Funders, share)
		}
		m.Lines = append(m.Lines, line)
	}
	undone := map[string]bool{}
	for _, r := range receipts {
		if r.GetOperation() == cofferv1.Operation_OPERATION_REINSTATE && !r.GetVoid() {
			undone[r.GetId()] = true
		}
	}
	for i := range v.Refunds {
		r := &v.Refunds[i]
		refund := &cofferv1.AllocationRefund{RefundId: r.ID, AmountMinor: r.Amount(), Undone: undone[r.ID]}
		for j := range r.Lines {
			l := &r.Lines[j]
			refund.Lines = append(refund.Lines, &cofferv1.AllocationRefundLine{
				LineId: v.Quote.Lines[l.Index].ID, Quantity: l.Quantity, AmountMinor: l.Amount(), FunderAmountsMinor: l.Amounts,
			})
		}
		m.Refunds = append(m.Refunds, refund)
	}
	return m
}
