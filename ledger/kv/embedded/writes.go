package embedded

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// opKind is what one buffered write does.
type opKind uint8

const (
	opSet opKind = iota
	opClear
	opClearRange   // value holds the end of the range
	opAdd          // value holds the operand
	opStampedKey   // offset is into key
	opStampedValue // offset is into value
)

// op is one buffered write. Writes are kept in the order they were made,
// which is the order they take effect in.
type op struct {
	kind   opKind
	offset int32
	hash   uint64
	key    []byte
	value  []byte
}

// keyState is what a transaction knows of a key it wrote.
type keyState uint8

const (
	stateSet        keyState = iota // value is the value
	stateAbsent                     // cleared
	stateAdds                       // operands over a base that was not read
	stateUnreadable                 // holds the commit's stamp
)

// ownKey is the state of one key under a transaction's own writes.
type ownKey struct {
	state keyState
	hash  uint64
	key   []byte
	value []byte
	// adds are indexes of the Add operations over the unread base.
	adds []int32
}

// writeSet is all that a transaction wrote: the operations in order, and an
// index by key of their combined effect for reads of the transaction's own
// writes. It belongs to the transaction until commit, then to the committer,
// and last to the log of recent writes, which needs the keys alone: hence one
// arena for keys and one for values.
type writeSet struct {
	keys   arena
	values arena
	ops    []op
	own    []ownKey
	slots  []int32 // hash table of own, by open addressing; index+1, 0 is free
	clears spanSet
	// stamped are the places where stamped keys may land.
	stamped []span
	// points and ranges are the write conflicts that no operation implies.
	points []point
	ranges []span
	sorted []int32 // own in key order; valid while as long as own
	bytes  int

	// landed are the stamped keys as written, with their operation's index.
	// Set by the committer.
	landed []landedKey
	// version is the commit version. Set by the committer.
	version kv.Version
	// byKey are the written points in key order, made on demand by the log.
	byKey [][]byte
}

// point is a key with its hash.
type point struct {
	hash uint64
	key  []byte
}

// landedKey is a stamped key with its stamp.
type landedKey struct {
	point
	op    int
	value []byte
}

var writeSets = sync.Pool{New: func() any { return new(writeSet) }}

// release gives w back for reuse. Nothing may refer to its slices any more.
func (w *writeSet) release() {
	w.keys.reset()
	w.values.reset()
	clear(w.ops)
	clear(w.own)
	clear(w.slots)
	clear(w.landed)
	clear(w.byKey)
	w.ops, w.own, w.sorted = w.ops[:0], w.own[:0], w.sorted[:0]
	w.clears, w.stamped, w.points, w.ranges = nil, nil, nil, nil
	w.landed, w.byKey = w.landed[:0], w.byKey[:0]
	w.bytes, w.version = 0, 0
	if len(w.slots) > 1<<14 {
		*w = writeSet{}
	}
	writeSets.Put(w)
}

// dropValues frees the memory of values when only the keys matter any more.
func (w *writeSet) dropValues() {
	w.values = arena{}
	for i := range w.ops {
		if w.ops[i].kind != opClearRange {
			w.ops[i].value = nil
		}
	}
	for i := range w.own {
		w.own[i].value, w.own[i].adds = nil, nil
	}
	for i := range w.landed {
		w.landed[i].value = nil
	}
}

func (w *writeSet) empty() bool {
	return len(w.ops) == 0 && len(w.points) == 0 && len(w.ranges) == 0
}

