package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Queue keeps jobs; store.Store is one. Errors are *ledger.Rejection. It must be
// safe for concurrent use.
type Queue interface {
	Enqueue(ctx context.Context, reqs []work.Request) ([]store.Enqueued, error)
	Lease(ctx context.Context, p work.Place, n int, d time.Duration, worker string) ([]work.Job, error)
	HeldJobs(ctx context.Context, leases map[work.Key]string) (map[work.Key]bool, error)
	WaitDue(ctx context.Context, p work.Place, limit time.Duration) error
	ExtendJob(ctx context.Context, k work.Key, token string, d time.Duration) (work.Decision, error)
	CompleteJob(ctx context.Context, k work.Key, token string) (work.Decision, error)
	FailJob(ctx context.Context, k work.Key, token, reason string, permanent bool) (work.Decision, error)
	ReturnJob(ctx context.Context, k work.Key, token string) (work.Decision, error)
	ReplayJob(ctx context.Context, k work.Key) (work.Decision, error)
	DiscardJob(ctx context.Context, k work.Key, reason string) (work.Decision, error)
	QueueJob(ctx context.Context, k work.Key) (*work.Job, error)
	QueueJobs(ctx context.Context, p work.Place, state work.State, page store.Page) (jobs []work.Job, next string, err error)
	DeadJobs(ctx context.Context, p work.Place, page store.Page) (jobs []work.Job, next string, err error)
	Queues(ctx context.Context, tenant string, page store.Page) (stats []store.QueueStats, next string, err error)
}

type queueService struct {
	queue   Queue
	metrics *metrics
	bells   bells
	// leaving ends the streams when the node drains.
	leaving <-chan struct{}
}

func placeOf(ctx context.Context, queue string) (work.Place, *ledger.Rejection) {
	p := work.Place{Tenant: tenantOf(ctx), Queue: queue}
	return p, p.Validate()
}

func jobKeyOf(ctx context.Context, queue, job string) (work.Key, *ledger.Rejection) {
	k := work.Key{Tenant: tenantOf(ctx), Queue: queue, ID: job}
	return k, k.Validate()
}

func (s *queueService) Enqueue(ctx context.Context, m *cofferv1.EnqueueRequest) (*cofferv1.EnqueueResponse, error) {
	p, r := placeOf(ctx, m.GetQueue())
	if r != nil {
		return nil, r
	}
	res := &cofferv1.EnqueueResponse{Results: make([]*cofferv1.EnqueueResult, len(m.GetJobs()))}
	refuse := func(i int, r *ledger.Rejection) {
		s.metrics.rejected(r)
		inner := *r
		if inner.Field != "" && inner.Field != "queue" {
			inner.Field = fmt.Sprintf("jobs[%d].%s", i, inner.Field)
		}
		res.Results[i] = &cofferv1.EnqueueResult{Result: &cofferv1.EnqueueResult_Error{Error: detailOf(&inner)}}
	}
	var reqs []work.Request
	var index []int
	weight := 0
	for i, job := range m.GetJobs() {
		req, r := newJobOf(p, job)
		if r != nil {
			refuse(i, r)
			continue
		}
		weight += len(req.Payload)
		reqs, index = append(reqs, req), append(index, i)
	}
	if weight > work.MaxBatchBytes {
		return nil, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "jobs", Value: fmt.Sprintf("%d bytes of payload", weight),
			Limit: fmt.Sprintf("%d bytes in one call", work.MaxBatchBytes), Message: "are too large together",
		}
	}
	if len(reqs) == 0 {
		return res, nil
	}
	got, err := s.queue.Enqueue(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for j := range got {
		if got[j].Err != nil {
			refuse(index[j], rejectionOf(got[j].Err))
			continue
		}
		res.Results[index[j]] = &cofferv1.EnqueueResult{
			Result: &cofferv1.EnqueueResult_Job{Job: jobOf(&got[j].Job, false)}, Replayed: got[j].Replayed,
		}
	}
	s.bells.ring(p)
	return res, nil
}

// leaseOf reads the length of a lease.
func leaseOf(m interface{ GetLease() *durationpb.Duration }) (time.Duration, *ledger.Rejection) {
	d, r := durationOf("lease", m.GetLease())
	if d == 0 && r == nil {
		d = work.DefaultLease
	}
	if r == nil {
		r = work.CheckLease(d)
	}
	return d, r
}

// leasing is what Lease and Work ask for.
type leasing struct {
	place  work.Place
	n      int
	lease  time.Duration
	worker string
}

type leaseRequest interface {
	GetQueue() string
	GetMaxJobs() uint32
	GetLease() *durationpb.Duration
	GetWorker() string
}

func leasingOf(ctx context.Context, m leaseRequest) (l leasing, r *ledger.Rejection) {
	if l.place, r = placeOf(ctx, m.GetQueue()); r != nil {
		return l, r
	}
	if r = ledger.CheckID("worker", m.GetWorker()); r != nil {
		return l, r
	}
	l.n, l.worker = int(max(m.GetMaxJobs(), 1)), m.GetWorker()
	l.lease, r = leaseOf(m)
	return l, r
}

func (s *queueService) Lease(ctx context.Context, m *cofferv1.LeaseRequest) (*cofferv1.LeaseResponse, error) {
	l, r := leasingOf(ctx, m)
	if r != nil {
		return nil, r
	}
	jobs, err := s.queue.Lease(ctx, l.place, l.n, l.lease, l.worker)
	if err != nil {
		return nil, err
	}
	return &cofferv1.LeaseResponse{Jobs: queueJobsOf(jobs, true)}, nil
}

