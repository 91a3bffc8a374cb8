package store

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// verifyBlocks is how many blocks of a bucket one transaction of VerifyNext
// replays: some seconds' worth of a busy bucket, at most 2 MB.
const verifyBlocks = 32

// Round says what VerifyNext does.
type Round uint8

// Rounds.
const (
	// RoundNew replays what was written since the last time, so that a bucket's
	// row and its newest blocks are never unproved for long.
	RoundNew Round = iota
	// RoundAll goes through the whole ledger again, from the first block, over
	// and over: what was proved once may have changed on disk.
	RoundAll
)

// verified is how far a bucket was replayed, all of it in order.
type verified struct {
	seq     uint64
	hash    [32]byte
	time    int64
	sum     ledger.Balances
	began   time.Time // of RoundAll: this round
	through bool      // of RoundAll: this round has come to the end
}

// Verification is what one step found.
type Verification struct {
	Bucket ledger.BucketID
	// From and To are the entries before and after the step; Head is the
	// bucket's last.
	From, To, Head uint64
	// More: there are blocks left up to the head.
	More bool
	// Problem is what does not agree, empty where all does. Nothing is recorded
	// then, so that the next step finds it again.
	Problem string
	// Unreadable: the problem is a row that cannot be read.
	Unreadable bool
}

func (s *Store) verifiedKey(r Round, b ledger.BucketID) key {
	return s.key(tableVerified).uint(uint64(r)).bucket(b)
}

func encodeVerified(v *verified) []byte {
	var e enc
	e.u(codecVersion)
	e.u(v.seq)
	e = append(e, v.hash[:]...)
	e.i(v.time)
	e.balances(&v.sum)
	e.time(v.began)
	e.flag(v.through)
	return e
}

func decodeVerified(b []byte) (v verified, err error) {
	d := newDec(b)
	v.seq = d.u()
	v.hash = d.hash()
	v.time = d.i()
	v.sum = d.balances()
	v.began = d.time()
	v.through = d.flag()
	return v, d.end()
}

// VerifyNext replays a bucket from where it was last verified, some blocks at
// most, and where it comes to the head compares with the bucket's row. All of
// it is read at one moment, so nothing that others write meanwhile looks like a
// fault. floor is the lowest legal available of the bucket. RoundAll begins a
// round no sooner than every after the last.
//
// How far it came is recorded, behind the fence where ctx has a term. Two that
// verify one bucket at once do some of it twice and nothing wrong.
func (s *Store) VerifyNext(ctx context.Context, id ledger.BucketID, floor int64, round Round, every time.Duration) (Verification, error) {
	var out Verification
	var was, now verified
	err := s.readTx(ctx, func(r kv.Reader) error {
		out = Verification{Bucket: id}
		pending := r.Get(s.bucketKey(id))
		var err error
		if was, err = s.verifiedUpTo(r, round, id); err != nil {
			return err
		}
		if now = was.begin(round, s.now(), every); now.through {
			return nil
		}
		return s.verifyStep(r, pending, floor, &now, &out)
	})
	if err != nil || out.Problem != "" || now == was {
		return out, err
	}
	now.through = round == RoundAll && !out.More
	return out, s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		tx.Set(s.verifiedKey(round, id), encodeVerified(&now))
		return nil
	})
}

// begin is where a step starts, through for none: a new round once its time has
// come. The first comes as long after a bucket was first seen, since RoundNew
// begins with all of it, too.
func (v verified) begin(round Round, now time.Time, every time.Duration) verified {
	switch {
	case round == RoundNew:
	case v.began.IsZero():
		return verified{began: now, through: true}
	case v.through && now.Sub(v.began) >= every:
		return verified{began: now}
	}
	return v
}

// verifiedUpTo reads the record of a bucket. One that cannot be read is none:
// the bucket is verified from its first entry.
func (s *Store) verifiedUpTo(r kv.Reader, round Round, id ledger.BucketID) (verified, error) {
	raw, ok, err := r.Get(s.verifiedKey(round, id)).Wait()
	if err != nil || !ok {
		return verified{}, err
	}
	v, err := decodeVerified(raw)
	if err != nil {
		return verified{}, nil //nolint:nilerr // begin again
	}
	return v, nil
}

// verifyStep replays the blocks after v and takes v along.
func (s *Store) verifyStep(r kv.Reader, row kv.Value, floor int64, v *verified, out *Verification) error {
	id := out.Bucket
	problem := func(_ checkID, format string, args ...any) {
		if out.Problem == "" {
			out.Problem = fmt.Sprintf(format, args...)
		}
	}
	rng := kv.Range{Begin: append(s.blockKey(id, v.seq), 0), End: s.key(tableBlock).bucket(id).all().End}
	rows := r.Range(rng, kv.RangeOptions{Limit: verifyBlocks})
	raw, ok, err := row.Wait()
	if err != nil {
		return err
	}
	blocks, more, err := rows.Wait()
	if err != nil {
		return err
	}
	if !ok {
		problem(checkBelongs, "bucket %s has no row", id)
		return nil
	}
	bucket, err := decodeBucket(id, raw)
	if err != nil {
		out.Unreadable = true
		problem(checkReadable, "the row of bucket %s cannot be read: %v", id, err)
		return nil
	}
	w := s.newWalker(id, problem)
	w.floor = floor
	w.seq, w.hash, w.time, w.sum, w.after = v.seq, v.hash, v.time, v.sum, v.sum
	for _, b := range blocks {
		w.block(b.Key, b.Value)
	}
	out.From, out.To, out.Head, out.More = v.seq, w.seq, bucket.Seq, more
	switch {
	case w.seq > bucket.Seq:
		problem(checkDense, "the ledger of bucket %s goes on to entry %d, its row says that entry %d is its last", id, w.seq, bucket.Seq)
	case !more:
		w.finish(&bucket)
		if w.blocks == 0 && w.seq > 0 && unixMilli(bucket.Time) != w.time {
			problem(checkTime, "the last block of bucket %s is of %s, its row says %s", id, stamp(w.time), stamp(unixMilli(bucket.Time)))
		}
	}
	v.seq, v.hash, v.time, v.sum = w.seq, w.hash, w.time, w.sum
	return nil
}

// VerifyBucket replays a bucket from its first entry, whatever was recorded of
// it, and forgets the record where it finds nothing wrong: so the record was.
func (s *Store) VerifyBucket(ctx context.Context, id ledger.BucketID, floor int64) (BucketReplay, error) {
	var out BucketReplay
	var bucket ledger.Bucket
	var tail uint64
	unreadable := ""
	err := s.readTx(ctx, func(r kv.Reader) error {
		raw, ok, err := r.Get(s.bucketKey(id)).Wait()
		if err != nil {
			return err
		}
		if unreadable = ""; !ok {
			unreadable = fmt.Sprintf("bucket %s has no row", id)
			return nil
		}
		if bucket, err = decodeBucket(id, raw); err != nil {
			unreadable = fmt.Sprintf("the row of bucket %s cannot be read: %v", id, err)
			return nil
		}
		tails, err := s.tails(r, []ledger.Bucket{bucket})
		if err == nil {
			tail = tails[0]
		}
		return err
	})
	if err != nil {
		return out, err
	}
	if unreadable != "" {
		return BucketReplay{Bucket: id, Problem: unreadable}, nil
	}
	if err := s.replayBucket(ctx, &bucket, floor, tail, time.Time{}, &out); err != nil || out.Problem != "" {
		return out, err
	}
	return out, s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		tx.Clear(s.verifiedKey(RoundNew, id))
		tx.Clear(s.verifiedKey(RoundAll, id))
		return nil
	})
}
