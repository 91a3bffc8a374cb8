package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/durationpb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type orderCmd struct {
	remote `embed:""`

	Reserve   orderReserve   `cmd:"" help:"Hold money for one benefit of one order."`
	Commit    orderCommit    `cmd:"" help:"Spend what is held, whole or in parts."`
	Extend    orderExtend    `cmd:"" help:"Give a hold more time."`
	Release   orderRelease   `cmd:"" help:"Give a hold back."`
	Reclaim   orderReclaim   `cmd:"" help:"Spend a hold that was released or expired."`
	Reverse   orderReverse   `cmd:"" help:"Refund part or all of what was spent."`
	Reinstate orderReinstate `cmd:"" help:"Undo a refund that was itself cancelled."`
	Resolve   orderResolve   `cmd:"" help:"Settle a command whose answer was lost."`
	Get       orderGet       `cmd:"" help:"Show the reservation of a benefit."`
	Explain   orderExplain   `cmd:"" help:"Show everything that happened to an order."`
}

// benefit names what an order command works on.
type benefit struct {
	Order   string `arg:"" help:"Order id."`
	Benefit string `arg:"" help:"Benefit key, such as coupon:SPRING."`
	Attempt uint32 `help:"Number of the try for this benefit, 1 to 16; a new try needs those before it to hold no money." default:"1" range:"1 to 16"`
}

// reservation names the reservation of the benefit in errors.
func (b benefit) reservation() string {
	return "the reservation of benefit " + b.Benefit + " of order " + b.Order
}

// absent is the error of an attempt that the benefit does not have.
func (b benefit) absent() error {
	return fmt.Errorf("order %s has no attempt %d of benefit %s; those that there are: coffer order get %s %s", b.Order, b.Attempt, b.Benefit, b.Order, b.Benefit)
}

// traced is the flag of commands that write.
type traced struct {
	Correlation string `help:"Tracing id; it has no meaning for the ledger." placeholder:"ID"`
}

// orderOutcome prints the answer of a command on a benefit that was reserved.
func (c *cli) orderOutcome(ctx context.Context, s *server, b benefit, o *cofferv1.Outcome, err error) error {
	if err != nil {
		return s.refused(ctx, b, err)
	}
	return c.outcome(ctx, s, o)
}

// outcome prints the answer of an order command.
func (c *cli) outcome(ctx context.Context, s *server, o *cofferv1.Outcome) error {
	if c.JSON {
		return c.printMessage(o)
	}
	switch {
	case o.GetSkipped():
		c.printf("skipped: nothing was reserved, the order goes on without the benefit\n")
		return nil
	case o.GetReplayed():
		c.printf("done before; this is the first answer, the benefit may have changed since (coffer order get %s %s)\n\n", o.GetOrderId(), o.GetBenefitKey())
	case o.GetLate():
		c.printf("late: the hold had expired and was committed all the same\n\n")
	}
	c.outcomeTable(ctx, s, o)
	return nil
}

func (c *cli) outcomeTable(ctx context.Context, s *server, o *cofferv1.Outcome) {
	t := c.table(table.Row{"order", "benefit", "attempt", "budget", "state", "moved", "held", "committed", "reversed", "currency", "expires", "entry"},
		"attempt", "moved", "held", "committed", "reversed", "entry")
	cur, entry, expires := "", "", ""
	if o.GetBudget() != "" {
		cur = s.currency(ctx, o.GetBudget())
	}
	if o.GetEntrySeq() > 0 {
		entry = entryName(o.GetBucket(), o.GetEntrySeq())
	}
	if o.GetState() == cofferv1.ReservationState_RESERVATION_STATE_RESERVED {
		expires = clock(o.GetExpireTime())
	}
	amount := amounts(o.GetState(), cur)
	t.row(o.GetOrderId(), o.GetBenefitKey(), o.GetAttempt(), o.GetBudget(), stateName(o.GetState()),
		amount(o.GetAmountMinor()), amount(o.GetHeldMinor()), amount(o.GetCommittedMinor()), amount(o.GetReversedMinor()), cur, expires, entry)
	t.print()
}

// neverHeld are the states of attempts that never had money.
var neverHeld = map[cofferv1.ReservationState]bool{
	cofferv1.ReservationState_RESERVATION_STATE_UNSPECIFIED: true, cofferv1.ReservationState_RESERVATION_STATE_NONE: true,
	cofferv1.ReservationState_RESERVATION_STATE_REJECTED: true, cofferv1.ReservationState_RESERVATION_STATE_CANCELLED: true,
	cofferv1.ReservationState_RESERVATION_STATE_VOID: true,
}

// amounts shows the amounts of an attempt: none where it never had money.
func amounts(state cofferv1.ReservationState, currency string) func(int64) string {
	return func(v int64) string {
		if v == 0 && neverHeld[state] {
			return ""
		}
		return formatMajor(v, currency)
	}
}

func stateName(s cofferv1.ReservationState) string { return shortEnum(s, "RESERVATION_STATE_") }

type orderReserve struct {
	benefit  `embed:""`
	Budget   string `help:"Budget that pays." required:"" placeholder:"BUDGET"`
	moneyIn  `embed:""`
	Currency string        `help:"Currency, checked against the budget's (default: the budget's)." placeholder:"BRL"`
	TTL      time.Duration `help:"How long the hold lasts." default:"15m" name:"ttl" range:"1ms to 9600h"`
	Quote    string        `help:"JSON file with the quote: the benefit on each order line, and who funds it." type:"existingfile" placeholder:"FILE"`
	traced   `embed:""`
}

