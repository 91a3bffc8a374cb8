package store

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// tampering helpers: each changes one stored row below the ledger.

func (b *bench) rows(rng kv.Range) []kv.KeyValue {
	b.t.Helper()
	var out []kv.KeyValue
	err := b.scan(context.Background(), rng, func(rows []kv.KeyValue) error {
		for _, r := range rows {
			out = append(out, kv.KeyValue{Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...)})
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return out
}

func (b *bench) set(k, v []byte) { b.t.Helper(); b.tamper(func(tx kv.Tx) { tx.Set(k, v) }) }
func (b *bench) drop(k []byte)   { b.t.Helper(); b.tamper(func(tx kv.Tx) { tx.Clear(k) }) }

func (b *bench) editRow(order string, fn func(r *ledger.Reservation)) {
	b.t.Helper()
	r, err := b.Reservation(context.Background(), orderKey(order))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	fn(r)
	b.set(b.reservationKey(r.Key), encodeReservation(r))
}

func (b *bench) editBucket(id ledger.BucketID, fn func(k *ledger.Bucket)) {
	b.t.Helper()
	v, err := b.Budget(context.Background(), id.Budget)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	for i := range v.Buckets {
		if v.Buckets[i].ID == id {
			fn(&v.Buckets[i])
			b.set(b.bucketKey(id), encodeBucket(&v.Buckets[i]))
			return
		}
	}
	b.t.Fatalf("there is no bucket %s", id)
}

func (b *bench) editBudget(name string, fn func(v *ledger.Budget)) {
	b.t.Helper()
	v, err := b.Definition(context.Background(), budgetID(name))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	fn(v)
	b.set(b.budgetKey(v.ID), encodeBudget(v))
}

// cutTail drops a bucket's last block and sets its row back to the state
// before it, so that what is left is in order by itself: what a disk or a
// restore that lost the end of a table would leave.
func (b *bench) cutTail(id ledger.BucketID) (lost *ledger.Block) {
	b.t.Helper()
	rows := b.rows(b.key(tableBlock).bucket(id).all())
	var ends [2]*ledger.Block
	for i, row := range rows[len(rows)-2:] {
		bl, err := b.decodeBlock(row.Key, row.Value)
		if err != nil {
			b.t.Fatal(err)
		}
		ends[i] = bl
	}
	last := ends[0].Entries[len(ends[0].Entries)-1]
	row := ledger.Bucket{ID: id, Balances: last.After, Seq: last.Seq, Hash: ends[0].Hash, Time: ends[0].Time}
	b.tamper(func(tx kv.Tx) {
		tx.Clear(rows[len(rows)-1].Key)
		tx.Set(b.bucketKey(id), encodeBucket(&row))
	})
	return ends[1]
}

// dropPointers drops the outbox pointers to a block.
func (b *bench) dropPointers(id ledger.BucketID, first uint64) {
	b.t.Helper()
	for _, r := range b.rows(b.key(tableOutbox).all()) {
		if bucket, at, _ := decodePointer(r.Value); bucket == id && at == first {
			b.drop(r.Key)
		}
	}
}

// rewrite changes a bucket's entries and writes its whole ledger anew, one
// block an entry, with a chain that holds: what a forger would do.
func (b *bench) rewrite(id ledger.BucketID, fn func(es []ledger.Entry) []ledger.Entry) {
	b.t.Helper()
	var es []ledger.Entry
	var at time.Time
	rng := b.key(tableBlock).bucket(id).all()
	blocks := b.rows(rng)
	for _, row := range blocks {
		bl, err := b.decodeBlock(row.Key, row.Value)
		if err != nil {
			b.t.Fatal(err)
		}
		es, at = append(es, bl.Entries...), bl.Time
	}
	es = fn(es)
	b.tamper(func(tx kv.Tx) {
		var prev [32]byte
		tx.ClearRange(rng)
		for _, row := range blocks { // the same blocks, so that pointers still match
			bl, _ := b.decodeBlock(row.Key, row.Value)
			var w blockWriter
			for range bl.Entries {
				if len(es) > 0 {
					w.add(&es[0])
					es = es[1:]
				}
			}
			if w.count == 0 {
				continue
			}
			v := w.seal(prev, at, "forger")
			tx.Set(row.Key, v)
			prev = blockHash(b.blockIdentity(row.Key), v)
		}
		row := b.bucketRow(id)
		row.Hash = prev
		tx.Set(b.bucketKey(id), encodeBucket(&row))
	})
}

func (b *bench) bucketRow(id ledger.BucketID) ledger.Bucket {
	v, err := b.Budget(context.Background(), id.Budget)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	for _, k := range v.Buckets {
		if k.ID == id {
			return k
		}
	}
	b.t.Fatalf("there is no bucket %s", id)
	return ledger.Bucket{}
}

func (b *bench) legOf(order string) ledger.BucketID {
	b.t.Helper()
	r, err := b.Reservation(context.Background(), orderKey(order))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return r.Attempts[len(r.Attempts)-1].Leg.Bucket
}
