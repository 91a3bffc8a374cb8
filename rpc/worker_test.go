package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// queueWorld is a server with a real queue behind it.
type queueWorld struct {
	*testing.T
	store   *store.Store
	client  *Client
	url     string
	leaving chan struct{}
	leave   func()
	offset  atomic.Int64 // of the store's clock, in milliseconds
}

func newQueueWorld(t *testing.T) *queueWorld {
	t.Helper()
	e, prefix := testengine.Open(t)
	w := &queueWorld{T: t, leaving: make(chan struct{})}
	w.leave = sync.OnceFunc(func() { close(w.leaving) })
	now := func() time.Time { return time.Now().Add(time.Duration(w.offset.Load()) * time.Millisecond) }
	var err error
	if w.store, err = store.Open(t.Context(), e, store.Options{Writer: "n1", Now: now, Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(DefaultConfig(), Deps{
		Executor: &fakeExec{}, Reader: &fakeStore{}, Maintainer: &fakeStore{}, Log: zerolog.Nop(), Queue: w.store, Leaving: w.leaving,
		Status: func(context.Context) Status { return Status{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(server)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetHTTP1(true)
	hs.Config.Protocols.SetUnencryptedHTTP2(true)
	hs.Start()
	w.url = hs.URL
	w.client = NewClient(hs.URL, WithAttemptTimeout(time.Minute))
	t.Cleanup(func() {
		w.leave()
		w.client.Close()
		hs.Close()
	})
	return w
}

func (w *queueWorld) enqueue(ids ...string) {
	w.Helper()
	var jobs []*cofferv1.NewJob
	for _, id := range ids {
		jobs = append(jobs, &cofferv1.NewJob{JobId: id, Payload: []byte(id), Policy: &cofferv1.JobPolicy{
			MaxAttempts: 3, BackoffBase: durationpb.New(time.Millisecond), BackoffMax: durationpb.New(time.Millisecond),
		}})
	}
	res, err := w.client.Enqueue(w.Context(), "q", jobs...)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range res {
		if r.GetError() != nil {
			w.Fatal(r.GetError())
		}
	}
}

func (w *queueWorld) job(id string) *cofferv1.QueueJob {
	w.Helper()
	j, err := w.client.GetQueueJob(context.Background(), "q", id)
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// until waits for a job's state, looking at it again and again.
func (w *queueWorld) until(id string, want cofferv1.QueueJobState) *cofferv1.QueueJob {
	w.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if j := w.job(id); j.GetState() == want {
			return j
		}
	}
	w.Fatalf("job %s is %s, want %s", id, w.job(id).GetState(), want)
	return nil
}

// work runs a worker until the returned function stops it.
func (w *queueWorld) work(change func(*WorkerConfig), h Handler) (stop func() error) {
	w.Helper()
	cfg := DefaultWorkerConfig("q", "w1")
	if change != nil {
		change(&cfg)
	}
	worker, err := NewWorker(w.client, cfg, h)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	w.Cleanup(func() { _ = stop() })
	return stop
}

// Jobs are done once each, never more than the bound at a time.
func TestWorkerDoesJobs(t *testing.T) {
	w := newQueueWorld(t)
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("j%02d", i))
	}
	w.enqueue(ids[:20]...)
	var running, most, total atomic.Int64
	all := make(chan struct{})
	stop := w.work(func(c *WorkerConfig) {
		c.Concurrency = 4
		c.Observe = func(*cofferv1.QueueJob, error) {
			if total.Add(1) == 40 {
				close(all)
			}
		}
	}, func(_ context.Context, job *cofferv1.QueueJob) error {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		if string(job.GetPayload()) != job.GetJobId() || job.GetLeaseToken() == "" {
			t.Errorf("job %v", job)
		}
		return nil
	})
	w.enqueue(ids[20:]...)
	<-all
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		if j := w.job(id); j.GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_DONE || j.GetLeases() != 1 || j.GetLeaseToken() != "" {
			t.Errorf("job %v", j)
		}
	}
	if most.Load() > 4 {
		t.Errorf("%d jobs ran at once", most.Load())
	}
}

// Errors and panics fail the job, and after the last attempt it is a dead
// letter; a permanent error makes it one at once.
func TestWorkerFailures(t *testing.T) {
	w := newQueueWorld(t)
	w.enqueue("error", "panic", "permanent")
	var mu sync.Mutex
	calls := map[string]int{}
	stop := w.work(nil, func(_ context.Context, job *cofferv1.QueueJob) error {
		mu.Lock()
		calls[job.GetJobId()]++
		mu.Unlock()
		switch job.GetJobId() {
		case "panic":
			panic("out of order")
		case "permanent":
			return fmt.Errorf("wrapped: %w", Permanent(errors.New("no such customer")))
		}
		return errors.New("try later")
	})
	for id, want := range map[string]struct {
		calls int
		words string
	}{"error": {3, "try later"}, "panic": {3, "panic: out of order"}, "permanent": {1, "wrapped: no such customer"}} {
		j := w.until(id, cofferv1.QueueJobState_QUEUE_JOB_STATE_DEAD)
		mu.Lock()
		if calls[id] != want.calls || int(j.GetAttempt()) != want.calls || !strings.Contains(j.GetLastError(), want.words) {
			t.Errorf("job %s was tried %d times: %v", id, calls[id], j)
		}
		mu.Unlock()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	dead, err := w.client.ListDeadLetters(t.Context(), &cofferv1.ListDeadLettersRequest{Queue: "q"})
	if err != nil || len(dead.GetJobs()) != 3 {
		t.Fatalf("%v %v", dead, err)
	}
	if res, err := w.client.ReplayDeadLetter(t.Context(), "q", "permanent"); err != nil || res.GetJob().GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_READY {
		t.Errorf("replay: %v %v", res, err)
	}
	if res, err := w.client.DiscardDeadLetter(t.Context(), "q", "panic", "fixed by hand"); err != nil || res.GetJob().GetDiscardReason() != "fixed by hand" {
		t.Errorf("discard: %v %v", res, err)
	}
	_, err = w.client.ReplayDeadLetter(t.Context(), "q", "panic")
	if ReasonOf(err) != ledger.JobIllegalState {
		t.Errorf("replay of a discarded job: %v", err)
	}
}

// A worker that stops returns what it has not ended: no attempt is lost.
func TestWorkerStops(t *testing.T) {
	w := newQueueWorld(t)
	w.enqueue("slow", "next")
	started := make(chan struct{})
	begun := sync.OnceFunc(func() { close(started) }) // the server may bring another job before it knows
	stop := w.work(func(c *WorkerConfig) { c.Grace = 0 }, func(ctx context.Context, _ *cofferv1.QueueJob) error {
		begun()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrStopping) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		return ctx.Err()
	})
	<-started
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"slow", "next"} {
		if j := w.until(id, cofferv1.QueueJobState_QUEUE_JOB_STATE_READY); j.GetAttempt() != 0 {
			t.Errorf("job %v", j)
		}
	}
}

// aLease is long enough for a slow machine to extend it in time, at a third of
// it. Tests that wait for that run beside each other.
const aLease = 15 * time.Second

// A lease that another took stops the handler, which then has no say.
func TestWorkerLosesItsLease(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	w.enqueue("a")
	started, ended := make(chan struct{}), make(chan error, 16)
	stop := w.work(func(c *WorkerConfig) {
		c.Lease = aLease
		c.Observe = func(_ *cofferv1.QueueJob, err error) { ended <- err }
	}, func(ctx context.Context, _ *cofferv1.QueueJob) error {
		select {
		case started <- struct{}{}:
		case <-ctx.Done():
		}
		<-ctx.Done()
		return nil
	})
	<-started
	var other []*cofferv1.QueueJob
	for len(other) == 0 {
		// The lease has run out for the store. Again each time: the worker may
		// have extended it since.
		w.offset.Add(int64(2 * time.Hour / time.Millisecond))
		jobs, err := w.client.Lease(t.Context(), &cofferv1.LeaseRequest{Queue: "q", Worker: "w2", Lease: durationpb.New(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if other = jobs; len(jobs) == 0 && w.job("a").GetWorker() == "w1" && w.job("a").GetAttempt() > 0 {
			break // the worker's own stream was faster
		}
	}
	if err := <-ended; !errors.Is(err, ErrLeaseLost) {
		t.Errorf("the handler ended with %v", err)
	}
	if len(other) > 0 {
		if j := w.job("a"); j.GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_LEASED || j.GetWorker() != "w2" || j.GetAttempt() != 1 {
			t.Errorf("job %v", j)
		}
	}
	_ = stop()
}

// A long job outlives its lease many times over, because the worker extends it.
func TestWorkerExtends(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	w.enqueue("long")
	go1, err := w.client.GetQueueJob(t.Context(), "q", "long")
	if err != nil || go1.GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_READY {
		t.Fatal(err)
	}
	extended := make(chan struct{})
	once := sync.OnceFunc(func() { close(extended) })
	w.work(func(c *WorkerConfig) { c.Lease = aLease }, func(_ context.Context, job *cofferv1.QueueJob) error {
		first := job.GetDueTime().AsTime()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for w.job("long").GetDueTime().AsTime().Sub(first) < 600*time.Millisecond {
			<-tick.C
		}
		once()
		return nil
	})
	<-extended
	if j := w.until("long", cofferv1.QueueJobState_QUEUE_JOB_STATE_DONE); j.GetLeases() != 1 {
		t.Errorf("job %v", j)
	}
}
