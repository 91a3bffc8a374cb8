package store

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// maxOpenHolds is how many holds are kept in memory, 16 bytes each; with more,
// the expiry index is read once for each so many.
const maxOpenHolds = 1 << 22

// dueSlack is how much later than its expiry a hold may be due in the index:
// the coarsest grain of dueAt, and rounding.
const dueSlack = 61

// openHold is a hold that a reservation row spoke of.
type openHold struct {
	hash uint64
	// due is the first second at which the index may name it; 0 once it did.
	due int64
}

// openHolds collects holds between two readings of the expiry index.
type openHolds struct {
	list []openHold
	// begin and end bound the rows they came from.
	begin, end []byte
}

// keepHolds takes in the holds of a row. Rows are read before the index: a
// hold that is in a row had its index row by then, and loses it only when it
// is settled, or extended and named in another.
func (a *audit) keepHolds(res *ledger.Reservation) {
	if a.exact {
		return
	}
	for i := range res.Attempts {
		if at := &res.Attempts[i]; at.State == ledger.StateReserved {
			a.count(1, checkExpiry)
			a.open.list = append(a.open.list, openHold{a.holdHash(at.Leg.Bucket, res.Key.Order, res.Key.Benefit, at.Number), firstDue(at.Expires)})
		}
	}
}

// holdsPage ends a page of rows: when enough holds are collected, the index is
// read.
func (a *audit) holdsPage(ctx context.Context, rows []kv.KeyValue) error {
	if a.exact {
		return nil
	}
	o := &a.open
	if o.begin == nil {
		o.begin = append([]byte(nil), rows[0].Key...)
	}
	o.end = append(append(o.end[:0], rows[len(rows)-1].Key...), 0)
	if len(o.list) < maxOpenHolds {
		return nil
	}
	return a.checkHolds(ctx)
}

// firstDue is the whole second at or after an expiry.
func firstDue(t time.Time) int64 { return (t.UnixMilli() + 999) / 1000 }

func (a *audit) holdHash(b ledger.BucketID, order, benefit string, attempt uint32) uint64 {
	h := a.hashPlace(b)
	return maphash.Bytes(a.fp.seeds[0], a.fp.start('X').u(h).str(order).str(benefit).u(uint64(attempt)).buf)
}

// checkHolds reads the expiry index and looks for the holds collected so far.
func (a *audit) checkHolds(ctx context.Context) error {
	o := &a.open
	if len(o.list) == 0 {
		return nil
	}
	slices.SortFunc(o.list, func(x, y openHold) int { return cmp.Compare(x.hash, y.hash) })
	var n uint64
	err := a.s.scan(ctx, a.s.key(tableExpiry).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			n++
			due, bucket, err := a.s.dueOf(row.Key, a.shared)
			if err == nil {
				err = eachDue(row.Value, a.shared, func(it dueItem) { o.name(a.holdHash(bucket, it.order, it.benefit, it.attempt), due) })
			}
			if err != nil {
				a.report(checkReadable, "expiry row %x cannot be read: %v", row.Key, err)
			}
		}
		a.progress("expiry", n)
		return nil
	})
	if err != nil {
		return err
	}
	err = a.missingHolds(ctx)
	a.open = openHolds{list: a.open.list[:0]}
	return err
}

// name marks a hold as named by an index row that is due in its bounds.
func (o *openHolds) name(hash uint64, due int64) {
	i, _ := slices.BinarySearchFunc(o.list, hash, func(h openHold, v uint64) int { return cmp.Compare(h.hash, v) })
	for ; i < len(o.list) && o.list[i].hash == hash; i++ {
		if h := &o.list[i]; h.due != 0 && due >= h.due && due <= h.due+dueSlack {
			h.due = 0
		}
	}
}

// missingHolds reads the rows again whose holds no index row named, and judges
// each together with the index rows it should have, in one transaction.
func (a *audit) missingHolds(ctx context.Context) error {
	missing := map[uint64]bool{}
	for _, h := range a.open.list {
		if h.due != 0 {
			missing[h.hash] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return a.s.scan(ctx, kv.Range{Begin: a.open.begin, End: a.open.end}, func(rows []kv.KeyValue) error {
		held, _ := a.s.heldIn(rows)
		for _, h := range held {
			if !missing[a.holdHash(h.attempt.Leg.Bucket, h.key.Order, h.key.Benefit, h.attempt.Number)] {
				continue
			}
			if err := a.judgeHold(ctx, h.key, h.attempt.Number); err != nil {
				return err
			}
		}
		return nil
	})
}

// judgeHold decides in one transaction whether a hold is missing in the index.
func (a *audit) judgeHold(ctx context.Context, k ledger.OrderKey, number uint32) error {
	var at *ledger.Attempt
	var named bool
	err := a.s.readTx(ctx, func(r kv.Reader) error {
		at, named = nil, false
		v, ok, err := r.Get(a.s.reservationKey(k)).Wait()
		if err != nil || !ok {
			return err
		}
		res, err := decodeReservation(k, v)
		if err != nil {
			return corrupt("reservation "+k.String(), err)
		}
		if at = res.Attempt(number); at == nil || at.State != ledger.StateReserved {
			return nil
		}
		named, err = a.s.namedInIndex(r, k, at)
		return err
	})
	if err != nil {
		return err
	}
	if at != nil && at.State == ledger.StateReserved && !named {
		a.report(checkExpiry, "reservation %s of tenant %s, attempt %d holds %d of bucket %s until %s and no expiry row names it",
			k, k.Tenant, number, at.Leg.Held, at.Leg.Bucket, clock(&ledger.Outcome{Expires: at.Expires}))
	}
	return nil
}

// namedInIndex looks for a hold in the index rows of its bucket that are due
// within its bounds.
func (s *Store) namedInIndex(r kv.Reader, k ledger.OrderKey, at *ledger.Attempt) (bool, error) {
	due := firstDue(at.Expires)
	slot := s.key(tableExpiry).uint(slotOf(at.Leg.Bucket))
	var pending []kv.Rows
	for _, grain := range [...]int64{1, 5, 60} { // as dueAt rounds
		sec := (due + grain - 1) / grain * grain
		pending = append(pending, r.Range(append(key(nil), slot...).uint(uint64(sec)).bucket(at.Leg.Bucket).all(), kv.RangeOptions{}))
	}
	for _, p := range pending {
		rows, _, err := p.Wait()
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			items, err := decodeExpiry(row.Value)
			if err != nil {
				continue
			}
			if slices.Contains(items, dueItem{k.Order, k.Benefit, at.Number}) {
				return true, nil
			}
		}
	}
	return false, nil
}
