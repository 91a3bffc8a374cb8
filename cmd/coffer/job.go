package main

import (
	"context"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type jobCmd struct {
	remote `embed:""`

	Charge  jobCharge  `cmd:"" help:"Charge a job's cost to a wallet."`
	Refund  jobRefund  `cmd:"" help:"A job failed: refund what was charged."`
	Reclaim jobReclaim `cmd:"" help:"A job succeeded: take a refund back, if there was one."`
	Hold    jobHold    `cmd:"" help:"Hold an estimate of a job's cost."`
	Settle  jobSettle  `cmd:"" help:"Charge a job's actual cost."`
	Release jobRelease `cmd:"" help:"Give a job's hold back."`
	Resolve jobResolve `cmd:"" help:"Settle a command whose answer was lost."`
	Get     jobGet     `cmd:"" help:"Show a job's charge."`
	Explain jobExplain `cmd:"" help:"Show a job's charge and everything that happened to it."`
}

// job names what a job command works on.
type job struct {
	Job     string `arg:"" help:"Job id."`
	Attempt uint32 `help:"Number of the try to charge this job, 1 to 16; a new try needs those before it to be refused, released or expired." default:"1" range:"1 to 16"`
}

// payable is what a job is to cost, and which wallet pays.
type payable struct {
	Wallet   string `help:"Wallet that pays." required:"" placeholder:"WALLET"`
	moneyIn  `embed:""`
	Currency string `help:"Currency, checked against the wallet's (default: the wallet's)." placeholder:"CREDIT"`
}

// price is the amount in the wallet's currency.
func (p *payable) price(ctx context.Context, s *server) (int64, error) {
	if err := p.check(true); err != nil {
		return 0, err
	}
	if p.Currency == "" {
		w, err := s.GetWallet(ctx, p.Wallet)
		if err != nil {
			return 0, s.unsent("the currency of wallet "+p.Wallet, err)
		}
		p.Currency = w.GetCurrency()
	}
	s.known = p.Currency
	return p.minor(p.Currency)
}

// jobOutcome prints the answer of a job command.
func (c *cli) jobOutcome(ctx context.Context, s *server, o *cofferv1.Outcome, err error) error {
	if err != nil {
		return s.explain(err)
	}
	if c.JSON {
		return c.printMessage(o)
	}
	switch {
	case o.GetReplayed():
		c.printf("done before; this is the first answer, the job may have changed since (coffer job get %s)\n\n", o.GetOrderId())
	case o.GetLate():
		c.printf("late: the hold had expired and was settled all the same\n\n")
	case o.GetEntrySeq() == 0 && o.GetState() == cofferv1.ReservationState_RESERVATION_STATE_COMMITTED:
		c.printf("delivered: nothing had been refunded, so nothing moved\n\n")
	case o.GetState() == cofferv1.ReservationState_RESERVATION_STATE_CANCELLED:
		c.printf("cancelled before it was charged: a charge or a hold of this attempt that comes late is refused\n\n")
	}
	cur, entry := "", ""
	if o.GetBudget() != "" {
		cur = s.walletCurrency(ctx, o.GetBudget())
	}
	if o.GetEntrySeq() > 0 {
		entry = entryName(o.GetBucket(), o.GetEntrySeq())
	}
	t := c.table(table.Row{"job", "attempt", "wallet", "moved", "held", "charged", "refunded", "currency", "entry"},
		"attempt", "moved", "held", "charged", "refunded", "entry")
	amount := amounts(o.GetState(), cur)
	t.row(o.GetOrderId(), o.GetAttempt(), o.GetBudget(), amount(o.GetAmountMinor()), amount(o.GetHeldMinor()),
		amount(o.GetCommittedMinor()), amount(o.GetReversedMinor()), cur, entry)
	t.print()
	return nil
}

// walletCurrency is a wallet's currency, empty where it cannot be told.
func (s *server) walletCurrency(ctx context.Context, wallet string) string {
	if s.known == "" {
		if w, err := s.GetWallet(ctx, wallet); err == nil {
			s.known = w.GetCurrency()
		}
	}
	return s.known
}

type jobCharge struct {
	job     `embed:""`
	payable `embed:""`
	traced  `embed:""`
}

// Help is the long help.
func (jobCharge) Help() string {
	return `Sending the same charge again does nothing and gives the first answer. One that
was refused for lack of credits stays refused: when there are credits again,
charge the job as --attempt 2.

Example:
  coffer job charge j-1 --wallet acme --amount 30`
}

// Run charges.
func (j *jobCharge) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		amount, err := j.price(ctx, s)
		if err != nil {
			return err
		}
		o, err := s.Charge(ctx, &cofferv1.ChargeRequest{
			JobId: j.Job, Attempt: j.Attempt, Wallet: j.Wallet, AmountMinor: amount, Currency: j.Currency, CorrelationId: j.Correlation,
		})
		return c.jobOutcome(ctx, s, o, err)
	})
}

