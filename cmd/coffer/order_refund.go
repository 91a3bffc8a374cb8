package main

import (
	"context"
	"fmt"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type orderReverse struct {
	benefit  `embed:""`
	Refund   string `help:"Refund id: the same one refunds once." required:"" placeholder:"ID"`
	moneyIn  `embed:""`
	All      bool     `help:"Refund all that is committed and not yet refunded." xor:"amount"`
	Line     []string `help:"Order line of the quote to refund; may be given several times." placeholder:"LINE" sep:"none"`
	Quantity []int64  `help:"Units of the line (default: 1), one for each --line." placeholder:"N" range:"1 to 1000000000"`
	traced   `embed:""`
}

// Help is the long help.
func (orderReverse) Help() string {
	return `A refund needs an amount, or --all. With --all the reservation is read first,
and what is committed and not yet refunded then is the amount; a refund id that
was used before keeps its amount. A refund that comes in between makes --all be
refused or leave a rest, never refund too much.

A benefit that was reserved with a quote can be refunded by order line: what was
paid on the units that come back.

Examples:
  coffer order reverse o-1001 coupon:SPRING --refund r-1 --amount 3.00
  coffer order reverse o-1001 coupon:SPRING --refund r-2 --all
  coffer order reverse o-1002 coupon:SPRING --refund r-3 --line A --quantity 2`
}

// Run refunds.
func (o *orderReverse) Run(c *cli) error {
	if err := o.check(false); err != nil {
		return err
	}
	lines, err := o.lines()
	if err != nil {
		return err
	}
	if len(lines) == 0 && !o.given() && !o.All {
		return usagef("a refund needs an amount; give --amount 12.34 or --minor 1234, or --all to refund what is committed and not yet refunded")
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		var amount int64
		if len(lines) == 0 {
			if amount, err = o.amount(ctx, s); err != nil {
				return err
			}
		}
		res, err := s.Reverse(ctx, &cofferv1.ReverseRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, RefundId: o.Refund, AmountMinor: amount, Lines: lines, CorrelationId: o.Correlation,
		})
		return c.orderOutcome(ctx, s, o.benefit, res, err)
	})
}

// lines are the order lines to refund.
func (o *orderReverse) lines() ([]*cofferv1.RefundLine, error) {
	switch {
	case len(o.Line) == 0 && len(o.Quantity) == 0:
		return nil, nil
	case o.given() || o.All:
		return nil, usagef("--line and an amount can't be used together; the lines have their amounts from the quote")
	case len(o.Quantity) > 0 && len(o.Quantity) != len(o.Line):
		return nil, usagef("--quantity is given %d times for %d lines; give one for each --line, or none for one unit each", len(o.Quantity), len(o.Line))
	}
	var out []*cofferv1.RefundLine
	for i, l := range o.Line {
		n := int64(1)
		if len(o.Quantity) > 0 {
			n = o.Quantity[i]
		}
		out = append(out, &cofferv1.RefundLine{LineId: l, Quantity: n})
	}
	return out, nil
}

// amount is what to refund.
func (o *orderReverse) amount(ctx context.Context, s *server) (int64, error) {
	if !o.All {
		return s.minorOf(ctx, o.benefit, o.moneyIn)
	}
	a, err := s.attempt(ctx, o.benefit)
	if err != nil {
		return 0, s.unsent(o.reservation(), err)
	}
	if a == nil {
		return 0, o.absent()
	}
	for _, r := range a.GetReceipts() {
		if r.GetOperation() == cofferv1.Operation_OPERATION_REVERSE && r.GetId() == o.Refund && r.GetOutcome().GetAmountMinor() > 0 {
			return r.GetOutcome().GetAmountMinor(), nil // the same refund again
		}
	}
	left := a.GetCommittedMinor() - a.GetReversedMinor()
	if left <= 0 {
		return 0, fmt.Errorf("order %s has nothing to refund for benefit %s in attempt %d: committed %s, refunded %s", o.Order, o.Benefit, o.Attempt,
			money(a.GetCommittedMinor(), a.GetCurrency()), money(a.GetReversedMinor(), a.GetCurrency()))
	}
	return left, nil
}

type orderReinstate struct {
	benefit `embed:""`
	Refund  string `help:"Id of the refund that was cancelled." required:"" placeholder:"ID"`
	traced  `embed:""`
}

// Help is the long help.
func (orderReinstate) Help() string {
	return `The refund did not happen after all: what it gave back to the budget is spent
again, if the budget has it. A refund can be undone once.

Example:
  coffer order reinstate o-1001 coupon:SPRING --refund r-1`
}

// Run undoes a refund.
func (o *orderReinstate) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.Reinstate(ctx, &cofferv1.ReinstateRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, RefundId: o.Refund, CorrelationId: o.Correlation,
		})
		return c.orderOutcome(ctx, s, o.benefit, res, err)
	})
}

type orderResolve struct {
	benefit `embed:""`
	Op      string `help:"Command whose answer was lost: reserve, commit, extend, release, reclaim, reverse or reinstate." required:"" enum:"reserve,commit,extend,release,reclaim,reverse,reinstate" placeholder:"OP"`
	ID      string `help:"Its payment, refund or operation id, if it had one; a reverse and a reinstate always have one." name:"id" placeholder:"ID"`
	Budget  string `help:"Its budget; saves the server a read." placeholder:"BUDGET"`
}

// Help is the long help.
func (orderResolve) Help() string {
	return `Gives the command's outcome. If it did not happen, resolve makes sure that it
never will: only then is "it did not happen" true.

Example:
  coffer order resolve o-1001 coupon:SPRING --op reserve`
}

// Run resolves.
func (o *orderResolve) Run(c *cli) error {
	if (o.Op == "reverse" || o.Op == "reinstate") && o.ID == "" {
		return usagef("--op %s needs --id, the refund id of the %s", o.Op, o.Op)
	}
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.Resolve(ctx, &cofferv1.ResolveRequest{
			OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, Budget: o.Budget, Id: o.ID,
			Operation: cofferv1.Operation(cofferv1.Operation_value["OPERATION_"+enumName(o.Op)]),
		})
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		switch res.Resolution {
		case cofferv1.Resolution_RESOLUTION_VOID:
			c.printf("void: the %s did not happen and never will\n", o.Op)
		case cofferv1.Resolution_RESOLUTION_REJECTED:
			d := res.GetRejection()
			c.printf("refused: the %s was answered with %s: %s\n", o.Op, d.GetReason(), sentence(d, d.GetField()))
		default:
			c.printf("applied: the %s took effect\n\n", o.Op)
			c.outcomeTable(ctx, s, res.Outcome)
		}
		return nil
	})
}
