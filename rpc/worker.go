package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Handler does one job. Nil completes it; an error, or a panic, fails it, and it
// comes again after its backoff. A job may come more than once: what the handler
// does must be idempotent, as Coffer's commands are.
//
// The context ends when the job's lease is lost (the cause is then
// [ErrLeaseLost]), when its time is up, and when the worker stops and its grace
// has passed ([ErrStopping]).
type Handler func(ctx context.Context, job *cofferv1.QueueJob) error

// Causes for which a handler's context ends.
var (
	ErrLeaseLost = errors.New("the lease is lost: another worker may have the job")
	ErrStopping  = errors.New("the worker is stopping")
	ErrJobTime   = errors.New("the job has used up its time")
)

// Permanent marks an error of a handler after which trying again is pointless:
// the job becomes a dead letter at once.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

// Unwrap returns the error as it was.
func (e *permanentError) Unwrap() error { return e.error }

// WorkerConfig shapes a Worker.
type WorkerConfig struct {
	// Queue to work on, and the worker's name, for people.
	Queue, Name string
	// Concurrency is the most jobs done at once, 1 to 100.
	Concurrency int
	// Lease is how long a job stays the worker's without a sign of life. It is
	// extended each third of it while the handler runs.
	Lease time.Duration
	// JobTime bounds one handler call: a handler that hangs must not hold a job
	// for ever.
	JobTime time.Duration
	// Grace is how long handlers may go on once the worker is to stop. Jobs
	// that do not end in it are returned untried.
	Grace time.Duration
	// Observe, if not nil, is told of each job that ended, with the handler's
	// error or that of telling the server. It is called by many goroutines.
	Observe func(job *cofferv1.QueueJob, err error)
}

// DefaultWorkerConfig works on one job at a time.
func DefaultWorkerConfig(queue, name string) WorkerConfig {
	return WorkerConfig{Queue: queue, Name: name, Concurrency: 1, Lease: work.DefaultLease, JobTime: 15 * time.Minute, Grace: 10 * time.Second}
}

// Validate names every field that is out of range.
func (c WorkerConfig) Validate() error {
	var errs []error
	if r := ledger.CheckID("queue", c.Queue); r != nil {
		errs = append(errs, r)
	}
	if r := ledger.CheckID("name", c.Name); r != nil {
		errs = append(errs, r)
	}
	if c.Concurrency < 1 || c.Concurrency > work.MaxBatch {
		errs = append(errs, fmt.Errorf("concurrency is %d (allowed: 1 to %d)", c.Concurrency, work.MaxBatch))
	}
	if r := work.CheckLease(c.Lease); r != nil {
		errs = append(errs, r)
	}
	if c.JobTime <= 0 {
		errs = append(errs, fmt.Errorf("job_time is %s (allowed: more than 0)", c.JobTime))
	}
	if c.Grace < 0 {
		errs = append(errs, fmt.Errorf("grace is %s (allowed: 0 or more)", c.Grace))
	}
	return errors.Join(errs...)
}

const (
	// reportTime bounds telling the server how a job ended.
	reportTime = 30 * time.Second
	// maxReconnect caps the wait before a broken stream is opened again, which
	// starts at firstReconnect, doubles and is jittered over its upper half.
	firstReconnect = 100 * time.Millisecond
	maxReconnect   = 5 * time.Second
)

// Worker does the jobs of one queue. Make it with NewWorker, run it once with
// Run.
type Worker struct {
	client *Client
	cfg    WorkerConfig
	handle Handler

	slots   chan struct{}
	mu      sync.Mutex
	running map[lease]bool // what was brought and has not ended
	wg      sync.WaitGroup
}

// lease names what the worker holds. A job may be there twice: it was lost, and
// came again before its handler noticed.
type lease struct{ job, token string }

// NewWorker checks and wires; it starts nothing.
func NewWorker(c *Client, cfg WorkerConfig, h Handler) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("worker config: %w", err)
	}
	if h == nil {
		return nil, errors.New("worker config: no handler")
	}
	return &Worker{client: c, cfg: cfg, handle: h, running: map[lease]bool{}, slots: make(chan struct{}, cfg.Concurrency)}, nil
}

// Run does jobs until ctx ends, and returns nil once the last one has ended or
// was returned. A stream that breaks is opened again, for as long as it takes;
// a request that the server refuses for good ends Run with the reason.
func (w *Worker) Run(ctx context.Context) error {
	jobs, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	grace := context.AfterFunc(ctx, func() {
		t := time.NewTimer(w.cfg.Grace)
		defer t.Stop()
		select {
		case <-t.C:
			stop(ErrStopping)
		case <-jobs.Done():
		}
	})
	defer grace()
	delay := firstReconnect
	var err error
	for ctx.Err() == nil {
		var lived bool
		lived, err = w.stream(ctx, jobs)
		if ctx.Err() != nil {
			err = nil
			break
		}
		if err != nil && !judge(err, true).again {
			err = judge(err, true).err
			break
		}
		if lived {
			delay = firstReconnect
		}
		wait(ctx, delay/2+rand.N(delay/2+1))
		delay = min(2*delay, maxReconnect)
		err = nil
	}
	w.wg.Wait()
	return err
}

