package main

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type orderGet struct {
	Order   string `arg:"" help:"Order id."`
	Benefit string `arg:"" help:"Benefit key."`
}

// Help is the long help.
func (orderGet) Help() string { return "Example:\n  coffer order get o-1001 coupon:SPRING" }

// Run shows a reservation.
func (o *orderGet) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.GetReservation(ctx, o.Order, o.Benefit)
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(&cofferv1.GetReservationResponse{Attempts: res})
		}
		c.reservationTable(res)
		return nil
	})
}

func (c *cli) reservationTable(list []*cofferv1.Reservation) {
	t := c.table(table.Row{"benefit", "attempt", "budget", "bucket", "state", "amount", "held", "committed", "reversed", "currency", "created", "expires", "operations"},
		"attempt", "bucket", "amount", "held", "committed", "reversed", "operations")
	for _, r := range list {
		cur, bucket, expires := r.GetCurrency(), "", ""
		if !neverHeld[r.GetState()] {
			bucket, expires = fmt.Sprint(r.GetBucket()), clock(r.GetExpireTime())
		}
		amount := amounts(r.GetState(), cur)
		t.row(r.GetBenefitKey(), r.GetAttempt(), r.GetBudget(), bucket, stateName(r.GetState()),
			amount(r.GetAmountMinor()), amount(r.GetHeldMinor()), amount(r.GetCommittedMinor()),
			amount(r.GetReversedMinor()), cur, clock(r.GetCreateTime()), expires, len(r.GetReceipts()))
	}
	t.print()
	for _, r := range list {
		if r.GetAllocation() != nil {
			c.allocationTable(r)
		}
	}
}

type orderExplain struct {
	Order   string `arg:"" help:"Order id."`
	Benefit string `help:"Only this benefit." placeholder:"KEY"`
}

// Help is the long help.
func (orderExplain) Help() string { return "Example:\n  coffer order explain o-1001" }

// Run shows the timeline of an order.
func (o *orderExplain) Run(c *cli) error {
	return c.withServer(func(ctx context.Context, s *server) error {
		res, err := s.ExplainOrder(ctx, o.Order, o.Benefit)
		if err != nil {
			return s.explain(err)
		}
		if c.JSON {
			return c.printMessage(res)
		}
		c.printf("order %s\n\n", res.OrderId)
		c.reservationTable(res.Reservations)
		c.printf("\n")
		t := c.table(table.Row{"time", "benefit", "attempt", "what happened", "entry"}, "attempt", "entry")
		for _, e := range res.Timeline {
			entry := ""
			if e.Entry != nil {
				entry = e.Entry.GetBudget() + "#" + entryName(e.Entry.GetBucket(), e.Entry.GetSeq())
			}
			t.row(clock(e.Time), e.BenefitKey, e.Attempt, e.Text, entry)
		}
		t.print()
		return nil
	})
}

// entryName names an entry within its budget: bucket and sequence number.
func entryName(bucket uint32, seq uint64) string { return fmt.Sprintf("%d/%d", bucket, seq) }
