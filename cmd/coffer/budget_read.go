package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// paged are the flags of lists.
type paged struct {
	Limit uint32 `help:"Rows to show, at most 1000." default:"100" range:"1 to 1000"`
	Page  string `help:"Token of the page to show, from the end of the page before." placeholder:"TOKEN"`
}

// more tells how to see the next page.
func (c *cli) more(token string) {
	if token != "" {
		c.printf("\nmore with --page %s\n", token)
	}
}

type budgetList struct {
	paged `embed:""`
}

// Help is the long help.
func (budgetList) Help() string { return "Example:\n  coffer budget list --json" }

// Run lists budgets.
func (b *budgetList) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.ListBudgets(ctx, &cofferv1.ListBudgetsRequest{PageSize: b.Limit, PageToken: b.Page})
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		if len(res.Budgets) == 0 {
			c.printf("%s has no budgets; make one with: coffer budget create NAME --currency BRL\n", c.tenantName())
			return nil
		}
		c.budgetTable(res.Budgets)
		c.more(res.NextPageToken)
		return nil
	})
}

type budgetGet struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
}

// Help is the long help.
func (budgetGet) Help() string { return "Example:\n  coffer budget get SPRING" }

// Run shows one budget.
func (b *budgetGet) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.GetBudget(ctx, b.Budget)
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		c.budgetTable([]*cofferv1.Budget{res.Budget})
		cur := res.Budget.GetCurrency()
		c.printf("\n%s\n\n", policyText(res.Budget.GetPolicy(), cur))
		t := c.table(table.Row{"bucket", "funded", "available", "reserved", "committed", "reversed", "entries"},
			"bucket", "funded", "available", "reserved", "committed", "reversed", "entries")
		for _, k := range res.Buckets {
			m := k.GetBalances()
			t.row(bucketName(k.GetBucket(), k.GetUnallocated()), formatMajor(m.GetFundedMinor(), cur), formatMajor(m.GetAvailableMinor(), cur),
				formatMajor(m.GetReservedMinor(), cur), formatMajor(m.GetCommittedMinor(), cur), formatMajor(m.GetReversedMinor(), cur), k.GetLastSeq())
		}
		t.print()
		return nil
	})
}

// policyText is a budget's whole policy, three lines.
func policyText(p *cofferv1.BudgetPolicy, currency string) string {
	var over []string
	if v := p.GetOverCommit().GetPercent(); v != 0 {
		over = append(over, fmt.Sprintf("%d %%", v))
	}
	if v := p.GetOverCommit().GetAmountMinor(); v != 0 {
		over = append(over, money(v, currency))
	}
	more := ""
	if len(over) == 2 {
		more = ", the larger of both"
	}
	if len(over) == 0 {
		over = []string{"none"}
	}
	sink := "this budget"
	if p.GetReversalSink() != "" {
		sink = "budget " + p.GetReversalSink()
	}
	return fmt.Sprintf("late commit %s, exhaustion %s, on unavailable %s\nover-commit %s, longest life of a hold %s\nrefunds once it is closed go to %s",
		shortEnum(p.GetLateCommit(), "LATE_COMMIT_"), shortEnum(p.GetExhaustion(), "EXHAUSTION_"),
		shortEnum(p.GetOnUnavailable(), "ON_UNAVAILABLE_"), strings.Join(over, " or ")+more, span(p.GetMaxLifetime().AsDuration()), sink)
}

// span is a long duration in days and hours: "7 days", "1 day 12 hours",
// "1h30m".
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day || d%time.Hour != 0 {
		s := d.String()
		for _, zero := range []string{"m0s", "h0m"} { // 1h0m0s is 1h
			if strings.HasSuffix(s, zero) {
				s = s[:len(s)-2]
			}
		}
		return s
	}
	out := count(int64(d/day), "day")
	if h := d % day / time.Hour; h > 0 {
		out += " " + count(int64(h), "hour")
	}
	return out
}

// count is a number with its noun.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "ry"); ok {
		noun = stem + "rie"
	}
	noun += "s"
	return fmt.Sprintf("%d %s", n, noun)
}

func bucketName(n uint32, unallocated bool) string {
	if unallocated {
		return "unallocated"
	}
	return fmt.Sprint(n)
}
