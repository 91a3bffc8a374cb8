package store

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// DueKey names one reservation that a row of the expiry index says is due.
type DueKey struct {
	ledger.OrderKey
	Attempt uint32
}

// DueBlock is one row of the expiry index: reservations of one bucket that
// were to expire by one second. It is a hint: what it names may have been
// committed, released or extended since.
type DueBlock struct {
	Due    time.Time
	Bucket ledger.BucketID
	Keys   []DueKey

	key []byte
}

const (
	// maxDrop bounds the rows that one transaction clears.
	maxDrop = 1000
	// maxDuePages bounds how far DueBlocks reads past unreadable rows.
	maxDuePages = 16
)

// DueBlocks reads up to limit rows of a slot that are due by now, the oldest
// first: those behind a row that it gave before, or with the zero row from the
// first on. Fewer than limit are the last. A row that cannot be read is left where
// it is and passed over: it must not keep the others from expiring. OldestDue goes
// on reporting it, so it is seen, and RebuildExpiry removes it.
func (s *Store) DueBlocks(ctx context.Context, slot uint64, behind DueBlock, limit int) ([]DueBlock, error) {
	var blocks []DueBlock
	err := s.readTx(ctx, func(r kv.Reader) error {
		blocks = nil
		from := s.expiryDue(slot, s.now())
		if len(behind.key) > 0 {
			from.Begin = append(slices.Clone(behind.key), 0)
		}
		for range maxDuePages {
			if bytes.Compare(from.Begin, from.End) >= 0 { // the clock was set back
				return nil
			}
			rows, more, err := r.Range(from, kv.RangeOptions{Limit: limit - len(blocks)}).Wait()
			if err != nil {
				return err
			}
			for _, row := range rows {
				if b, err := s.decodeDue(row.Key, row.Value); err == nil {
					blocks = append(blocks, b)
				}
				from.Begin = append(append([]byte(nil), row.Key...), 0)
			}
			if !more || len(blocks) >= limit {
				return nil
			}
		}
		return nil
	})
	return blocks, err
}

// dueOf takes the key of an expiry row apart.
func (s *Store) dueOf(k []byte, shared names) (due int64, b ledger.BucketID, err error) {
	r := s.read(k, tableExpiry)
	r.shared = shared
	r.uint() // slot
	due = int64(r.uint())
	b = r.bucket()
	r.uint() // seq
	r.uint() // n
	return due, b, r.end()
}

func (s *Store) decodeDue(k, v []byte) (DueBlock, error) {
	b := DueBlock{key: append([]byte(nil), k...)}
	due, bucket, err := s.dueOf(k, nil)
	if err != nil {
		return b, err
	}
	b.Due, b.Bucket = time.Unix(due, 0).UTC(), bucket
	items, err := decodeExpiry(v)
	if err != nil {
		return b, err
	}
	for _, it := range items {
		b.Keys = append(b.Keys, DueKey{
			Attempt:  it.attempt,
			OrderKey: ledger.OrderKey{Tenant: b.Bucket.Budget.Tenant, Order: it.order, Benefit: it.benefit},
		})
	}
	return b, nil
}

