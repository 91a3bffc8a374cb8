package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// MaxParked is the most events that a sink may have parked in one partition.
const MaxParked = 10_000

// Why an Advance was not made.
var (
	// ErrCursorMoved says that the cursor is not where the relay believed, or
	// that the sink is gone: read it again.
	ErrCursorMoved = errors.New("the sink's cursor was moved")
	// ErrParkedChanged says that a key is no longer parked whose event was to
	// join those that wait.
	ErrParkedChanged = errors.New("a key is no longer parked")
	// ErrParkedFull says that there is no room for more parked events.
	ErrParkedFull = errors.New("too many events of the sink are parked")
)

// Park is an event that is put aside.
type Park struct {
	Event *event.Event
	// First: this event was refused, for Reason after Tries, and its key is parked
	// from here on. Else its key is parked already, and it joins those that wait.
	First  bool
	Reason string
	Tries  int
}

// Advance is one step of a sink in a partition.
type Advance struct {
	From Cursor
	To   event.Position
	// Delivered counts the events that the receiver has.
	Delivered int
	Park      []Park
	// Room is the most events that may be parked then; 0 is MaxParked.
	Room uint64
	// Trouble is what keeps the sink from going on; empty when it does.
	Trouble string
}

// AdvanceSink moves a cursor, parks events and notes trouble, all in one
// transaction that proves the relay's lease. So a relay that has lost it moves
// nothing. The errors are ErrLeaseLost, ErrCursorMoved, ErrParkedChanged,
// ErrParkedFull, or the store's.
func (s *Store) AdvanceSink(ctx context.Context, f Fence, id SinkID, a Advance) (c Cursor, err error) {
	err = s.advanceTx(ctx, func(tx kv.Tx, at kv.Attempt) error {
		if err := s.hold(tx, f); err != nil {
			return err
		}
		var ok bool
		if c, ok, err = s.cursorIn(id, f.Partition, tx.Get(s.cursorKey(id, f.Partition))); err != nil {
			return err
		}
		if !ok || c.Moves != a.From.Moves {
			return ErrCursorMoved
		}
		if at.MayHaveCommitted && c.At == a.To && a.To != a.From.At {
			return nil // an earlier attempt of this call
		}
		if c.At != a.From.At {
			return ErrCursorMoved
		}
		if err := s.park(tx, id, &a, &c); err != nil {
			return err
		}
		c.At = a.To
		c.Delivered += uint64(a.Delivered)
		s.note(&c, a.Trouble)
		tx.Set(s.cursorKey(id, f.Partition), encodeCursor(&c))
		return nil
	})
	return c, err
}

// note keeps what troubles a sink.
func (s *Store) note(c *Cursor, trouble string) {
	switch {
	case trouble == "":
		c.Since = time.Time{}
	case c.Trouble == "":
		c.Since = s.now()
	}
	c.Trouble = clip(trouble, maxReason)
}

// advanceTx keeps this file's errors as they are.
func (s *Store) advanceTx(ctx context.Context, fn func(kv.Tx, kv.Attempt) error) error {
	_, err := kv.Transact(ctx, s.kv, s.opt.Tx, fn)
	for _, own := range []error{ErrLeaseLost, ErrCursorMoved, ErrParkedChanged, ErrParkedFull} {
		if errors.Is(err, own) {
			return own
		}
	}
	if err != nil {
		return infra(err)
	}
	return nil
}

