package shard

import (
	"runtime"
	"time"
)

// longestGather bounds how long a batch waits for commands that should come.
const longestGather = time.Millisecond

// gathering is what a queue knows of how its batches fill.
type gathering struct {
	// want is how many commands end the wait of the next batch, 0: it does not
	// wait. The queue's mutex guards it.
	want   int
	enough chan struct{} // has room for the one signal that they have come

	// The rest is for the goroutine that runs the queue alone.

	// peak is how many commands were about lately: the most of a batch with what
	// waited when it was done, less an eighth of it for each batch since.
	peak  int
	timer *time.Timer
}

// gather lets commands come before a batch is taken.
//
// While processors are free it only lets those goroutines run that can: callers
// that were just answered, and commands on their way here. Where nobody waits
// for a processor that takes no time.
//
// In a crowd a batch waits until three of four commands are here that were about
// lately, and starts as soon as they are. It has one at least: nothing runs for a
// queue in which nothing waits. Each batch costs a sync and a handful of
// goroutines that take turns, so small ones cost processor time that nobody has
// to spare; and those that are not here yet keep the processors at work while the
// batch is synced, in place of all callers waiting for it together. To yield alone
// does neither: a goroutine that yields is run before a processor looks at what
// others have to do and at what has come over the network, so the batch starts too
// small, or too late. Where callers that were expected stay away, the wait ends
// after longestGather, and the next batches expect less.
func (q *queue) gather() {
	want := q.expected()
	q.mu.Lock()
	if want == 0 || len(q.tasks) == 0 {
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	if n := len(q.tasks); n == 0 || n >= want {
		q.mu.Unlock()
		return
	}
	q.want = want
	q.mu.Unlock()
	if q.timer == nil {
		q.timer = time.NewTimer(longestGather)
	} else {
		q.timer.Reset(longestGather)
	}
	select {
	case <-q.enough:
		q.timer.Stop()
	case <-q.timer.C:
		q.mu.Lock()
		if q.want == 0 {
			<-q.enough // they came in the same moment
		}
		q.want = 0
		q.mu.Unlock()
	}
}

// expected is how many commands the next batch waits for, 0 for none: one that
// has nobody to wait for, or while processors are free.
func (q *queue) expected() int {
	want := q.peak * 3 / 4
	if want < 2 || !q.e.crowd.now() {
		return 0
	}
	return min(want, q.e.cfg.BatchLimit, q.e.cfg.QueueLimit)
}

// came ends the wait of the next batch once there are enough commands for it. The
// caller holds the queue's mutex.
func (q *queue) came() {
	if q.want > 0 && len(q.tasks) >= q.want {
		q.want = 0
		q.enough <- struct{}{}
	}
}

// committed learns from a batch of n commands that has ended.
func (q *queue) committed(n int) {
	q.mu.Lock()
	n += len(q.tasks)
	q.mu.Unlock()
	q.peak = max(q.peak-(q.peak+7)/8, n)
}
