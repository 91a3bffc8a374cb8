package store

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

func (s *Store) cursorIn(id SinkID, partition uint64, v kv.Value) (c Cursor, ok bool, err error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return c, false, err
	}
	if c, err = decodeCursor(partition, raw); err != nil {
		return c, false, corrupt(fmt.Sprintf("cursor of sink %s in partition %d", id, partition), err)
	}
	return c, true, nil
}

// Cursors reads how far a sink is, partition by partition.
func (s *Store) Cursors(ctx context.Context, id SinkID) (cursors []Cursor, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		cursors = nil
		var values [Partitions]kv.Value
		for p := range values {
			values[p] = r.Get(s.cursorKey(id, uint64(p)))
		}
		for p, v := range values {
			c, ok, err := s.cursorIn(id, uint64(p), v)
			if err != nil {
				return err
			}
			if !ok {
				return sinkMissing(id)
			}
			cursors = append(cursors, c)
		}
		return nil
	})
	return cursors, err
}

// Cursor reads how far a sink is in one partition; ok is false where there is
// no such sink.
func (s *Store) Cursor(ctx context.Context, id SinkID, partition uint64) (c Cursor, ok bool, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		c, ok, err = s.cursorIn(id, partition, r.Get(s.cursorKey(id, partition)))
		return err
	})
	return c, ok, err
}

// SinkLag is what a sink has before it in a partition.
type SinkLag struct {
	// Blocks counts the blocks after the cursor, up to a limit; they may be of
	// other tenants.
	Blocks int
	// Oldest is when the first of them was written.
	Oldest time.Time
}

// Lag measures what comes after a cursor, counting up to limit blocks.
func (s *Store) Lag(ctx context.Context, after event.Position, limit int) (lag SinkLag, err error) {
	err = s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		lag = SinkLag{}
		current, from, err := s.checkCursor(tx, tx.Snapshot(), after)
		if err != nil {
			return err
		}
		page := EventPage{Next: from}
		pointers, err := s.pointersAfter(tx.Snapshot(), &page, current, limit)
		if err != nil || len(pointers) == 0 {
			return err
		}
		first := pointers[0]
		if first.at.Stamp == after.Stamp && first.at.Incarnation == after.Incarnation {
			if pointers = pointers[1:]; len(pointers) == 0 {
				return nil // a block begun; what is left of it is delivered next
			}
			first = pointers[0]
		}
		lag.Blocks = len(pointers)
		lag.Oldest, err = s.blockTime(tx.Snapshot(), &first)
		return err
	})
	return lag, err
}
