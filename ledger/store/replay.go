package store

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Replay adds up the entries of every bucket of a budget and checks the
// ledger's own consistency on the way.
//
// With a zero cutoff it means now: one transaction reads all bucket rows of
// the budget, and that vector of balances and numbers is the cutoff. The
// blocks up to it are immutable, so they are read over as many transactions as
// it takes, while traffic goes on, and their sums must equal the vector.
//
// With a time it adds up the blocks of that time or before. There is no stored
// balance to compare with then. Nodes whose clocks disagree may still write a
// block of an earlier time than this node's now, so a cutoff is final once it
// is older than the largest clock skew. The blocks of one transaction are all of
// one time: no cutoff falls between the two ends of a move.
//
// An error means that the replay could not be made; what it found wrong is in
// the Problem of each bucket.
func (s *Store) Replay(ctx context.Context, id ledger.BudgetID, cutoff time.Time) (*Replay, error) {
	now := s.opt.Now().UTC()
	if cutoff.After(now) {
		return nil, &ledger.Rejection{
			Code: ledger.CutoffInFuture, Field: "cutoff_time", Value: cutoff.UTC().Format(time.RFC3339Nano),
			Limit: "up to " + now.Truncate(time.Millisecond).Format(time.RFC3339Nano), Message: "lies in the future",
		}
	}
	view, tails, err := s.vector(ctx, id)
	if err != nil {
		return nil, err
	}
	rep := &Replay{Budget: view.Budget, Cutoff: cutoff.UTC(), Buckets: make([]BucketReplay, len(view.Buckets))}
	if cutoff.IsZero() {
		rep.Cutoff = now.Truncate(time.Millisecond)
	}
	for i := range view.Buckets {
		b, out := &view.Buckets[i], &rep.Buckets[i]
		if err := s.replayBucket(ctx, b, view.Policy.Floor(), tails[i], cutoff, out); err != nil {
			return nil, err
		}
		total, ok := rep.Total.Add(out.Replayed)
		if !ok && out.Problem == "" {
			out.Problem = fmt.Sprintf("the total of the budget overflows with bucket %s", b.ID)
		}
		rep.Total = total
	}
	return rep, nil
}

func (s *Store) replayBucket(ctx context.Context, b *ledger.Bucket, floor int64, tail uint64, cutoff time.Time, out *BucketReplay) error {
	*out = BucketReplay{Bucket: b.ID}
	w := s.newWalker(b.ID, func(_ checkID, format string, args ...any) {
		if out.Problem == "" {
			out.Problem = fmt.Sprintf(format, args...)
		}
	})
	w.floor = floor
	if !cutoff.IsZero() {
		w.until = cutoff.UnixMilli()
	}
	if err := w.walk(ctx, b.Seq, nil); err != nil {
		return err
	}
	if cutoff.IsZero() {
		out.Stored, out.HasStored = b.Balances, true
		w.finish(b)
		w.tail(b, tail)
	}
	out.Seq, out.Entries, out.Replayed, out.Blocks, out.Head = w.seq, w.entries, w.sum, w.blocks, w.hash
	return nil
}

// tail judges a block that was found beyond the head of a bucket's row at the
// moment the row was read: the row is older than its ledger.
func (w *walker) tail(row *ledger.Bucket, tail uint64) {
	if tail != 0 {
		w.report(checkDense, "bucket %s has block %d, but its row says that entry %d is its last", w.bucket, tail, row.Seq)
	}
}

// vector reads a budget, all its bucket rows, and for each bucket the first
// block beyond its row's head (0 where there is none, as there should be), at
// one moment.
func (s *Store) vector(ctx context.Context, id ledger.BudgetID) (view *BudgetView, tails []uint64, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		def := r.Get(s.budgetKey(id))
		rows := r.Range(s.bucketsOf(id), kv.RangeOptions{})
		v, ok, err := def.Wait()
		if err != nil {
			return err
		}
		if !ok {
			return ledger.BudgetMissing(id)
		}
		if view, err = s.view(id, v, rows); err != nil {
			return err
		}
		tails, err = s.tails(r, view.Buckets)
		return err
	})
	return view, tails, err
}

// tails finds the first block beyond each bucket's head.
func (s *Store) tails(r kv.Reader, buckets []ledger.Bucket) ([]uint64, error) {
	pending := make([]kv.Rows, len(buckets))
	for i := range buckets {
		b := &buckets[i]
		rng := kv.Range{Begin: append(s.blockKey(b.ID, b.Seq), 0), End: s.key(tableBlock).bucket(b.ID).all().End}
		pending[i] = r.Range(rng, kv.RangeOptions{Limit: 1})
	}
	tails := make([]uint64, len(buckets))
	for i, p := range pending {
		rows, _, err := p.Wait()
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			k := s.read(rows[0].Key, tableBlock)
			k.bucket()
			tails[i] = k.uint()
		}
	}
	return tails, nil
}

// sums writes balances for people: short, always in the same order.
func sums(b ledger.Balances) string {
	return fmt.Sprintf("funded %d, available %d, reserved %d, committed %d, reversed %d", b.Funded, b.Available, b.Reserved, b.Committed, b.Reversed)
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// negative names a balance that may not be, or is empty. Available may go down
// to floor.
func negative(b *ledger.Balances, floor int64) string {
	for _, x := range [...]struct {
		name string
		v    int64
	}{{"reserved", b.Reserved}, {"committed", b.Committed}, {"reversed", b.Reversed}, {"funded", b.Funded}} {
		if x.v < 0 {
			return fmt.Sprintf("%s is %d, below zero", x.name, x.v)
		}
	}
	switch {
	case b.Available < floor && floor == 0:
		return fmt.Sprintf("available is %d, below zero", b.Available)
	case b.Available < floor:
		return fmt.Sprintf("available is %d, below %d, which is all that the wallet may owe", b.Available, floor)
	case b.Reversed > b.Committed:
		return fmt.Sprintf("reversed %d is above committed %d", b.Reversed, b.Committed)
	}
	return ""
}

// addsUp says by how much balances miss available + reserved + committed −
// reversed = funded, or is empty. The sum wraps where int64 ends; balances
// that reach it are refused long before.
func addsUp(b *ledger.Balances) string {
	if sum := b.Available + b.Reserved + b.Committed - b.Reversed; sum != b.Funded {
		return fmt.Sprintf("available %d + reserved %d + committed %d - reversed %d is %d, not funded %d",
			b.Available, b.Reserved, b.Committed, b.Reversed, sum, b.Funded)
	}
	return ""
}
