package main

import (
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type orderReverse struct {
	benefit `embed:""`
	Refund  string `help:"Refund id: the same one refunds once." required:"" placeholder:"ID"`
	moneyIn `embed:""`
	traced  `embed:""`
}

// Help is the long help.
func (orderReverse) Help() string {
	return "Example:\n  coffer order reverse o-1001 coupon:SPRING --refund r-1 --amount 3.00"
}

// Run refunds.
func (o *orderReverse) Run(c *cli) error {
	if err := o.check(true); err != nil {
		return err
	}
	s, err := c.dial()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := c.call()
	defer cancel()
	amount, err := s.minorOf(ctx, o.benefit, o.moneyIn)
	if err != nil {
		return err
	}
	res, err := s.Reverse(ctx, &cofferv1.ReverseRequest{
		OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, RefundId: o.Refund, AmountMinor: amount, CorrelationId: o.Correlation,
	})
	if err != nil {
		return s.explain(err)
	}
	return c.outcome(ctx, s, res)
}

type orderReinstate struct {
	benefit `embed:""`
	Refund  string `help:"Id of the refund that was cancelled." required:"" placeholder:"ID"`
	traced  `embed:""`
}

// Help is the long help.
func (orderReinstate) Help() string {
	return "Example:\n  coffer order reinstate o-1001 coupon:SPRING --refund r-1"
}

// Run undoes a refund.
func (o *orderReinstate) Run(c *cli) error {
	s, err := c.dial()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := c.call()
	defer cancel()
	res, err := s.Reinstate(ctx, &cofferv1.ReinstateRequest{
		OrderId: o.Order, BenefitKey: o.Benefit, Attempt: o.Attempt, RefundId: o.Refund, CorrelationId: o.Correlation,
	})
	if err != nil {
		return s.explain(err)
	}
	return c.outcome(ctx, s, res)
}

type orderResolve struct {
	benefit `embed:""`
	Op      string `help:"Command whose answer was lost: reserve, commit, extend, release, reclaim, reverse or reinstate." required:"" enum:"reserve,commit,extend,release,reclaim,reverse,reinstate" placeholder:"OP"`
	ID      string `help:"Its payment, refund or operation id, if it had one." name:"id" placeholder:"ID"`
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
	s, err := c.dial()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := c.call()
	defer cancel()
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
		c.printf("refused: the %s was answered with %s: %s\n", o.Op, d.GetReason(), d.GetMessage())
	default:
		c.printf("applied: the %s took effect\n\n", o.Op)
		return c.outcome(ctx, s, res.Outcome)
	}
	return nil
}
