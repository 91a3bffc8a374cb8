package store

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// aboveCut is what rows that are newer than a bucket's cut name of it. They
// are not compared row by row; but what they name must have come to be.
type aboveCut struct {
	bucket             ledger.BucketID
	cut                uint64
	pointers, receipts named
	// order and attempt have the receipt that names the highest entry.
	order   ledger.OrderKey
	attempt uint32
}

// named counts rows that name numbers above a cut, and keeps the highest.
type named struct{ count, most uint64 }

// add takes in a number; true when it is the highest so far.
func (n *named) add(seq uint64) bool {
	n.count++
	if seq <= n.most {
		return false
	}
	n.most = seq
	return true
}

// aboveOf finds what is kept of a bucket; k is nil when it was made after the
// cut, which then is 0.
func (a *audit) aboveOf(id ledger.BucketID, k *bucketAudit) *aboveCut {
	ab := a.above[id]
	if ab == nil {
		ab = &aboveCut{bucket: id}
		if k != nil {
			ab.cut = k.Seq
		}
		a.above[id] = ab
		a.aboves = append(a.aboves, ab)
	}
	return ab
}

// pointerAbove takes in an outbox pointer to a block beyond the cut.
func (a *audit) pointerAbove(id ledger.BucketID, k *bucketAudit, first uint64) {
	if !a.exact {
		a.aboveOf(id, k).pointers.add(first)
	}
}

// receiptAbove takes in a receipt of an entry beyond the cut.
func (a *audit) receiptAbove(id ledger.BucketID, k *bucketAudit, order ledger.OrderKey, en *ledger.Entry) {
	if a.exact {
		return
	}
	if ab := a.aboveOf(id, k); ab.receipts.add(en.Seq) {
		ab.order, ab.attempt = order, en.Attempt
	}
}

// checkAbove reads each bucket again that a row named beyond its cut: its
// ledger must reach as far. A ledger that lost its end together with the
// bucket's row is in order by itself; only those rows tell.
//
// This gives no false alarm on a store in use: a transaction that adds a
// receipt or a pointer writes the block it names and the bucket's row with it,
// blocks never go and the row's number never goes down, and all of this is
// read after the receipt or pointer was. In a store at rest, where the head is
// still the cut, nothing at all may be above it. Where the head went on, there
// may be as many pointers, and as many receipts, as there are numbers from the
// cut to the highest one named: each names another.
func (a *audit) checkAbove(ctx context.Context) error {
	for _, ab := range a.aboves {
		a.count(1, checkOutbox, checkTransition)
		var now bucketNow
		err := a.s.readTx(ctx, func(r kv.Reader) (err error) {
			now, err = a.s.bucketNow(r, ab)
			return err
		})
		if err != nil {
			return err
		}
		if now.unreadable {
			if a.buckets[ab.bucket] != nil { // else the vector says so
				a.report(checkReadable, "bucket %s of tenant %s could be read, and no longer can", ab.bucket, ab.bucket.Budget.Tenant)
			}
			continue
		}
		if n := ab.pointers.most; n > 0 {
			why := ab.pointers.judge(ab.cut, "pointers", &now, &now.pointed)
			if why == "" && now.pointed.first != n {
				why = fmt.Sprintf("where no block begins; its head is entry %d", now.head)
			}
			if why != "" {
				a.report(checkOutbox, "an outbox pointer names block %d of bucket %s, %s", n, ab.bucket, why)
			}
		}
		if n := ab.receipts.most; n > 0 {
			if why := ab.receipts.judge(ab.cut, "receipts", &now, &now.received); why != "" {
				a.report(checkTransition, "a receipt of reservation %s of tenant %s, attempt %d, names entry %d of bucket %s, %s",
					ab.order, ab.order.Tenant, ab.attempt, n, ab.bucket, why)
			}
		}
		for _, bl := range [...]blockNow{now.pointed, now.received} {
			if bl.unreadable {
				a.report(checkReadable, "block %d of bucket %s cannot be read", bl.first, ab.bucket)
				break
			}
		}
	}
	return nil
}

// judge compares the rows with the bucket as it is now; bl is its last block
// at or below the highest number. It says what is wrong, after the bucket's
// name.
func (n *named) judge(cut uint64, kind string, now *bucketNow, bl *blockNow) string {
	switch {
	case !now.exists:
		return fmt.Sprintf("which has no row (there are %d %s above entry %d)", n.count, kind, cut)
	case n.most > now.head:
		return fmt.Sprintf("whose row says that entry %d is its last (there are %d %s above entry %d)", now.head, n.count, kind, cut)
	case !bl.unreadable && n.most-bl.first >= bl.count:
		return fmt.Sprintf("which is not in its ledger although its head is entry %d", now.head)
	case n.count > n.most-cut:
		return fmt.Sprintf("and there are %d %s from entry %d to that one; its head is entry %d", n.count, kind, cut+1, now.head)
	}
	return ""
}

// bucketNow is a bucket and two of its blocks at one moment after the cut.
type bucketNow struct {
	exists, unreadable bool
	head               uint64
	pointed, received  blockNow
}

// blockNow is the last block that begins at or below a number; zero if there
// is none.
type blockNow struct {
	first, count uint64
	unreadable   bool
}

func (s *Store) bucketNow(r kv.Reader, ab *aboveCut) (now bucketNow, err error) {
	row := r.Get(s.bucketKey(ab.bucket))
	pointed, received := s.lastBlock(r, ab.bucket, ab.pointers.most), s.lastBlock(r, ab.bucket, ab.receipts.most)
	v, ok, err := row.Wait()
	if err != nil {
		return now, err
	}
	if now.exists = ok; ok {
		b, err := decodeBucket(ab.bucket, v)
		now.head, now.unreadable = b.Seq, err != nil
	}
	if now.pointed, err = s.blockNow(pointed); err != nil {
		return now, err
	}
	now.received, err = s.blockNow(received)
	return now, err
}

// lastBlock asks for the last block that begins at or below a number.
func (s *Store) lastBlock(r kv.Reader, id ledger.BucketID, seq uint64) kv.Rows {
	rng := kv.Range{Begin: s.key(tableBlock).bucket(id).all().Begin, End: append(s.blockKey(id, seq), 0)}
	return r.Range(rng, kv.RangeOptions{Limit: 1, Reverse: true})
}

func (s *Store) blockNow(q kv.Rows) (bl blockNow, err error) {
	rows, _, err := q.Wait()
	if err != nil || len(rows) == 0 {
		return bl, err
	}
	k := s.read(rows[0].Key, tableBlock)
	k.bucket()
	bl.first = k.uint()
	h, ok := readHeader(rows[0].Value)
	bl.count, bl.unreadable = h.count, !ok || k.end() != nil
	return bl, nil
}
