package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type budgetReshard struct {
	Budget  string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	Buckets uint32 `arg:"" help:"How many buckets it shall have, 1 to 256." range:"1 to 256"`
	keyed   `embed:""`
}

// Help is the long help.
func (budgetReshard) Help() string {
	return `The budget stays in use: reservations keep the bucket they were made in, and what
is available is spread evenly over the new buckets at the same moment. More
buckets take more load in parallel; fewer let each spend more before it has to
ask the others. Where the budget has that many already, nothing is done.

Example:
  coffer budget reshard SPRING 16 --key sale-2026-05`
}

// Run reshards the budget.
func (b *budgetReshard) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ReshardBudgetResponse, error) {
		return s.ReshardBudget(ctx, &cofferv1.ReshardBudgetRequest{Budget: b.Budget, Buckets: b.Buckets, IdempotencyKey: b.get()})
	})
	if b.have(err) {
		return b.nothing(c)
	}
	if err != nil {
		return b.hint(err)
	}
	if c.JSON {
		return c.printMessage(res)
	}
	c.budgetDone("divided over "+count(int64(res.Budget.GetBuckets()), "bucket"), res.Budget, res.Replayed)
	return nil
}

// have reports whether a refusal says that the budget has that many buckets.
func (b *budgetReshard) have(err error) bool {
	var e *rpc.Error
	return errors.As(err, &e) && e.Reason() == ledger.BudgetIllegalState && e.Detail.GetField() == "buckets"
}

// nothing shows the budget as it is. The key was not used.
func (b *budgetReshard) nothing(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.GetBudgetResponse, error) {
		return s.GetBudget(ctx, b.Budget)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(&cofferv1.ReshardBudgetResponse{Budget: res.GetBudget()})
	}
	c.budgetDone("has "+count(int64(b.Buckets), "bucket")+" already; nothing was to be done", res.GetBudget(), false)
	return nil
}

type budgetBuckets struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
}

// Help is the long help.
func (budgetBuckets) Help() string {
	return `Rate, waiting, batches and conflicts are those of the node that answers.

Example:
  coffer budget buckets SPRING`
}

// Run shows the buckets.
func (b *budgetBuckets) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.GetBucketsResponse, error) {
		return s.GetBuckets(ctx, b.Budget)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	cur := res.Budget.GetCurrency()
	c.printf("routing epoch %d, %s in use, skew %.2f of an equal share\n\n",
		res.Budget.GetRoutingEpoch(), count(int64(res.Budget.GetBuckets()), "bucket"), res.Skew)
	t := c.table(table.Row{"bucket", "state", "available", "share", "reserved", "committed", "reversed", "rate/s", "waiting", "batches", "conflicts"},
		"bucket", "available", "share", "reserved", "committed", "reversed", "rate/s", "waiting", "batches", "conflicts")
	for _, k := range res.Buckets {
		m := k.GetBalances().GetBalances()
		t.row(bucketName(k.GetBalances().GetBucket(), k.GetBalances().GetUnallocated()), bucketState(k.GetBalances()),
			formatMajor(m.GetAvailableMinor(), cur), fmt.Sprintf("%.1f %%", 100*k.GetShare()), formatMajor(m.GetReservedMinor(), cur),
			formatMajor(m.GetCommittedMinor(), cur), formatMajor(m.GetReversedMinor(), cur),
			fmt.Sprintf("%.1f", k.GetRatePerSecond()), k.GetQueued(), k.GetBatches(), k.GetConflicts())
	}
	t.print()
	return nil
}

// bucketState says what a bucket is for.
func bucketState(b *cofferv1.BucketBalances) string {
	switch {
	case b.GetUnallocated():
		return "refunds"
	case b.GetRetired():
		return "retired"
	}
	return "living"
}