// change runs one command of a lease's holder, and tells the streams of this
// node.
func (s *queueService) change(ctx context.Context, queue, job string, do func(work.Key) (work.Decision, error)) (*cofferv1.QueueJob, bool, error) {
	k, r := jobKeyOf(ctx, queue, job)
	if r != nil {
		return nil, false, r
	}
	d, err := do(k)
	s.bells.ring(k.Place()) // also when it is refused: a lease that is lost is a free place
	if err != nil {
		return nil, false, err
	}
	return jobOf(&d.Job, false), d.Replayed, nil
}

func (s *queueService) ExtendLease(ctx context.Context, m *cofferv1.ExtendLeaseRequest) (*cofferv1.ExtendLeaseResponse, error) {
	d, r := leaseOf(m)
	if r != nil {
		return nil, r
	}
	k, r := jobKeyOf(ctx, m.GetQueue(), m.GetJobId())
	if r != nil {
		return nil, r
	}
	got, err := s.queue.ExtendJob(ctx, k, m.GetLeaseToken(), d)
	if err != nil {
		return nil, err
	}
	return &cofferv1.ExtendLeaseResponse{Job: jobOf(&got.Job, false)}, nil
}

func (s *queueService) Complete(ctx context.Context, m *cofferv1.CompleteRequest) (*cofferv1.CompleteResponse, error) {
	job, replayed, err := s.change(ctx, m.GetQueue(), m.GetJobId(), func(k work.Key) (work.Decision, error) {
		return s.queue.CompleteJob(ctx, k, m.GetLeaseToken())
	})
	if err != nil {
		return nil, err
	}
	return &cofferv1.CompleteResponse{Job: job, Replayed: replayed}, nil
}

func (s *queueService) Fail(ctx context.Context, m *cofferv1.FailRequest) (*cofferv1.FailResponse, error) {
	job, replayed, err := s.change(ctx, m.GetQueue(), m.GetJobId(), func(k work.Key) (work.Decision, error) {
		return s.queue.FailJob(ctx, k, m.GetLeaseToken(), m.GetError(), m.GetPermanent())
	})
	if err != nil {
		return nil, err
	}
	return &cofferv1.FailResponse{Job: job, Replayed: replayed}, nil
}

func (s *queueService) ReturnLease(ctx context.Context, m *cofferv1.ReturnLeaseRequest) (*cofferv1.ReturnLeaseResponse, error) {
	job, replayed, err := s.change(ctx, m.GetQueue(), m.GetJobId(), func(k work.Key) (work.Decision, error) {
		return s.queue.ReturnJob(ctx, k, m.GetLeaseToken())
	})
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReturnLeaseResponse{Job: job, Replayed: replayed}, nil
}

func (s *queueService) ReplayDeadLetter(ctx context.Context, m *cofferv1.ReplayDeadLetterRequest) (*cofferv1.ReplayDeadLetterResponse, error) {
	job, replayed, err := s.change(ctx, m.GetQueue(), m.GetJobId(), func(k work.Key) (work.Decision, error) {
		return s.queue.ReplayJob(ctx, k)
	})
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReplayDeadLetterResponse{Job: job, Replayed: replayed}, nil
}

func (s *queueService) DiscardDeadLetter(ctx context.Context, m *cofferv1.DiscardDeadLetterRequest) (*cofferv1.DiscardDeadLetterResponse, error) {
	job, replayed, err := s.change(ctx, m.GetQueue(), m.GetJobId(), func(k work.Key) (work.Decision, error) {
		return s.queue.DiscardJob(ctx, k, m.GetReason())
	})
	if err != nil {
		return nil, err
	}
	return &cofferv1.DiscardDeadLetterResponse{Job: job, Replayed: replayed}, nil
}

func (s *queueService) GetQueueJob(ctx context.Context, m *cofferv1.GetQueueJobRequest) (*cofferv1.GetQueueJobResponse, error) {
	k, r := jobKeyOf(ctx, m.GetQueue(), m.GetJobId())
	if r != nil {
		return nil, r
	}
	j, err := s.queue.QueueJob(ctx, k)
	if err != nil {
		return nil, err
	}
	return &cofferv1.GetQueueJobResponse{Job: jobOf(j, false)}, nil
}

func (s *queueService) ListJobs(ctx context.Context, m *cofferv1.ListJobsRequest) (*cofferv1.ListJobsResponse, error) {
	p, r := placeOf(ctx, m.GetQueue())
	if r != nil {
		return nil, r
	}
	jobs, next, err := s.queue.QueueJobs(ctx, p, queueJobStates.from(m.GetState()), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	return &cofferv1.ListJobsResponse{Jobs: queueJobsOf(jobs, false), NextPageToken: next}, nil
}

func (s *queueService) ListDeadLetters(ctx context.Context, m *cofferv1.ListDeadLettersRequest) (*cofferv1.ListDeadLettersResponse, error) {
	p, r := placeOf(ctx, m.GetQueue())
	if r != nil {
		return nil, r
	}
	jobs, next, err := s.queue.DeadJobs(ctx, p, store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	return &cofferv1.ListDeadLettersResponse{Jobs: queueJobsOf(jobs, false), NextPageToken: next}, nil
}

func (s *queueService) ListQueues(ctx context.Context, m *cofferv1.ListQueuesRequest) (*cofferv1.ListQueuesResponse, error) {
	stats, next, err := s.queue.Queues(ctx, tenantOf(ctx), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListQueuesResponse{NextPageToken: next}
	for i := range stats {
		q := &stats[i]
		res.Queues = append(res.Queues, &cofferv1.QueueStats{
			Queue: q.Queue, Ready: q.Ready, Leased: q.Leased, Dead: q.Dead, Done: q.Done, Discarded: q.Discarded, OldestDueTime: stamp(q.OldestDue),
		})
	}
	return res, nil
}