type jobRefund struct {
	job    `embed:""`
	traced `embed:""`
}

// Help is the long help.
func (jobRefund) Help() string {
	return `Send it on every failure: it gives back what was charged, once. It is refused
when the job's success was signalled first.

Example:
  coffer job refund j-1`
}

// Run refunds.
func (j *jobRefund) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		o, err := s.Refund(ctx, &cofferv1.RefundRequest{JobId: j.Job, Attempt: j.Attempt, CorrelationId: j.Correlation})
		return c.jobOutcome(ctx, s, o, err)
	})
}

type jobReclaim struct {
	job    `embed:""`
	traced `embed:""`
}

// Help is the long help.
func (jobReclaim) Help() string {
	return `Send it on every success: it takes a refund back, into debt if need be. Where
nothing was refunded nothing moves, and no later failure refunds anything.

Example:
  coffer job reclaim j-1`
}

// Run reclaims.
func (j *jobReclaim) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		o, err := s.ReclaimCharge(ctx, &cofferv1.CreditServiceReclaimRequest{JobId: j.Job, Attempt: j.Attempt, CorrelationId: j.Correlation})
		return c.jobOutcome(ctx, s, o, err)
	})
}

type jobHold struct {
	job     `embed:""`
	payable `embed:""`
	TTL     time.Duration `help:"How long the hold lasts." default:"15m" name:"ttl" range:"1ms to 9600h"`
	traced  `embed:""`
}

// Help is the long help.
func (jobHold) Help() string {
	return `For work whose cost is known only afterwards: then settle the job, or release
the hold. A hold that is neither returns to the wallet by itself after --ttl.

Example:
  coffer job hold j-2 --wallet acme --amount 50 --ttl 1h`
}

// Run holds.
func (j *jobHold) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		amount, err := j.price(ctx, s)
		if err != nil {
			return err
		}
		o, err := s.Hold(ctx, &cofferv1.HoldRequest{
			JobId: j.Job, Attempt: j.Attempt, Wallet: j.Wallet, AmountMinor: amount, Currency: j.Currency, Ttl: durationpb.New(j.TTL), CorrelationId: j.Correlation,
		})
		return c.jobOutcome(ctx, s, o, err)
	})
}

type jobSettle struct {
	job       `embed:""`
	moneyIn   `embed:""`
	Partial   bool   `help:"Keep the rest held for further settlements."`
	Operation string `help:"Operation id: tells the settlements of a job apart; the same one settles once." placeholder:"ID"`
	traced    `embed:""`
}

// Help is the long help.
func (jobSettle) Help() string {
	return `What was held and is not needed returns to the wallet. For a cost of nothing,
release the hold.

The same command again does nothing and gives the first answer: give each of
several settlements its own --operation.

Examples:
  coffer job settle j-2 --amount 42
  coffer job settle j-3 --amount 10 --partial --operation part-1`
}

// Run settles.
func (j *jobSettle) Run(c *cli) error {
	if err := j.check(true); err != nil {
		return err
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		if j.Amount != "" {
			got, err := s.GetJob(ctx, j.Job)
			if err != nil {
				return s.unsent("job "+j.Job, err)
			}
			for _, a := range got.GetAttempts() {
				if a.GetAttempt() == j.Attempt {
					s.known = a.GetCurrency()
				}
			}
		}
		amount, err := j.minor(s.known)
		if err != nil {
			return err
		}
		o, err := s.Settle(ctx, &cofferv1.SettleRequest{
			JobId: j.Job, Attempt: j.Attempt, AmountMinor: amount, Partial: j.Partial, OperationId: j.Operation, CorrelationId: j.Correlation,
		})
		parts := several{"settlement", "operation", j.Operation}
		if j.Partial {
			parts.repeated(c, o)
		}
		return parts.conflict(c.jobOutcome(ctx, s, o, err))
	})
}

