package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// The stream gives a worker no more than it can hold, and what comes due later
// when it comes due; it ends when the node drains.
func TestWorkStream(t *testing.T) {
	w := newQueueWorld(t)
	w.enqueue("a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := w.client.Queue().Work(ctx, &cofferv1.WorkRequest{Queue: "q", Worker: "w", MaxJobs: 2, Lease: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	next := func() *cofferv1.QueueJob {
		for {
			m, err := stream.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetJob() != nil {
				return m.GetJob()
			}
		}
	}
	a, b := next(), next()
	if got := []string{a.GetJobId(), b.GetJobId()}; !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("got %v", got)
	}
	if j := w.job("c"); j.GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_READY {
		t.Errorf("a third job was leased: %v", j)
	}
	if _, err := w.client.Complete(ctx, &cofferv1.CompleteRequest{Queue: "q", JobId: "a", LeaseToken: a.GetLeaseToken()}); err != nil {
		t.Fatal(err)
	}
	if c := next(); c.GetJobId() != "c" {
		t.Errorf("got %v", c)
	}
	if _, err := w.client.Fail(ctx, &cofferv1.FailRequest{Queue: "q", JobId: "b", LeaseToken: b.GetLeaseToken(), Error: "x"}); err != nil {
		t.Fatal(err)
	}
	if again := next(); again.GetJobId() != "b" || again.GetAttempt() != 1 || again.GetLeaseToken() == b.GetLeaseToken() {
		t.Errorf("got %v", again)
	}
	w.leave()
	for {
		_, err := stream.Receive()
		if err == nil {
			continue
		}
		if e := judge(err, true); e.err.Reason() != ledger.Draining || !e.again {
			t.Errorf("the stream ends with %v", err)
		}
		break
	}
}