// park puts events aside, in the order of the outbox.
func (s *Store) park(tx kv.Tx, id SinkID, a *Advance, c *Cursor) error {
	if len(a.Park) == 0 {
		return nil
	}
	if room := min(a.Room, MaxParked); c.Parked+uint64(len(a.Park)) > cmp.Or(room, MaxParked) {
		return ErrParkedFull
	}
	keys := map[string]*ParkedKey{}
	var order []string
	for i := range a.Park {
		p := &a.Park[i]
		at, name := p.Event.At, p.Event.Key()
		k := keys[name]
		if k == nil {
			row, ok, err := s.parkedKeyIn(tx.Get(s.parkedKeyRow(id, at.Partition, name)), at.Partition, name)
			if err != nil {
				return err
			}
			if !ok && !p.First {
				return ErrParkedChanged
			}
			if !ok {
				row = ParkedKey{Partition: at.Partition, Key: name, Since: s.now(), Reason: clip(p.Reason, maxReason), Tries: uint32(p.Tries)}
			}
			k = &row
			keys[name], order = k, append(order, name)
		}
		row := s.parkedEventKey(id, name, at)
		_, there, err := tx.Get(row).Wait()
		if err != nil {
			return err
		}
		if !there { // a sink that was rewound meets what it parked before
			tx.Set(row, encodeParkedEvent(p.Event.Bucket, p.Event.Entry.Seq-uint64(at.Index)))
			k.Events++
			c.Parked++
		}
	}
	for _, name := range order {
		k := keys[name]
		tx.Set(s.parkedKeyRow(id, k.Partition, name), encodeParkedKey(k))
	}
	return nil
}

func (s *Store) parkedKeyIn(v kv.Value, partition uint64, name string) (k ParkedKey, ok bool, err error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return k, false, err
	}
	if k, err = decodeParkedKey(partition, name, raw); err != nil {
		return k, false, corrupt(fmt.Sprintf("parked key %.80q", name), err)
	}
	return k, true, nil
}

// Released is what became of events of a parked key that were tried again.
type Released struct {
	Retry
	// Delivered are those that the receiver has now.
	Delivered []event.Position
	// Refused: the next one was refused again, for Reason; the key stays parked.
	Refused bool
	Reason  string
}

// ReleaseParked removes parked events that were delivered. A key with none left
// is no longer parked; one that was refused waits for a person again.
func (s *Store) ReleaseParked(ctx context.Context, f Fence, id SinkID, rel Released) error {
	return s.advanceTx(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		if err := s.hold(tx, f); err != nil {
			return err
		}
		k, ok, err := s.parkedKeyIn(tx.Get(s.parkedKeyRow(id, f.Partition, rel.Key)), f.Partition, rel.Key)
		if err != nil {
			return err
		}
		if !ok {
			tx.Clear(s.retryKey(id, f.Partition, rel.Key))
			return nil
		}
		n, err := s.unpark(tx, id, &k, rel.Delivered)
		if err != nil {
			return err
		}
		if rel.Refused && k.Events > 0 {
			k.Tries++
			k.Reason = clip(rel.Reason, maxReason)
			mark := s.retryKey(id, f.Partition, rel.Key)
			asked, _, err := tx.Get(mark).Wait()
			if err != nil {
				return err
			}
			if uint64(decodeCount(asked)) == rel.Asked {
				tx.Clear(mark)
			}
		}
		return s.putParked(tx, id, &k, n, n)
	})
}

// unpark removes events of a parked key, and tells how many were there.
func (s *Store) unpark(tx kv.Tx, id SinkID, k *ParkedKey, events []event.Position) (n uint64, err error) {
	for _, at := range events {
		row := s.parkedEventKey(id, k.Key, at)
		_, there, err := tx.Get(row).Wait()
		if err != nil {
			return n, err
		}
		if there {
			tx.Clear(row)
			n++
		}
	}
	k.Events -= min(n, k.Events)
	return n, nil
}

// putParked writes a parked key and the counts of its sink.
func (s *Store) putParked(tx kv.Tx, id SinkID, k *ParkedKey, removed, delivered uint64) error {
	c, ok, err := s.cursorIn(id, k.Partition, tx.Get(s.cursorKey(id, k.Partition)))
	if err != nil {
		return err
	}
	if !ok {
		return ErrCursorMoved
	}
	c.Parked -= min(removed, c.Parked)
	c.Delivered += delivered
	tx.Set(s.cursorKey(id, k.Partition), encodeCursor(&c))
	if k.Events == 0 {
		tx.Clear(s.parkedKeyRow(id, k.Partition, k.Key))
		tx.Clear(s.retryKey(id, k.Partition, k.Key))
		return nil
	}
	tx.Set(s.parkedKeyRow(id, k.Partition, k.Key), encodeParkedKey(k))
	return nil
}
