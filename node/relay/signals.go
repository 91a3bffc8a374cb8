package relay

import (
	"context"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// Waiter tells when something was written in a partition; store.Store is one.
type Waiter interface {
	WaitEvents(ctx context.Context, partition, since uint64, limit time.Duration, watch bool) (uint64, error)
}

// Signals wakes all of a node that wait for events, with one watch a partition.
// While nobody waits it does nothing.
type Signals struct {
	st    Waiter
	poll  time.Duration
	watch bool

	mu    sync.Mutex
	bells [store.Partitions]chan struct{}
	need  [store.Partitions]chan struct{}
}

// looks is how many polls without a change end a wait.
const looks = 30

// NewSignals makes signals that notice a change at the latest after poll.
func NewSignals(st Waiter, poll time.Duration, watch bool) *Signals {
	s := &Signals{st: st, poll: poll, watch: watch}
	for p := range s.need {
		s.need[p] = make(chan struct{}, 1)
	}
	return s
}

// Wait gives a channel that is closed when there may be new events in a
// partition. Call it before looking, so that nothing is missed.
func (s *Signals) Wait(partition uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bells[partition] == nil {
		s.bells[partition] = make(chan struct{})
		select {
		case s.need[partition] <- struct{}{}:
		default:
		}
	}
	return s.bells[partition]
}

// ring wakes those who wait.
func (s *Signals) ring(partition uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.bells[partition]; ch != nil {
		close(ch)
		s.bells[partition] = nil
	}
}

// Run watches until ctx ends.
func (s *Signals) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for p := range uint64(store.Partitions) {
		wg.Go(func() { s.run(ctx, p) })
	}
	wg.Wait()
	return nil
}

func (s *Signals) run(ctx context.Context, partition uint64) {
	var last uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.need[partition]:
		}
		last = s.change(ctx, partition, last)
		s.ring(partition)
	}
}

// change returns when a partition's signal has changed, and now and then without
// that: whoever still waits asks again, and where nobody does there is no more
// to watch.
func (s *Signals) change(ctx context.Context, partition, last uint64) uint64 {
	for range looks {
		now, err := s.st.WaitEvents(ctx, partition, last, s.poll, s.watch)
		switch {
		case ctx.Err() != nil:
			return last
		case err != nil:
			sleep(ctx, s.poll) // the poll that is left
			return last
		case now != last:
			return now
		}
	}
	return last
}

// sleep waits, and is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