func TestQueueInput(t *testing.T) {
	w := newQueueWorld(t)
	ctx := t.Context()
	res, err := w.client.Enqueue(ctx, "q",
		&cofferv1.NewJob{JobId: "big", Payload: make([]byte, 65<<10)}, &cofferv1.NewJob{JobId: "ok"}, &cofferv1.NewJob{},
		&cofferv1.NewJob{JobId: "often", Policy: &cofferv1.JobPolicy{MaxAttempts: 1001}},
		&cofferv1.NewJob{JobId: "slow", Policy: &cofferv1.JobPolicy{BackoffBase: durationpb.New(25 * time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	if e := res[0].GetError(); e.GetField() != "jobs[0].payload" || e.GetValue() != "66560 bytes" || e.GetLimit() != "65536 bytes" {
		t.Errorf("%v", e)
	}
	if res[1].GetJob().GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_READY || res[1].GetReplayed() {
		t.Errorf("%v", res[1])
	}
	if e := res[2].GetError(); e.GetField() != "jobs[2].job_id" {
		t.Errorf("%v", e)
	}
	if e := res[3].GetError(); e.GetField() != "jobs[3].policy.max_attempts" || e.GetValue() != "1001" || e.GetLimit() != "1 to 1000" {
		t.Errorf("%v", e)
	}
	if e := res[4].GetError(); e.GetField() != "jobs[4].policy.backoff_base" || e.GetValue() != "25h0m0s" || e.GetLimit() != "1ms to 24h0m0s" {
		t.Errorf("%v", e)
	}
	for field, call := range map[string]func() error{
		"queue":  func() error { _, err := w.client.Enqueue(ctx, "", &cofferv1.NewJob{JobId: "a"}); return err },
		"jobs":   func() error { _, err := w.client.Enqueue(ctx, "q"); return err },
		"worker": func() error { _, err := w.client.Lease(ctx, &cofferv1.LeaseRequest{Queue: "q"}); return err },
		"lease": func() error {
			_, err := w.client.Lease(ctx, &cofferv1.LeaseRequest{Queue: "q", Worker: "w", Lease: durationpb.New(time.Millisecond)})
			return err
		},
		"max_jobs": func() error {
			_, err := w.client.Lease(ctx, &cofferv1.LeaseRequest{Queue: "q", Worker: "w", MaxJobs: 101})
			return err
		},
		"lease_token": func() error {
			_, err := w.client.Complete(ctx, &cofferv1.CompleteRequest{Queue: "q", JobId: "a"})
			return err
		},
		"reason": func() error { _, err := w.client.DiscardDeadLetter(ctx, "q", "ok", ""); return err },
		"page_token": func() error {
			_, err := w.client.ListJobs(ctx, &cofferv1.ListJobsRequest{Queue: "q", PageToken: "x"})
			return err
		},
	} {
		err := call()
		if e := refusal(t, err); e.Detail.GetField() != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	// Another tenant sees nothing of it.
	other := w.client.ForTenant("other")
	if _, err := other.GetQueueJob(ctx, "q", "ok"); ReasonOf(err) != ledger.JobNotFound {
		t.Errorf("another tenant reads: %v", err)
	}
	if jobs, err := other.Lease(ctx, &cofferv1.LeaseRequest{Queue: "q", Worker: "w"}); err != nil || len(jobs) != 0 {
		t.Errorf("another tenant leases: %v %v", jobs, err)
	}
	if _, err := NewWorker(w.client, WorkerConfig{}, nil); err == nil || !strings.Contains(err.Error(), "concurrency is 0 (allowed: 1 to 100)") {
		t.Errorf("%v", err)
	}
}

// sends is a worker's end of a stream, as a function.
type sends func(*cofferv1.WorkResponse) error

func (f sends) Send(m *cofferv1.WorkResponse) error { return f(m) }

// A worker that went a moment ago is not noticed yet, and a job is sent into the
// void: it comes back untried, and does not wait for its lease to run out.
func TestWorkReturnsWhatNobodyReads(t *testing.T) {
	w := newQueueWorld(t)
	w.enqueue("a")
	ctx, gone := context.WithCancel(context.WithValue(t.Context(), tenantKey{}, "default"))
	sent := ""
	service := &queueService{queue: w.store, leaving: w.leaving}
	stream := workStream{
		service: service, held: map[work.Key]string{}, undelivered: time.Hour,
		leasing: leasing{place: work.Place{Tenant: "default", Queue: "q"}, n: 1, worker: "w1", lease: time.Hour},
		stream: sends(func(m *cofferv1.WorkResponse) error {
			if m.GetJob() != nil {
				sent = m.GetJob().GetJobId()
				gone()
			}
			return nil
		}),
	}
	if err := stream.run(ctx); err == nil {
		t.Error("the stream of a worker that is gone ends in order")
	}
	if j := w.job("a"); sent != "a" || j.GetState() != cofferv1.QueueJobState_QUEUE_JOB_STATE_READY || j.GetAttempt() != 0 || j.GetLeases() != 1 {
		t.Errorf("sent %q; job %v", sent, j)
	}
	if n := len(service.bells.on); n != 0 {
		t.Errorf("%d queues have a bell that nobody waits for", n)
	}
}

// A ring wakes all who wait, and nobody's bell is kept.
func TestBells(t *testing.T) {
	var b bells
	p, q := work.Place{Tenant: "t", Queue: "p"}, work.Place{Tenant: "t", Queue: "q"}
	first, leaveFirst := b.wait(p)
	second, leaveSecond := b.wait(p)
	_, leaveOther := b.wait(q)
	leaveFirst()
	b.ring(p)
	<-first
	<-second
	third, leaveThird := b.wait(p)
	leaveSecond() // of the bell before: the new one stays
	select {
	case <-third:
		t.Error("a bell rings for what came before it")
	default:
	}
	if len(b.on) != 2 {
		t.Errorf("%d bells, want 2", len(b.on))
	}
	leaveThird()
	leaveOther()
	if len(b.on) != 0 {
		t.Errorf("%d bells are left", len(b.on))
	}
}
