package embedded

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// flushed is the part of the store that is in tables, and a filter of what was
// written after it. See the package comment for why it may be read in the
// place of a snapshot.
type flushed struct {
	// since is the last version that is in the tables with all before it. What
	// was written after it is in the filters.
	since   kv.Version
	written []*filter // one, and during a flush a second
	tables  *tables
}

// tells says whether the tables alone tell what a reader finds at key.
func (f *flushed) tells(hash uint64, key []byte) bool {
	if len(key) == 0 { // an engine built with -race cannot seek to an empty key
		return false
	}
	for _, w := range f.written {
		if w.mayHold(hash, key) {
			return false
		}
	}
	return true
}

// tables are iterators over the engine's tables as they were at one time.
// Transactions borrow them, since to open one costs as much as several reads.
type tables struct {
	mu   sync.Mutex
	all  *pebble.Iterator // the one that others are cloned from
	idle []*pebble.Iterator
	over bool
}

// openTables opens the tables as they are now.
//
// The iterators use the Bloom filters of all levels. A point read of the
// engine's own looks into the lowest one without, and so loads an index block
// and a data block for each key that is not there, as the key of every new
// reservation: in a store larger than its cache that is a read from disk and a
// decompression a command.
func openTables(db *pebble.DB) (*tables, error) {
	it, err := db.NewIter(&pebble.IterOptions{OnlyReadGuaranteedDurable: true, UseL6Filters: true})
	if err != nil {
		return nil, err
	}
	return &tables{all: it}, nil
}

// take returns an iterator of the caller's own, or nil when the tables are
// over.
func (ts *tables) take() (*pebble.Iterator, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.over {
		return nil, nil
	}
	if n := len(ts.idle); n > 0 {
		it := ts.idle[n-1]
		ts.idle = ts.idle[:n-1]
		return it, nil
	}
	return ts.all.Clone(pebble.CloneOptions{})
}

// give takes an iterator back.
func (ts *tables) give(it *pebble.Iterator) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.over {
		_ = it.Close()
		return
	}
	ts.idle = append(ts.idle, it)
}

// end closes what is not borrowed now, and what is when it is given back.
func (ts *tables) end() {
	defer unlessStopped()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.over = true
	for _, it := range ts.idle {
		_ = it.Close()
	}
	_ = ts.all.Close()
	ts.idle, ts.all = nil, nil
}

// flusher decides when the write buffer is flushed, and keeps the store's
// flushed part up to date. It belongs to the committer's goroutine: nothing is
// written while it works.
type flusher struct {
	s *Store
	// written is the filter of the buffer that is being filled; size is how
	// full that is.
	written *filter
	size    uint64
	// done is closed when the buffer before it is in tables, which then hold all
	// up to version upTo. nil while none is being flushed.
	done <-chan struct{}
	upTo kv.Version
}

// rowOverhead is about what the write buffer takes for a row, besides what the
// row takes in a batch.
const rowOverhead = 48

// turn is called before a group is applied; last is the version applied last.
// A store without commits has no turns: it keeps the tables, and at most one
// write buffer, of its last one.
func (f *flusher) turn(last kv.Version) error {
	if f.written == nil {
		// Nothing is written yet. What the engine replays from its logs it puts
		// into tables before it opens.
		f.written = newFilter(f.s.opt.MemTableBytes)
		return f.show(last, f.written)
	}
	select {
	case <-f.done:
		f.done = nil
		return f.show(f.upTo, f.written)
	default:
	}
	// The engine also flushes by itself, at its own size. That does no harm: the
	// filter then names keys that are in tables already.
	if f.done == nil && f.size >= f.s.opt.MemTableBytes/8*7 {
		return f.flush(last)
	}
	// Iterators keep the files of their time from being removed. The engine
	// tells of a compaction before iterators can see it, both under the mutex
	// that a snapshot takes.
	if f.s.compacted.CompareAndSwap(true, false) {
		if err := f.s.db.NewSnapshot().Close(); err != nil {
			return err
		}
		now := f.s.flushed.Load()
		return f.show(now.since, now.written...)
	}
	return nil
}

// flush begins to flush the buffer. The next filter takes what goes to the
// next buffer; until the flush is done both hold what may not be in tables.
func (f *flusher) flush(last kv.Version) error {
	f.written, f.size, f.upTo = newFilter(f.s.opt.MemTableBytes), 0, last
	now := f.s.flushed.Load()
	written := append(now.written[:1:1], f.written)
	f.s.flushed.Store(&flushed{since: now.since, written: written, tables: now.tables})
	var err error
	f.done, err = f.s.db.AsyncFlush()
	return err
}

// show makes the tables of now the ones that transactions read.
func (f *flusher) show(since kv.Version, written ...*filter) error {
	ts, err := openTables(f.s.db)
	if err != nil {
		return f.s.found(err)
	}
	if old := f.s.flushed.Swap(&flushed{since: since, written: written, tables: ts}); old != nil {
		old.tables.end()
	}
	return nil
}

// note adds what w writes to what is not in tables.
func (f *flusher) note(w *writeSet) { f.written.add(w) }

// count adds a batch to the buffer's size.
func (f *flusher) count(b *pebble.Batch) {
	f.size += uint64(b.Len()) + rowOverhead*uint64(b.Count())
}
