package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// maxHops is how often a command may change queue before it is given back to
// its caller as not done.
const maxHops = 4

// queue holds the commands that wait for one bucket and runs one batch of
// them at a time.
type queue struct {
	e  *Executor
	id ledger.BucketID
	at *ledger.BucketID // nil for commands without a bucket

	mu    sync.Mutex
	tasks []*task
	look  int // how many may be looked at for those that left; see drop
	// retired: no longer in the executor's map; take another one.
	retired bool
	running bool
	gathering
}

// enqueue adds a task to its bucket's queue. A task that changes queue is
// taken already and is let in over the limit; so is what the leader sends, which
// nobody's load may keep out.
func (e *Executor) enqueue(t *task, rerouted bool) {
	if t.behindRefused() {
		t.turnAway(nil)
		return
	}
	for {
		q := e.queue(t)
		q.mu.Lock()
		if q.retired {
			q.mu.Unlock()
			continue
		}
		if !rerouted && t.cmd.Term == 0 && len(q.tasks) >= e.cfg.QueueLimit {
			n := len(q.tasks)
			q.mu.Unlock()
			t.turnAway(&ledger.Rejection{
				Code: ledger.Overloaded, Field: "queue", Value: fmt.Sprint(n + 1),
				Limit: fmt.Sprint(e.cfg.QueueLimit), Message: "commands are waiting for " + q.name(), RetryAfter: 50 * time.Millisecond,
			})
			return
		}
		q.tasks = append(q.tasks, t)
		if !q.running {
			q.running = true
			go q.run()
		}
		q.came()
		q.mu.Unlock()
		return
	}
}

// looks is how many commands of a queue are looked at for each that was left.
const looks = 128

// drop takes commands out of their queues whose caller has left. While a commit is
// slow, callers that give up and come again must neither fill a queue, and so keep
// others out, nor the memory: their places are free. Each command pays for a look
// at some of its queue, so that few in a hundred of a queue were left.
func (e *Executor) drop(tasks []task) {
	for i := range tasks {
		if tasks[i].state.Load() != taskLeft { // one that was left is moved by nobody
			continue
		}
		e.mu.Lock()
		q := e.queues[tasks[i].at]
		e.mu.Unlock()
		if q != nil {
			q.drop()
		}
	}
}

func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.look += looks; q.look >= len(q.tasks) {
		q.look = 0
		q.tasks = slices.DeleteFunc(q.tasks, func(t *task) bool { return t.state.Load() == taskLeft })
	}
}

// name is what the queue's commands wait for, as an error says it.
func (q *queue) name() string {
	if q.at == nil {
		return fmt.Sprintf("orders of tenant %q that have no bucket", q.id.Budget.Tenant)
	}
	return "bucket " + q.id.String()
}

// newQueue makes the queue that a task needs.
func newQueue(e *Executor, t *task) *queue {
	q := &queue{e: e, id: t.at, gathering: gathering{enough: make(chan struct{}, 1)}}
	if t.routed {
		q.at = &q.id
	}
	return q
}

// queue finds or makes the queue of a task's bucket.
func (e *Executor) queue(t *task) *queue {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queues[t.at]
	if q == nil {
		q = newQueue(e, t)
		e.queues[t.at] = q
		if t.routed {
			e.active.note(t.at)
		}
	}
	return q
}

// run commits batch after batch until nothing is left, then retires the
// queue.
func (q *queue) run() {
	for {
		q.gather()
		if q.retire() {
			return
		}
		q.e.turns.enter(q.id.Budget.Tenant)
		if batch := q.next(); len(batch) > 0 {
			q.commit(batch)
			q.committed(len(batch))
		}
		q.e.turns.leave()
	}
}

// retire takes the queue out of the executor's map if nothing is in it.
func (q *queue) retire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) > 0 {
		return false
	}
	q.running, q.retired = false, true
	q.e.mu.Lock()
	delete(q.e.queues, q.id)
	q.e.mu.Unlock()
	return true
}

// next takes what has gathered, up to the limit. Commands whose caller left
// are dropped.
func (q *queue) next() []*task {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := make([]*task, 0, min(len(q.tasks), q.e.cfg.BatchLimit))
	n := 0
	for _, t := range q.tasks {
		if len(batch) == q.e.cfg.BatchLimit {
			break
		}
		n++
		if !t.taken && !t.state.CompareAndSwap(taskQueued, taskTaken) {
			continue
		}
		if t.taken = true; !t.park() {
			batch = append(batch, t)
		}
	}
	q.tasks = q.tasks[n:]
	return batch
}

