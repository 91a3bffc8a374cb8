package shard

import (
	"math"
	"sync"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/shard/places"
)

// turnstiles let the batches of a budget's buckets commit side by side, and a
// batch that holds a command on the budget itself by itself: it reads or
// writes what all of them do, and beside many of them it would conflict with
// one or another at every attempt. That is only manners among the queues of one
// node; what another node does is settled by the transaction, as always.
//
// Waiters block on channels and not on a mutex, so that tests on a fake clock
// see them as waiting.
type turnstiles struct {
	mu   sync.Mutex
	open map[ledger.BudgetID]*turnstile
}

type turnstile struct {
	inside  int  // batches of buckets that are committing
	alone   bool // a batch on the budget is
	waiting int  // batches on the budget that wait; no bucket's goes before them,
	// but for those that waited already when the last one left: owed of the
	// parked ones have that right. So neither kind keeps the other waiting for
	// longer than one turn.
	parked, owed int
	turn         int // how many batches on the budget have left
	users        int
	changed      chan struct{} // closed when somebody leaves
}

// enter waits for a batch's turn and returns what ends it.
func (ts *turnstiles) enter(id ledger.BudgetID, alone bool) (leave func()) {
	ts.mu.Lock()
	if ts.open == nil {
		ts.open = map[ledger.BudgetID]*turnstile{}
	}
	t := ts.open[id]
	if t == nil {
		t = &turnstile{changed: make(chan struct{})}
		ts.open[id] = t
	}
	t.users++
	if alone {
		t.waiting++
	}
	came, parks := t.turn, !alone && (t.alone || t.waiting > 0)
	if parks {
		t.parked++
	}
	for t.alone || (alone && t.inside+t.owed > 0) || (!alone && t.waiting > 0 && came == t.turn) {
		changed := t.changed
		ts.mu.Unlock()
		<-changed
		ts.mu.Lock()
	}
	switch {
	case alone:
		t.waiting--
		t.alone = true
	case parks: // and so a batch on the budget has left
		t.parked--
		t.owed--
		t.inside++
	default:
		t.inside++
	}
	ts.mu.Unlock()
	return func() { ts.leave(id, t, alone) }
}

func (ts *turnstiles) leave(id ledger.BudgetID, t *turnstile, alone bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if alone {
		t.alone, t.owed = false, t.parked
		t.turn++
	} else {
		t.inside--
	}
	if t.users--; t.users == 0 {
		delete(ts.open, id)
		return
	}
	if alone || (t.inside == 0 && t.waiting > 0) {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// maxBatches is how many batches of a node are at the store at once. More would
// only wait there, and use up the time they have for their commit.
const maxBatches = 512

// turns let so many batches go to the store, and those that wait for it in turns
// of their tenants: a tenant that has work in thousands of buckets makes others
// wait for one of its batches at a time. What a batch takes with it is settled
// when its turn has come, so that waiting makes batches larger.
//
// A batch waits for its turn first and for its turnstile then: whatever it waits
// for there has its turn already.
type turns struct {
	limit   int
	mu      sync.Mutex
	running int
	waiting places.Line[chan struct{}]
}

// enter waits for a turn. It ends with leave.
func (ts *turns) enter(tenant string) {
	ts.mu.Lock()
	if ts.running < ts.limit {
		ts.running++
		ts.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	ts.waiting.Add(tenant, turn, math.MaxInt) // bounded by the commands that are pending
	ts.mu.Unlock()
	<-turn
}

// leave gives the turn to the next one.
func (ts *turns) leave() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if next, ok := ts.waiting.Take(); ok {
		close(next)
	} else {
		ts.running--
	}
}
