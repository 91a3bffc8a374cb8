package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

const (
	// workPoll bounds how late a stream notices what no signal told it of:
	// jobs that another node ended, a watch that was lost.
	workPoll = time.Second
	// workAlive spaces the messages that say that an idle stream lives; one
	// that cannot be sent tells that the worker is gone.
	workAlive = 15 * time.Second
	// undelivered is how long before the end of its stream a job must have been
	// sent to count as received: a worker that goes is noticed a moment late,
	// and what is sent in between nobody reads.
	undelivered = time.Second
	// returnTimeout bounds the return of leases that could not be delivered.
	returnTimeout = 5 * time.Second
)

// bells wake the streams of this node that wait for a queue. They hold the
// queues that somebody waits for and no others.
type bells struct {
	mu sync.Mutex
	on map[work.Place]*bell
}

type bell struct {
	rung    chan struct{} // closed at the next ring
	waiting int
}

// wait gives a channel that is closed at the next ring. Call leave when done
// with it.
func (b *bells) wait(p work.Place) (rung <-chan struct{}, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on == nil {
		b.on = map[work.Place]*bell{}
	}
	one := b.on[p]
	if one == nil {
		one = &bell{rung: make(chan struct{})}
		b.on[p] = one
	}
	one.waiting++
	return one.rung, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if one.waiting--; one.waiting == 0 && b.on[p] == one {
			delete(b.on, p)
		}
	}
}

func (b *bells) ring(p work.Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.on[p]; one != nil {
		close(one.rung)
		delete(b.on, p)
	}
}

// Work delivers jobs as they come due. It holds no lock and no memory but the
// leases it gave: those that the store says are over make room for new ones.
func (s *queueService) Work(ctx context.Context, m *cofferv1.WorkRequest, stream cofferv1connect.QueueServiceWorkServerStream) error {
	l, r := leasingOf(ctx, m)
	if r != nil {
		return r
	}
	w := workStream{service: s, leasing: l, stream: stream, held: map[work.Key]string{}, undelivered: undelivered}
	for _, h := range m.GetHeld() {
		w.held[work.Key{Tenant: l.place.Tenant, Queue: l.place.Queue, ID: h.GetJobId()}] = h.GetLeaseToken()
	}
	return w.run(ctx)
}

// workStream is one call of Work.
type workStream struct {
	leasing
	service *queueService
	stream  interface {
		Send(*cofferv1.WorkResponse) error
	}
	held   map[work.Key]string
	sent   time.Time
	recent []sentJob
	// undelivered is the constant, but in tests.
	undelivered time.Duration
}

// sentJob is a job that was sent not long ago.
type sentJob struct {
	job work.Job
	at  time.Time
}

// run delivers until the worker or the node goes.
func (w *workStream) run(ctx context.Context) error {
	defer w.end(ctx)
	for {
		if err := w.turn(ctx); err != nil {
			return err
		}
	}
}

// turn delivers what there is and waits until there may be more.
func (w *workStream) turn(ctx context.Context) error {
	if err := w.alive(); err != nil {
		return err
	}
	rung, leave := w.service.bells.wait(w.place) // before looking: nothing is missed
	defer leave()
	free, err := w.deliver(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	return w.wait(ctx, rung, free)
}

// end returns what a worker that has gone may not have received. A node that
// leaves returns nothing: its workers read what was sent to them.
func (w *workStream) end(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	var jobs []work.Job
	for _, r := range w.recent {
		if time.Since(r.at) < w.undelivered {
			jobs = append(jobs, r.job)
		}
	}
	w.giveBack(ctx, jobs)
}

// alive tells the worker that the stream lives: at once, and when nothing else
// was sent for a while.
func (w *workStream) alive() error {
	if now := time.Now(); now.Sub(w.sent) >= workAlive {
		w.sent = now
		return w.stream.Send(&cofferv1.WorkResponse{})
	}
	return nil
}

// deliver leases what the worker has room for and sends it. It gives the room
// that is left.
func (w *workStream) deliver(ctx context.Context) (free int, err error) {
	if len(w.held) > 0 {
		still, err := w.service.queue.HeldJobs(ctx, w.held)
		if err != nil {
			return 0, err
		}
		for k := range w.held {
			if !still[k] {
				delete(w.held, k)
			}
		}
	}
	if free = w.n - len(w.held); free <= 0 {
		return 0, nil
	}
	jobs, err := w.service.queue.Lease(ctx, w.place, free, w.lease, w.worker)
	if errors.Is(err, &ledger.Rejection{Code: ledger.LeaseLimit}) {
		return 0, nil // others hold too many: wait as if there were no room
	}
	if err != nil {
		return 0, err
	}
	w.recent = slices.DeleteFunc(w.recent, func(r sentJob) bool { return time.Since(r.at) >= w.undelivered })
	for i := range jobs {
		w.sent = time.Now()
		w.recent = append(w.recent, sentJob{jobs[i], w.sent})
		if err := w.stream.Send(&cofferv1.WorkResponse{Job: jobOf(&jobs[i], true)}); err != nil {
			w.giveBack(ctx, jobs[i:])
			return 0, err
		}
		w.held[jobs[i].Key] = jobs[i].Token
	}
	return free - len(jobs), nil
}

// giveBack returns leases that did not reach the worker. One that did all the
// same loses nothing but its turn; one that cannot be returned runs out.
func (w *workStream) giveBack(ctx context.Context, jobs []work.Job) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), returnTimeout)
	defer cancel()
	for i := range jobs {
		if _, err := w.service.queue.ReturnJob(ctx, jobs[i].Key, jobs[i].Token); err != nil && ctx.Err() != nil {
			return
		}
	}
	w.service.bells.ring(w.place)
}

// wait returns when there may be something to deliver: the queue's signal or
// this node's bell rang, a job came due, or the poll's time has passed.
func (w *workStream) wait(ctx context.Context, rung <-chan struct{}, free int) error {
	wctx, cancel := context.WithTimeout(ctx, workPoll)
	due := make(chan error, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		if free == 0 {
			<-wctx.Done()
			due <- nil
			return
		}
		due <- w.service.queue.WaitDue(wctx, w.place, workPoll)
	})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.service.leaving:
		return &ledger.Rejection{Code: ledger.Draining, Message: "this node is shutting down", RetryAfter: 100 * time.Millisecond}
	case <-rung:
		return nil
	case err := <-due:
		if ctx.Err() == nil && wctx.Err() != nil {
			return nil // the poll's time has passed
		}
		return err
	}
}
