package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// EventsAt is the cursor before the first event of a partition that was written
// at or after t, as far as the clocks of the nodes agree. It searches by halves,
// over the versions that stamps begin with.
func (s *Store) EventsAt(ctx context.Context, partition uint64, t time.Time) (event.Position, error) {
	var best event.Position
	err := s.readTx(ctx, func(r kv.Reader) error {
		best = StartOfEvents(partition)
		mark, err := s.trimMark(r.Get(s.trimmedKey(partition)), partition)
		if err != nil {
			return err
		}
		if !mark.IsZero() {
			best = mark
		}
		for inc := uint64(0); ; {
			next, ok, err := s.nextIncarnation(r, inc, partition)
			if err != nil || !ok {
				return err
			}
			p, found, err := s.lastBefore(r, event.Position{Incarnation: next, Partition: partition}, t)
			if err != nil || !found {
				return err
			}
			best, inc = p, next+1
		}
	})
	return best, err
}

// lastBefore finds the last pointer of one incarnation whose block was written
// before t.
func (s *Store) lastBefore(r kv.Reader, in event.Position, t time.Time) (best event.Position, found bool, err error) {
	low, high := uint64(0), uint64(math.MaxUint64)
	for low < high {
		mid := low + (high-low)/2
		p, at, ok, err := s.firstFrom(r, in, mid)
		if err != nil {
			return best, false, err
		}
		if !ok || !at.Before(t) {
			high = mid
			continue
		}
		best, found = sameOrder(p), true
		low = uint64(kv.Stamp(p.Stamp).Version()) + 1
	}
	if !found {
		return best, false, nil
	}
	// Several pointers may have one version: the last of them.
	rng := s.pointersFrom(event.Position{Incarnation: in.Incarnation, Partition: in.Partition, Stamp: stampFrom(low)})
	rng = kv.Range{Begin: s.pointersOf(in.Incarnation, in.Partition), End: rng.Begin}
	rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1, Reverse: true}).Wait()
	if err != nil || len(rows) == 0 {
		return best, found, err
	}
	at, err := s.readPointerKey(rows[0].Key)
	if err != nil {
		return best, false, corrupt("outbox key", err)
	}
	return sameOrder(at), true, nil
}

func stampFrom(version uint64) (st [event.StampSize]byte) {
	for i := range 8 {
		st[i] = byte(version >> (56 - 8*i))
	}
	return st
}

// firstFrom is the first pointer of a version or later, and when its block was
// written.
func (s *Store) firstFrom(r kv.Reader, in event.Position, version uint64) (p event.Position, at time.Time, ok bool, err error) {
	in.Stamp = stampFrom(version)
	rows, _, err := r.Range(s.pointersFrom(in), kv.RangeOptions{Limit: 1}).Wait()
	if err != nil || len(rows) == 0 {
		return p, at, false, err
	}
	ptr, err := s.decodePointerRow(rows[0])
	if err != nil {
		return p, at, false, err
	}
	at, err = s.blockTime(r, &ptr)
	return ptr.at, at, err == nil, err
}

// blockTime is when the block that a pointer names was written.
func (s *Store) blockTime(r kv.Reader, p *pointer) (time.Time, error) {
	raw, ok, err := r.Get(s.blockKey(p.bucket, p.first)).Wait()
	if err != nil {
		return time.Time{}, err
	}
	if !ok {
		return time.Time{}, corrupt(fmt.Sprintf("block %d of %s", p.first, p.bucket), fmt.Errorf("pointer %s names it, it is not there", p.at))
	}
	at, err := decodeBlockTime(raw)
	if err != nil {
		return time.Time{}, corrupt("block", err)
	}
	return at, nil
}
