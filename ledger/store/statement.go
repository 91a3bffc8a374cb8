package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Wallet reads a wallet at one moment. A budget of another kind is refused.
func (s *Store) Wallet(ctx context.Context, id ledger.BudgetID) (*BudgetView, error) {
	v, err := s.Budget(ctx, id)
	if err != nil {
		return nil, err
	}
	if v.Kind != ledger.KindWallet {
		return nil, notAWallet(&v.Budget)
	}
	return v, nil
}

func notAWallet(b *ledger.Budget) *ledger.Rejection {
	return &ledger.Rejection{
		Code: ledger.BudgetKindMismatch, Field: "wallet", Value: b.ID.String(), Limit: "a budget of kind WALLET",
		Message: "is of kind " + b.Kind.String(),
	}
}

// Statement is a wallet's account from a time up to a cutoff, both included:
// what was available before, the entries that moved something with the balance
// after each, and what was available at the end. A zero from is the beginning.
//
// A zero cutoff is now: the first page fixes where the statement ends, and its
// token keeps the pages after it to that, whatever is written meanwhile. As for
// Replay, a cutoff is final once it is older than the largest clock skew.
//
// Each page has the opening and closing balances of the whole statement.
func (s *Store) Statement(ctx context.Context, id ledger.BudgetID, from, cutoff time.Time, p Page) (*StatementView, string, error) {
	now := s.opt.Now().UTC()
	if cutoff.After(now) {
		return nil, "", &ledger.Rejection{
			Code: ledger.CutoffInFuture, Field: "cutoff_time", Value: cutoff.UTC().Format(time.RFC3339Nano),
			Limit: "up to " + now.Truncate(time.Millisecond).Format(time.RFC3339Nano), Message: "lies in the future",
		}
	}
	end := cutoff
	if end.IsZero() {
		end = now
	}
	if from.After(end) {
		return nil, "", &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "from_time", Value: from.UTC().Format(time.RFC3339Nano),
			Limit: "up to the cutoff, " + end.UTC().Format(time.RFC3339Nano), Message: "lies after the cutoff",
		}
	}
	bucket := ledger.BucketID{Budget: id}
	list := fmt.Sprintf("statement/%s/%s/%d/%d", id.Tenant, id, unixMilli(from), unixMilli(cutoff))
	rest, size, err := s.open(p, list, s.key(tableBlock).bucket(bucket).all())
	if err != nil {
		return nil, "", err
	}
	var view *StatementView
	var next string
	err = s.readTx(ctx, func(r kv.Reader) (err error) {
		st := &statement{s: s, r: r, list: list, size: size, view: &StatementView{From: from.UTC(), Cutoff: cutoff.UTC()}}
		if cutoff.IsZero() {
			st.view.Cutoff = now.Truncate(time.Millisecond)
		}
		if p.Token != "" {
			k := s.read(rest.Begin[:len(rest.Begin)-1], tableBlock)
			k.bucket()
			if st.next, st.last = k.uint(), k.uint(); k.end() != nil {
				return badToken(p.Token)
			}
		}
		next, err = st.run(bucket, from, cutoff)
		view = st.view
		return err
	})
	return view, next, err
}

// statement is one page of a statement in one transaction. next is the number
// of the page's first entry, last that of the statement's last one.
type statement struct {
	s          *Store
	r          kv.Reader
	list       string
	size       int
	next, last uint64
	view       *StatementView
}

