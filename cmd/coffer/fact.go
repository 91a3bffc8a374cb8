package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/proto"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type factCmd struct {
	remote `embed:""`

	Submit  factSubmit  `cmd:"" help:"Tell what happened to an order or a job."`
	Get     factGet     `cmd:"" help:"Show a fact and what it did."`
	List    factList    `cmd:"" help:"List facts: what waits, and exceptions."`
	Retry   factRetry   `cmd:"" help:"Look at a fact now, also at an exception."`
	Resolve factResolve `cmd:"" help:"Close an exception that a person has settled."`
}

// factName names a fact.
type factName struct {
	Source string `arg:"" help:"Name of the system that said it, such as shop."`
	Event  string `arg:"" help:"Id of its event there."`
}

type factSubmit struct {
	factName  `embed:""`
	Kind      string   `arg:"" help:"payment-succeeded, payment-failed, order-cancelled, refund-succeeded, refund-cancelled, job-succeeded or job-failed." enum:"payment-succeeded,payment-failed,order-cancelled,refund-succeeded,refund-cancelled,job-succeeded,job-failed"`
	Order     string   `arg:"" help:"Order or job id."`
	Reference string   `help:"Payment or refund id; a refund has one." placeholder:"ID"`
	Attempt   uint32   `help:"Attempt of the benefits, or of the job." default:"1" range:"1 to 16"`
	Line      []string `help:"A benefit the fact is about, as BENEFIT or BENEFIT=AMOUNT in minor units; may be given again. Without one: all benefits of the order." sep:"none" placeholder:"BENEFIT=MINOR"`
	Currency  string   `help:"Checked against the reservations'." placeholder:"BRL"`
	traced    `embed:""`
}

// Help is the long help.
func (factSubmit) Help() string {
	return `Source and event id are the key: the same fact again is answered with its state
now, other content under the same key is refused. A fact that cannot be applied
yet waits for what it needs.

Examples:
  coffer fact submit shop evt-1 payment-succeeded o-1001 --reference p-1
  coffer fact submit shop evt-2 refund-succeeded o-1001 --reference r-1 --line coupon:SPRING=300
  coffer fact submit shop evt-3 order-cancelled o-1002 --line coupon:SPRING
  coffer fact submit renderer evt-4 job-failed j-1`
}

// Run submits.
func (f *factSubmit) Run(c *cli) error {
	lines, err := parseLines(f.Line)
	if err != nil {
		return err
	}
	res, err := onServer(c, func(ctx context.Context, s *server) ([]*cofferv1.SubmitFactsResult, error) {
		return s.SubmitFacts(ctx, &cofferv1.NewFact{
			Source: f.Source, EventId: f.Event, Kind: cofferv1.FactKind(cofferv1.FactKind_value["FACT_KIND_"+enumName(f.Kind)]), OrderId: f.Order,
			ReferenceId: f.Reference, Attempt: f.Attempt, Lines: lines, Currency: f.Currency, CorrelationId: f.Correlation,
		})
	})
	if err != nil {
		return err
	}
	if d := res[0].GetError(); d != nil {
		return c.inFlags(refusedItem{d}, d)
	}
	return c.fact(res[0], res[0].GetFact(), res[0].GetReplayed())
}

