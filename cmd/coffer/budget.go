package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type budgetCmd struct {
	remote `embed:""`

	Create   budgetCreate   `cmd:"" help:"Make a budget without money."`
	Fund     budgetFund     `cmd:"" help:"Put money into a budget."`
	Defund   budgetDefund   `cmd:"" help:"Take unreserved money out of a budget."`
	Freeze   budgetFreeze   `cmd:"" help:"Refuse new reservations until unfreeze."`
	Unfreeze budgetUnfreeze `cmd:"" help:"Allow new reservations again."`
	Close    budgetClose    `cmd:"" help:"Refuse new reservations for ever."`
	Reshard  budgetReshard  `cmd:"" help:"Divide a budget over another number of buckets, while it is in use."`
	Buckets  budgetBuckets  `cmd:"" help:"Show how a budget's money and load are divided."`
	List     budgetList     `cmd:"" help:"List the tenant's budgets."`
	Get      budgetGet      `cmd:"" help:"Show one budget and its buckets."`
}

type budgetCreate struct {
	Budget        string        `arg:"" help:"Name: KEY or FUNDER/KEY."`
	Currency      string        `help:"ISO 4217 code, or a custom unit such as CREDIT." required:"" placeholder:"BRL"`
	Buckets       uint32        `help:"Slices that take load in parallel, 1 to 256." default:"1" range:"1 to 256"`
	LateCommit    string        `help:"What a commit after the expiry does: reject it, reclaim (take the money again, if it is there) or open a case for a person." enum:"reject,reclaim,case" default:"reject"`
	Exhaustion    string        `help:"When a reserve finds too little: exact (the whole budget is short) or strict (its bucket is)." enum:"exact,strict" default:"exact"`
	OnUnavailable string        `help:"What a reserve answers when the store cannot take it: fail-closed or skip-benefit." enum:"fail-closed,skip-benefit" default:"fail-closed"`
	OverPercent   int32         `help:"Percent by which a commit may exceed what was reserved (default: 0)." placeholder:"10" range:"0 to 1000"`
	OverAmount    string        `help:"Amount by which a commit may exceed what was reserved, in major units (default: 0)." placeholder:"5.00" range:"0 or more"`
	ReversalSink  string        `help:"Budget that takes refunds once this one is closed." placeholder:"BUDGET"`
	MaxLifetime   time.Duration `help:"Longest life of a reservation, extensions included (default 7 days)." placeholder:"168h" range:"1s to 9600h"`
}

// Help is the long help.
func (budgetCreate) Help() string {
	return `Creating a budget again with the same definition does nothing.

Example:
  coffer budget create SPRING --currency BRL --buckets 16 --late-commit reclaim`
}

// Run creates the budget.
func (b *budgetCreate) Run(c *cli) error {
	p := &cofferv1.BudgetPolicy{
		LateCommit:    cofferv1.LateCommit(cofferv1.LateCommit_value["LATE_COMMIT_"+enumName(b.LateCommit)]),
		Exhaustion:    cofferv1.Exhaustion(cofferv1.Exhaustion_value["EXHAUSTION_"+enumName(b.Exhaustion)]),
		OnUnavailable: cofferv1.OnUnavailable(cofferv1.OnUnavailable_value["ON_UNAVAILABLE_"+enumName(b.OnUnavailable)]),
		ReversalSink:  b.ReversalSink,
	}
	over := &cofferv1.OverCommit{Percent: b.OverPercent}
	if b.OverAmount != "" {
		v, err := parseMajor("--over-amount", b.OverAmount, b.Currency)
		if err != nil {
			return usageError{err}
		}
		over.AmountMinor = v
	}
	if over.Percent != 0 || over.AmountMinor != 0 {
		p.OverCommit = over
	}
	if b.MaxLifetime != 0 {
		p.MaxLifetime = durationpb.New(b.MaxLifetime)
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: b.Budget, Currency: b.Currency, Buckets: b.Buckets, Policy: p})
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		if res.Replayed { // its first answer is a budget without money
			c.printf("budget %s created\n%s\n", b.Budget, replayedBudget(b.Budget))
			return nil
		}
		c.budgetDone("created", res.Budget, false)
		return nil
	})
}

// enumName turns a flag's value into the name of an enum's.
func enumName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

// shortEnum is an enum's value without its prefix.
func shortEnum(s fmt.Stringer, prefix string) string { return strings.TrimPrefix(s.String(), prefix) }

type budgetFund struct {
	Budget   string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	moneyIn  `embed:""`
	Currency string `help:"Currency, checked against the budget's (default: the budget's)." placeholder:"BRL"`
	keyed    `embed:""`
}

// Help is the long help.
func (budgetFund) Help() string {
	return `The same --key moves money once, however often it is sent.

Example:
  coffer budget fund SPRING --amount 50000.00 --key topup-2026-05`
}

// Run funds the budget.
func (b *budgetFund) Run(c *cli) error {
	return c.moveMoney(b.Budget, b.Currency, b.moneyIn, b.keyed, true)
}

type budgetDefund struct {
	Budget   string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	moneyIn  `embed:""`
	Currency string `help:"Currency, checked against the budget's (default: the budget's)." placeholder:"BRL"`
	keyed    `embed:""`
}

