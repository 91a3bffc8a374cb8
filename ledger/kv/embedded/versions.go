package embedded

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readVersion is a published state of the store, held as a snapshot that all
// transactions reading at this version share.
type readVersion struct {
	version kv.Version

	// mu is held shared while the snapshot is read, exclusively to close it.
	mu   sync.RWMutex
	snap *pebble.Snapshot // nil once closed
	// lent are the iterators that transactions reading here have borrowed.
	lent struct {
		sync.Mutex
		loans []loan
	}

	// Guarded by versions.mu.
	refs       int
	superseded time.Time // zero while current
}

// loan is an iterator with where it belongs.
type loan struct {
	it   *pebble.Iterator
	from *tables
}

// close closes the snapshot once. What is borrowed goes back: transactions
// that were never ended use it no more, for they find the snapshot closed.
func (v *readVersion) close() {
	defer unlessStopped()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.snap == nil {
		return
	}
	for _, l := range v.lent.loans {
		l.from.give(l.it)
	}
	v.lent.loans = nil
	_ = v.snap.Close()
	v.snap = nil
}

// unlessStopped is deferred where the engine may stop the store: that is then
// known to all, and of no interest there.
func unlessStopped() {
	if p := recover(); p != nil {
		if _, ok := p.(stopped); !ok {
			panic(p)
		}
	}
}

// borrow takes an iterator of ts for a transaction that reads here, or nil
// where ts is over. It is called with mu held shared, on an open snapshot.
func (v *readVersion) borrow(ts *tables) (*pebble.Iterator, error) {
	it, err := ts.take()
	if it == nil || err != nil {
		return nil, err
	}
	v.lent.Lock()
	defer v.lent.Unlock()
	v.lent.loans = append(v.lent.loans, loan{it, ts})
	return it, nil
}

// giveBack gives back what was borrowed, unless close has done so.
func (v *readVersion) giveBack(it *pebble.Iterator) {
	defer unlessStopped()
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.lent.Lock()
	defer v.lent.Unlock()
	for i, l := range v.lent.loans {
		if l.it == it {
			v.lent.loans = slices.Delete(v.lent.loans, i, i+1)
			l.from.give(it)
			return
		}
	}
}

// versions is the list of published versions that transactions may read, in
// order; the last is current.
type versions struct {
	mu   sync.Mutex
	live []*readVersion
	// frozen: the engine was abandoned and may hold its locks for good, so no
	// snapshot is closed any more.
	frozen atomic.Bool
}

// acquire returns the current version with a reference taken, or nil when the
// store is closed.
func (vs *versions) acquire() *readVersion {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if len(vs.live) == 0 {
		return nil
	}
	v := vs.live[len(vs.live)-1]
	v.refs++
	return v
}

// release drops a reference; an unused version that is not current closes.
func (vs *versions) release(v *readVersion) {
	vs.mu.Lock()
	v.refs--
	unused := v.refs == 0 && !v.superseded.IsZero()
	vs.trim()
	vs.mu.Unlock()
	if unused && !vs.frozen.Load() {
		v.close()
	}
}

// publish makes v the current version. Versions superseded longer ago than a
// transaction may live are closed even if a transaction that was never ended
// holds them: each of its operations would fail as too old anyhow.
func (vs *versions) publish(v *readVersion, now time.Time) {
	var done []*readVersion
	vs.mu.Lock()
	if n := len(vs.live); n > 0 {
		prev := vs.live[n-1]
		prev.superseded = now
		if prev.refs == 0 {
			done = append(done, prev)
		}
	}
	vs.live = append(vs.live, v)
	for len(vs.live) > 1 && now.Sub(vs.live[0].superseded) > kv.MaxTxAge {
		done = append(done, vs.live[0])
		vs.live = vs.live[1:]
	}
	vs.trim()
	vs.mu.Unlock()
	if vs.frozen.Load() {
		return
	}
	for _, v := range done {
		v.close()
	}
}

// trim forgets unused versions at the front.
func (vs *versions) trim() {
	n := 0
	for n < len(vs.live)-1 && vs.live[n].refs == 0 {
		n++
	}
	if n > 0 {
		clear(vs.live[:n])
		vs.live = vs.live[n:]
	}
}

// oldest is the oldest version that a transaction may hold.
func (vs *versions) oldest() kv.Version {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if len(vs.live) == 0 {
		return 0
	}
	return vs.live[0].version
}

// count is the number of versions kept.
func (vs *versions) count() int {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return len(vs.live)
}

// closeAll closes every version and lets none be acquired any more.
func (vs *versions) closeAll() {
	vs.mu.Lock()
	live := vs.live
	vs.live = nil
	vs.mu.Unlock()
	for _, v := range live {
		v.close()
	}
}
