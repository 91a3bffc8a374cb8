package store

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// WaitEvents returns when the signal of a partition is no longer what it was:
// something was written there. It gives the signal to wait from next time; 0 is
// none. It may return for nothing, and does so when limit has passed. Without
// watch, or where a watch cannot be had, the limit is the time between polls.
func (s *Store) WaitEvents(ctx context.Context, partition, since uint64, limit time.Duration, watch bool) (uint64, error) {
	return s.waitCounter(ctx, s.signalKey(partition), since, limit, watch)
}

// WaitSinks does the same for changes of sinks, and of what they have parked.
func (s *Store) WaitSinks(ctx context.Context, since uint64, limit time.Duration, watch bool) (uint64, error) {
	return s.waitCounter(ctx, s.sinkChangesKey(), since, limit, watch)
}

// waitCounter watches first and reads then, so that no change is missed.
func (s *Store) waitCounter(ctx context.Context, k key, since uint64, limit time.Duration, watch bool) (now uint64, err error) {
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changed <-chan struct{}
	if watch {
		if w, err := s.kv.Watch(wctx, k); err == nil {
			changed = w.Done()
		}
	}
	read := func() error {
		return s.readTx(ctx, func(r kv.Reader) error {
			v, _, err := r.Get(k).Wait()
			now = uint64(decodeCount(v))
			return err
		})
	}
	if err := read(); err != nil || now != since || limit <= 0 {
		return now, err
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return now, ctx.Err()
	case <-t.C:
		return now, nil
	case <-changed:
		err = read()
		return now, err
	}
}
