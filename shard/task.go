package shard

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/coffer-ledger/coffer/ledger"
)

// States of a task. A task is queued until a batch takes it or its caller
// leaves; from then on exactly one of them decides its end.
const (
	taskQueued int32 = iota
	taskTaken        // in a batch: may take effect
	taskLeft         // its caller left while it was queued: will not run
	taskOrphan       // its caller left while it was taken
	taskDone
)

// task is one command on its way.
type task struct {
	cmd    ledger.Command
	at     ledger.BucketID
	routed bool
	hops   int // how often it changed queue
	group  *group
	span   trace.Span // of the call, nil where nobody records it
	// next is the command of the same call that must come after this one;
	// waits: this is such a command.
	next  *task
	waits bool
	// after is the command before this one on the same benefit that was put
	// into the same queue, followed: there is one after this one. They keep
	// their order by the queue's, until the first of them has strayed from it.
	after    *task
	followed bool
	strayed  atomic.Bool // was rerouted or parked
	taken    bool        // was in a batch, or is parked: it runs whatever its caller does
	refused  bool        // turned away by a full queue
	state    atomic.Int32
	reply    *ledger.Reply
}

// finish sets the answer. It reports whether the caller had left, so that
// nobody else will count the command out.
func (t *task) finish(r ledger.Reply) (orphan bool) {
	*t.reply = r
	if t.followed {
		t.group.mu.Lock()
	}
	orphan = t.state.Swap(taskDone) == taskOrphan
	next := t.next
	if t.followed {
		t.group.mu.Unlock()
	}
	switch {
	case next == nil:
	case t.refused:
		next.turnAway(nil)
	case next.taken:
		t.group.e.enqueue(next, true)
	default:
		t.group.e.place(next)
	}
	t.group.finish()
	return orphan
}

// turnAway refuses a task for which there is no room; with nil one that comes
// after such a task on the same benefit, and must not run without it.
func (t *task) turnAway(r *ledger.Rejection) {
	if r == nil {
		r = &ledger.Rejection{Code: ledger.Overloaded, Message: "there was no room for the command before it on the same benefit", RetryAfter: 50 * time.Millisecond}
	}
	t.refused = true
	t.group.e.count.overloaded.Add(1)
	t.group.e.answer(t, ledger.Reply{Err: r})
}

// behindRefused says that the task before this one in its queue was turned away.
func (t *task) behindRefused() bool { return t.after != nil && t.after.refused }

// park makes the task wait for the one before it, if that is no longer before it
// in the same queue and is not done: this one could overtake it.
func (t *task) park() bool {
	if t.after == nil || !t.after.strayed.Load() {
		return false
	}
	t.group.mu.Lock()
	defer t.group.mu.Unlock()
	if t.after.state.Load() == taskDone {
		return false
	}
	t.strayed.Store(true)
	t.after.next = t
	return true
}

// take reads the answer, or says what is known without one.
func (t *task) take(ctx context.Context) ledger.Reply {
	if t.state.CompareAndSwap(taskQueued, taskLeft) {
		return ledger.Reply{Err: &ledger.Rejection{Code: ledger.Unavailable, Message: "the call ended before the command started", Cause: context.Cause(ctx)}}
	}
	if t.state.Load() == taskDone {
		return *t.reply
	}
	return ledger.Reply{Err: &ledger.Rejection{Code: ledger.OutcomeUnknown, Message: "the call ended while the command was being committed", Cause: context.Cause(ctx)}}
}

// takeAll reads the answers of a call that has ended. It begins with the last
// command: a batch takes them from the first on, so none can be taken behind one
// on the same benefit that was given up, and run without it.
func takeAll(ctx context.Context, tasks []task) []ledger.Reply {
	replies := make([]ledger.Reply, len(tasks))
	for i := len(tasks) - 1; i >= 0; i-- {
		replies[i] = tasks[i].take(ctx)
	}
	return replies
}

// leave is the caller's last touch. It reports whether a batch still works on
// the task, which then counts it out.
func (t *task) leave() bool { return t.state.CompareAndSwap(taskTaken, taskOrphan) }