type jobRelease struct {
	job       `embed:""`
	Operation string `help:"Operation id, which resolve can ask for; not needed, since this happens once." placeholder:"ID"`
	traced    `embed:""`
}

// Help is the long help.
func (jobRelease) Help() string {
	return `Released before it was charged or held, a charge that comes later is refused.

Example:
  coffer job release j-2`
}

// Run releases.
func (j *jobRelease) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		o, err := s.ReleaseHold(ctx, &cofferv1.ReleaseHoldRequest{JobId: j.Job, Attempt: j.Attempt, OperationId: j.Operation, CorrelationId: j.Correlation})
		return c.jobOutcome(ctx, s, o, err)
	})
}

type jobResolve struct {
	job `embed:""`
	Op  string `help:"Command whose answer was lost: charge, refund, reclaim, hold, settle or release." required:"" enum:"charge,refund,reclaim,hold,settle,release" placeholder:"OP"`
	ID  string `help:"Its operation id, if it had one." name:"id" placeholder:"ID"`
}

// Help is the long help.
func (jobResolve) Help() string {
	return `Gives the command's outcome. If it did not happen, resolve makes sure that it
never will.

Example:
  coffer job resolve j-1 --op charge`
}

// Run resolves.
func (j *jobResolve) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		op := enumName(j.Op)
		if op == "RECLAIM" {
			op = "RECLAIM_CHARGE"
		}
		res, err := s.Resolve(ctx, &cofferv1.ResolveRequest{
			OrderId: j.Job, BenefitKey: ledger.JobBenefit, Attempt: j.Attempt, Id: j.ID, Operation: cofferv1.Operation(cofferv1.Operation_value["OPERATION_"+op]),
		})
		if err != nil {
			return s.explain(err)
		}
		switch {
		case c.JSON:
			return c.printMessage(res)
		case res.Resolution == cofferv1.Resolution_RESOLUTION_VOID:
			c.printf("void: the %s did not happen and never will\n", j.Op)
		case res.Resolution == cofferv1.Resolution_RESOLUTION_REJECTED:
			d := res.GetRejection()
			c.printf("refused: the %s was answered with %s: %s\n", j.Op, d.GetReason(), sentence(d, d.GetField()))
		default:
			c.printf("applied: the %s took effect\n\n", j.Op)
			res.Outcome.Replayed = false
			return c.jobOutcome(ctx, s, res.Outcome, nil)
		}
		return nil
	})
}

type jobGet struct {
	Job string `arg:"" help:"Job id."`
}

// Help is the long help.
func (jobGet) Help() string { return "Example:\n  coffer job get j-1" }

// Run shows a job.
func (j *jobGet) Run(c *cli) error { return c.showJob(j.Job, false) }

type jobExplain struct {
	Job string `arg:"" help:"Job id."`
}

// Help is the long help.
func (jobExplain) Help() string { return "Example:\n  coffer job explain j-1" }

// Run shows a job and its timeline.
func (j *jobExplain) Run(c *cli) error { return c.showJob(j.Job, true) }

func (c *cli) showJob(id string, timeline bool) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.GetJob(ctx, id)
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		t := c.table(table.Row{"job", "attempt", "wallet", "state", "amount", "held", "charged", "refunded", "currency", "created"},
			"attempt", "amount", "held", "charged", "refunded")
		for _, a := range res.GetAttempts() {
			cur := a.GetCurrency()
			t.row(a.GetJobId(), a.GetAttempt(), a.GetWallet(), shortEnum(a.GetState(), "JOB_STATE_"), formatMajor(a.GetAmountMinor(), cur), formatMajor(a.GetHeldMinor(), cur),
				formatMajor(a.GetChargedMinor(), cur), formatMajor(a.GetRefundedMinor(), cur), cur, clock(a.GetCreateTime()))
		}
		t.print()
		if !timeline {
			return nil
		}
		c.printf("\n")
		t = c.table(table.Row{"time", "attempt", "what happened", "entry"}, "attempt", "entry")
		for _, ev := range res.GetTimeline() {
			entry := ""
			if ev.Entry != nil {
				entry = ev.Entry.GetBudget() + "#" + entryName(ev.Entry.GetBucket(), ev.Entry.GetSeq())
			}
			t.row(clock(ev.GetTime()), ev.GetAttempt(), ev.GetText(), entry)
		}
		t.print()
		return nil
	})
}
