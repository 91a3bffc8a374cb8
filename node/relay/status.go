package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// totals count what was done for a sink since the start.
type totals struct{ delivered, failed, parked atomic.Uint64 }

func (r *Relay) totalsOf(id store.SinkID) *totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.totals[id] == nil {
		r.totals[id] = &totals{}
	}
	return r.totals[id]
}

// SinkStatus is what a relay knows of a sink, in the partitions it has.
type SinkStatus struct {
	store.SinkID
	// Delivered and Parked count events, Failed tries, since the start.
	Delivered, Failed, Parked uint64
	// Behind counts the blocks before the sink, up to 1,000 a partition, and Lag
	// is the age of the oldest of them.
	Behind int
	Lag    time.Duration
}

// Status is what a relay knows of itself.
type Status struct {
	Partitions int
	Trimmed    uint64
	Sinks      []SinkStatus
}

// Status tells how the relay does. It reads the store for what is before sinks
// that have something before them; where the store does not answer those figures
// are zero.
func (r *Relay) Status(ctx context.Context) Status {
	r.mu.Lock()
	st := Status{Partitions: len(r.fences), Trimmed: r.trimmed}
	pumps := make([]*pump, 0, len(r.pumps))
	for _, p := range r.pumps {
		pumps = append(pumps, p)
	}
	sinks := map[store.SinkID]*SinkStatus{}
	for id, t := range r.totals {
		sinks[id] = &SinkStatus{SinkID: id, Delivered: t.delivered.Load(), Failed: t.failed.Load(), Parked: t.parked.Load()}
	}
	r.mu.Unlock()
	for _, p := range pumps {
		at, s := p.where.Load(), sinks[p.sink.SinkID]
		if at == nil || s == nil || p.quiet.Load() {
			continue
		}
		lag, err := r.st.Lag(ctx, *at, lagBlocks)
		if err != nil || lag.Blocks == 0 {
			continue
		}
		s.Behind += lag.Blocks
		s.Lag = max(s.Lag, r.now().Sub(lag.Oldest))
	}
	for _, s := range sinks {
		st.Sinks = append(st.Sinks, *s)
	}
	return st
}
