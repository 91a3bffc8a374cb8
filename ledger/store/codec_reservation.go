package store

import (
	"github.com/coffer-ledger/coffer/ledger"
)

// How a stored outcome names its bucket.
const (
	placeNone = iota // wrote no entry
	placeLeg         // the attempt's own bucket
	placeOther
)

func encodeReservation(r *ledger.Reservation) []byte {
	e := enc(make([]byte, 0, 192+160*len(r.Attempts)))
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
	d := newDec(v)
	r := &ledger.Reservation{Key: k, EventSeq: uint32(d.max(1<<32 - 1))}
	n := d.max(ledger.MaxAttempts)
	r.Attempts = make([]ledger.Attempt, 0, n)
	for range n {
		r.Attempts = append(r.Attempts, d.attempt(k.Tenant))
		if d.err != nil {
			break
		}
	}
	return r, d.end()
}

func (d *dec) state() ledger.State {
	s := ledger.State(d.max(255))
	if !s.Valid() {
		d.fail(errValue)
	}
	return s
}

func (d *dec) attempt(tenant string) ledger.Attempt {
	a := ledger.Attempt{
		Number: uint32(d.max(1<<32 - 1)), State: d.state(), Created: d.time(), Expires: d.time(),
		CommitSeq: d.u(), CaseOpened: d.flag(), Correlation: d.str(),
	}
	if d.max(1) == 1 {
		l := &a.Leg
		l.Bucket = d.place(tenant)
		l.Currency = d.str()
		l.Amount, l.Held, l.Lapsed, l.Committed, l.Reversed = d.i(), d.i(), d.i(), d.i(), d.i()
	}
	n := d.max(ledger.MaxRowReceipts)
	a.Receipts = make([]ledger.Receipt, 0, n)
	for range n {
		a.Receipts = append(a.Receipts, d.receipt(tenant, a.Leg.Bucket))
		if d.err != nil {
			break
		}
	}
	return a
}

func (d *dec) receipt(tenant string, leg ledger.BucketID) ledger.Receipt {
	r := ledger.Receipt{Op: d.op(), ID: d.str(), Request: d.raw(), Void: d.flag(), Rejection: ledger.Code(d.str())}
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
	return r
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
	d := newDec(v)
	n := d.max(maxDueItems)
	items := make([]dueItem, 0, min(n, 1024))
	for range n {
		items = append(items, dueItem{order: d.str(), benefit: d.str(), attempt: uint32(d.max(1<<32 - 1))})
		if d.err != nil {
			break
		}
	}
	return items, d.end()
}
