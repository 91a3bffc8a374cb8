package store

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Bounds of one block.
const (
	// maxBlockBytes is where a block is closed and the next one begun; with
	// the largest entry it stays below 64 KiB.
	maxBlockBytes = 62 << 10
	// maxBlockEntries bounds what a decoder takes on.
	maxBlockEntries = 1 << 14
	// maxDueItems is how many reservations one expiry row names at most.
	maxDueItems = 256
)

// blockWriter encodes the entries that one batch writes to one bucket.
//
// A block's value is a header (form, count, first seq, previous hash, time,
// writer) and the entries. Its hash is SHA-256 over the block's key without
// the store's prefix, and the value: so it covers where the block stands, all
// it says, and through the previous hash every block before it.
type blockWriter struct {
	first   uint64
	count   uint64
	entries enc
}

func (w *blockWriter) add(en *ledger.Entry) {
	if w.count == 0 {
		w.first = en.Seq
	}
	w.count++
	e := &w.entries
	e.u(uint64(en.Type))
	e.str(en.Order)
	if en.Order != "" {
		e.str(en.Benefit)
		e.u(uint64(en.Attempt))
		e.u(uint64(en.EventSeq))
	}
	e.balances(&en.Delta)
	e.balances(&en.After)
	e.u(en.RefersTo)
	e.str(en.Cause)
	e.str(en.Correlation)
	e.flag(en.Peer != nil)
	if en.Peer != nil {
		e.place(*en.Peer)
	}
}

// seal returns the block's value and empties the writer.
func (w *blockWriter) seal(prev [32]byte, at time.Time, writer string) []byte {
	e := enc(make([]byte, 0, len(w.entries)+64+len(writer)))
	e.u(codecVersion)
	e.u(w.count)
	e.u(w.first)
	e = append(e, prev[:]...)
	e.time(at)
	e.str(writer)
	e = append(e, w.entries...)
	w.count, w.entries = 0, w.entries[:0]
	return e
}

func blockHash(identity, value []byte) [32]byte {
	h := sha256.New()
	_, _ = h.Write(identity)
	_, _ = h.Write(value)
	return [32]byte(h.Sum(nil))
}

// decodeBlock reads a stored block and checks that it stands where its key
// says; its hash is computed, not stored.
func (s *Store) decodeBlock(k, v []byte) (*ledger.Block, error) {
	b, err := s.readBlock(k, v)
	if err == nil {
		b.Hash = blockHash(s.blockIdentity(k), v)
	}
	return b, err
}

// decodeBlockTime reads when a block was written.
func decodeBlockTime(v []byte) (time.Time, error) {
	d := newDec(v)
	d.u() // count
	d.u() // first
	d.hash()
	at := d.time()
	return at, d.err
}

// readBlock is decodeBlock without the hash, which is most of the work.
func (s *Store) readBlock(k, v []byte) (*ledger.Block, error) {
	r := s.read(k, tableBlock)
	b := &ledger.Block{Bucket: r.bucket()}
	first := r.uint()
	if err := r.end(); err != nil {
		return nil, err
	}
	d := newDec(v)
	n := d.max(maxBlockEntries)
	b.First = d.u()
	b.Prev = d.hash()
	b.Time = d.time()
	b.Writer = d.str()
	b.Entries = make([]ledger.Entry, 0, min(n, 256))
	for i := range n {
		en := d.entry(b.Bucket.Budget.Tenant)
		en.Seq = b.First + i
		b.Entries = append(b.Entries, en)
		if d.err != nil {
			break
		}
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("block %d of %s: %w", first, b.Bucket, err)
	}
	if b.First != first || n == 0 {
		return nil, fmt.Errorf("block %d of %s says it has %d entries from %d", first, b.Bucket, n, b.First)
	}
	return b, nil
}

func (d *dec) entry(tenant string) ledger.Entry {
	en := ledger.Entry{Type: ledger.EntryType(d.max(255)), Order: d.str()}
	if !en.Type.Valid() {
		d.fail(errValue)
	}
	if en.Order != "" {
		en.Benefit = d.str()
		en.Attempt = uint32(d.max(1<<32 - 1))
		en.EventSeq = uint32(d.max(1<<32 - 1))
	}
	en.Delta = d.balances()
	en.After = d.balances()
	en.RefersTo = d.u()
	en.Cause = d.str()
	en.Correlation = d.str()
	if d.flag() {
		peer := d.place(tenant)
		en.Peer = &peer
	}
	return en
}

// An outbox pointer names a block; the block's entries are the events.
func encodePointer(b ledger.BucketID, first uint64) []byte {
	var e enc
	e.u(codecVersion)
	e.str(b.Budget.Tenant)
	e.place(b)
	e.u(first)
	return e
}

func decodePointer(v []byte) (b ledger.BucketID, first uint64, err error) {
	d := newDec(v)
	tenant := d.str()
	b = d.place(tenant)
	first = d.u()
	return b, first, d.end()
}
