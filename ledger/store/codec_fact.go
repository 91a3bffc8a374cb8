package store

import (
	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
)

func encodeFact(r *fact.Row) []byte {
	e := enc(make([]byte, 0, 160+64*len(r.Effects)))
	e.u(codecVersion)
	e.u(uint64(r.State))
	e.u(uint64(r.Version))
	e.u(uint64(r.Kind))
	e.str(r.Ref)
	e.u(uint64(r.Attempt))
	e.str(r.Currency)
	e.str(r.Correlation)
	e.u(uint64(len(r.Lines)))
	for _, l := range r.Lines {
		e.str(l.Benefit)
		e.u(uint64(l.Attempt))
		e.i(l.Amount)
	}
	e.str(r.Reason)
	e.str(string(r.Code))
	e.time(r.Received)
	e.time(r.Settled)
	e.time(r.Deadline)
	e.time(r.Due)
	e.u(uint64(r.Tries))
	e.str(r.Resolution)
	e.u(uint64(len(r.Effects)))
	for i := range r.Effects {
		e.effect(&r.Effects[i])
	}
	return e
}

func (e *enc) effect(f *fact.Effect) {
	e.u(uint64(f.Op))
	e.str(f.Benefit)
	e.u(uint64(f.Attempt))
	o := &f.Outcome
	e.u(uint64(o.State))
	e.i(o.Amount)
	e.i(o.Held)
	e.i(o.Committed)
	e.i(o.Reversed)
	e.time(o.Expires)
	e.time(o.At)
	e.flag(!o.Bucket.Budget.IsZero())
	if !o.Bucket.Budget.IsZero() {
		e.place(o.Bucket)
	}
	e.u(o.Seq)
	e.flag(o.Late)
}

func decodeFact(order string, id fact.ID, v []byte) (fact.Row, error) {
	d := newDec(v)
	r := fact.Row{Fact: fact.Fact{ID: id, Order: order}}
	r.State = fact.State(d.max(255))
	r.Version = uint32(d.max(1<<32 - 1))
	r.Kind = fact.Kind(d.max(255))
	if !r.State.Valid() || !r.Kind.Valid() {
		d.fail(errValue)
	}
	r.Ref = d.str()
	r.Attempt = uint32(d.max(1<<32 - 1))
	r.Currency, r.Correlation = d.str(), d.str()
	for range d.max(fact.MaxLines) {
		r.Lines = append(r.Lines, fact.Line{Benefit: d.str(), Attempt: uint32(d.max(1<<32 - 1)), Amount: d.i()})
		if d.err != nil {
			break
		}
	}
	r.Reason, r.Code = d.str(), ledger.Code(d.str())
	r.Received, r.Settled, r.Deadline, r.Due = d.time(), d.time(), d.time(), d.time()
	r.Tries = uint32(d.max(1<<32 - 1))
	r.Resolution = d.str()
	for range d.max(2 * fact.MaxLines) {
		r.Effects = append(r.Effects, d.effect(id.Tenant))
		if d.err != nil {
			break
		}
	}
	return r, d.end()
}

func (d *dec) effect(tenant string) fact.Effect {
	f := fact.Effect{Op: d.op(), Benefit: d.str(), Attempt: uint32(d.max(1<<32 - 1))}
	o := &f.Outcome
	o.State = d.state()
	o.Amount, o.Held, o.Committed, o.Reversed = d.i(), d.i(), d.i(), d.i()
	o.Expires, o.At = d.time(), d.time()
	if d.flag() {
		o.Bucket = d.place(tenant)
	}
	o.Seq = d.u()
	o.Late = d.flag()
	return f
}
