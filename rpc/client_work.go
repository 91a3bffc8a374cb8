package rpc

import (
	"context"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Enqueue puts up to 100 jobs into a queue and gives one result each. The same
// job again is answered with its state now.
func (c *Client) Enqueue(ctx context.Context, queue string, jobs ...*cofferv1.NewJob) ([]*cofferv1.EnqueueResult, error) {
	res, err := call(ctx, c, kindCommand, c.queue.Enqueue, &cofferv1.EnqueueRequest{Queue: queue, Jobs: jobs})
	if err != nil {
		return nil, err
	}
	return res.GetResults(), nil
}

// Lease takes jobs that are due. A call whose answer was lost is sent again and
// leases others: what the lost one leased comes back when its leases run out.
func (c *Client) Lease(ctx context.Context, req *cofferv1.LeaseRequest) ([]*cofferv1.QueueJob, error) {
	res, err := call(ctx, c, kindCommand, c.queue.Lease, req)
	if err != nil {
		return nil, err
	}
	return res.GetJobs(), nil
}

// ExtendLease gives the holder of a job more time.
func (c *Client) ExtendLease(ctx context.Context, req *cofferv1.ExtendLeaseRequest) (*cofferv1.ExtendLeaseResponse, error) {
	return call(ctx, c, kindCommand, c.queue.ExtendLease, req)
}

// Complete ends a job for good.
func (c *Client) Complete(ctx context.Context, req *cofferv1.CompleteRequest) (*cofferv1.CompleteResponse, error) {
	return call(ctx, c, kindCommand, c.queue.Complete, req)
}

// Fail counts an attempt of a job.
func (c *Client) Fail(ctx context.Context, req *cofferv1.FailRequest) (*cofferv1.FailResponse, error) {
	return call(ctx, c, kindCommand, c.queue.Fail, req)
}

// ReturnLease gives a job back untried.
func (c *Client) ReturnLease(ctx context.Context, req *cofferv1.ReturnLeaseRequest) (*cofferv1.ReturnLeaseResponse, error) {
	return call(ctx, c, kindCommand, c.queue.ReturnLease, req)
}

// GetQueueJob reads one job.
func (c *Client) GetQueueJob(ctx context.Context, queue, job string) (*cofferv1.QueueJob, error) {
	res, err := call(ctx, c, kindRead, c.queue.GetQueueJob, &cofferv1.GetQueueJobRequest{Queue: queue, JobId: job})
	if err != nil {
		return nil, err
	}
	return res.GetJob(), nil
}

// ListJobs reads one page of a queue's jobs.
func (c *Client) ListJobs(ctx context.Context, req *cofferv1.ListJobsRequest) (*cofferv1.ListJobsResponse, error) {
	return call(ctx, c, kindRead, c.queue.ListJobs, req)
}

// ListQueues reads one page of the tenant's queues.
func (c *Client) ListQueues(ctx context.Context, req *cofferv1.ListQueuesRequest) (*cofferv1.ListQueuesResponse, error) {
	return call(ctx, c, kindRead, c.queue.ListQueues, req)
}

// ListDeadLetters reads one page of a queue's dead letters.
func (c *Client) ListDeadLetters(ctx context.Context, req *cofferv1.ListDeadLettersRequest) (*cofferv1.ListDeadLettersResponse, error) {
	return call(ctx, c, kindRead, c.queue.ListDeadLetters, req)
}

// ReplayDeadLetter makes a dead letter a job again.
func (c *Client) ReplayDeadLetter(ctx context.Context, queue, job string) (*cofferv1.ReplayDeadLetterResponse, error) {
	return call(ctx, c, kindCommand, c.queue.ReplayDeadLetter, &cofferv1.ReplayDeadLetterRequest{Queue: queue, JobId: job})
}

// DiscardDeadLetter gives a dead letter up.
func (c *Client) DiscardDeadLetter(ctx context.Context, queue, job, reason string) (*cofferv1.DiscardDeadLetterResponse, error) {
	return call(ctx, c, kindCommand, c.queue.DiscardDeadLetter, &cofferv1.DiscardDeadLetterRequest{Queue: queue, JobId: job, Reason: reason})
}

// SubmitFacts tells what happened, up to 100 facts, and gives one result each.
// The same fact again is answered with its state now.
func (c *Client) SubmitFacts(ctx context.Context, facts ...*cofferv1.NewFact) ([]*cofferv1.SubmitFactsResult, error) {
	res, err := call(ctx, c, kindCommand, c.facts.SubmitFacts, &cofferv1.SubmitFactsRequest{Facts: facts})
	if err != nil {
		return nil, err
	}
	return res.GetResults(), nil
}

// GetFact reads one fact.
func (c *Client) GetFact(ctx context.Context, source, event string) (*cofferv1.Fact, error) {
	res, err := call(ctx, c, kindRead, c.facts.GetFact, &cofferv1.GetFactRequest{Source: source, EventId: event})
	if err != nil {
		return nil, err
	}
	return res.GetFact(), nil
}

// ListFacts reads one page of the tenant's facts.
func (c *Client) ListFacts(ctx context.Context, req *cofferv1.ListFactsRequest) (*cofferv1.ListFactsResponse, error) {
	return call(ctx, c, kindRead, c.facts.ListFacts, req)
}

// RetryFact looks at a fact now.
func (c *Client) RetryFact(ctx context.Context, source, event string) (*cofferv1.Fact, error) {
	res, err := call(ctx, c, kindCommand, c.facts.RetryFact, &cofferv1.RetryFactRequest{Source: source, EventId: event})
	if err != nil {
		return nil, err
	}
	return res.GetFact(), nil
}

// ResolveFact closes an exception that a person has settled.
func (c *Client) ResolveFact(ctx context.Context, source, event, reason string) (*cofferv1.ResolveFactResponse, error) {
	return call(ctx, c, kindCommand, c.facts.ResolveFact, &cofferv1.ResolveFactRequest{Source: source, EventId: event, Reason: reason})
}
