package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Jobs and facts, from messages and to messages.

var queueJobStates = pairs[cofferv1.QueueJobState, work.State]{
	{cofferv1.QueueJobState_QUEUE_JOB_STATE_READY, work.Ready},
	{cofferv1.QueueJobState_QUEUE_JOB_STATE_LEASED, work.Leased},
	{cofferv1.QueueJobState_QUEUE_JOB_STATE_DONE, work.Done},
	{cofferv1.QueueJobState_QUEUE_JOB_STATE_DEAD, work.Dead},
	{cofferv1.QueueJobState_QUEUE_JOB_STATE_DISCARDED, work.Discarded},
}

var factKinds = pairs[cofferv1.FactKind, fact.Kind]{
	{cofferv1.FactKind_FACT_KIND_PAYMENT_SUCCEEDED, fact.PaymentSucceeded},
	{cofferv1.FactKind_FACT_KIND_PAYMENT_FAILED, fact.PaymentFailed},
	{cofferv1.FactKind_FACT_KIND_ORDER_CANCELLED, fact.OrderCancelled},
	{cofferv1.FactKind_FACT_KIND_REFUND_SUCCEEDED, fact.RefundSucceeded},
	{cofferv1.FactKind_FACT_KIND_REFUND_CANCELLED, fact.RefundCancelled},
	{cofferv1.FactKind_FACT_KIND_JOB_SUCCEEDED, fact.JobSucceeded},
	{cofferv1.FactKind_FACT_KIND_JOB_FAILED, fact.JobFailed},
}

var factStates = pairs[cofferv1.FactState, fact.State]{
	{cofferv1.FactState_FACT_STATE_PENDING, fact.Pending},
	{cofferv1.FactState_FACT_STATE_APPLIED, fact.Applied},
	{cofferv1.FactState_FACT_STATE_EXCEPTION, fact.Exception},
	{cofferv1.FactState_FACT_STATE_RESOLVED, fact.Resolved},
}

// newJobOf is the request that a message makes, checked.
func newJobOf(p work.Place, m *cofferv1.NewJob) (work.Request, *ledger.Rejection) {
	r := work.Request{
		Key: work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: m.GetJobId()}, Payload: m.GetPayload(), Correlation: m.GetCorrelationId(),
		Policy: work.Policy{MaxAttempts: m.GetPolicy().GetMaxAttempts()},
	}
	var rej *ledger.Rejection
	if r.Policy.Base, rej = durationOf("policy.backoff_base", m.GetPolicy().GetBackoffBase()); rej != nil {
		return r, rej
	}
	if r.Policy.Max, rej = durationOf("policy.backoff_max", m.GetPolicy().GetBackoffMax()); rej != nil {
		return r, rej
	}
	if r.Policy.Keep, rej = durationOf("policy.keep", m.GetPolicy().GetKeep()); rej != nil {
		return r, rej
	}
	if r.Delay, rej = durationOf("delay", m.GetDelay()); rej != nil {
		return r, rej
	}
	r = r.Normalize()
	return r, r.Validate()
}

// jobOf is a job as a message. The token goes to the holder of the lease alone.
func jobOf(j *work.Job, holder bool) *cofferv1.QueueJob {
	m := &cofferv1.QueueJob{
		Queue: j.Key.Queue, JobId: j.Key.ID, State: queueJobStates.to(j.State), Payload: j.Payload,
		Policy: &cofferv1.JobPolicy{
			MaxAttempts: j.Policy.MaxAttempts, BackoffBase: durationpb.New(j.Policy.Base), BackoffMax: durationpb.New(j.Policy.Max),
			Keep: durationpb.New(j.Policy.Keep),
		},
		Attempt: j.Attempt, DueTime: stamp(j.Due), CreateTime: stamp(j.Created), EndTime: stamp(j.Ended),
		Worker: j.Worker, LastError: text(j.LastError), DiscardReason: j.Reason, CorrelationId: j.Correlation,
		Leases: j.Leases, Deaths: j.Deaths, Replays: j.Replays,
	}
	if j.Delay > 0 {
		m.Delay = durationpb.New(j.Delay)
	}
	if holder {
		m.LeaseToken = j.Token
	}
	return m
}

func queueJobsOf(jobs []work.Job, holder bool) []*cofferv1.QueueJob {
	out := make([]*cofferv1.QueueJob, len(jobs))
	for i := range jobs {
		out[i] = jobOf(&jobs[i], holder)
	}
	return out
}

func newFactOf(tenant string, m *cofferv1.NewFact) fact.Fact {
	f := fact.Fact{
		ID: fact.ID{Tenant: tenant, Source: m.GetSource(), Event: m.GetEventId()}, Kind: factKinds.from(m.GetKind()), Order: m.GetOrderId(),
		Ref: m.GetReferenceId(), Attempt: m.GetAttempt(), Currency: m.GetCurrency(), Correlation: m.GetCorrelationId(),
	}
	for _, l := range m.GetLines() {
		f.Lines = append(f.Lines, fact.Line{Benefit: l.GetBenefitKey(), Attempt: l.GetAttempt(), Amount: l.GetAmountMinor()})
	}
	return f
}

func factOf(r *fact.Row) *cofferv1.Fact {
	m := &cofferv1.Fact{
		Fact: &cofferv1.NewFact{
			Source: r.Source, EventId: r.Event, Kind: factKinds.to(r.Kind), OrderId: r.Order, ReferenceId: r.Ref, Attempt: r.Attempt,
			Currency: r.Currency, CorrelationId: r.Correlation,
		},
		State: factStates.to(r.State), Reason: text(r.Reason), Code: string(r.Code), ReceiveTime: stamp(r.Received), SettleTime: stamp(r.Settled),
		DeadlineTime: stamp(r.Deadline), DueTime: stamp(r.Due), Tries: r.Tries, Resolution: r.Resolution,
	}
	for _, l := range r.Lines {
		m.Fact.Lines = append(m.Fact.Lines, &cofferv1.FactLine{BenefitKey: l.Benefit, Attempt: l.Attempt, AmountMinor: l.Amount})
	}
	for i := range r.Effects {
		e := &r.Effects[i]
		m.Effects = append(m.Effects, &cofferv1.FactEffect{
			Operation: operations.to(e.Op),
			Outcome:   outcomeOf(ledger.OrderKey{Tenant: r.Tenant, Order: r.Order, Benefit: e.Benefit}, e.Attempt, &e.Outcome),
		})
	}
	return m
}

func submittedOf(s *store.Submitted) *cofferv1.SubmitFactsResult {
	if s.Err != nil {
		return &cofferv1.SubmitFactsResult{Result: &cofferv1.SubmitFactsResult_Error{Error: detailOf(rejectionOf(s.Err))}}
	}
	return &cofferv1.SubmitFactsResult{Result: &cofferv1.SubmitFactsResult_Fact{Fact: factOf(&s.Row)}, Replayed: s.Replayed}
}