// stream opens one stream and starts what it brings. lived: it brought
// something.
func (w *Worker) stream(ctx, jobs context.Context) (lived bool, err error) {
	req := &cofferv1.WorkRequest{
		Queue: w.cfg.Queue, Worker: w.cfg.Name, MaxJobs: uint32(w.cfg.Concurrency), Lease: durationpb.New(w.cfg.Lease), Held: w.held(),
	}
	stream, err := w.client.queue.Work(ctx, req)
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }()
	for {
		m, err := stream.Receive()
		if err != nil {
			return lived, err
		}
		lived = true
		if m.GetJob() != nil {
			w.start(jobs, m.GetJob())
		}
	}
}

// held are the leases of the jobs that run.
func (w *Worker) held() []*cofferv1.HeldLease {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*cofferv1.HeldLease
	for l := range w.running {
		if len(out) < work.MaxBatch {
			out = append(out, &cofferv1.HeldLease{JobId: l.job, LeaseToken: l.token})
		}
	}
	return out
}

// start runs a job in a goroutine of its own. The server sends no more than the
// worker has room for, but may know before the worker that a job has ended: then
// the next one waits for its place. What is more than that goes back.
func (w *Worker) start(ctx context.Context, job *cofferv1.QueueJob) {
	l := lease{job.GetJobId(), job.GetLeaseToken()}
	w.mu.Lock()
	room := len(w.running) < 2*w.cfg.Concurrency
	if room {
		w.running[l] = true
	}
	w.mu.Unlock()
	w.wg.Go(func() {
		if !room {
			w.giveBack(ctx, job)
			return
		}
		w.slots <- struct{}{}
		err := w.do(ctx, job)
		<-w.slots
		w.mu.Lock()
		delete(w.running, l)
		w.mu.Unlock()
		if w.cfg.Observe != nil {
			w.cfg.Observe(job, err)
		}
	})
}

// do runs the handler under a lease that is kept alive, and tells the server how
// it ended. It gives the handler's error, or that of telling.
func (w *Worker) do(ctx context.Context, job *cofferv1.QueueJob) error {
	jctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(w.cfg.JobTime, func() { cancel(ErrJobTime) })
	defer timer.Stop()
	var keeper sync.WaitGroup
	stopKeeper := make(chan struct{})
	keeper.Go(func() { w.keep(jctx, job, stopKeeper, cancel) })
	err := w.safely(jctx, job)
	close(stopKeeper)
	keeper.Wait()
	switch cause := context.Cause(jctx); {
	case errors.Is(cause, ErrLeaseLost):
		return ErrLeaseLost // somebody else's job by now: nothing to tell
	case err == nil:
		return w.report(ctx, job, nil)
	case errors.Is(cause, ErrStopping):
		w.giveBack(ctx, job)
		return ErrStopping
	case errors.Is(cause, ErrJobTime):
		err = errors.Join(ErrJobTime, err)
	}
	if rerr := w.report(ctx, job, err); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// safely calls the handler; a panic is an error.
func (w *Worker) safely(ctx context.Context, job *cofferv1.QueueJob) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.handle(ctx, job)
}

// keep extends the lease while the handler runs. When it is lost, or could not
// be extended until it ran out, the handler is told to stop.
func (w *Worker) keep(ctx context.Context, job *cofferv1.QueueJob, stop <-chan struct{}, cancel context.CancelCauseFunc) {
	until := time.Now().Add(w.cfg.Lease)
	tick := time.NewTicker(w.cfg.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		start := time.Now()
		ectx, done := context.WithTimeout(ctx, w.cfg.Lease/3)
		_, err := w.client.ExtendLease(ectx, &cofferv1.ExtendLeaseRequest{
			Queue: job.GetQueue(), JobId: job.GetJobId(), LeaseToken: job.GetLeaseToken(), Lease: durationpb.New(w.cfg.Lease),
		})
		done()
		switch reason := ReasonOf(err); {
		case err == nil:
			until = start.Add(w.cfg.Lease)
		case reason == ledger.LeaseLost, reason == ledger.JobNotFound, time.Now().After(until):
			cancel(ErrLeaseLost)
			return
		}
	}
}

// report completes or fails a job. The worker's end does not stop it: a result
// that is known is told.
func (w *Worker) report(ctx context.Context, job *cofferv1.QueueJob, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
	defer cancel()
	if failed == nil {
		_, err := w.client.Complete(ctx, &cofferv1.CompleteRequest{Queue: job.GetQueue(), JobId: job.GetJobId(), LeaseToken: job.GetLeaseToken()})
		return err
	}
	var p *permanentError
	_, err := w.client.Fail(ctx, &cofferv1.FailRequest{
		Queue: job.GetQueue(), JobId: job.GetJobId(), LeaseToken: job.GetLeaseToken(),
		Error: work.Cut(failed.Error(), work.MaxError), Permanent: errors.As(failed, &p),
	})
	return err
}

// giveBack returns a lease. If that fails, the lease runs out.
func (w *Worker) giveBack(ctx context.Context, job *cofferv1.QueueJob) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
	defer cancel()
	_, _ = w.client.ReturnLease(ctx, &cofferv1.ReturnLeaseRequest{Queue: job.GetQueue(), JobId: job.GetJobId(), LeaseToken: job.GetLeaseToken()})
}
