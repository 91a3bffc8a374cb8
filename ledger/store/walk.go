package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// walker replays the blocks of one bucket in order and checks everything that
// the ledger says about itself: dense numbers, the hash chain, times that
// never go back, each entry's balances. After a fault it goes on from what the
// row says, so that one fault is reported once and not by every row after it.
type walker struct {
	s      *Store
	bucket ledger.BucketID
	prefix key // of the bucket's block keys
	// report is told of each fault, by the check that found it.
	report func(check checkID, format string, args ...any)
	// entry, if not nil, sees each entry. It must not keep it.
	entry func(e *rawEntry)
	// sealed, if not nil, sees each block that could be read.
	sealed func(h *blockHeader, first uint64)
	// until, if not zero, ends the walk before the first block after it.
	until int64
	// floor is the lowest legal available of the bucket.
	floor int64

	seq             uint64
	hash            [32]byte
	time            int64
	sum, after      ledger.Balances
	blocks, entries uint64
	lost            bool // the last block was unreadable: adopt what the next one says
	digest          hash.Hash
	raw             rawEntry
}

func (s *Store) newWalker(b ledger.BucketID, report func(checkID, string, ...any)) *walker {
	return &walker{s: s, bucket: b, prefix: s.key(tableBlock).bucket(b), report: report, digest: sha256.New()}
}

// walk replays the blocks that begin at or below head.
func (w *walker) walk(ctx context.Context, head uint64, page func()) error {
	if head == 0 {
		return nil
	}
	end := append(w.s.blockKey(w.bucket, head), 0)
	err := w.s.scan(ctx, kv.Range{Begin: w.prefix.all().Begin, End: end}, func(rows []kv.KeyValue) error {
		for _, row := range rows {
			if !w.block(row.Key, row.Value) {
				return errCutoff
			}
		}
		if page != nil {
			page()
		}
		return nil
	})
	if errors.Is(err, errCutoff) {
		return nil
	}
	return err
}

// errCutoff ends a walk.
var errCutoff = errors.New("cutoff reached")

// block replays one block; false when it lies after the cutoff.
func (w *walker) block(k, v []byte) bool {
	kr := keyReader{b: k[len(w.prefix):]}
	first := kr.uint()
	if kr.end() != nil {
		w.report(checkReadable, "block key %x of bucket %s cannot be read", k, w.bucket)
		return true
	}
	h, ok := readHeader(v)
	if !ok {
		w.report(checkReadable, "block %d of bucket %s cannot be read", first, w.bucket)
		w.chain(k, v)
		w.lost = true
		return true
	}
	if w.until != 0 && h.time > w.until {
		return false
	}
	w.header(first, &h)
	w.chain(k, v)
	w.blocks++
	if w.sealed != nil {
		w.sealed(&h, first)
	}
	if w.lost {
		w.seq = first - 1
	}
	w.run(&h)
	return true
}

// header checks a block against the one before it.
func (w *walker) header(first uint64, h *blockHeader) {
	if h.first != first {
		w.report(checkDense, "block %d of bucket %s says that it begins with entry %d", first, w.bucket, h.first)
	}
	if !w.lost && first != w.seq+1 {
		w.report(checkDense, "block %d of bucket %s follows entry %d, which should be followed by entry %d", first, w.bucket, w.seq, w.seq+1)
		w.seq = first - 1
	}
	if h.prev != w.hash {
		w.report(checkChain, "block %d of bucket %s names %x as the hash of the block before it, which is %x", first, w.bucket, h.prev[:8], w.hash[:8])
	}
	if h.time < w.time {
		w.report(checkTime, "block %d of bucket %s is of %s, before the last block's %s", first, w.bucket, stamp(h.time), stamp(w.time))
	}
	w.time = max(w.time, h.time)
}

// chain takes the block's hash.
func (w *walker) chain(k, v []byte) {
	w.digest.Reset()
	_, _ = w.digest.Write(w.s.blockIdentity(k))
	_, _ = w.digest.Write(v)
	w.digest.Sum(w.hash[:0])
}

// run replays a block's entries.
func (w *walker) run(h *blockHeader) {
	c := cursor{b: h.entries}
	e := &w.raw
	for range h.count {
		c.entry(e)
		if c.bad {
			w.report(checkReadable, "entry %d of bucket %s cannot be read", w.seq+1, w.bucket)
			w.lost = true
			return
		}
		w.seq++
		w.entries++
		e.seq = w.seq
		if w.lost {
			w.lost = false // what the lost entries did is not known
			w.after = e.after
			w.sum = e.after
		} else {
			w.step(e)
		}
		if w.entry != nil {
			w.entry(e)
		}
	}
	if len(c.b) != 0 {
		w.report(checkReadable, "block %d of bucket %s has %d bytes after its last entry", h.first, w.bucket, len(c.b))
	}
}

// step adds an entry's delta and compares.
func (w *walker) step(e *rawEntry) {
	next, ok := w.after.Add(e.delta)
	if !ok || next != e.after {
		w.report(checkAfter, "entry %d of bucket %s leaves %s, but %s and its change of %s make %s",
			e.seq, w.bucket, sums(e.after), sums(w.after), sums(e.delta), sums(next))
	}
	if next, ok = w.sum.Add(e.delta); ok {
		w.sum = next
	} else {
		w.report(checkReplay, "the sum of bucket %s overflows with entry %d", w.bucket, e.seq)
	}
	if w.after = e.after; w.after.Check(w.floor) != nil {
		w.illegal(e)
	}
}

// illegal says which of the rules for balances an entry breaks.
func (w *walker) illegal(e *rawEntry) {
	if why := negative(&e.after, w.floor); why != "" {
		w.report(checkLegal, "after entry %d of bucket %s %s", e.seq, w.bucket, why)
	}
	if why := addsUp(&e.after); why != "" {
		w.report(checkAddUp, "after entry %d of bucket %s %s", e.seq, w.bucket, why)
	}
}

// finish compares the walk with the bucket's row.
func (w *walker) finish(row *ledger.Bucket) {
	if w.lost {
		return // reported; nothing after it can be compared
	}
	if w.seq != row.Seq {
		w.report(checkDense, "the ledger of bucket %s ends with entry %d, its row says %d", w.bucket, w.seq, row.Seq)
	}
	if w.hash != row.Hash {
		w.report(checkChain, "the last block of bucket %s has hash %x, its row says %x", w.bucket, w.hash[:8], row.Hash[:8])
	}
	if w.sum != row.Balances {
		w.report(checkReplay, "the entries of bucket %s add up to %s, its row says %s", w.bucket, sums(w.sum), sums(row.Balances))
	}
	if at := unixMilli(row.Time); w.blocks > 0 && at != w.time {
		w.report(checkTime, "the last block of bucket %s is of %s, its row says %s", w.bucket, stamp(w.time), stamp(at))
	}
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
