package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/timestamppb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type ledgerCmd struct {
	remote `embed:""`

	Entries ledgerEntries `cmd:"" help:"List the entries of a budget."`
	Replay  ledgerReplay  `cmd:"" help:"Add the entries up and compare with the stored balances."`
	Verify  ledgerVerify  `cmd:"" help:"Recompute the hash chain of a budget."`
	Cases   ledgerCases   `cmd:"" help:"List the cases opened for a person: late commits, and delivered work that was not paid."`
}

type ledgerEntries struct {
	Budget string  `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	Bucket *uint32 `help:"Only this bucket, from 0 (see: coffer budget buckets)." placeholder:"N" range:"0 to 256"`
	paged  `embed:""`
}

// Help is the long help.
func (ledgerEntries) Help() string {
	return `An entry has the name BUCKET/NUMBER and shows by how much it changed each sum of
its bucket. Entries never change.

Examples:
  coffer ledger entries SPRING --limit 20
  coffer ledger entries SPRING --bucket 8`
}

// Run lists entries.
func (l *ledgerEntries) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.ListEntries(ctx, &cofferv1.ListEntriesRequest{Budget: l.Budget, Bucket: l.Bucket, PageSize: l.Limit, PageToken: l.Page})
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		cur := s.currency(ctx, l.Budget)
		t := c.table(table.Row{"entry", "time", "type", "order", "benefit", "available", "reserved", "committed", "reversed", "refers to", "cause"},
			"entry", "available", "reserved", "committed", "reversed", "refers to")
		for _, e := range res.Entries {
			refers := ""
			if e.RefersTo > 0 {
				refers = entryName(e.Bucket, e.RefersTo)
			}
			d := e.GetDelta()
			t.row(entryName(e.Bucket, e.Seq), clock(e.Time), shortEnum(e.Type, "ENTRY_TYPE_"), e.OrderId, e.BenefitKey,
				delta(d.GetAvailableMinor(), cur), delta(d.GetReservedMinor(), cur), delta(d.GetCommittedMinor(), cur), delta(d.GetReversedMinor(), cur),
				refers, e.Cause)
		}
		t.print()
		c.more(res.NextPageToken)
		return nil
	})
}

// delta shows a change with its sign, and nothing for none.
func delta(v int64, currency string) string {
	switch {
	case v == 0:
		return ""
	case v > 0:
		return "+" + formatMajor(v, currency)
	}
	return formatMajor(v, currency)
}

type ledgerReplay struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
	Cutoff string `help:"Only entries up to this time (RFC 3339); nothing is compared then." placeholder:"2026-05-01T00:00:00Z"`
}

// Help is the long help.
func (ledgerReplay) Help() string {
	return `Exit code 1 when the sums differ from the stored balances, or with --cutoff when
the chain or the sequence is broken.

Examples:
  coffer ledger replay SPRING
  coffer ledger replay SPRING --cutoff 2026-05-01T00:00:00Z`
}

// Run replays.
func (l *ledgerReplay) Run(c *cli) error {
	req := &cofferv1.ReplayRequest{Budget: l.Budget}
	if l.Cutoff != "" {
		t, err := time.Parse(time.RFC3339Nano, l.Cutoff)
		if err != nil {
			return usagef("--cutoff %.40q is not a time (allowed: RFC 3339, such as 2026-05-01T00:00:00Z)", l.Cutoff)
		}
		req.CutoffTime = timestamppb.New(t)
	}
	s, err := c.dial(rpc.WithAttemptTimeout(c.Timeout))
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := c.call()
	defer cancel()
	res, err := s.Replay(ctx, req)
	if err != nil {
		return s.explain(err)
	}
	if c.JSON {
		err = c.printMessage(res)
	} else {
		c.replayTable(res, l.Cutoff == "")
	}
	if err == nil && !res.Ok {
		return errFailed
	}
	return err
}

// replayTable prints a replay; compared says that it was compared with the
// stored balances.
func (c *cli) replayTable(res *cofferv1.ReplayResponse, compared bool) {
	cur := res.Currency
	t := c.table(table.Row{"bucket", "entries", "last", "funded", "available", "reserved", "committed", "reversed", "problem"},
		"bucket", "entries", "last", "funded", "available", "reserved", "committed", "reversed")
	cells := func(name string, entries, last any, m *cofferv1.Balances, problem string) {
		t.row(name, entries, last, formatMajor(m.GetFundedMinor(), cur), formatMajor(m.GetAvailableMinor(), cur),
			formatMajor(m.GetReservedMinor(), cur), formatMajor(m.GetCommittedMinor(), cur), formatMajor(m.GetReversedMinor(), cur), problem)
	}
	var entries uint64
	for _, b := range res.Buckets {
		entries += b.Entries
		cells(bucketName(b.Bucket, b.Unallocated), b.Entries, b.Seq, b.Replayed, b.Problem)
	}
	cells("total", entries, "", res.Total, "")
	t.print()
	verdict := "replay: ok"
	switch {
	case !res.Ok:
		verdict = "replay: FAILED"
	case !compared:
		verdict = "replay: ok to the cutoff (chain and sequence checked; only a replay without --cutoff is compared with stored balances)"
	}
	c.printf("\nbudget %s in %s at %s\n%s\n", res.Budget, cur, clock(res.CutoffTime), verdict)
}

type ledgerVerify struct {
	Budget string `arg:"" help:"Name of the budget: KEY or FUNDER/KEY."`
}

// Help is the long help.
func (ledgerVerify) Help() string {
	return "Exit code 1 when a chain is broken.\n\nExample:\n  coffer ledger verify SPRING"
}

// Run verifies the chain.
func (l *ledgerVerify) Run(c *cli) error {
	s, err := c.dial(rpc.WithAttemptTimeout(c.Timeout))
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := c.call()
	defer cancel()
	res, err := s.VerifyChain(ctx, l.Budget)
	if err != nil {
		return s.explain(err)
	}
	switch {
	case c.JSON:
		err = c.printMessage(res)
	default:
		t := c.table(table.Row{"bucket", "blocks", "entries", "head", "problem"}, "bucket", "blocks", "entries")
		for _, b := range res.Buckets {
			t.row(bucketName(b.Bucket, b.Unallocated), b.Blocks, b.Entries, fmt.Sprintf("%.16x", b.HeadHash), b.Problem)
		}
		t.print()
		if res.Ok {
			c.printf("\nchain: ok\n")
		} else {
			c.printf("\nchain: FAILED\n")
		}
	}
	if err == nil && !res.Ok {
		return errFailed
	}
	return err
}

type ledgerCases struct {
	paged `embed:""`
}

// Help is the long help.
func (ledgerCases) Help() string {
	return `A case stays in the list; the last column says what became of its benefit or job.

Example:
  coffer ledger cases`
}

// Run lists cases.
func (l *ledgerCases) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.ListCases(ctx, &cofferv1.ListCasesRequest{PageSize: l.Limit, PageToken: l.Page})
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		if len(res.Cases) == 0 {
			c.printf("no cases\n")
			return nil
		}
		t := c.table(table.Row{"opened", "order", "benefit", "attempt", "budget", "amount", "currency", "state now"}, "attempt", "amount")
		for _, k := range res.Cases {
			cur := s.currency(ctx, k.Budget)
			t.row(clock(k.OpenTime), k.OrderId, k.BenefitKey, k.Attempt, k.Budget, formatMajor(k.AmountMinor, cur), cur, stateName(k.State))
		}
		t.print()
		c.more(res.NextPageToken)
		return nil
	})
}