// find returns the state of key, or nil where no operation named it alone.
func (w *writeSet) find(hash uint64, key []byte) *ownKey {
	if len(w.own) == 0 {
		return nil
	}
	mask := uint64(len(w.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		n := w.slots[i]
		if n == 0 {
			return nil
		}
		if o := &w.own[n-1]; o.hash == hash && bytes.Equal(o.key, key) {
			return o
		}
	}
}

// enter returns the state of key, made if there was none. key must be in the
// arena. isNew says that it was made.
func (w *writeSet) enter(hash uint64, key []byte) (o *ownKey, isNew bool) {
	if o := w.find(hash, key); o != nil {
		return o, false
	}
	if 2*(len(w.own)+1) > len(w.slots) {
		w.rehash()
	}
	w.own = append(w.own, ownKey{hash: hash, key: key})
	w.place(len(w.own) - 1)
	return &w.own[len(w.own)-1], true
}

func (w *writeSet) rehash() {
	w.slots = make([]int32, max(2*len(w.slots), 512))
	for i := range w.own {
		w.place(i)
	}
}

func (w *writeSet) place(n int) {
	mask := uint64(len(w.slots) - 1)
	i := w.own[n].hash & mask
	for w.slots[i] != 0 {
		i = (i + 1) & mask
	}
	w.slots[i] = int32(n + 1)
}

func (w *writeSet) set(hash uint64, key, value []byte) {
	k, v := w.keys.copy(key), w.values.copy(value)
	w.ops = append(w.ops, op{kind: opSet, hash: hash, key: k, value: v})
	w.bytes += opBytes(key, value)
	o, _ := w.enter(hash, k)
	if o.state == stateUnreadable {
		return
	}
	o.state, o.value, o.adds = stateSet, v, nil
}

func (w *writeSet) clear(hash uint64, key []byte) {
	k := w.keys.copy(key)
	w.ops = append(w.ops, op{kind: opClear, hash: hash, key: k})
	w.bytes += opBytes(key, nil)
	o, _ := w.enter(hash, k)
	o.state, o.value, o.adds = stateAbsent, nil, nil
}

func (w *writeSet) clearRange(begin, end []byte) {
	sp := span{w.keys.copy(begin), w.keys.copy(end)}
	w.ops = append(w.ops, op{kind: opClearRange, key: sp.begin, value: sp.end})
	w.bytes += 2 * (len(begin) + len(end))
	for i := range w.own {
		if o := &w.own[i]; sp.contains(o.key) {
			o.state, o.value, o.adds = stateAbsent, nil, nil
		}
	}
	w.clears = w.clears.add(sp)
}

// add buffers an Add. Where the transaction knows the value, it becomes a Set.
func (w *writeSet) add(hash uint64, key, operand []byte) {
	k, v := w.keys.copy(key), w.values.copy(operand)
	w.bytes += opBytes(key, operand)
	o, isNew := w.enter(hash, k)
	if isNew {
		o.state = stateAdds
		if w.clears.contains(k) {
			o.state = stateAbsent
		}
	}
	switch o.state {
	case stateSet, stateAbsent:
		sum := addLittleEndian(w.values.grow(len(v)), o.value, v)
		o.state, o.value = stateSet, sum
		w.ops = append(w.ops, op{kind: opSet, hash: hash, key: k, value: sum})
	case stateAdds:
		o.adds = append(o.adds, int32(len(w.ops)))
		w.ops = append(w.ops, op{kind: opAdd, hash: hash, key: k, value: v})
	case stateUnreadable:
		w.ops = append(w.ops, op{kind: opAdd, hash: hash, key: k, value: v})
	}
}

// stampedKey buffers a SetStampedKey. after is the read version the
// transaction has, if any: the key lands above it.
func (w *writeSet) stampedKey(key []byte, offset int, value []byte, after kv.Version) {
	k, v := w.keys.copy(key), w.values.copy(value)
	w.ops = append(w.ops, op{kind: opStampedKey, offset: int32(offset), key: k, value: v})
	w.bytes += opBytes(key, value)
	low, high := w.keys.copy(key), w.keys.grow(len(key)+1)
	var stamp [10]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(after))
	copy(low[offset:], stamp[:])
	copy(high, key)
	for i := range stamp {
		high[offset+i] = 0xFF
	}
	high[len(key)] = 0
	w.stamped = append(w.stamped, span{low, high})
}

func (w *writeSet) stampedValue(hash uint64, key, value []byte, offset int) {
	k, v := w.keys.copy(key), w.values.copy(value)
	w.ops = append(w.ops, op{kind: opStampedValue, offset: int32(offset), hash: hash, key: k, value: v})
	w.bytes += opBytes(key, value)
	o, _ := w.enter(hash, k)
	o.state, o.value, o.adds = stateUnreadable, nil, nil
}

// unreadable says whether a stamped key may land on key.
func (w *writeSet) unreadable(key []byte) bool {
	return slices.ContainsFunc(w.stamped, func(sp span) bool { return sp.contains(key) })
}

// inOrder returns the indexes of own in key order.
func (w *writeSet) inOrder() []int32 {
	if len(w.sorted) == len(w.own) {
		return w.sorted
	}
	for i := len(w.sorted); i < len(w.own); i++ {
		w.sorted = append(w.sorted, int32(i))
	}
	slices.SortFunc(w.sorted, func(a, b int32) int { return bytes.Compare(w.own[a].key, w.own[b].key) })
	return w.sorted
}

// opBytes is what a write of one key counts against the transaction's size:
// the mutation, and the two ends of its write conflict range.
func opBytes(key, value []byte) int { return 3*len(key) + len(value) + 1 }

// addLittleEndian puts base+operand into sum, which has operand's length, and
// returns it: base is cut or zero-extended to that length and the carry out
// of it is lost. sum may be operand itself.
func addLittleEndian(sum, base, operand []byte) []byte {
	carry := uint16(0)
	for i := range operand {
		t := uint16(operand[i]) + carry
		if i < len(base) {
			t += uint16(base[i])
		}
		sum[i] = byte(t)
		carry = t >> 8
	}
	return sum
}

// effectAt is what the operations before index limit leave at key; known is
// false where they do not touch it or only refer to what was there before.
// Walking the operations backwards is for the few keys that are added to.
func (w *writeSet) effectAt(hash uint64, key []byte, limit int) (value []byte, known bool) {
	if w.find(hash, key) == nil && !w.clears.contains(key) && len(w.landed) == 0 {
		return nil, false
	}
	for i := limit - 1; i >= 0; i-- {
		o := &w.ops[i]
		switch o.kind {
		case opSet, opStampedValue, opAdd:
			// The committer has put the stamp, and the sum of an Add, into
			// the operation by now.
			if o.hash == hash && bytes.Equal(o.key, key) {
				return o.value, true
			}
		case opClear:
			if o.hash == hash && bytes.Equal(o.key, key) {
				return nil, true
			}
		case opClearRange:
			if (span{o.key, o.value}).contains(key) {
				return nil, true
			}
		case opStampedKey:
			for _, l := range w.landed {
				if l.op == i && l.hash == hash && bytes.Equal(l.key, key) {
					return l.value, true
				}
			}
		}
	}
	return nil, false
}
