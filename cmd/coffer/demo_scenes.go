package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// crowd is how many callers send a duplicate at the same moment.
const crowd = 8

func (o *order) reserve(attempt uint32, ttl time.Duration) *cofferv1.ReserveRequest {
	return &cofferv1.ReserveRequest{
		OrderId: o.id, BenefitKey: o.benefit, Attempt: attempt, Budget: o.budget,
		AmountMinor: o.amount, Currency: demoCurrency, Ttl: durationpb.New(ttl),
	}
}

func (o *order) commit(attempt uint32) *cofferv1.CommitRequest {
	return &cofferv1.CommitRequest{OrderId: o.id, BenefitKey: o.benefit, Attempt: attempt, Budget: o.budget}
}

func (o *order) reverse(refund string, amount int64) *cofferv1.ReverseRequest {
	return &cofferv1.ReverseRequest{OrderId: o.id, BenefitKey: o.benefit, RefundId: refund, AmountMinor: amount}
}

// refused is nil when err is a refusal for the reason.
func refused(err error, reason ledger.Code) error {
	if got := rpc.ReasonOf(err); err == nil || got != reason {
		return fmt.Errorf("must be refused with %s, got %w", reason, orNone(err))
	}
	return nil
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no refusal")
	}
	return err
}

// take reserves and counts the money.
func (d *demo) take(ctx context.Context, o *order, attempt uint32, ttl time.Duration) error {
	if _, err := d.client.Reserve(ctx, o.reserve(attempt, ttl)); err != nil {
		return err
	}
	d.tally.move(o.budget, o.amount, 0, 0)
	return nil
}

// pay commits all that is held and counts the money.
func (d *demo) pay(ctx context.Context, o *order, attempt uint32) error {
	if _, err := d.client.Commit(ctx, o.commit(attempt)); err != nil {
		return err
	}
	d.tally.move(o.budget, -o.amount, o.amount, 0)
	d.tally.did("paid")
	return nil
}

// plain reserves and commits.
func (d *demo) plain(ctx context.Context, o *order) error {
	d.tally.row()
	if err := d.take(ctx, o, 1, longTTL); err != nil {
		return err
	}
	return d.pay(ctx, o, 1)
}

// partial commits in two payments, less than was reserved; the rest returns.
func (d *demo) partial(ctx context.Context, o *order) error {
	d.tally.row()
	if err := d.take(ctx, o, 1, longTTL); err != nil {
		return err
	}
	first, second := o.amount/2, o.amount/4
	a, b := o.commit(1), o.commit(1)
	a.AmountMinor, a.Partial, a.PaymentId = first, true, "p-1"
	b.AmountMinor, b.PaymentId = second, "p-2"
	if _, err := d.client.Commit(ctx, a); err != nil {
		return err
	}
	d.tally.move(o.budget, -first, first, 0)
	if _, err := d.client.Commit(ctx, b); err != nil {
		return err
	}
	d.tally.move(o.budget, -(o.amount - first), second, 0)
	d.tally.did("paid_in_parts")
	return nil
}

// duplicates reserves and commits from many callers at the same moment: one
// effect, equal answers.
func (d *demo) duplicates(ctx context.Context, o *order) error {
	d.tally.row()
	if err := d.crowd(func() (*cofferv1.Outcome, error) { return d.single.Reserve(ctx, o.reserve(1, longTTL)) }); err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	d.tally.move(o.budget, o.amount, 0, 0)
	if err := d.crowd(func() (*cofferv1.Outcome, error) { return d.single.Commit(ctx, o.commit(1)) }); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	d.tally.move(o.budget, -o.amount, o.amount, 0)
	d.tally.did("paid")
	d.tally.add("duplicates_answered", 2*(crowd-1))
	return nil
}

