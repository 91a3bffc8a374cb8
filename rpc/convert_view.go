package rpc

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// From results and read views to messages.

// stamp is a point in time; the zero time is unset.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func balancesOf(b ledger.Balances) *cofferv1.Balances {
	return &cofferv1.Balances{
		FundedMinor: b.Funded, AvailableMinor: b.Available, ReservedMinor: b.Reserved,
		CommittedMinor: b.Committed, ReversedMinor: b.Reversed,
	}
}

func outcomeOf(key ledger.OrderKey, attempt uint32, o *ledger.Outcome) *cofferv1.Outcome {
	return &cofferv1.Outcome{
		OrderId: key.Order, BenefitKey: key.Benefit, Attempt: attempt, Budget: o.Bucket.Budget.String(),
		State: states.to(o.State), AmountMinor: o.Amount, HeldMinor: o.Held, CommittedMinor: o.Committed, ReversedMinor: o.Reversed,
		ExpireTime: stamp(o.Expires), Time: stamp(o.At), Bucket: uint32(o.Bucket.Index), EntrySeq: o.Seq, Late: o.Late,
	}
}

func resultOf(r *ledger.Result) *cofferv1.Outcome {
	o := outcomeOf(r.Key, r.Attempt, &r.Outcome)
	o.Replayed, o.Skipped = r.Replayed, r.Skipped
	if o.Budget == "" {
		o.Budget = r.Budget.String()
	}
	return o
}

// resolutionOf says what became of a command: it took effect, it was refused,
// or it never happens.
func resolutionOf(r *ledger.Result) *cofferv1.ResolveResponse {
	res := &cofferv1.ResolveResponse{Outcome: resultOf(r)}
	switch {
	case r.Void || r.Receipt == nil || r.Receipt.Void:
		res.Resolution = cofferv1.Resolution_RESOLUTION_VOID
	case r.Receipt.Rejection != "":
		res.Resolution = cofferv1.Resolution_RESOLUTION_REJECTED
		res.Rejection = detailOf(r.Receipt.Refusal(r.Attempt))
	default:
		res.Resolution = cofferv1.Resolution_RESOLUTION_APPLIED
	}
	return res
}

func budgetOf(b *ledger.Budget, total ledger.Balances) *cofferv1.Budget {
	return &cofferv1.Budget{
		Budget: b.ID.String(), Currency: b.Currency, State: budgetStates.to(b.State), Policy: policyOf(&b.Policy),
		Kind: kinds.to(b.Kind), Buckets: uint32(b.Epoch.Buckets), RoutingEpoch: b.Epoch.Number, CreateTime: stamp(b.Created), Balances: balancesOf(total),
	}
}

func policyOf(p *ledger.Policy) *cofferv1.BudgetPolicy {
	return &cofferv1.BudgetPolicy{
		LateCommit: lateCommits.to(p.LateCommit), Exhaustion: exhaustions.to(p.Exhaustion), OnUnavailable: onUnavailables.to(p.OnUnavailable),
		OverCommit:   &cofferv1.OverCommit{Percent: p.OverCommit.Percent, AmountMinor: p.OverCommit.Amount},
		ReversalSink: p.ReversalSink.String(), MaxLifetime: durationpb.New(p.MaxLifetime),
	}
}

func bucketsOf(v *store.BudgetView) []*cofferv1.BucketBalances {
	out := make([]*cofferv1.BucketBalances, len(v.Buckets))
	for i := range v.Buckets {
		b := &v.Buckets[i]
		out[i] = &cofferv1.BucketBalances{
			Bucket: uint32(b.ID.Index), Unallocated: b.ID.Index == ledger.Unallocated, Balances: balancesOf(b.Balances), LastSeq: b.Seq,
			Retired: int(b.ID.Index) >= v.Budget.Buckets() && b.ID.Index != ledger.Unallocated,
		}
	}
	return out
}

// attemptsOf gives all attempts of a reservation, the first one first.
func attemptsOf(r *ledger.Reservation) []*cofferv1.Reservation {
	out := make([]*cofferv1.Reservation, 0, len(r.Attempts))
	for i := range r.Attempts {
		a := &r.Attempts[i]
		res := &cofferv1.Reservation{
			OrderId: r.Key.Order, BenefitKey: r.Key.Benefit, Attempt: a.Number, Budget: a.Leg.Bucket.Budget.String(),
			Bucket: uint32(a.Leg.Bucket.Index), Currency: a.Leg.Currency, State: states.to(a.State), AmountMinor: a.Leg.Amount,
			HeldMinor: a.Leg.Held, CommittedMinor: a.Leg.Committed, ReversedMinor: a.Leg.Reversed,
			CreateTime: stamp(a.Created), ExpireTime: stamp(a.Expires), CorrelationId: a.Correlation,
			Receipts: make([]*cofferv1.Receipt, len(a.Receipts)),
		}
		for j := range a.Receipts {
			res.Receipts[j] = receiptOf(r.Key, a.Number, &a.Receipts[j])
		}
		out = append(out, res)
	}
	slices.SortStableFunc(out, func(a, b *cofferv1.Reservation) int { return int(a.GetAttempt()) - int(b.GetAttempt()) })
	return out
}