// Help is the long help.
func (orderReserve) Help() string {
	return `Sending the same command again does nothing and gives the first answer. One that
was refused for lack of money stays refused: when there is money again, the
order tries as --attempt 2.

With --quote the benefit can be refunded by order line. The lines' amounts, in
minor units, must add up to the amount:
  {"quoteId": "q-7", "rounding": "ROUNDING_HALF_UP",
   "lines": [{"lineId": "A", "quantity": 3, "amountMinor": 1000},
             {"lineId": "B", "quantity": 1, "amountMinor": 250}],
   "funders": [{"funderId": "brand", "weight": 60}, {"funderId": "shop", "weight": 40}]}

Examples:
  coffer order reserve o-1001 coupon:SPRING --budget SPRING --amount 12.50 --ttl 15m
  coffer order reserve o-1002 coupon:SPRING --budget SPRING --amount 12.50 --quote quote.json`
}

// Run reserves.
func (o *orderReserve) Run(c *cli) error {
	if err := o.check(true); err != nil {
		return err
	}
	quote, err := readQuote(o.Quote)
	if err != nil {
		return err
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		if o.Currency == "" {
			got, err := s.GetBudget(ctx, o.Budget)
			if err != nil {
				return s.unsent("the currency of budget "+o.Budget, err)
			}
			o.Currency = got.Budget.Currency
		}
		s.known = o.Currency
		amount, err := o.minor(o.Currency)
		if err != nil {
			return err
		}
		res, err := s.Reserve(ctx, &cofferv1.ReserveRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, Budget: o.Budget,
			AmountMinor: amount, Currency: o.Currency, Ttl: durationpb.New(o.TTL), Quote: quote, CorrelationId: o.Correlation,
		})
		if err != nil {
			return s.explain(err)
		}
		return c.outcome(ctx, s, res)
	})
}

type orderCommit struct {
	benefit `embed:""`
	moneyIn `embed:""`
	Partial bool   `help:"Keep the rest reserved for further commits."`
	Payment string `help:"Payment id: tells the commits of a reservation apart; the same one commits once." placeholder:"ID"`
	traced  `embed:""`
}

// Help is the long help.
func (orderCommit) Help() string {
	return `Without an amount all that is held is spent. With one and without --partial
the rest returns to the budget.

The same command again does nothing and gives the first answer. So give each of
several commits its own --payment: two of the same amount without one are one
commit, and of different amounts the second is refused.

Examples:
  coffer order commit o-1001 coupon:SPRING
  coffer order commit o-1001 coupon:SPRING --amount 4.00 --partial --payment p-1`
}

// Run commits.
func (o *orderCommit) Run(c *cli) error {
	if err := o.check(o.Partial); err != nil {
		return err
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		amount, err := s.minorOf(ctx, o.benefit, o.moneyIn)
		if err != nil {
			return err
		}
		res, err := s.Commit(ctx, &cofferv1.CommitRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, AmountMinor: amount,
			Partial: o.Partial, PaymentId: o.Payment, CorrelationId: o.Correlation,
		})
		parts := several{"commit", "payment", o.Payment}
		if o.Partial {
			parts.repeated(c, res)
		}
		return parts.conflict(c.orderOutcome(ctx, s, o.benefit, res, err))
	})
}

type orderExtend struct {
	benefit   `embed:""`
	TTL       time.Duration `help:"New time to live, counted from now." required:"" name:"ttl" placeholder:"30m" range:"1ms to 9600h"`
	Operation string        `help:"Operation id: tells the extensions of a hold apart; the same one extends once." placeholder:"ID"`
	traced    `embed:""`
}

// Help is the long help.
func (orderExtend) Help() string {
	return `The time to live counts from now, not from the end of the hold. A hold is never
shortened: where it lasts longer already, it stays as it is.

The same command again does nothing and gives the first answer: give each
extension its own --operation.

Example:
  coffer order extend o-1001 coupon:SPRING --ttl 30m --operation e-1`
}

// Run extends.
func (o *orderExtend) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.Extend(ctx, &cofferv1.ExtendRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, Ttl: durationpb.New(o.TTL),
			OperationId: o.Operation, CorrelationId: o.Correlation,
		})
		more := several{"extension", "operation", o.Operation}
		if err != nil {
			return more.conflict(s.refused(ctx, o.benefit, err))
		}
		more.repeated(c, res)
		if until := res.GetTime().AsTime().Add(o.TTL); !c.JSON && res.GetExpireTime().AsTime().After(until) {
			c.printf("the hold lasts longer than %s already, and is never shortened\n", span(o.TTL))
		}
		return c.outcome(ctx, s, res)
	})
}

type orderRelease struct {
	benefit   `embed:""`
	Operation string `help:"Operation id, which resolve can ask for; not needed, since this happens once." placeholder:"ID"`
	traced    `embed:""`
}

// Help is the long help.
func (orderRelease) Help() string {
	return `Released before it was reserved, a reserve that comes later is refused.

Example:
  coffer order release o-1001 coupon:SPRING`
}

// Run releases.
func (o *orderRelease) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.Release(ctx, &cofferv1.ReleaseRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, OperationId: o.Operation, CorrelationId: o.Correlation,
		})
		return c.orderOutcome(ctx, s, o.benefit, res, err)
	})
}

type orderReclaim struct {
	benefit   `embed:""`
	Operation string `help:"Operation id, which resolve can ask for; not needed, since this happens once." placeholder:"ID"`
	traced    `embed:""`
}

// Help is the long help.
func (orderReclaim) Help() string {
	return `For an order that was paid after all: takes what had been held from the budget
again, if it has that much.

Example:
  coffer order reclaim o-1001 coupon:SPRING`
}

// Run reclaims.
func (o *orderReclaim) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.Reclaim(ctx, &cofferv1.ReclaimRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, OperationId: o.Operation, CorrelationId: o.Correlation,
		})
		return c.orderOutcome(ctx, s, o.benefit, res, err)
	})
}
