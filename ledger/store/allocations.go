package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Rows of the allocation table: one with an empty refund id for each quoted
// attempt, what was paid and refunded per line and funder, and one for each
// refund, what it took from where. Both are written in the transaction that
// writes the reservation's row.

// maxAllocations bounds the rows read for one benefit of an order: those of
// every attempt and of every receipt that its row can have.
const maxAllocations = ledger.MaxAttempts + ledger.MaxRowReceipts

// allocState is the allocation of one attempt in a batch, and the splits that
// were read or made.
type allocState struct {
	key    key
	alloc  *ledger.Allocation
	dirty  bool
	splits map[string]*splitState
}

type splitState struct {
	key   key
	split *ledger.Split
	dirty bool
}

type allocKey struct {
	order   ledger.OrderKey
	attempt uint32
}

// allocate gives a decision on a quoted attempt what it asked for.
func (b *batch) allocate(c *ledger.Command, v *ledger.View) error {
	st := b.allocOf(c.Key, c.Attempt)
	var state, split kv.Value
	sp := st.splits[c.ID]
	if st.alloc == nil {
		state = b.tx.Get(st.key)
	}
	if c.Op == ledger.OpReinstate && sp == nil {
		sp = &splitState{key: b.s.allocationKey(c.Key, c.Attempt, c.ID)}
		split = b.tx.Get(sp.key)
	}
	if state != nil {
		raw, err := wanted(state, "allocation of "+c.Key.String())
		if err != nil {
			return err
		}
		if st.alloc, err = decodeAllocation(raw); err != nil {
			return corrupt("allocation of "+c.Key.String(), err)
		}
	}
	if split != nil {
		raw, err := wanted(split, "split of "+c.Key.String())
		if err != nil {
			return err
		}
		if sp.split, err = decodeSplit(raw, st.alloc); err != nil {
			return corrupt("split of "+c.Key.String(), err)
		}
		st.splits[c.ID] = sp
	}
	v.Allocation = st.alloc
	if sp != nil {
		v.Split = sp.split
	}
	return nil
}

// wanted is the value of a row that another row says is there.
func wanted(v kv.Value, what string) ([]byte, error) {
	raw, ok, err := v.Wait()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, corrupt(what, errors.New("it has no row"))
	}
	return raw, nil
}

func (b *batch) allocOf(k ledger.OrderKey, attempt uint32) *allocState {
	id := allocKey{k, attempt}
	st := b.allocs[id]
	if st == nil {
		st = &allocState{key: b.s.allocationKey(k, attempt, ""), splits: map[string]*splitState{}}
		if b.allocs == nil {
			b.allocs = map[allocKey]*allocState{}
		}
		b.allocs[id] = st
	}
	return st
}

// keepAllocation applies what a decision says of lines and funders.
func (b *batch) keepAllocation(c *ledger.Command, d *ledger.Decision) {
	if d.Allocation == nil {
		return
	}
	st := b.allocOf(c.Key, c.Attempt)
	st.alloc, st.dirty = d.Allocation, true
	if d.Split != nil {
		st.splits[c.ID] = &splitState{key: b.s.allocationKey(c.Key, c.Attempt, c.ID), split: d.Split, dirty: true}
	}
}

func (b *batch) flushAllocations() {
	for _, st := range b.allocs {
		if st.dirty {
			b.tx.Set(st.key, encodeAllocation(st.alloc))
		}
		for _, sp := range st.splits {
			if sp.dirty {
				b.tx.Set(sp.key, encodeSplit(sp.split))
			}
		}
	}
}

// Allocations reads who paid what of a benefit's quoted attempts and what was
// refunded of it, in the order of attempts. It is empty for a benefit that was
// reserved without a quote.
func (s *Store) Allocations(ctx context.Context, k ledger.OrderKey) ([]AllocationView, error) {
	var views []AllocationView
	err := s.readTx(ctx, func(r kv.Reader) (err error) {
		views, err = s.allocationsOf(r, k)
		return err
	})
	return views, err
}

