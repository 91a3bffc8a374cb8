package store

import (
	"encoding/binary"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// entrySize is what an encoded entry of a common order takes, about.
const entrySize = 160

// touch marks a bucket as changed and applies an entry to it: its balances
// become the entry's, and the entry joins the bucket's next block.
func (b *batch) touch(st *bucketState, en *ledger.Entry) {
	if !st.dirty {
		st.dirty = true
		st.Time = ledger.Later(b.now, st.Time)
		b.order = append(b.order, st)
	}
	st.exists = true
	st.Balances = en.After
	st.Seq = en.Seq
	if st.writer.count == 0 {
		st.writer.entries = slices.Grow(st.writer.entries, min(entrySize*len(b.rows), maxBlockBytes))
	}
	st.writer.add(en)
	if len(st.writer.entries) >= maxBlockBytes-2048 {
		st.full = append(st.full, st.writer)
		st.writer = blockWriter{}
	}
}

// seal closes the bucket's blocks and chains them.
func (b *batch) seal(st *bucketState) []sealed {
	if st.writer.count > 0 {
		st.full = append(st.full, st.writer)
	}
	blocks := make([]sealed, len(st.full))
	for i := range st.full {
		w := &st.full[i]
		k, first := b.s.blockKey(st.ID, w.first), w.first
		v := w.seal(st.Hash, st.Time, b.s.opt.Writer)
		st.Hash = blockHash(b.s.blockIdentity(k), v)
		blocks[i] = sealed{key: k, value: v, first: first, hash: st.Hash}
	}
	return blocks
}

// addDue puts a hold into the expiry index.
func (b *batch) addDue(a *ledger.Attempt, k ledger.OrderKey, seq uint64) {
	due := dueAt(b.now, a.Expires)
	item := dueItem{order: k.Order, benefit: k.Benefit, attempt: a.Number}
	for i := range b.due {
		if g := &b.due[i]; g.due == due && g.bucket == a.Leg.Bucket && len(g.items) < maxDueItems {
			g.items = append(g.items, item)
			return
		}
	}
	b.due = append(b.due, dueGroup{due: due, bucket: a.Leg.Bucket, seq: seq, items: []dueItem{item}})
}

// flush writes the overlay. It returns the mark by which a later attempt can
// tell that this one landed.
func (b *batch) flush() attempted {
	var mark attempted
	var v []byte
	for _, r := range b.rows {
		if !r.dirty {
			continue
		}
		v = appendReservation(v[:0], &r.Reservation)
		b.tx.Set(r.key, v)
		if len(b.order) == 0 {
			mark.rows = append(mark.rows, kv.KeyValue{Key: r.key, Value: v})
			v = nil // the mark keeps it
		}
	}
	for id, st := range b.budgets {
		if st.dirty {
			b.tx.Set(b.s.budgetKey(id), encodeBudget(st.budget))
		}
	}
	for _, r := range b.receipts {
		if r.dirty {
			b.tx.Set(r.key, encodeBudgetReceipt(r.receipt))
		}
	}
	for _, c := range b.cases {
		b.tx.Set(b.s.caseKey(c), encodeCase(c))
	}
	b.flushAllocations()
	for _, g := range b.due {
		b.tx.Set(b.s.expiryKey(g.due, g.bucket, g.seq, 0), encodeExpiry(g.items))
	}
	// All blocks of a transaction are of one time, so that no cutoff falls
	// between the two ends of a move.
	at := b.now
	for _, st := range b.order {
		at = ledger.Later(at, st.Time)
	}
	signals := map[uint64]bool{}
	user := uint16(0)
	for _, st := range b.order {
		st.Time = at
		blocks := b.seal(st)
		b.tx.Set(st.key, encodeBucket(&st.Bucket))
		partition := partitionOf(st.ID)
		for _, bl := range blocks {
			b.tx.Set(bl.key, bl.value)
			k, offset := b.s.outboxKey(b.incarnation, partition, user)
			b.tx.SetStampedKey(k, offset, encodePointer(st.ID, bl.first))
			user++
			mark.blocks = append(mark.blocks, blockMark{bl.key, bl.hash})
		}
		if !signals[partition] {
			signals[partition] = true
			b.tx.Add(b.s.signalKey(partition), one)
		}
	}
	return mark
}

// one is the operand that counts a signal up.
var one = binary.LittleEndian.AppendUint64(nil, 1)
