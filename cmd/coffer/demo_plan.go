package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// The demo's budgets.
const (
	demoCurrency = "BRL"
	flashBudget  = "FLASH"    // hot: 16 buckets, late commits are taken back
	couponBudget = "COUPON"   // hot: one bucket, late commits open a case
	dryBudget    = "FIRST100" // small: runs dry

	dryAmount  = 777
	dryBuckets = 4

	longTTL  = 15 * time.Minute
	shortTTL = time.Second
)

// order is one order of the plan.
type order struct {
	id, benefit string
	budget      string
	amount      int64
	scene       *scene
	held        bool // its hold was left to expire
	rnd         *rand.Rand
}

// scene is one kind of thing that happens to orders.
type scene struct {
	name   string
	weight int
	run    func(*demo, context.Context, *order) error
	// after runs once every hold that was left to expire has expired.
	after func(*demo, context.Context, *order) error
}

// scenes are what happens in the demo, by weight.
var scenes = []*scene{
	{name: "plain", weight: 46, run: (*demo).plain},
	{name: "partial", weight: 6, run: (*demo).partial},
	{name: "duplicates", weight: 6, run: (*demo).duplicates},
	{name: "lost answer", weight: 8, run: (*demo).lost},
	{name: "cancelled", weight: 6, run: (*demo).cancelled},
	{name: "cancelled first", weight: 4, run: (*demo).cancelledFirst},
	{name: "expired", weight: 4, run: (*demo).hold, after: (*demo).staysExpired},
	{name: "late commit", weight: 5, run: (*demo).hold, after: (*demo).lateCommit},
	{name: "refund", weight: 6, run: (*demo).refund},
	{name: "refund undone", weight: 4, run: (*demo).refundUndone},
	{name: "dry", weight: 5, run: (*demo).dry},
}

// plan makes the orders of a seed. What happens to an order, and with which
// amounts, depends on the seed and its number alone.
func (d *demo) plan() []*order {
	total := 0
	for _, s := range scenes {
		total += s.weight
	}
	out := make([]*order, d.cmd.Orders)
	for i := range out {
		rnd := rand.New(rand.NewPCG(d.cmd.Seed, uint64(i)))
		o := &order{id: fmt.Sprintf("order-%06d", i+1), benefit: "coupon:SPRING", budget: flashBudget, rnd: rnd}
		o.amount = 100 + rnd.Int64N(900) + rnd.Int64N(4000)*rnd.Int64N(2)
		if rnd.IntN(10) < 3 {
			o.budget = couponBudget
		}
		pick := rnd.IntN(total)
		for _, s := range scenes {
			if pick -= s.weight; pick < 0 {
				o.scene = s
				break
			}
		}
		if o.scene.name == "dry" {
			o.budget, o.benefit, o.amount = dryBudget, "first100", dryAmount
		}
		out[i] = o
	}
	return out
}

// dryPlaces is how many benefits the small budget pays: half of those who want
// one, as far as the weights can tell beforehand.
func (d *demo) dryPlaces() int { return max(2, d.cmd.Orders/40) }

// setUp makes and funds the budgets.
func (d *demo) setUp(ctx context.Context) error {
	hot := int64(d.cmd.Orders) * 60_00
	for _, b := range []struct {
		req   *cofferv1.CreateBudgetRequest
		funds int64
	}{
		{&cofferv1.CreateBudgetRequest{Budget: flashBudget, Buckets: 16, Policy: &cofferv1.BudgetPolicy{LateCommit: cofferv1.LateCommit_LATE_COMMIT_RECLAIM}}, hot},
		{&cofferv1.CreateBudgetRequest{Budget: couponBudget, Buckets: 1, Policy: &cofferv1.BudgetPolicy{LateCommit: cofferv1.LateCommit_LATE_COMMIT_CASE}}, hot},
		{&cofferv1.CreateBudgetRequest{Budget: dryBudget, Buckets: dryBuckets, Policy: &cofferv1.BudgetPolicy{Exhaustion: cofferv1.Exhaustion_EXHAUSTION_EXACT}}, int64(d.dryPlaces()) * dryAmount},
	} {
		b.req.Currency = demoCurrency
		if _, err := d.client.CreateBudget(ctx, b.req); err != nil {
			return fmt.Errorf("create budget %s: %w", b.req.Budget, err)
		}
		// Sent twice on purpose: the key moves money once.
		for range 2 {
			if _, err := d.client.FundBudget(ctx, &cofferv1.FundBudgetRequest{
				Budget: b.req.Budget, AmountMinor: b.funds, Currency: demoCurrency, IdempotencyKey: "fund-" + b.req.Budget,
			}); err != nil {
				return fmt.Errorf("fund budget %s: %w", b.req.Budget, err)
			}
		}
		d.tally.fund(b.req.Budget, b.funds)
	}
	return nil
}
