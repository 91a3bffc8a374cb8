package store

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/coffer-ledger/coffer/ledger"
)

// rawEntry is an entry read where it lies: its strings alias the block's
// value. Replay and audit read millions of entries, look at each once and keep
// nothing of it, so they make no strings.
type rawEntry struct {
	seq                        uint64
	kind                       ledger.EntryType
	order, benefit             []byte // order is empty for entries of the budget itself
	attempt, eventSeq          uint32
	delta, after               ledger.Balances
	refersTo                   uint64
	cause, correlation         []byte
	peerFunder, peerKey, place []byte // place is the peer's stored form, nil without a peer
	peerIndex                  uint16
}

// cursor reads a stored value without copying. After a fault it gives zeros
// and stays bad.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) u() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 { // most numbers have one byte
		v := c.b[0]
		c.b = c.b[1:]
		return uint64(v)
	}
	return c.long()
}

func (c *cursor) long() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) i() int64 {
	v := c.u()
	return int64(v>>1) ^ -int64(v&1)
}

func (c *cursor) max(limit uint64) uint64 {
	v := c.u()
	if v > limit {
		c.bad, c.b = true, nil
		return 0
	}
	return v
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) balances(b *ledger.Balances) {
	b.Funded, b.Available, b.Reserved, b.Committed, b.Reversed = c.i(), c.i(), c.i(), c.i(), c.i()
}

// entry reads the next entry of a block; the form is blockWriter.add's.
func (c *cursor) entry(e *rawEntry) {
	e.kind = ledger.EntryType(c.max(255))
	e.order = c.take(c.u())
	e.benefit, e.attempt, e.eventSeq = nil, 0, 0
	if len(e.order) > 0 {
		e.benefit = c.take(c.u())
		e.attempt = uint32(c.max(1<<32 - 1))
		e.eventSeq = uint32(c.max(1<<32 - 1))
	}
	c.balances(&e.delta)
	c.balances(&e.after)
	e.refersTo = c.u()
	e.cause = c.take(c.u())
	e.correlation = c.take(c.u())
	e.place = nil
	if c.max(1) == 1 {
		from := c.b
		e.peerFunder = c.take(c.u())
		e.peerKey = c.take(c.u())
		e.peerIndex = uint16(c.max(ledger.Unallocated))
		if !c.bad {
			e.place = from[:len(from)-len(c.b)]
		}
	}
	if !e.kind.Valid() {
		c.bad = true
	}
}

// peer is the other bucket of a move, if the entry has one.
func (e *rawEntry) peer(tenant string) ledger.BucketID {
	return ledger.BucketID{Budget: ledger.BudgetID{Tenant: tenant, Funder: string(e.peerFunder), Key: string(e.peerKey)}, Index: e.peerIndex}
}

// blockHeader is the part of a block before its entries.
type blockHeader struct {
	count, first uint64
	prev         [32]byte
	time         int64 // Unix milliseconds
	entries      []byte
}

// readHeader takes a block's value apart; false if it cannot be one.
func readHeader(v []byte) (h blockHeader, ok bool) {
	c := cursor{b: v}
	if c.u() != codecVersion {
		return h, false
	}
	h.count = c.max(maxBlockEntries)
	h.first = c.u()
	copy(h.prev[:], c.take(32))
	h.time = c.i()
	c.take(c.u()) // writer
	h.entries = c.b
	return h, !c.bad && h.count > 0
}

// placeHash is a hash of a bucket's name that is quick to make from the form
// stored inside an entry.
func placeHash(seed maphash.Seed, tenant string, place []byte) uint64 {
	return maphash.Bytes(seed, place) ^ maphash.String(seed, tenant)*0x9E3779B97F4A7C15
}
