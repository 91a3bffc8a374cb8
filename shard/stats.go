package shard

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// sizeClasses counts batches by size: class i holds sizes up to 2^i.
const sizeClasses = 11

// Stats are counters since the start and gauges of now.
type Stats struct {
	// Pending is the number of commands accepted and not yet answered.
	Pending int64
	// Queues is the number of buckets with work.
	Queues int
	// Commands and Batches count what was sent to the store; Splits the
	// batches that were halved, Reroutes the commands that changed queue.
	Commands, Batches, Splits, Reroutes uint64
	// Conflicts counts the batches that another writer got in the way of, and
	// Retries how often they were tried again.
	Conflicts, Retries uint64
	// Overloaded counts refused commands, TenantLimited those of them that were
	// refused since their tenant had its part of the node or was above its rate,
	// Skipped the Reserves answered with "no benefit".
	Overloaded, TenantLimited, Skipped uint64
	// Tenants is how many tenants have commands pending, TenantMost how many the
	// one has that has most.
	Tenants    int
	TenantMost int64
	// Active is the number of buckets that this node worked on in the last
	// minute or so.
	Active int
	// Forwards counts calls that took commands to other nodes, ForwardFailed
	// those of them that failed, Forwarded the commands they brought answers
	// for, RanHere those that ran on this node after all.
	Forwards, ForwardFailed, Forwarded, RanHere uint64
	// BatchSizes counts batches by size: index i those of up to 2^i commands
	// (and more than 2^(i-1)).
	BatchSizes [sizeClasses]uint64
}

type counters struct {
	commands, batches, splits, reroutes, conflicts, retries, overloaded, skipped atomic.Uint64
	forwards, forwardFailed, forwarded, ranHere                                  atomic.Uint64

	sizes [sizeClasses]atomic.Uint64
}

func (c *counters) batch(n int) {
	c.batches.Add(1)
	c.commands.Add(uint64(n))
	c.sizes[min(bits.Len(uint(n-1)), sizeClasses-1)].Add(1)
}

// Stats reads the counters.
func (e *Executor) Stats() Stats {
	p := e.places.Stats()
	s := Stats{
		Pending: p.Taken, TenantLimited: p.Held, Tenants: p.Tenants, TenantMost: p.Most,
		Commands:   e.count.commands.Load(),
		Batches:    e.count.batches.Load(),
		Splits:     e.count.splits.Load(),
		Reroutes:   e.count.reroutes.Load(),
		Conflicts:  e.count.conflicts.Load(),
		Retries:    e.count.retries.Load(),
		Overloaded: e.count.overloaded.Load(),
		Skipped:    e.count.skipped.Load(),
		Forwards:   e.count.forwards.Load(), ForwardFailed: e.count.forwardFailed.Load(),
		Forwarded: e.count.forwarded.Load(), RanHere: e.count.ranHere.Load(),
	}
	for i := range s.BatchSizes {
		s.BatchSizes[i] = e.count.sizes[i].Load()
	}
	e.mu.Lock()
	s.Queues = len(e.queues)
	s.Active = e.active.count()
	e.mu.Unlock()
	return s
}

// Bounds of what is remembered of buckets.
const (
	activeWindow = 30 * time.Second
	maxActive    = 1 << 16
)

// activity remembers which buckets had work in this window and the one before.
// The executor's mutex guards it.
type activity struct {
	since     time.Time
	now, past map[ledger.BucketID]struct{}
}

func (a *activity) turn() {
	t := time.Now()
	if t.Sub(a.since) < activeWindow {
		return
	}
	if t.Sub(a.since) < 2*activeWindow {
		a.past = a.now
	} else {
		a.past = nil
	}
	a.since, a.now = t, map[ledger.BucketID]struct{}{}
}

func (a *activity) note(b ledger.BucketID) {
	if a.turn(); len(a.now) < maxActive {
		a.now[b] = struct{}{}
	}
}

func (a *activity) count() int {
	a.turn()
	n := len(a.now)
	for b := range a.past {
		if _, both := a.now[b]; !both {
			n++
		}
	}
	return n
}
