package ledger

import "fmt"

// BudgetKind says what a budget's money is for.
type BudgetKind uint8

// Kinds of budgets. A wallet is a budget with exactly one bucket whose money
// pays for jobs: its balance, what is available, is the sum of its entries.
const (
	KindPromotion BudgetKind = iota // benefits of orders
	KindWallet                      // a customer's credits
)

func (k BudgetKind) String() string { return [...]string{"PROMOTION", "WALLET"}[min(int(k), 1)] }

// named is what the budget's owner calls it.
func (b *Budget) named() string {
	if b.Kind == KindWallet {
		return "wallet " + b.ID.String()
	}
	return "budget " + b.ID.String()
}

// JobBenefit is the benefit key of every job. A job is an order with this one
// benefit, so that receipts, attempts, expiry and audit are those of orders;
// no benefit of an order may use it.
const JobBenefit = "$job"

// JobKey names a job.
func JobKey(tenant, job string) OrderKey {
	return OrderKey{Tenant: tenant, Order: job, Benefit: JobBenefit}
}

// IsJob reports whether the key names a job.
func (k OrderKey) IsJob() bool { return k.Benefit == JobBenefit }

// field names the request's field that has the order.
func (k OrderKey) field() string {
	if k.IsJob() {
		return "job_id"
	}
	return "order_id"
}

// Debt is how far below zero the cost of delivered work may take available:
// the debt cap, or the overdraft where that is larger.
func (p *Policy) Debt() int64 { return max(p.Overdraft, p.DebtCap) }

// Floor is the lowest that a bucket's available may ever be: 0 but for
// wallets.
func (p *Policy) Floor() int64 { return -p.Debt() }

// spendable is what a new commitment may take: what is available and the
// overdraft.
func (v *View) spendable() int64 { return v.Bucket.Available + v.Budget.Policy.Overdraft }

// Delivered reports whether it is settled that the job's work was done: its
// success was signalled, or its actual cost was. From then on nothing refunds
// it. That follows from the receipts, so no other field can contradict them.
func (a *Attempt) Delivered() bool {
	for i := range a.Receipts {
		if r := &a.Receipts[i]; (r.Op == OpReclaimCharge || r.Op == OpSettle) && !r.Void {
			return true
		}
	}
	return false
}

// checkSubject keeps jobs and benefits apart: each kind of command works on
// one of them.
func (c *Command) checkSubject() *Rejection {
	job, both := c.Op.forJobs()
	if both || job == c.Key.IsJob() {
		return nil
	}
	if job {
		return invalid("benefit_key", clip(c.Key.Benefit), JobBenefit, fmt.Sprintf("is not that of a job, which %s works on", c.Op))
	}
	return invalid("benefit_key", clip(c.Key.Benefit), "another key", fmt.Sprintf("is reserved for jobs, on which %s does not work", c.Op))
}

// checkKind keeps wallets for jobs and promotion budgets for orders.
func checkKind(b *Budget, c *Command) *Rejection {
	want := KindPromotion
	if c.Key.IsJob() {
		want = KindWallet
	}
	if b.Kind == want {
		return nil
	}
	return &Rejection{
		Code: BudgetKindMismatch, Field: "budget", Value: b.ID.String(), Limit: "a budget of kind " + want.String(),
		Message: fmt.Sprintf("is of kind %s; %s works on %s", b.Kind, c.Op, want),
	}
}