// crowd makes one call from many callers at once.
func (d *demo) crowd(call func() (*cofferv1.Outcome, error)) error {
	var wg sync.WaitGroup
	out := make([]*cofferv1.Outcome, crowd)
	errs := make([]error, crowd)
	for i := range crowd {
		wg.Go(func() { out[i], errs[i] = call() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	first := 0
	for _, r := range out {
		if !r.GetReplayed() {
			first++
		}
		if r.GetEntrySeq() != out[0].GetEntrySeq() || r.GetBucket() != out[0].GetBucket() {
			return fmt.Errorf("two answers name different entries: %d/%d and %d/%d", r.GetBucket(), r.GetEntrySeq(), out[0].GetBucket(), out[0].GetEntrySeq())
		}
	}
	if first != 1 && (first > 1 || !d.troubled.Load()) {
		return fmt.Errorf("%d of %d equal calls took effect, must be 1", first, crowd)
	}
	return nil
}

// lost loses the reserve or its answer. Half of the callers send it again and
// the others resolve it: then it either took effect, or it never will and the
// next attempt may.
func (d *demo) lost(ctx context.Context, o *order) error {
	d.tally.row()
	onTheWay := o.rnd.IntN(2) == 0
	if o.rnd.IntN(2) == 0 {
		if _, err := d.single.Reserve(losing(ctx, onTheWay), o.reserve(1, longTTL)); err != nil {
			return err
		}
		d.tally.move(o.budget, o.amount, 0, 0)
		d.tally.did("lost_then_sent_again")
		return d.pay(ctx, o, 1)
	}
	_, err := d.once.Reserve(losing(ctx, onTheWay), o.reserve(1, longTTL))
	if !errors.Is(err, rpc.ErrOutcomeUnknown) {
		return fmt.Errorf("a lost answer must be an unknown outcome, got %w", orNone(err))
	}
	res, err := d.client.Resolve(ctx, &cofferv1.ResolveRequest{OrderId: o.id, BenefitKey: o.benefit, Budget: o.budget, Operation: cofferv1.Operation_OPERATION_RESERVE})
	if err != nil {
		return err
	}
	if onTheWay {
		return d.resolvedVoid(ctx, o, res)
	}
	if res.GetResolution() != cofferv1.Resolution_RESOLUTION_APPLIED {
		return fmt.Errorf("the server had it, yet resolve says %s", res.GetResolution())
	}
	d.tally.move(o.budget, o.amount, 0, 0)
	d.tally.did("lost_then_resolved_applied")
	return d.pay(ctx, o, 1)
}

// resolvedVoid goes on after a reserve that never arrived.
func (d *demo) resolvedVoid(ctx context.Context, o *order, res *cofferv1.ResolveResponse) error {
	if res.GetResolution() != cofferv1.Resolution_RESOLUTION_VOID {
		return fmt.Errorf("the server never had it, yet resolve says %s", res.GetResolution())
	}
	_, err := d.client.Reserve(ctx, o.reserve(1, longTTL)) // the lost one turns up after all
	if err := refused(err, ledger.Voided); err != nil {
		return err
	}
	d.tally.did("lost_then_resolved_void")
	if err := d.take(ctx, o, 2, longTTL); err != nil {
		return err
	}
	return d.pay(ctx, o, 2)
}

// cancelled releases what it reserved.
func (d *demo) cancelled(ctx context.Context, o *order) error {
	d.tally.row()
	if err := d.take(ctx, o, 1, longTTL); err != nil {
		return err
	}
	if _, err := d.client.Release(ctx, &cofferv1.ReleaseRequest{OrderId: o.id, BenefitKey: o.benefit, Budget: o.budget}); err != nil {
		return err
	}
	d.tally.move(o.budget, -o.amount, 0, 0)
	d.tally.did("cancelled_after_reserve")
	return nil
}

// cancelledFirst releases before it reserves: the reserve that comes late is
// refused.
func (d *demo) cancelledFirst(ctx context.Context, o *order) error {
	d.tally.row()
	if _, err := d.client.Release(ctx, &cofferv1.ReleaseRequest{OrderId: o.id, BenefitKey: o.benefit}); err != nil {
		return err
	}
	_, err := d.client.Reserve(ctx, o.reserve(1, longTTL))
	if err := refused(err, ledger.CancelledBeforeReserve); err != nil {
		return err
	}
	d.tally.did("cancelled_before_reserve")
	return nil
}

// dry asks the small budget, which pays half of those who ask.
func (d *demo) dry(ctx context.Context, o *order) error {
	d.tally.row()
	err := d.take(ctx, o, 1, longTTL)
	if err == nil {
		d.tally.did("dry_budget_paid")
		return d.pay(ctx, o, 1)
	}
	if err := refused(err, ledger.InsufficientBudget); err != nil {
		return err
	}
	_, err = d.client.Reserve(ctx, o.reserve(1, longTTL)) // refused once, refused for ever
	if err := refused(err, ledger.InsufficientBudget); err != nil {
		return err
	}
	d.tally.did("dry_budget_refused")
	return nil
}
