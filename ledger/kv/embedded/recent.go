package embedded

import (
	"bytes"
	"slices"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// recentWrites is the log of what was written since the oldest live read
// version. It belongs to the committer's goroutine alone.
//
// Point reads meet point writes in one hash table from key hash to the last
// version that wrote it, so a transaction of a hundred reads costs a hundred
// lookups however long the log is. The hash has 64 bits and a seed that
// differs by process: two keys that collide can only cause a conflict that
// was not needed, never hide one. Ranges are rare and meet the keys
// themselves, sorted per transaction at the first range that asks.
type recentWrites struct {
	points map[uint64]kv.Version
	log    []*writeSet // in version order
	ranges []rangeWrite
	// floor is the highest version forgotten. A transaction that read below
	// it cannot be checked and is too old.
	floor kv.Version
}

// maxLoggedValues is how many of the latest write sets in the log keep their
// values. They are of no use there, but freeing and making them again costs
// more than keeping them for the short time the log usually reaches back.
const maxLoggedValues = 256

// rangeWrite is a range that a commit wrote.
type rangeWrite struct {
	version kv.Version
	span
}

// conflicts says whether anything in the read set was written after the
// version it was read at.
func (l *recentWrites) conflicts(r *readSet, at kv.Version) bool {
	for i := range r.points {
		if l.points[r.points[i].hash] > at {
			return true
		}
	}
	for i := len(l.ranges) - 1; i >= 0 && l.ranges[i].version > at; i-- {
		if r.touches(l.ranges[i].span) {
			return true
		}
	}
	if len(r.ranges) == 0 {
		return false
	}
	for i := len(l.log) - 1; i >= 0 && l.log[i].version > at; i-- {
		keys := l.log[i].writtenKeys()
		for _, sp := range r.ranges {
			n, _ := slices.BinarySearchFunc(keys, sp.begin, bytes.Compare)
			if n < len(keys) && bytes.Compare(keys[n], sp.end) < 0 {
				return true
			}
		}
	}
	return false
}

// record adds what w wrote.
func (l *recentWrites) record(w *writeSet) {
	w.eachPoint(func(p point) { l.points[p.hash] = w.version })
	for i := range w.ops {
		if w.ops[i].kind == opClearRange {
			l.ranges = append(l.ranges, rangeWrite{w.version, span{w.ops[i].key, w.ops[i].value}})
		}
	}
	for _, sp := range w.ranges {
		l.ranges = append(l.ranges, rangeWrite{w.version, sp})
	}
	l.log = append(l.log, w)
	if n := len(l.log) - maxLoggedValues; n > 0 {
		l.log[n-1].dropValues()
	}
}

// forget drops what no live transaction can conflict with: all that was
// written at or below oldest.
func (l *recentWrites) forget(oldest kv.Version) {
	n := 0
	for n < len(l.ranges) && l.ranges[n].version <= oldest {
		n++
	}
	l.ranges = slices.Delete(l.ranges, 0, n)
	n = 0
	for ; n < len(l.log) && l.log[n].version <= oldest; n++ {
		w := l.log[n]
		w.eachPoint(func(p point) {
			if l.points[p.hash] == w.version {
				delete(l.points, p.hash)
			}
		})
		w.release()
	}
	l.log = slices.Delete(l.log, 0, n)
	l.floor = max(l.floor, oldest)
}

// eachPoint calls f for every single key that w wrote.
func (w *writeSet) eachPoint(f func(point)) {
	for i := range w.own {
		f(point{w.own[i].hash, w.own[i].key})
	}
	for i := range w.landed {
		f(w.landed[i].point)
	}
	for i := range w.points {
		f(w.points[i])
	}
}

// writtenKeys are the single keys that w wrote, in order.
func (w *writeSet) writtenKeys() [][]byte {
	if len(w.byKey) == 0 {
		w.eachPoint(func(p point) { w.byKey = append(w.byKey, p.key) })
		slices.SortFunc(w.byKey, bytes.Compare)
	}
	return w.byKey
}
