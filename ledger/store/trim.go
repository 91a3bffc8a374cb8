package store

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// trimPage is how many pointers one trim removes.
const trimPage = 256

// TrimOutbox removes the oldest pointers of a partition that every sink is past
// and whose blocks were written before a time; the blocks stay for ever. It
// removes a page at a time and says how many it removed; what is less than a page
// stays, unless its incarnation is over. Paused sinks count
// as all others, without a limit: nothing is taken from a sink that has not got
// it. Where there is no sink nothing is trimmed, so that the first one can begin
// at the beginning.
//
// What was trimmed is marked, for the partition and for each bucket, so that
// readers behind it get an error and the audit knows which blocks have no
// pointer any more.
func (s *Store) TrimOutbox(ctx context.Context, f Fence, before time.Time) (trimmed int, err error) {
	err = s.advanceTx(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		trimmed = 0
		if err := s.hold(tx, f); err != nil {
			return err
		}
		slowest, ok, err := s.slowest(tx, f.Partition)
		if err != nil || !ok {
			return err
		}
		page := EventPage{Next: StartOfEvents(f.Partition)}
		pointers, err := s.pointersAfter(tx.Snapshot(), &page, slowest.Incarnation, trimPage)
		if err != nil || len(pointers) == 0 || len(pointers) < trimPage && page.Next.Incarnation >= slowest.Incarnation {
			return err
		}
		last := &pointers[len(pointers)-1]
		if slowest.Before(sameOrder(last.at)) {
			return nil
		}
		at, err := s.blockTime(tx.Snapshot(), last)
		if err != nil || !at.Before(before) {
			return err
		}
		s.trim(tx, pointers)
		trimmed = len(pointers)
		return nil
	})
	return trimmed, err
}

// slowest is the cursor of the partition that is furthest behind. Relays move
// cursors forward alone, so those conflict with nothing; what a person does to
// sinks is counted, and makes this transaction fail.
func (s *Store) slowest(tx kv.Tx, partition uint64) (slowest event.Position, ok bool, err error) {
	tx.AddReadConflict(kv.KeyRange(s.sinkChangesKey()))
	rows, _, err := tx.Snapshot().Range(s.cursorsOf(partition).all(), kv.RangeOptions{}).Wait()
	if err != nil {
		return slowest, false, err
	}
	for _, row := range rows {
		c, err := decodeCursor(partition, row.Value)
		if err != nil {
			return slowest, false, corrupt("cursor", err)
		}
		if !ok || c.At.Before(slowest) {
			slowest, ok = c.At, true
		}
	}
	return slowest, ok, nil
}

// trim clears pointers, which are all that their incarnation has up to the last
// of them, and marks it.
func (s *Store) trim(tx kv.Tx, pointers []pointer) {
	last := sameOrder(pointers[len(pointers)-1].at)
	of := s.pointersOf(last.Incarnation, last.Partition)
	end := s.pointersFrom(last).Begin
	tx.ClearRange(kv.Range{Begin: of.all().Begin, End: append(end, 0)})
	tx.Set(s.trimmedKey(last.Partition), encodeTrimmed(last))
	blocks := map[ledger.BucketID]uint64{}
	for i := range pointers {
		blocks[pointers[i].bucket] = pointers[i].first
	}
	for b, first := range blocks {
		tx.Set(s.trimmedBlockKey(b), encodeTrimmedBlock(first))
	}
}

func encodeTrimmedBlock(first uint64) []byte {
	var e enc
	e.u(codecVersion)
	e.u(first)
	return e
}

func decodeTrimmedBlock(v []byte) (uint64, error) {
	d := newDec(v)
	first := d.u()
	return first, d.end()
}

// trimmedBlocks reads up to which block each bucket's pointers were trimmed.
func (s *Store) trimmedBlocks(ctx context.Context) (map[ledger.BucketID]uint64, error) {
	out := map[ledger.BucketID]uint64{}
	err := s.scan(ctx, s.trimmedBlocksAll().all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			b, err := s.readTrimmedBlockKey(row.Key)
			if err != nil {
				return corrupt("trim key", err)
			}
			if out[b], err = decodeTrimmedBlock(row.Value); err != nil {
				return corrupt("trim mark of "+b.String(), err)
			}
		}
		return nil
	})
	return out, err
}