// DropDue clears rows that DueBlocks gave, once all they name is settled. A
// row's key is never used again, so clearing one that is gone does no harm.
func (s *Store) DropDue(ctx context.Context, blocks []DueBlock) error {
	for len(blocks) > 0 {
		n := min(len(blocks), maxDrop)
		err := s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
			for i := range blocks[:n] {
				tx.Clear(blocks[i].key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		blocks = blocks[n:]
	}
	return nil
}

// OldestDue is the earliest time that any row of the expiry index is due, and
// false where the index is empty. A time in the future means that nothing is
// overdue.
func (s *Store) OldestDue(ctx context.Context) (time.Time, bool, error) {
	var oldest time.Time
	found := false
	err := s.readTx(ctx, func(r kv.Reader) error {
		oldest, found = time.Time{}, false
		var slots [ExpirySlots]kv.Rows
		for slot := range slots {
			slots[slot] = r.Range(s.key(tableExpiry).uint(uint64(slot)).all(), kv.RangeOptions{Limit: 1})
		}
		for _, p := range slots {
			rows, _, err := p.Wait()
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				continue
			}
			k := s.read(rows[0].Key, tableExpiry)
			k.uint() // slot
			due := time.Unix(int64(k.uint()), 0).UTC()
			if k.err != nil {
				return corrupt("expiry key", k.err)
			}
			if !found || due.Before(oldest) {
				oldest, found = due, true
			}
		}
		return nil
	})
	return oldest, found, err
}

// RebuildExpiry drops the expiry index and makes it again from the
// reservation rows, which are the truth. Run it again if it was interrupted.
//
// It is safe under traffic: a hold that is made or extended while it runs
// writes its own row, after the index was dropped; every other hold is there
// when its page is read. A row that it writes for a hold that is settled a
// moment later does nothing. Its rows end with a number drawn at random for
// each run, where those of commands end with 0: no two writers share a key.
//
// A reservation row that cannot be read does not keep the others out of the
// index; the error then comes at the end.
func (s *Store) RebuildExpiry(ctx context.Context, progress func(scanned, written uint64)) error {
	_, err := kv.Transact(ctx, s.kv, s.opt.Tx, func(tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(s.key(tableExpiry).all())
		return nil
	})
	if err != nil {
		return infra(err)
	}
	run := rand.Uint64()>>2 | 1
	var scanned, written uint64
	var unreadable error
	err = s.scan(ctx, s.key(tableReservation).all(), func(rows []kv.KeyValue) error {
		held, err := s.heldIn(rows)
		if unreadable == nil {
			unreadable = err
		}
		if err := s.writeDue(ctx, held, run); err != nil {
			return err
		}
		scanned += uint64(len(rows))
		written += uint64(len(held))
		if progress != nil {
			progress(scanned, written)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return unreadable
}

// hold is a RESERVED attempt and where it is.
type hold struct {
	key     ledger.OrderKey
	attempt *ledger.Attempt
	seq     uint64 // of the entry that made it, which no other hold of the bucket has
}

// heldIn finds the holds in a page of reservation rows, and the first error
// of a row that cannot be read.
func (s *Store) heldIn(rows []kv.KeyValue) (held []hold, unreadable error) {
	for _, row := range rows {
		res, err := s.decodeReservationRow(row)
		if err != nil {
			if unreadable == nil {
				unreadable = err
			}
			continue
		}
		held = append(held, holdsOf(res)...)
	}
	return held, unreadable
}

// holdsOf finds the hold of a reservation; there is at most one.
func holdsOf(res *ledger.Reservation) (held []hold) {
	for i := range res.Attempts {
		a := &res.Attempts[i]
		if a.State != ledger.StateReserved {
			continue
		}
		h := hold{key: res.Key, attempt: a}
		for i := range a.Receipts {
			if rc := &a.Receipts[i]; rc.Op.Opens() && rc.Outcome.Seq > 0 {
				h.seq = rc.Outcome.Seq
			}
		}
		held = append(held, h)
	}
	return held
}

// decodeReservationRow reads a reservation with its key.
func (s *Store) decodeReservationRow(row kv.KeyValue) (*ledger.Reservation, error) {
	res := new(ledger.Reservation)
	if err := s.readReservation(row, nil, res); err != nil {
		return nil, err
	}
	return res, nil
}

// readReservation reads a reservation into the slices that res has. With
// shared names it is valid only as long as the row is.
func (s *Store) readReservation(row kv.KeyValue, shared names, res *ledger.Reservation) (err error) {
	if res.Key, err = s.reservationOf(row.Key, shared); err != nil {
		return corrupt("reservation key", err)
	}
	d := newSharedDec(row.Value, shared)
	d.reservation(res)
	if err = d.end(); err != nil {
		return corrupt("reservation "+res.Key.String(), err)
	}
	return nil
}

// reservationOf takes a reservation's key apart.
func (s *Store) reservationOf(k []byte, shared names) (ledger.OrderKey, error) {
	r := s.read(k, tableReservation)
	r.shared = shared
	r.uint() // h(order)
	key := ledger.OrderKey{Tenant: r.name(), Order: r.str(), Benefit: r.name()}
	return key, r.end()
}

// writeDue writes expiry rows for holds. The rows are as in batch.addDue, but
// for the last element of their keys.
func (s *Store) writeDue(ctx context.Context, held []hold, run uint64) error {
	if len(held) == 0 {
		return nil
	}
	type place struct {
		due    int64
		bucket ledger.BucketID
	}
	now := s.now()
	groups := map[place][]hold{}
	for _, h := range held {
		p := place{dueAt(now, h.attempt.Expires), h.attempt.Leg.Bucket}
		groups[p] = append(groups[p], h)
	}
	_, err := kv.Transact(ctx, s.kv, s.opt.Tx, func(tx kv.Tx, _ kv.Attempt) error {
		for p, hs := range groups {
			for len(hs) > 0 {
				n := min(len(hs), maxDueItems)
				items := make([]dueItem, n)
				for i, h := range hs[:n] {
					items[i] = dueItem{order: h.key.Order, benefit: h.key.Benefit, attempt: h.attempt.Number}
				}
				tx.Set(s.expiryKey(p.due, p.bucket, hs[0].seq, run), encodeExpiry(items))
				hs = hs[n:]
			}
		}
		return nil
	})
	if err != nil {
		return infra(err)
	}
	return nil
}