func receiptOf(key ledger.OrderKey, attempt uint32, r *ledger.Receipt) *cofferv1.Receipt {
	m := &cofferv1.Receipt{
		Operation: operations.to(r.Op), Id: r.ID, Void: r.Void, Rejection: string(r.Rejection), Outcome: outcomeOf(key, attempt, &r.Outcome),
	}
	if len(r.Request) > 0 {
		hash := r.RequestHash()
		m.RequestHash = hash[:]
	}
	return m
}

func entryOf(e *store.EntryView) *cofferv1.Entry {
	m := &cofferv1.Entry{
		Budget: e.Bucket.Budget.String(), Bucket: uint32(e.Bucket.Index), Seq: e.Seq, Type: entryTypes.to(e.Type), Time: stamp(e.Time),
		OrderId: e.Order, BenefitKey: e.Benefit, Attempt: e.Attempt, EventSeq: e.EventSeq,
		Delta: balancesOf(e.Delta), After: balancesOf(e.After), RefersTo: e.RefersTo, Cause: e.Cause, CorrelationId: e.Correlation,
	}
	if e.Peer != nil {
		m.Peer = e.Peer.String()
	}
	return m
}

func replayOf(r *store.Replay) *cofferv1.ReplayResponse {
	m := &cofferv1.ReplayResponse{
		Budget: r.Budget.ID.String(), Currency: r.Budget.Currency, CutoffTime: stamp(r.Cutoff), Total: balancesOf(r.Total), Ok: r.OK(),
		Buckets: make([]*cofferv1.BucketReplay, len(r.Buckets)),
	}
	for i := range r.Buckets {
		b := &r.Buckets[i]
		row := &cofferv1.BucketReplay{
			Bucket: uint32(b.Bucket.Index), Unallocated: b.Bucket.Index == ledger.Unallocated, Seq: b.Seq, Entries: b.Entries,
			Replayed: balancesOf(b.Replayed), Problem: text(b.Problem),
		}
		if b.HasStored {
			row.Stored = balancesOf(b.Stored)
		}
		m.Buckets[i] = row
	}
	return m
}

func chainOf(r *store.Replay) *cofferv1.VerifyChainResponse {
	m := &cofferv1.VerifyChainResponse{Budget: r.Budget.ID.String(), Ok: r.OK(), Buckets: make([]*cofferv1.BucketChain, len(r.Buckets))}
	for i := range r.Buckets {
		b := &r.Buckets[i]
		m.Buckets[i] = &cofferv1.BucketChain{
			Bucket: uint32(b.Bucket.Index), Unallocated: b.Bucket.Index == ledger.Unallocated, Blocks: b.Blocks, Entries: b.Entries,
			HeadHash: b.Head[:], Problem: text(b.Problem),
		}
	}
	return m
}

func explanationOf(e *store.Explanation) *cofferv1.ExplainOrderResponse {
	m := &cofferv1.ExplainOrderResponse{OrderId: e.Order, Timeline: timelineOf(e)}
	for i := range e.Reservations {
		m.Reservations = append(m.Reservations, attemptsOf(&e.Reservations[i])...)
	}
	withAllocations(m.Reservations, e.Allocations)
	return m
}

func timelineOf(e *store.Explanation) []*cofferv1.TimelineEvent {
	out := make([]*cofferv1.TimelineEvent, len(e.Timeline))
	for i := range e.Timeline {
		t := &e.Timeline[i]
		ev := &cofferv1.TimelineEvent{
			Time: stamp(t.Time), Text: text(t.Text), BenefitKey: t.Benefit, Attempt: t.Attempt, Operation: operations.to(t.Op),
		}
		if t.Entry != nil {
			ev.Entry = entryOf(t.Entry)
		}
		out[i] = ev
	}
	return out
}

func caseOf(c *store.CaseView) *cofferv1.Case {
	return &cofferv1.Case{
		OrderId: c.Key.Order, BenefitKey: c.Key.Benefit, Attempt: c.Attempt, Budget: c.Budget.String(),
		AmountMinor: c.Amount, OpenTime: stamp(c.Opened), State: states.to(c.State),
	}
}

func reportOf(r *store.AuditReport) *cofferv1.AuditReport {
	m := &cofferv1.AuditReport{
		Ok: r.OK(), Budgets: r.Budgets, Buckets: r.Buckets, Blocks: r.Blocks, Entries: r.Entries,
		Reservations: r.Reservations, Events: r.Events, Cases: r.Cases,
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		check := &cofferv1.AuditCheck{Name: c.Name, Statement: c.Statement, Checked: c.Checked, Problems: c.Problems}
		for _, e := range c.Examples {
			check.Examples = append(check.Examples, text(e))
		}
		m.Checks = append(m.Checks, check)
	}
	for currency, total := range r.Totals {
		m.Totals = append(m.Totals, &cofferv1.CurrencyTotal{Currency: currency, Balances: balancesOf(total)})
	}
	slices.SortFunc(m.Totals, func(a, b *cofferv1.CurrencyTotal) int {
		if a.GetCurrency() < b.GetCurrency() {
			return -1
		}
		return 1
	})
	return m
}
