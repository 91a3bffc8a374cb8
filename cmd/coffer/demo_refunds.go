package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// expiryPatience is how long the scanner may take to return all short holds.
const expiryPatience = 30 * time.Second

// hold reserves for a moment and forgets about it.
func (d *demo) hold(ctx context.Context, o *order) error {
	d.tally.row()
	if err := d.take(ctx, o, 1, shortTTL); err != nil {
		return err
	}
	o.held = true
	return nil
}

// expired waits until the scanner has returned the money of the short holds,
// and gives the orders whose money it did return. Another one is a fault.
func (d *demo) expired(ctx context.Context, due []*order) (gone []*order, err error) {
	deadline := time.Now().Add(expiryPatience)
	before := d.wire.calls.Load()
	var mu sync.Mutex
	err = d.orders(ctx, "expiries", due, func(o *order) error {
		if err := d.untilExpired(ctx, o, deadline); err != nil {
			return err
		}
		d.tally.move(o.budget, -o.amount, 0, 0)
		d.tally.did("expired")
		mu.Lock()
		defer mu.Unlock()
		gone = append(gone, o)
		return nil
	})
	d.polls = d.wire.calls.Load() - before
	return gone, err
}

// untilExpired looks at one hold until it has expired.
func (d *demo) untilExpired(ctx context.Context, o *order, deadline time.Time) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := d.client.GetReservation(ctx, o.id, o.benefit)
		if err != nil {
			return err
		}
		switch s := got[0].GetState(); {
		case s == cofferv1.ReservationState_RESERVATION_STATE_EXPIRED:
			return nil
		case s != cofferv1.ReservationState_RESERVATION_STATE_RESERVED:
			return fmt.Errorf("is %s, must be EXPIRED", stateName(s))
		case time.Now().After(deadline):
			return fmt.Errorf("%s of budget %s are still held %s after the last order", money(o.amount, demoCurrency), o.budget, expiryPatience)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// staysExpired sees that the hold has expired, and that a duplicate of its
// reserve does not bring it back.
func (d *demo) staysExpired(ctx context.Context, o *order) error {
	out, err := d.client.Reserve(ctx, o.reserve(1, shortTTL))
	if err != nil {
		return err
	}
	if !out.GetReplayed() {
		return fmt.Errorf("a duplicate of an expired reserve took effect")
	}
	got, err := d.client.GetReservation(ctx, o.id, o.benefit)
	if err != nil {
		return err
	}
	if s := got[0].GetState(); s != cofferv1.ReservationState_RESERVATION_STATE_EXPIRED {
		return fmt.Errorf("is %s, must be EXPIRED", stateName(s))
	}
	return nil
}

// lateCommit commits after the expiry: the budget's policy decides.
func (d *demo) lateCommit(ctx context.Context, o *order) error {
	out, err := d.client.Commit(ctx, o.commit(1))
	if o.budget == couponBudget {
		if err := refused(err, ledger.LateCommitCase); err != nil {
			return err
		}
		d.tally.did("late_commit_case")
		return nil
	}
	if err != nil {
		return err
	}
	if !out.GetLate() {
		return fmt.Errorf("a commit after the expiry must say that it is late")
	}
	d.tally.move(o.budget, 0, o.amount, 0)
	d.tally.did("late_commit_reclaimed")
	return nil
}

// refund pays, refunds a part twice with the same id, and then tries two
// refunds at once of which only one fits.
func (d *demo) refund(ctx context.Context, o *order) error {
	if err := d.plain(ctx, o); err != nil {
		return err
	}
	part := o.amount / 4
	for i := range 2 {
		out, err := d.client.Reverse(ctx, o.reverse("r-1", part))
		if err != nil {
			return err
		}
		if out.GetReplayed() != (i == 1) && (i == 1 || !d.troubled.Load()) {
			return fmt.Errorf("refund r-1, call %d: replayed is %t", i+1, out.GetReplayed())
		}
	}
	d.tally.move(o.budget, 0, 0, part)
	d.tally.did("refunds")
	d.tally.did("refund_repeats_answered")
	big := (o.amount-part)/2 + 1
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, id := range []string{"r-2", "r-3"} {
		wg.Go(func() { _, errs[i] = d.single.Reverse(ctx, o.reverse(id, big)) })
	}
	wg.Wait()
	taken := 0
	for _, err := range errs {
		switch {
		case err == nil:
			taken++
		case rpc.ReasonOf(err) != ledger.RefundExceedsCommit:
			return err
		}
	}
	if taken != 1 {
		return fmt.Errorf("%d of two refunds that exceed the payment together were taken, must be 1", taken)
	}
	d.tally.move(o.budget, 0, 0, big)
	d.tally.did("refunds")
	d.tally.did("refunds_above_payment_refused")
	return nil
}

// refundUndone refunds in two parts, and the second refund is then cancelled.
func (d *demo) refundUndone(ctx context.Context, o *order) error {
	if err := d.plain(ctx, o); err != nil {
		return err
	}
	part := o.amount / 3
	if _, err := d.client.Reverse(ctx, o.reverse("r-1", part)); err != nil {
		return err
	}
	d.tally.move(o.budget, 0, 0, part)
	if _, err := d.client.Reverse(ctx, o.reverse("r-2", o.amount-part)); err != nil {
		return err
	}
	d.tally.move(o.budget, 0, 0, o.amount-part)
	d.tally.add("refunds", 2)
	if _, err := d.client.Reinstate(ctx, &cofferv1.ReinstateRequest{OrderId: o.id, BenefitKey: o.benefit, RefundId: "r-2"}); err != nil {
		return err
	}
	d.tally.move(o.budget, 0, 0, -(o.amount - part))
	d.tally.did("refunds_reinstated")
	return nil
}