// parseLines reads BENEFIT=AMOUNT. A benefit may hold an equals sign itself: the
// last one counts, if an amount follows it.
func parseLines(in []string) ([]*cofferv1.FactLine, error) {
	var lines []*cofferv1.FactLine
	for _, s := range in {
		l := &cofferv1.FactLine{BenefitKey: s}
		if i := strings.LastIndexByte(s, '='); i >= 0 {
			v, err := strconv.ParseInt(s[i+1:], 10, 64)
			if err != nil {
				return nil, usagef("--line is %.80q (allowed: BENEFIT, or BENEFIT=AMOUNT with a whole number of minor units)", s)
			}
			l.BenefitKey, l.AmountMinor = s[:i], v
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func factState(s cofferv1.FactState) string { return shortEnum(s, "FACT_STATE_") }

// fact prints one fact; answer is the message that it came in.
func (c *cli) fact(answer proto.Message, f *cofferv1.Fact, replayed bool) error {
	if c.JSON {
		return c.printMessage(answer)
	}
	if replayed {
		c.printf("came before; this is the fact now\n\n")
	}
	c.factTable([]*cofferv1.Fact{f})
	if f.GetResolution() != "" {
		c.printf("\nresolved: %s\n", f.GetResolution())
	}
	if len(f.GetEffects()) == 0 {
		return nil
	}
	c.printf("\n")
	t := c.table(table.Row{"operation", "benefit", "attempt", "budget", "state", "moved minor", "entry", "time"}, "attempt", "moved minor")
	for _, e := range f.GetEffects() {
		o := e.GetOutcome()
		entry := ""
		if o.GetEntrySeq() > 0 {
			entry = entryName(o.GetBucket(), o.GetEntrySeq())
		}
		t.row(shortEnum(e.GetOperation(), "OPERATION_"), o.GetBenefitKey(), o.GetAttempt(), o.GetBudget(), stateName(o.GetState()), o.GetAmountMinor(), entry, clock(o.GetTime()))
	}
	t.print()
	return nil
}

func (c *cli) factTable(facts []*cofferv1.Fact) {
	t := c.table(table.Row{"source", "event", "kind", "order", "reference", "state", "code", "reason", "received", "next look", "deadline"})
	for _, f := range facts {
		n := f.GetFact()
		deadline := ""
		if f.GetState() == cofferv1.FactState_FACT_STATE_PENDING {
			deadline = clock(f.GetDeadlineTime())
		}
		reason := f.GetReason()
		if len(facts) > 1 {
			reason = oneLine(reason)
		}
		t.row(n.GetSource(), n.GetEventId(), shortEnum(n.GetKind(), "FACT_KIND_"), n.GetOrderId(), n.GetReferenceId(), factState(f.GetState()), f.GetCode(), reason,
			clock(f.GetReceiveTime()), clock(f.GetDueTime()), deadline)
	}
	t.print()
}

type factGet struct {
	factName `embed:""`
}

// Help is the long help.
func (factGet) Help() string { return "Example:\n  coffer fact get shop evt-1" }

// Run shows a fact.
func (f *factGet) Run(c *cli) error {
	got, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.Fact, error) {
		return s.GetFact(ctx, f.Source, f.Event)
	})
	if err != nil {
		return err
	}
	return c.fact(got, got, false)
}

type factList struct {
	State string `help:"Facts in this state: pending, applied, exception, resolved, or all (default: exception)." enum:"pending,applied,exception,resolved,all" default:"exception" placeholder:"STATE"`
	paged `embed:""`
}

// Help is the long help.
func (factList) Help() string {
	return "Examples:\n  coffer fact list\n  coffer fact list --state pending"
}

// Run lists.
func (f *factList) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ListFactsResponse, error) {
		return s.ListFacts(ctx, &cofferv1.ListFactsRequest{
			State: cofferv1.FactState(cofferv1.FactState_value["FACT_STATE_"+enumName(f.State)]), PageSize: int32(f.Limit), PageToken: f.Page,
		})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	if len(res.GetFacts()) == 0 {
		c.printf("no facts in state %s\n", f.State)
		if f.State == "exception" {
			c.printf("what still waits: coffer fact list --state pending\n")
		}
	} else {
		c.factTable(res.GetFacts())
	}
	c.more(res.GetNextPageToken())
	return nil
}

type factRetry struct {
	factName `embed:""`
}

// Help is the long help.
func (factRetry) Help() string { return "Example:\n  coffer fact retry shop evt-2" }

// Run retries.
func (f *factRetry) Run(c *cli) error {
	got, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.Fact, error) {
		return s.RetryFact(ctx, f.Source, f.Event)
	})
	if err != nil {
		return err
	}
	return c.fact(got, got, false)
}

type factResolve struct {
	factName `embed:""`
	Reason   string `help:"How it was settled; it is kept with the fact." required:"" placeholder:"TEXT"`
}

// Help is the long help.
func (factResolve) Help() string {
	return `Moves no money: settle what is to be settled first, by commands or elsewhere.

Example:
  coffer fact resolve shop evt-2 --reason 'refunded by bank transfer, ticket 88'`
}

// Run resolves.
func (f *factResolve) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ResolveFactResponse, error) {
		return f.resolve(ctx, s)
	})
	if err != nil {
		return err
	}
	return c.fact(res, res.GetFact(), res.GetReplayed())
}

func (f *factResolve) resolve(ctx context.Context, s *server) (*cofferv1.ResolveFactResponse, error) {
	return s.ResolveFact(ctx, f.Source, f.Event, f.Reason)
}
