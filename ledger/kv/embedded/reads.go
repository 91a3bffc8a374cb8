package embedded

import (
	"bytes"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readSet is what a transaction read and must not have been written by
// another one before it commits.
type readSet struct {
	keys   arena
	points []point
	ranges []span
	bytes  int
}

var readSets = sync.Pool{New: func() any { return new(readSet) }}

func (r *readSet) release() {
	r.keys.reset()
	clear(r.points)
	clear(r.ranges)
	r.points, r.ranges, r.bytes = r.points[:0], r.ranges[:0], 0
	readSets.Put(r)
}

func (r *readSet) addPoint(hash uint64, key []byte) {
	r.points = append(r.points, point{hash, r.keys.copy(key)})
	r.bytes += 2*len(key) + 1
}

func (r *readSet) addRange(begin, end []byte) {
	if bytes.Compare(begin, end) >= 0 {
		return
	}
	r.ranges = append(r.ranges, span{r.keys.copy(begin), r.keys.copy(end)})
	r.bytes += len(begin) + len(end)
}

// touches says whether anything in the set lies in sp.
func (r *readSet) touches(sp span) bool {
	for i := range r.points {
		if sp.contains(r.points[i].key) {
			return true
		}
	}
	for i := range r.ranges {
		if sp.overlaps(r.ranges[i]) {
			return true
		}
	}
	return false
}

// reader is one of the two ways to read in a transaction.
type reader struct {
	tx       *tx
	snapshot bool
}

// value is a point read that is already done: the engine is in this process,
// so a read costs less than handing it to another goroutine would.
type value struct {
	bytes []byte
	ok    bool
	err   error
}

func (v *value) Wait() ([]byte, bool, error) { return v.bytes, v.ok, v.err }

// absent is the answer of every read that found nothing.
var absent = &value{}

// rows is a range read that is already done.
type rows struct {
	rows []kv.KeyValue
	more bool
	err  error
}

func (r *rows) Wait() ([]kv.KeyValue, bool, error) { return r.rows, r.more, r.err }

// Get implements kv.Reader.
func (r reader) Get(key []byte) kv.Value {
	b, ok, err := r.tx.get(key, r.snapshot)
	if err != nil {
		return &value{err: err}
	}
	if !ok {
		return absent
	}
	return r.tx.newValue(b)
}

// Range implements kv.Reader.
func (r reader) Range(rg kv.Range, opt kv.RangeOptions) kv.Rows {
	out := &rows{}
	out.err = r.tx.scan(rg, opt, r.snapshot, out)
	if out.err != nil {
		out.rows, out.more = nil, false
	}
	return out
}

func (t *tx) get(key []byte, snapshot bool) ([]byte, bool, error) {
	if err := t.readable("get"); err != nil {
		return nil, false, err
	}
	if err := checkReadKey("get", key); err != nil {
		return nil, false, err
	}
	hash := t.store.hash(key)
	var own *ownKey
	if w := t.writes; w != nil {
		if w.unreadable(key) {
			return nil, false, t.unreadable("get")
		}
		if own = w.find(hash, key); own != nil {
			switch own.state {
			case stateSet:
				return t.values.copy(own.value), true, nil
			case stateAbsent:
				return nil, false, nil
			case stateUnreadable:
				return nil, false, t.unreadable("get")
			}
		} else if w.clears.contains(key) {
			return nil, false, nil
		}
	}
	base, ok, err := t.load(hash, key)
	if err != nil {
		return nil, false, err
	}
	if !snapshot {
		t.readSet().addPoint(hash, key)
	}
	if own != nil {
		return t.applyAdds(own, base), true, nil
	}
	return base, ok, nil
}

// load reads key at the read version into the transaction's memory: from the
// tables alone where they tell, else from the snapshot.
func (t *tx) load(hash uint64, key []byte) (b []byte, ok bool, err error) {
	defer t.store.guardRead("get", &err)
	v := t.at
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.snap == nil {
		return nil, false, t.gone("get")
	}
	if t.flushed != nil && t.flushed.tells(hash, key) {
		if t.tables == nil {
			if t.tables, err = v.borrow(t.flushed.tables); err != nil {
				return nil, false, t.store.ioError("get", err)
			}
		}
		if t.tables != nil {
			return t.seek(key)
		}
	}
	got, closer, err := v.snap.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, t.store.ioError("get", err)
	}
	c := t.values.copy(got)
	return c, true, closer.Close()
}

// seek is load from the tables.
func (t *tx) seek(key []byte) (b []byte, ok bool, err error) {
	if !t.tables.SeekPrefixGE(key) || !bytes.Equal(t.tables.Key(), key) {
		if err := t.tables.Error(); err != nil {
			return nil, false, t.store.ioError("get", err)
		}
		return nil, false, nil
	}
	got, err := t.tables.ValueAndErr()
	if err != nil {
		return nil, false, t.store.ioError("get", err)
	}
	return t.values.copy(got), true, nil
}

// applyAdds is base under the transaction's own Adds.
func (t *tx) applyAdds(o *ownKey, base []byte) []byte {
	for _, n := range o.adds {
		operand := t.writes.ops[n].value
		base = addLittleEndian(t.values.grow(len(operand)), base, operand)
	}
	return base
}