func (s *Store) allocationsOf(r kv.Reader, k ledger.OrderKey) ([]AllocationView, error) {
	var views []AllocationView
	rows, _, err := r.Range(s.allocationsKey(k).all(), kv.RangeOptions{Limit: maxAllocations}).Wait()
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		_, attempt, refund, err := s.allocationOf(row.Key)
		if err != nil {
			return nil, corrupt("allocation key", err)
		}
		if refund == "" {
			a, err := decodeAllocation(row.Value)
			if err != nil {
				return nil, corrupt("allocation of "+k.String(), err)
			}
			views = append(views, AllocationView{Key: k, Attempt: attempt, Allocation: *a})
			continue
		}
		n := len(views) - 1
		if n < 0 || views[n].Attempt != attempt {
			return nil, corrupt("split of "+k.String(), fmt.Errorf("attempt %d has refund %s but no allocation", attempt, refund))
		}
		sp, err := decodeSplit(row.Value, &views[n].Allocation)
		if err != nil {
			return nil, corrupt("split of "+k.String(), err)
		}
		views[n].Refunds = append(views[n].Refunds, RefundView{ID: refund, Split: *sp})
	}
	return views, nil
}

func encodeAllocation(a *ledger.Allocation) []byte {
	e := enc(make([]byte, 0, 32+32*len(a.Lines)))
	e.u(codecVersion)
	q := &a.Quote
	e.str(q.ID)
	e.u(uint64(q.Rounding))
	e.u(uint64(len(q.Funders)))
	for i := range q.Funders {
		e.str(q.Funders[i].ID)
		e.i(q.Funders[i].Weight)
	}
	e.i(a.Total)
	e.u(uint64(len(q.Lines)))
	for i := range q.Lines {
		l := &q.Lines[i]
		e.str(l.ID)
		e.i(l.Quantity)
		e.i(l.Amount)
		e.i(a.Lines[i].Returned)
		for _, c := range a.Lines[i].Cells {
			e.i(c.Paid)
			e.i(c.Reversed)
		}
	}
	return e
}

func decodeAllocation(v []byte) (*ledger.Allocation, error) {
	d := newDec(v)
	a := &ledger.Allocation{}
	q := &a.Quote
	q.ID = d.str()
	q.Rounding = ledger.Rounding(d.max(uint64(ledger.RoundUp)))
	for range d.max(ledger.MaxFunders) {
		q.Funders = append(q.Funders, ledger.Funder{ID: d.str(), Weight: d.i()})
	}
	cells := max(1, len(q.Funders))
	a.Total = d.i()
	for range d.max(ledger.MaxQuoteLines) {
		q.Lines = append(q.Lines, ledger.QuoteLine{ID: d.str(), Quantity: d.i(), Amount: d.i()})
		l := ledger.LineAllocation{Returned: d.i(), Cells: make([]ledger.Cell, cells)}
		for f := range l.Cells {
			l.Cells[f] = ledger.Cell{Paid: d.i(), Reversed: d.i()}
		}
		a.Lines = append(a.Lines, l)
		if d.err != nil {
			break
		}
	}
	return a, d.end()
}

func encodeSplit(s *ledger.Split) []byte {
	e := enc(make([]byte, 0, 8+16*len(s.Lines)))
	e.u(codecVersion)
	e.u(uint64(len(s.Lines)))
	for i := range s.Lines {
		l := &s.Lines[i]
		e.u(uint64(l.Index))
		e.i(l.Quantity)
		for _, v := range l.Amounts {
			e.i(v)
		}
	}
	return e
}

// decodeSplit reads a refund's split, whose lines and funders are those of the
// allocation.
func decodeSplit(v []byte, a *ledger.Allocation) (*ledger.Split, error) {
	d := newDec(v)
	s := &ledger.Split{}
	n := d.max(uint64(len(a.Lines)))
	for range n {
		l := ledger.SplitLine{Index: int(d.max(ledger.MaxQuoteLines)), Quantity: d.i(), Amounts: make([]int64, max(1, len(a.Quote.Funders)))}
		for f := range l.Amounts {
			l.Amounts[f] = d.i()
		}
		if l.Index >= len(a.Lines) {
			d.fail(errValue)
		}
		if d.err != nil {
			break
		}
		s.Lines = append(s.Lines, l)
	}
	return s, d.end()
}
