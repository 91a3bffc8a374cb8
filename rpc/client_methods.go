package rpc

import (
	"context"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// outcome unwraps the answer of a command on an order.
func outcome[Res interface{ GetOutcome() *cofferv1.Outcome }](res Res, err error) (*cofferv1.Outcome, error) {
	if err != nil {
		return nil, err
	}
	return res.GetOutcome(), nil
}

// Reserve holds money of a budget for one benefit of one order.
func (c *Client) Reserve(ctx context.Context, req *cofferv1.ReserveRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Reserve{Reserve: req}}, c.reservations.Reserve, req)
}

// Commit spends what is held, whole or in parts.
func (c *Client) Commit(ctx context.Context, req *cofferv1.CommitRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Commit{Commit: req}}, c.reservations.Commit, req)
}

// Extend gives a hold more time.
func (c *Client) Extend(ctx context.Context, req *cofferv1.ExtendRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Extend{Extend: req}}, c.reservations.Extend, req)
}

// Release gives a hold back; before its Reserve it leaves a tombstone.
func (c *Client) Release(ctx context.Context, req *cofferv1.ReleaseRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Release{Release: req}}, c.reservations.Release, req)
}

// Reclaim spends a hold that was released or has expired.
func (c *Client) Reclaim(ctx context.Context, req *cofferv1.ReclaimRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Reclaim{Reclaim: req}}, c.reservations.Reclaim, req)
}

// Reverse refunds part or all of what was committed.
func (c *Client) Reverse(ctx context.Context, req *cofferv1.ReverseRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Reverse{Reverse: req}}, c.reservations.Reverse, req)
}

// Reinstate undoes a refund that was itself cancelled.
func (c *Client) Reinstate(ctx context.Context, req *cofferv1.ReinstateRequest) (*cofferv1.Outcome, error) {
	return command(ctx, c, &cofferv1.Command{Command: &cofferv1.Command_Reinstate{Reinstate: req}}, c.reservations.Reinstate, req)
}

// Resolve settles a command whose answer was lost: it gives the command's
// outcome, or makes sure that it never happens.
func (c *Client) Resolve(ctx context.Context, req *cofferv1.ResolveRequest) (*cofferv1.ResolveResponse, error) {
	return call(ctx, c, kindCommand, c.reservations.Resolve, req)
}

// GetReservation reads all attempts to spend a benefit of an order.
func (c *Client) GetReservation(ctx context.Context, order, benefit string) ([]*cofferv1.Reservation, error) {
	res, err := call(ctx, c, kindRead, c.reservations.GetReservation, &cofferv1.GetReservationRequest{OrderId: order, BenefitKey: benefit})
	if err != nil {
		return nil, err
	}
	return res.GetAttempts(), nil
}

// CreateBudget makes a budget with no money in it.
func (c *Client) CreateBudget(ctx context.Context, req *cofferv1.CreateBudgetRequest) (*cofferv1.CreateBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.CreateBudget, req)
}

// GetBudget reads a budget and its buckets.
func (c *Client) GetBudget(ctx context.Context, budget string) (*cofferv1.GetBudgetResponse, error) {
	return call(ctx, c, kindRead, c.budgets.GetBudget, &cofferv1.GetBudgetRequest{Budget: budget})
}

// ListBudgets reads one page of the tenant's budgets.
func (c *Client) ListBudgets(ctx context.Context, req *cofferv1.ListBudgetsRequest) (*cofferv1.ListBudgetsResponse, error) {
	return call(ctx, c, kindRead, c.budgets.ListBudgets, req)
}

// FundBudget adds money to a budget.
func (c *Client) FundBudget(ctx context.Context, req *cofferv1.FundBudgetRequest) (*cofferv1.FundBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.FundBudget, req)
}

// DefundBudget takes unreserved money out of a budget.
func (c *Client) DefundBudget(ctx context.Context, req *cofferv1.DefundBudgetRequest) (*cofferv1.DefundBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.DefundBudget, req)
}

// FreezeBudget refuses new reservations until UnfreezeBudget.
func (c *Client) FreezeBudget(ctx context.Context, req *cofferv1.FreezeBudgetRequest) (*cofferv1.FreezeBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.FreezeBudget, req)
}

// UnfreezeBudget takes new reservations again.
func (c *Client) UnfreezeBudget(ctx context.Context, req *cofferv1.UnfreezeBudgetRequest) (*cofferv1.UnfreezeBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.UnfreezeBudget, req)
}

// CloseBudget refuses new reservations for ever.
func (c *Client) CloseBudget(ctx context.Context, req *cofferv1.CloseBudgetRequest) (*cofferv1.CloseBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.CloseBudget, req)
}

// ReshardBudget divides a budget over another number of buckets.
func (c *Client) ReshardBudget(ctx context.Context, req *cofferv1.ReshardBudgetRequest) (*cofferv1.ReshardBudgetResponse, error) {
	return call(ctx, c, kindCommand, c.budgets.ReshardBudget, req)
}

// GetBuckets reads how a budget's money and load are divided.
func (c *Client) GetBuckets(ctx context.Context, budget string) (*cofferv1.GetBucketsResponse, error) {
	return call(ctx, c, kindRead, c.budgets.GetBuckets, &cofferv1.GetBucketsRequest{Budget: budget})
}

// ListEntries reads one page of a budget's ledger.
func (c *Client) ListEntries(ctx context.Context, req *cofferv1.ListEntriesRequest) (*cofferv1.ListEntriesResponse, error) {
	return call(ctx, c, kindRead, c.ledger.ListEntries, req)
}

// Replay adds up a budget's entries to a cutoff. A long ledger needs a client
// with a long attempt timeout.
func (c *Client) Replay(ctx context.Context, req *cofferv1.ReplayRequest) (*cofferv1.ReplayResponse, error) {
	return call(ctx, c, kindRead, c.ledger.Replay, req)
}

// VerifyChain recomputes the hash chain of a budget's buckets.
func (c *Client) VerifyChain(ctx context.Context, budget string) (*cofferv1.VerifyChainResponse, error) {
	return call(ctx, c, kindRead, c.ledger.VerifyChain, &cofferv1.VerifyChainRequest{Budget: budget})
}

// ExplainOrder reads an order's timeline; an empty benefit means all.
func (c *Client) ExplainOrder(ctx context.Context, order, benefit string) (*cofferv1.ExplainOrderResponse, error) {
	return call(ctx, c, kindRead, c.ledger.ExplainOrder, &cofferv1.ExplainOrderRequest{OrderId: order, BenefitKey: benefit})
}

// ListCases reads one page of the late commits that wait for a person.
func (c *Client) ListCases(ctx context.Context, req *cofferv1.ListCasesRequest) (*cofferv1.ListCasesResponse, error) {
	return call(ctx, c, kindRead, c.ledger.ListCases, req)
}

// GetStatus asks a node how it does.
func (c *Client) GetStatus(ctx context.Context) (*cofferv1.GetStatusResponse, error) {
	return call(ctx, c, kindRead, c.operator.GetStatus, &cofferv1.GetStatusRequest{})
}