func (st *statement) run(bucket ledger.BucketID, from, cutoff time.Time) (next string, err error) {
	def, row := st.r.Get(st.s.budgetKey(bucket.Budget)), st.r.Get(st.s.bucketKey(bucket))
	v, ok, err := def.Wait()
	if err != nil {
		return "", err
	}
	if !ok {
		return "", ledger.BudgetMissing(bucket.Budget)
	}
	b, err := decodeBudget(bucket.Budget, v)
	if err != nil {
		return "", corrupt("budget "+bucket.Budget.String(), err)
	}
	if st.view.Wallet = *b; b.Kind != ledger.KindWallet {
		return "", notAWallet(b)
	}
	if v, err = wanted(row, "bucket "+bucket.String()); err != nil {
		return "", err
	}
	head, err := decodeBucket(bucket, v)
	if err != nil {
		return "", corrupt("bucket "+bucket.String(), err)
	}
	first := uint64(1)
	if !from.IsZero() {
		if first, err = st.firstSince(bucket, head.Seq, from.UnixMilli()); err != nil {
			return "", err
		}
	}
	if st.last == 0 {
		st.last, st.next = head.Seq, first
		if !cutoff.IsZero() {
			after, err := st.firstSince(bucket, head.Seq, cutoff.UnixMilli()+1)
			if err != nil {
				return "", err
			}
			st.last = after - 1
		}
	}
	if st.view.Opening, err = st.after(bucket, first-1); err != nil {
		return "", err
	}
	if st.view.Closing, err = st.after(bucket, st.last); err != nil {
		return "", err
	}
	return st.rows(bucket)
}

// firstSince finds the first entry of that time or later by bisection: the
// blocks of a bucket never go back in time. It is head+1 where there is none.
func (st *statement) firstSince(bucket ledger.BucketID, head uint64, ms int64) (uint64, error) {
	lo, hi := uint64(1), head+1
	for lo < hi {
		b, err := st.block(bucket, lo+(hi-lo)/2)
		if err != nil {
			return 0, err
		}
		if unixMilli(b.Time) >= ms {
			hi = b.First
		} else {
			lo = b.First + uint64(len(b.Entries))
		}
	}
	return lo, nil
}

// block reads the block that holds an entry.
func (st *statement) block(bucket ledger.BucketID, seq uint64) (*ledger.Block, error) {
	rows, _, err := st.s.lastBlock(st.r, bucket, seq).Wait()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, corrupt("ledger of "+bucket.String(), fmt.Errorf("entry %d is not there", seq))
	}
	b, err := st.s.decodeBlock(rows[0].Key, rows[0].Value)
	if err != nil {
		return nil, corrupt("ledger block", err)
	}
	if seq-b.First >= uint64(len(b.Entries)) {
		return nil, corrupt("ledger of "+bucket.String(), fmt.Errorf("entry %d is not there", seq))
	}
	return b, nil
}

// after is what the bucket had once an entry was made; nothing before the
// first.
func (st *statement) after(bucket ledger.BucketID, seq uint64) (ledger.Balances, error) {
	if seq == 0 {
		return ledger.Balances{}, nil
	}
	b, err := st.block(bucket, seq)
	if err != nil {
		return ledger.Balances{}, err
	}
	return b.Entries[seq-b.First].After, nil
}

// rows reads the page's entries. Those that move nothing (a new expiry, a
// frozen wallet) are no rows of an account.
func (st *statement) rows(bucket ledger.BucketID) (next string, err error) {
	for scanned := 0; st.next <= st.last && st.next > 0; {
		b, err := st.block(bucket, st.next)
		if err != nil {
			return "", err
		}
		for _, en := range b.Entries[st.next-b.First:] {
			if en.Seq > st.last {
				return "", nil
			}
			if en.Delta != (ledger.Balances{}) {
				if len(st.view.Rows) == st.size {
					return st.token(bucket), nil
				}
				st.view.Rows = append(st.view.Rows, EntryView{Entry: en, Bucket: bucket, Time: b.Time})
			}
			st.next++
			scanned++
		}
		if scanned >= maxListScan && st.next <= st.last {
			return st.token(bucket), nil
		}
	}
	return "", nil
}

func (st *statement) token(bucket ledger.BucketID) string {
	return st.s.token(st.list, st.s.blockKey(bucket, st.next).uint(st.last))
}

// Job reads the row of a job.
func (s *Store) Job(ctx context.Context, tenant, job string) (*ledger.Reservation, error) {
	res, err := s.Reservation(ctx, ledger.JobKey(tenant, job))
	var r *ledger.Rejection
	if errors.As(err, &r) && r.Code == ledger.ReservationNotFound {
		return nil, &ledger.Rejection{
			Code: ledger.ReservationNotFound, Field: "job_id", Value: fmt.Sprintf("%.40q", job), Message: "has no charge and no hold",
		}
	}
	return res, err
}