// Help is the long help.
func (budgetDefund) Help() string {
	return `Only what is available can be taken: not what is reserved or spent. The same
--key moves money once, however often it is sent.

Example:
  coffer budget defund SPRING --amount 1200.50 --key correction-17`
}

// Run defunds the budget.
func (b *budgetDefund) Run(c *cli) error {
	return c.moveMoney(b.Budget, b.Currency, b.moneyIn, b.keyed, false)
}

// moveMoney funds or defunds a budget.
func (c *cli) moveMoney(budget, currency string, in moneyIn, k keyed, fund bool) error {
	if err := in.check(true); err != nil {
		return err
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		if currency == "" {
			got, err := s.GetBudget(ctx, budget)
			if err != nil {
				return s.unsent("the currency of budget "+budget, err)
			}
			currency = got.Budget.Currency
		}
		s.known = currency
		amount, err := in.minor(currency)
		if err != nil {
			return err
		}
		if fund {
			res, err := s.FundBudget(ctx, &cofferv1.FundBudgetRequest{Budget: budget, AmountMinor: amount, Currency: currency, IdempotencyKey: k.get()})
			return budgetChanged(c, s, k, "funded with "+money(amount, currency), res, err)
		}
		res, err := s.DefundBudget(ctx, &cofferv1.DefundBudgetRequest{Budget: budget, AmountMinor: amount, Currency: currency, IdempotencyKey: k.get()})
		return budgetChanged(c, s, k, "defunded by "+money(amount, currency), res, err)
	})
}

type budgetFreeze struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	keyed  `embed:""`
}

// Help is the long help.
func (budgetFreeze) Help() string {
	return `What is reserved can still be committed, released and refunded. A reserve that
is refused meanwhile stays refused: the order tries again as its next --attempt.

Example:
  coffer budget freeze SPRING`
}

// Run freezes the budget.
func (b *budgetFreeze) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.FreezeBudget(ctx, &cofferv1.FreezeBudgetRequest{Budget: b.Budget, IdempotencyKey: b.get()})
		return budgetChanged(c, s, b.keyed, "frozen", res, err)
	})
}

type budgetUnfreeze struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	keyed  `embed:""`
}

// Help is the long help.
func (budgetUnfreeze) Help() string { return "Example:\n  coffer budget unfreeze SPRING" }

// Run unfreezes the budget.
func (b *budgetUnfreeze) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.UnfreezeBudget(ctx, &cofferv1.UnfreezeBudgetRequest{Budget: b.Budget, IdempotencyKey: b.get()})
		return budgetChanged(c, s, b.keyed, "open again", res, err)
	})
}

type budgetClose struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	keyed  `embed:""`
}

// Help is the long help.
func (budgetClose) Help() string {
	return `What is reserved can still be committed, released and refunded; a closed budget
never opens again.

Example:
  coffer budget close SPRING`
}

// Run closes the budget.
func (b *budgetClose) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.CloseBudget(ctx, &cofferv1.CloseBudgetRequest{Budget: b.Budget, IdempotencyKey: b.get()})
		err = budgetChanged(c, s, b.keyed, "closed", res, err)
		cur := res.GetBudget().GetCurrency()
		if left := res.GetBudget().GetBalances().GetAvailableMinor(); err == nil && left > 0 && !c.JSON {
			c.printf("\n%s was available and stays in the budget; take it out with: coffer budget defund %s --minor %d\n",
				money(left, cur), b.Budget, left)
		}
		return err
	})
}

// budgetChange is the answer to a command on a budget.
type budgetChange interface {
	proto.Message
	GetBudget() *cofferv1.Budget
	GetReplayed() bool
}

// budgetChanged shows what came of a command on a budget.
func budgetChanged(c *cli, s *server, k keyed, what string, res budgetChange, err error) error {
	switch {
	case err != nil:
		return k.hint(s.explain(err))
	case c.JSON:
		return c.printMessage(res)
	}
	c.budgetDone(what, res.GetBudget(), res.GetReplayed())
	return nil
}

// budgetDone says what happened to a budget and shows it.
func (c *cli) budgetDone(what string, b *cofferv1.Budget, replayed bool) {
	c.printf("budget %s %s\n", b.GetBudget(), what)
	if replayed {
		c.printf("%s\n", replayedBudget(b.GetBudget()))
	}
	c.printf("\n")
	c.budgetTable([]*cofferv1.Budget{b})
}

// replayedBudget says that an answer is an old one.
func replayedBudget(name string) string {
	return "done before; this is the first answer, the budget may have changed since (coffer budget get " + name + ")"
}

func (c *cli) budgetTable(list []*cofferv1.Budget) {
	t := c.table(table.Row{"budget", "state", "buckets", "funded", "available", "reserved", "committed", "reversed", "currency"},
		"buckets", "funded", "available", "reserved", "committed", "reversed")
	for _, b := range list {
		m := b.GetBalances()
		cur := b.GetCurrency()
		t.row(b.GetBudget(), shortEnum(b.GetState(), "BUDGET_STATE_"), b.GetBuckets(),
			formatMajor(m.GetFundedMinor(), cur), formatMajor(m.GetAvailableMinor(), cur), formatMajor(m.GetReservedMinor(), cur),
			formatMajor(m.GetCommittedMinor(), cur), formatMajor(m.GetReversedMinor(), cur), cur)
	}
	t.print()
}