// scratch is the memory of one batch, used again by others.
type scratch struct {
	cmds []ledger.Command // as the store gets them
	out  []store.Applied  // its answers
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// commit runs one batch and answers its commands.
func (q *queue) commit(batch []*task) {
	sc, _ := scratches.Get().(*scratch) // the pool holds nothing else
	defer func() {                      // the store keeps nothing of it
		clear(sc.cmds)
		clear(sc.out)
		scratches.Put(sc)
	}()
	start := time.Now()
	out, err := q.apply(batch, sc)
	q.traceBatch(batch, start, out, err)
	if err != nil {
		if len(batch) > 1 && splits(err) {
			q.e.count.splits.Add(1)
			q.commit(batch[:len(batch)/2])
			q.commit(batch[len(batch)/2:])
			return
		}
		for _, t := range batch {
			q.e.answer(t, ledger.Reply{Err: err})
		}
		return
	}
	for i, t := range batch {
		if to := out[i].Reroute; to != nil {
			q.e.router.outdated(to.Budget, out[i].Epoch)
			q.reroute(t, *to)
			continue
		}
		if out[i].Err == nil && t.cmd.Op.OnBudget() {
			q.e.router.forget(t.cmd.Budget)
		}
		q.e.answer(t, out[i].Reply)
	}
}

// apply runs the store's transaction. The batch serves many callers, so its
// context is its own. A panic outside of a command's decision may have
// happened anywhere: what became of the batch is unknown.
func (q *queue) apply(batch []*task, sc *scratch) (out []store.Applied, err error) {
	sc.cmds = slices.Grow(sc.cmds[:0], len(batch))[:len(batch)]
	sc.out = slices.Grow(sc.out[:0], len(batch))[:len(batch)]
	alone := false
	for i, t := range batch {
		sc.cmds[i] = t.cmd
		alone = alone || t.cmd.Op.OnBudget()
	}
	if q.at != nil {
		defer q.e.gates.enter(q.at.Budget, alone)()
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.e.cfg.CommitTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = &ledger.Rejection{
				Code: ledger.OutcomeUnknown, Message: "the batch failed inside the ledger",
				Cause: fmt.Errorf("panic: %v\n%s", p, debug.Stack()),
			}
		}
	}()
	q.e.count.batch(len(batch))
	out, err = q.e.store.ApplyInto(ctx, q.at, sc.cmds, sc.out)
	attempts := attemptsOf(out, err)
	if attempts > 1 {
		q.e.count.conflicts.Add(1)
		q.e.count.retries.Add(uint64(attempts - 1))
	}
	if q.at != nil {
		q.e.loads.batch(q.id, len(batch), attempts, time.Now())
	}
	return out, err
}

// attemptsOf is how often a batch's transaction was tried.
func attemptsOf(out []store.Applied, err error) int {
	var te *kv.TxError
	switch {
	case len(out) > 0:
		return out[0].Attempts
	case errors.As(err, &te):
		return te.Attempts
	}
	return 1
}

// splits says whether a smaller batch may fare better: it was too large, or
// one command among many has met a fault that is its own. A damaged store takes
// no batch of any size.
func splits(err error) bool {
	var r *ledger.Rejection
	if !errors.As(err, &r) || errors.Is(err, kv.ErrDamaged) {
		return false
	}
	return r.Code == ledger.Internal || r.Code == ledger.Corrupt || errors.Is(err, kv.ErrTxTooLarge)
}

// reroute moves a command to the queue of the bucket that the store named.
func (q *queue) reroute(t *task, to ledger.BucketID) {
	q.e.count.reroutes.Add(1)
	t.strayed.Store(true)
	if t.hops++; t.hops > maxHops {
		q.e.answer(t, ledger.Reply{Err: &ledger.Rejection{
			Code:    ledger.Unavailable,
			Message: "the command's bucket kept changing", RetryAfter: 50 * time.Millisecond,
		}})
		return
	}
	t.at, t.routed = to, true
	q.e.enqueue(t, true)
}

// answer ends a task, and counts it out when its caller has left.
func (e *Executor) answer(t *task, r ledger.Reply) {
	if t.finish(r) {
		e.settle(t.group.share, 1)
	}
}
