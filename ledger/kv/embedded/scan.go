package embedded

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// merge walks the rows of the store and the transaction's own keys in one
// order, forwards or backwards.
type merge struct {
	t       *tx
	reverse bool
	it      *pebble.Iterator
	baseOK  bool
	own     []int32 // what is left of the transaction's own keys in the range
	rows    []kv.KeyValue
}

// scan reads a range into out and adds its read conflict.
func (t *tx) scan(r kv.Range, opt kv.RangeOptions, snapshot bool, out *rows) (err error) {
	defer t.store.guardRead("range", &err)
	if err := t.readable("range"); err != nil {
		return err
	}
	if err := checkRange("range", r); err != nil {
		return err
	}
	if bytes.Equal(r.Begin, r.End) {
		return nil
	}
	if w := t.writes; w != nil {
		for _, sp := range w.stamped {
			if sp.overlaps(span{r.Begin, r.End}) {
				return t.unreadable("range")
			}
		}
	}
	v := t.at
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.snap == nil {
		return t.gone("range")
	}
	bounds := pebble.IterOptions{UpperBound: r.End}
	if len(r.Begin) > 0 { // an engine built with -race cannot seek to an empty key
		bounds.LowerBound = r.Begin
	}
	it, err := v.snap.NewIter(&bounds)
	if err != nil {
		return t.store.ioError("range", err)
	}
	m := &merge{t: t, reverse: opt.Reverse, it: it, own: t.ownBetween(r)}
	more, err := m.run(opt.Limit)
	if cerr := it.Close(); err == nil && cerr != nil {
		err = t.store.ioError("range", cerr)
	}
	if err != nil {
		return err
	}
	out.rows, out.more = m.rows, more
	if !snapshot {
		t.addRangeRead(r, opt.Reverse, more, m.rows)
	}
	return nil
}

// ownBetween returns the transaction's own keys in r, in order.
func (t *tx) ownBetween(r kv.Range) []int32 {
	w := t.writes
	if w == nil || len(w.own) == 0 {
		return nil
	}
	all := w.inOrder()
	lo, hi := w.lowerBound(all, r.Begin), w.lowerBound(all, r.End)
	return all[lo:hi]
}

// lowerBound is the number of the sorted keys below key.
func (w *writeSet) lowerBound(sorted []int32, key []byte) int {
	lo, hi := 0, len(sorted)
	for lo < hi {
		mid := (lo + hi) / 2
		if bytes.Compare(w.own[sorted[mid]].key, key) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// run collects rows until the range or the limit ends; more says the latter.
func (m *merge) run(limit int) (more bool, err error) {
	if m.reverse {
		m.baseOK = m.it.Last()
	} else {
		m.baseOK = m.it.First()
	}
	for steps := 1; ; steps++ {
		if steps%rowsPerAgeCheck == 0 {
			if err := m.t.readable("range"); err != nil {
				return false, err
			}
		}
		if limit > 0 && len(m.rows) == limit {
			return true, nil
		}
		own := m.nextOwn()
		if own == nil && !m.baseOK {
			break
		}
		if err := m.step(own); err != nil {
			return false, err
		}
	}
	if err := m.it.Error(); err != nil {
		return false, m.t.store.ioError("range", err)
	}
	return false, nil
}

// nextOwn is the transaction's own key that comes next, or nil.
func (m *merge) nextOwn() *ownKey {
	if len(m.own) == 0 {
		return nil
	}
	n := m.own[0]
	if m.reverse {
		n = m.own[len(m.own)-1]
	}
	return &m.t.writes.own[n]
}

// step takes the nearer of the two sources' next keys, or both if equal.
func (m *merge) step(own *ownKey) error {
	var side int
	switch {
	case own == nil:
		side = -1
	case !m.baseOK:
		side = 1
	default:
		side = bytes.Compare(m.it.Key(), own.key)
		if m.reverse {
			side = -side
		}
	}
	if side < 0 {
		if w := m.t.writes; w == nil || !w.clears.contains(m.it.Key()) {
			b, err := m.baseValue()
			if err != nil {
				return err
			}
			m.emit(m.it.Key(), b)
		}
		m.nextBase()
		return nil
	}
	if err := m.takeOwn(own, side == 0); err != nil {
		return err
	}
	if side == 0 {
		m.nextBase()
	}
	return nil
}

// takeOwn emits the transaction's own key; hasBase says that the store's next
// row has the same key.
func (m *merge) takeOwn(own *ownKey, hasBase bool) error {
	if m.reverse {
		m.own = m.own[:len(m.own)-1]
	} else {
		m.own = m.own[1:]
	}
	switch own.state {
	case stateSet:
		m.emit(own.key, own.value)
	case stateUnreadable:
		return m.t.unreadable("range")
	case stateAdds:
		var base []byte
		if hasBase {
			var err error
			if base, err = m.baseValue(); err != nil {
				return err
			}
		}
		m.rows = append(m.rows, kv.KeyValue{Key: m.t.values.copy(own.key), Value: m.t.applyAdds(own, base)})
	}
	return nil
}

func (m *merge) baseValue() ([]byte, error) {
	b, err := m.it.ValueAndErr()
	if err != nil {
		return nil, m.t.store.ioError("range", err)
	}
	return b, nil
}

func (m *merge) nextBase() {
	if m.reverse {
		m.baseOK = m.it.Prev()
	} else {
		m.baseOK = m.it.Next()
	}
}

func (m *merge) emit(key, value []byte) {
	m.rows = append(m.rows, kv.KeyValue{Key: m.t.values.copy(key), Value: m.t.values.copy(value)})
}

// addRangeRead adds the read conflict of a range read: what it looked at, but
// for the places whose content the transaction itself had fixed by a Set or
// a Clear, for there another transaction's write changes nothing.
func (t *tx) addRangeRead(r kv.Range, reverse, more bool, got []kv.KeyValue) {
	begin, end := r.Begin, r.End
	if more {
		last := got[len(got)-1].Key
		if reverse {
			begin = last
		} else {
			end = kv.KeyRange(last).End
		}
	}
	rs := t.readSet()
	w := t.writes
	if w == nil || len(w.own) == 0 && len(w.clears) == 0 {
		rs.addRange(begin, end)
		return
	}
	own := t.ownBetween(kv.Range{Begin: begin, End: end})
	clears := w.clears[w.clears.find(begin):]
	for bytes.Compare(begin, end) < 0 {
		for len(own) > 0 && (bytes.Compare(w.own[own[0]].key, begin) < 0 || w.own[own[0]].state == stateAdds) {
			own = own[1:]
		}
		hole := span{end, end}
		if len(own) > 0 {
			k := w.own[own[0]].key
			hole = span{k, kv.KeyRange(k).End}
		}
		if len(clears) > 0 && bytes.Compare(clears[0].begin, hole.begin) <= 0 {
			hole, clears = clears[0], clears[1:]
		} else if len(own) > 0 {
			own = own[1:]
		}
		if bytes.Compare(begin, hole.begin) < 0 {
			if bytes.Compare(hole.begin, end) > 0 {
				hole.begin = end
			}
			rs.addRange(begin, hole.begin)
		}
		if bytes.Compare(hole.end, begin) > 0 {
			begin = hole.end
		}
	}
}
