package store

import (
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
)

// How a stored outcome names its bucket.
const (
	placeNone = iota // wrote no entry
	placeLeg         // the attempt's own bucket
	placeOther
)

func appendReservation(to []byte, r *ledger.Reservation) []byte {
	e := enc(slices.Grow(to, 192+160*len(r.Attempts)))
	e.u(codecVersion)
	e.u(uint64(r.EventSeq))
	e.u(uint64(len(r.Attempts)))
	for i := range r.Attempts {
		e.attempt(&r.Attempts[i])
	}
	return e
}

func (e *enc) attempt(a *ledger.Attempt) {
	e.u(uint64(a.Number))
	e.u(uint64(a.State))
	e.time(a.Created)
	e.time(a.Expires)
	e.u(a.CommitSeq)
	e.flag(a.CaseOpened)
	e.str(a.Correlation)
	if a.Leg.Bucket.Budget.IsZero() {
		e.u(0) // a tombstone or void has no leg
	} else {
		e.u(1)
		l := &a.Leg
		e.place(l.Bucket)
		e.str(l.Currency)
		e.i(l.Amount)
		e.i(l.Held)
		e.i(l.Lapsed)
		e.i(l.Committed)
		e.i(l.Reversed)
	}
	e.u(uint64(len(a.Receipts)))
	for i := range a.Receipts {
		e.receipt(&a.Receipts[i], a.Leg.Bucket)
	}
}

func (e *enc) receipt(r *ledger.Receipt, leg ledger.BucketID) {
	e.u(uint64(r.Op))
	e.str(r.ID)
	e.raw(r.Request)
	e.flag(r.Void)
	e.str(string(r.Rejection))
	if r.Rejection != "" {
		e.i(r.Requested)
		e.i(r.Available)
	}
	o := &r.Outcome
	e.u(uint64(o.State))
	e.i(o.Amount)
	e.i(o.Held)
	e.i(o.Committed)
	e.i(o.Reversed)
	e.time(o.Expires)
	e.time(o.At)
	switch {
	case o.Bucket.Budget.IsZero():
		e.u(placeNone)
	case o.Bucket == leg:
		e.u(placeLeg)
	default:
		e.u(placeOther)
		e.place(o.Bucket)
	}
	e.u(o.Seq)
	e.flag(o.Late)
	e.flag(r.Sink != nil)
	if r.Sink != nil {
		e.place(*r.Sink)
	}
}

func decodeReservation(k ledger.OrderKey, v []byte) (*ledger.Reservation, error) {
	d, r := newDec(v), &ledger.Reservation{Key: k}
	d.reservation(r)
	return r, d.end()
}

// reservation reads a row but for its key, into the slices that r has.
func (d *dec) reservation(r *ledger.Reservation) {
	r.EventSeq = uint32(d.max(1<<32 - 1))
	n := d.max(ledger.MaxAttempts)
	r.Attempts = slices.Grow(r.Attempts[:0], int(n))
	for i := 0; i < int(n) && d.err == nil; i++ {
		r.Attempts = r.Attempts[:i+1]
		d.attempt(r.Key.Tenant, &r.Attempts[i])
	}
}

func (d *dec) state() ledger.State {
	s := ledger.State(d.max(255))
	if !s.Valid() {
		d.fail(errValue)
	}
	return s
}

func (d *dec) attempt(tenant string, a *ledger.Attempt) {
	receipts := a.Receipts[:0]
	*a = ledger.Attempt{
		Number: uint32(d.max(1<<32 - 1)), State: d.state(), Created: d.time(), Expires: d.time(),
		CommitSeq: d.u(), CaseOpened: d.flag(), Correlation: d.str(),
	}
	if d.max(1) == 1 {
		l := &a.Leg
		l.Bucket = d.place(tenant)
		l.Currency = d.name()
		l.Amount, l.Held, l.Lapsed, l.Committed, l.Reversed = d.i(), d.i(), d.i(), d.i(), d.i()
	}
	n := d.max(ledger.MaxRowReceipts)
	a.Receipts = slices.Grow(receipts, int(n))
	for i := 0; i < int(n) && d.err == nil; i++ {
		a.Receipts = a.Receipts[:i+1]
		d.receipt(tenant, a.Leg.Bucket, &a.Receipts[i])
	}
}

func (d *dec) receipt(tenant string, leg ledger.BucketID, r *ledger.Receipt) {
	*r = ledger.Receipt{Op: d.op(), ID: d.str(), Request: d.raw(), Void: d.flag(), Rejection: ledger.Code(d.name())}
	if r.Rejection != "" {
		r.Requested, r.Available = d.i(), d.i()
	}
	o := &r.Outcome
	o.State = d.state()
	o.Amount, o.Held, o.Committed, o.Reversed = d.i(), d.i(), d.i(), d.i()
	o.Expires, o.At = d.time(), d.time()
	switch d.max(placeOther) {
	case placeLeg:
		o.Bucket = leg
	case placeOther:
		o.Bucket = d.place(tenant)
	}
	o.Seq = d.u()
	o.Late = d.flag()
	if d.flag() {
		sink := d.place(tenant)
		r.Sink = &sink
	}
}

// dueItem is one reservation named by an expiry row.
type dueItem struct {
	order, benefit string
	attempt        uint32
}

func encodeExpiry(items []dueItem) []byte {
	e := enc(make([]byte, 0, 8+40*len(items)))
	e.u(codecVersion)
	e.u(uint64(len(items)))
	for _, it := range items {
		e.str(it.order)
		e.str(it.benefit)
		e.u(uint64(it.attempt))
	}
	return e
}

func decodeExpiry(v []byte) ([]dueItem, error) {
	items := []dueItem{}
	err := eachDue(v, nil, func(it dueItem) { items = append(items, it) })
	return items, err
}

// eachDue visits what an expiry row names. The error comes after the items
// before it.
func eachDue(v []byte, shared names, visit func(dueItem)) error {
	d := newSharedDec(v, shared)
	for n := d.max(maxDueItems); n > 0; n-- {
		it := dueItem{order: d.str(), benefit: d.name(), attempt: uint32(d.max(1<<32 - 1))}
		if d.err != nil {
			break
		}
		visit(it)
	}
	return d.end()
}
