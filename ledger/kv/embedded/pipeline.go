package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// group is a set of transactions that commit with one batch and one sync.
type group struct {
	version  kv.Version
	requests []*request // all, in the order they came
	wins     []*request // those that commit, in their order of commit
	batch    *pebble.Batch
	snap     *pebble.Snapshot // the state after this group, before the next
	bytes    int
}

// committer is the goroutine that orders commits: it owns the versions and
// the log of recent writes. See the package comment for why the next group
// may be applied while the last is being synced.
type committer struct {
	s        *Store
	recent   recentWrites
	flusher  flusher
	next     kv.Version // of the next group
	reserved kv.Version // versions up to this one are reserved on disk
}

// commitLoop runs until the queue is closed and empty.
func (c *committer) commitLoop(out chan<- *group) {
	defer close(out)
	for first := range c.s.queue {
		g := &group{requests: c.gather(first), version: c.next}
		c.recent.forget(c.s.versions.oldest())
		if err := c.s.refusal(); err != nil {
			g.refuse(err)
		} else if err := c.apply(g); err != nil {
			c.s.fail(err)
			g.unknown(c.s.Failure())
		}
		c.s.stats.recent.Store(int64(len(c.recent.points)))
		out <- g
	}
}

// gather takes what waits in the queue, within the bounds of a group. It
// never waits for more: a group grows by itself while the last one is synced.
func (c *committer) gather(first *request) []*request {
	rs := []*request{first}
	size := first.writes.bytes
	for len(rs) < maxGroupTxs && size < maxGroupBytes {
		select {
		case r, ok := <-c.s.queue:
			if !ok {
				return rs
			}
			rs = append(rs, r)
			size += r.writes.bytes
		default:
			return rs
		}
	}
	return rs
}

// apply checks each transaction of the group against the log, writes those
// that pass into one batch and gives it to the engine. Some faults the engine
// reports with a panic, which becomes an error.
func (c *committer) apply(g *group) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("engine panicked: %v", p)
			c.s.abandon(err)
		}
	}()
	if err := c.flusher.turn(c.next - 1); err != nil {
		return err
	}
	g.batch = c.s.db.NewBatch()
	for _, r := range g.requests {
		if r.err = c.check(r); r.err != nil {
			r.writes.release()
			r.writes = nil
			continue
		}
		if err := c.put(g, r); err != nil {
			return err
		}
		c.recent.record(r.writes)
		c.flusher.note(r.writes)
	}
	if len(g.wins) == 0 {
		return nil
	}
	c.next++
	if g.version > c.reserved {
		c.reserved = g.version + versionBlock
		if err := g.batch.Set(reservedKey, binary.BigEndian.AppendUint64(nil, uint64(c.reserved)), nil); err != nil {
			return err
		}
	}
	g.bytes = g.batch.Len()
	c.flusher.count(g.batch)
	if !g.batch.Empty() {
		if err := c.s.db.ApplyNoSyncWait(g.batch, pebble.Sync); err != nil {
			return err
		}
		if err := c.s.Failure(); err != nil {
			return err
		}
	}
	g.snap = c.s.db.NewSnapshot()
	return nil
}

// check says whether r may commit now.
func (c *committer) check(r *request) error {
	if r.at == nil {
		return nil
	}
	if age := c.s.clock().Sub(r.readAt); age > kv.MaxTxAge || r.at.version < c.recent.floor {
		return tooOld("commit", age)
	}
	if r.reads != nil && c.recent.conflicts(r.reads, r.at.version) {
		return &kv.Error{Code: kv.CodeConflict, Op: "commit"}
	}
	return nil
}

// put writes r into the group's batch.
func (c *committer) put(g *group, r *request) error {
	w := r.writes
	w.version = g.version
	binary.BigEndian.PutUint64(r.stamp[:8], uint64(g.version))
	binary.BigEndian.PutUint16(r.stamp[8:10], uint16(len(g.wins)))
	g.wins = append(g.wins, r)
	for i := range w.ops {
		o := &w.ops[i]
		var err error
		switch o.kind {
		case opSet:
			err = g.batch.Set(o.key, o.value, nil)
		case opClear:
			err = g.batch.Delete(o.key, nil)
		case opClearRange:
			err = g.batch.DeleteRange(o.key, o.value, nil)
		case opAdd:
			err = c.putAdd(g, w, i)
		case opStampedValue:
			copy(o.value[o.offset:], r.stamp[:stampLen])
			if own := w.find(o.hash, o.key); own != nil {
				own.value = o.value
			}
			err = g.batch.Set(o.key, o.value, nil)
		case opStampedKey:
			k := w.keys.copy(o.key)
			copy(k[o.offset:], r.stamp[:stampLen])
			w.landed = append(w.landed, landedKey{point{c.s.hash(k), k}, i, o.value})
			err = g.batch.Set(k, o.value, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putAdd resolves an Add: over the store's state with all groups applied, and
// the members of this group that come before.
func (c *committer) putAdd(g *group, w *writeSet, i int) error {
	o := &w.ops[i]
	base, err := c.before(g, w, i)
	if err != nil {
		return err
	}
	sum := addLittleEndian(w.values.grow(len(o.value)), base, o.value)
	o.value = sum
	return g.batch.Set(o.key, sum, nil)
}

// before is the value that operation i of w, the last member of g so far,
// finds at its key.
func (c *committer) before(g *group, w *writeSet, i int) ([]byte, error) {
	o := &w.ops[i]
	for n := len(g.wins) - 1; n >= 0; n-- {
		m, limit := g.wins[n].writes, len(g.wins[n].writes.ops)
		if m == w {
			limit = i
		}
		if v, known := m.effectAt(o.hash, o.key, limit); known {
			return v, nil
		}
	}
	v, closer, err := c.s.db.Get(o.key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, c.s.found(err)
	}
	base := w.values.copy(v)
	return base, closer.Close()
}

// syncLoop waits for each group's sync, publishes its version and answers.
func (s *Store) syncLoop(in <-chan *group) {
	for g := range in {
		s.finish(g)
		s.stats.count(g)
		for _, r := range g.requests {
			s.answer(r)
		}
		if g.batch != nil && s.Failure() == nil {
			_ = g.batch.Close()
		}
	}
}

// finish makes a group durable and visible, or its outcome unknown.
func (s *Store) finish(g *group) {
	if len(g.wins) == 0 || g.snap == nil {
		return
	}
	s.faults.beforeSync()
	var err error
	if !g.batch.Empty() {
		err = g.batch.SyncWait()
	}
	if err != nil {
		s.fail(err)
	}
	// A failure found elsewhere leaves it open whether what is on disk will
	// be read again, so nothing is acknowledged after it.
	if err := s.Failure(); err != nil {
		g.unknown(err)
		if !s.isAbandoned() {
			_ = g.snap.Close()
		}
		return
	}
	s.watches.during(g, func() {
		s.versions.publish(&readVersion{version: g.version, snap: g.snap}, s.clock())
	})
}

// refuse answers all of a group that was not applied.
func (g *group) refuse(err error) {
	for _, r := range g.requests {
		r.err = err
	}
}

// unknown answers those of a group that may have been applied.
func (g *group) unknown(err error) {
	for _, r := range g.requests {
		var ke *kv.Error
		if errors.As(r.err, &ke) && ke.CommitOutcome() == kv.NotCommitted {
			continue
		}
		r.stamp, r.err = kv.Stamp{}, &kv.Error{Code: kv.CodeIO, Op: "commit", Cause: err}
	}
}
