package store

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// batch is one transaction's view of the ledger: what was read, overlaid with
// what the commands so far have changed.
type batch struct {
	s    *Store
	tx   kv.Tx
	now  time.Time
	home *ledger.BucketID

	budgets  map[ledger.BudgetID]*budgetState
	buckets  map[ledger.BucketID]*bucketState
	rows     map[ledger.OrderKey]*rowState
	receipts map[string]*receiptState
	allocs   map[allocKey]*allocState // nil: none was needed
	order    []*bucketState           // touched buckets, in the order they were touched
	due      []dueGroup
	// moved are the benefits whose commands were rerouted, nil for none.
	moved map[ledger.OrderKey]*Applied
	cases []*ledger.Case
	// incarnation is the store's as this transaction read it: one that was
	// raised while a node runs counts from the next commit on.
	incarnation uint64
	// leader is who leads as this transaction read it, if a command has a term.
	leader Leader
	// applying: a decision is half written; a panic now must end the attempt.
	applying bool
}

type budgetState struct {
	budget *ledger.Budget // nil: there is none
	dirty  bool
	// whole: all buckets of the budget are loaded; wholePinned: and a bucket
	// that another transaction adds makes this one fail.
	whole, wholePinned bool
}

type bucketState struct {
	ledger.Bucket
	key    key
	exists bool
	// peeked: read by snapshot only, so that the read adds no conflict.
	peeked bool
	dirty  bool
	writer blockWriter
	full   []blockWriter // blocks before writer's that have no room left
}

// sealed is a finished block.
type sealed struct {
	key, value []byte
	first      uint64
	hash       [32]byte
}

type rowState struct {
	ledger.Reservation
	key   key
	dirty bool
}

type receiptState struct {
	key     key
	receipt *ledger.BudgetReceipt
	dirty   bool
}

// dueGroup collects the reservations of one bucket that are due in one second.
type dueGroup struct {
	due    int64
	bucket ledger.BucketID
	seq    uint64
	items  []dueItem
}

func (s *Store) newBatch(tx kv.Tx, now time.Time, home *ledger.BucketID) *batch {
	return &batch{
		s: s, tx: tx, now: now, home: home,
		budgets: map[ledger.BudgetID]*budgetState{},
		buckets: map[ledger.BucketID]*bucketState{},
	}
}

// pending is a row of the batch on its way.
type pending struct {
	row *rowState
	rec *receiptState
	v   kv.Value
	ten string
}

// load issues all reads the batch surely needs at once, then waits: the
// incarnation, the budget, the bucket, and one row a command.
func (b *batch) load(cmds []ledger.Command) error {
	var budget, bucket kv.Value
	var bucketKey key
	incarnation := b.tx.Get(b.s.metaKey(metaIncarnation))
	var leader kv.Value
	if b.home != nil {
		bucketKey = b.s.bucketKey(*b.home)
		budget = b.tx.Get(b.s.budgetKey(b.home.Budget))
		bucket = b.tx.Get(bucketKey)
	}
	reads := make([]pending, 0, len(cmds))
	b.rows = make(map[ledger.OrderKey]*rowState, len(cmds))
	b.receipts = map[string]*receiptState{}
	for i := range cmds {
		c := &cmds[i]
		if c.Term != 0 && leader == nil {
			leader = b.tx.Get(b.s.leaderKey())
		}
		if c.Op.OnBudget() {
			if c.Op == ledger.OpCreate || b.receipts[c.Budget.Tenant+"\x00"+c.ID] != nil {
				continue
			}
			r := &receiptState{key: b.s.receiptKey(c.Budget.Tenant, c.ID)}
			b.receipts[c.Budget.Tenant+"\x00"+c.ID] = r
			reads = append(reads, pending{rec: r, v: b.tx.Get(r.key), ten: c.Budget.Tenant})
			continue
		}
		if b.rows[c.Key] != nil {
			continue
		}
		r := &rowState{Reservation: ledger.Reservation{Key: c.Key}, key: b.s.reservationKey(c.Key)}
		b.rows[c.Key] = r
		reads = append(reads, pending{row: r, v: b.tx.Get(r.key)})
	}
	if err := b.keepIncarnation(incarnation); err != nil {
		return err
	}
	if leader != nil {
		var err error
		if b.leader, err = leaderIn(leader); err != nil {
			return err
		}
	}
	if b.home != nil {
		if _, err := b.keepBudget(b.home.Budget, budget); err != nil {
			return err
		}
		if _, err := b.keepBucket(*b.home, bucketKey, bucket); err != nil {
			return err
		}
	}
	return keepRows(reads)
}

// keepRows takes the rows that a batch has read.
func keepRows(reads []pending) error {
	for _, p := range reads {
		v, ok, err := p.v.Wait()
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if p.row != nil {
			r, err := decodeReservation(p.row.Key, v)
			if err != nil {
				return corrupt("reservation "+p.row.Key.String(), err)
			}
			p.row.Reservation = *r
			continue
		}
		if p.rec.receipt, err = decodeBudgetReceipt(p.ten, v); err != nil {
			return corrupt("budget receipt", err)
		}
	}
	return nil
}

func (b *batch) keepBudget(id ledger.BudgetID, v kv.Value) (*budgetState, error) {
	raw, ok, err := v.Wait()
	if err != nil {
		return nil, err
	}
	st := &budgetState{}
	if ok {
		if st.budget, err = decodeBudget(id, raw); err != nil {
			return nil, corrupt("budget "+id.String(), err)
		}
	}
	b.budgets[id] = st
	return st, nil
}

// budget gives a budget, reading it if it was not read yet.
func (b *batch) budget(id ledger.BudgetID) (*budgetState, error) {
	if st := b.budgets[id]; st != nil {
		return st, nil
	}
	return b.keepBudget(id, b.tx.Get(b.s.budgetKey(id)))
}

func (b *batch) keepBucket(id ledger.BucketID, k key, v kv.Value) (*bucketState, error) {
	raw, ok, err := v.Wait()
	if err != nil {
		return nil, err
	}
	st := &bucketState{Bucket: ledger.Bucket{ID: id}, key: k, exists: ok}
	if ok {
		if st.Bucket, err = decodeBucket(id, raw); err != nil {
			return nil, corrupt("bucket "+id.String(), err)
		}
	}
	b.buckets[id] = st
	return st, nil
}

// bucket gives a bucket, read so that a concurrent change of it makes this
// transaction fail.
func (b *batch) bucket(id ledger.BucketID) (*bucketState, error) {
	if st := b.buckets[id]; st != nil {
		b.pin(st)
		return st, nil
	}
	k := b.s.bucketKey(id)
	return b.keepBucket(id, k, b.tx.Get(k))
}

// pin turns a peeked bucket into one read for good.
func (b *batch) pin(st *bucketState) {
	if st.peeked {
		b.tx.AddReadConflict(kv.KeyRange(st.key))
		st.peeked = false
	}
}

// wholeBudget loads all buckets of a budget, in the order of their indexes.
// With peek it adds no read conflicts: a refusal that rests on them is true
// at the transaction's read version, and what is taken is pinned first.
func (b *batch) wholeBudget(id ledger.BudgetID, peek bool) ([]*bucketState, error) {
	st, err := b.budget(id)
	if err != nil {
		return nil, err
	}
	if !st.whole {
		reader := kv.Reader(b.tx)
		if peek {
			reader = b.tx.Snapshot()
		}
		rows, _, err := reader.Range(b.s.bucketsOf(id), kv.RangeOptions{}).Wait()
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			r := b.s.read(row.Key, tableBucket)
			bid := r.bucket()
			if err := r.end(); err != nil {
				return nil, corrupt("bucket key", err)
			}
			if b.buckets[bid] != nil {
				continue // the overlay is newer
			}
			bk, err := decodeBucket(bid, row.Value)
			if err != nil {
				return nil, corrupt("bucket "+bid.String(), err)
			}
			b.buckets[bid] = &bucketState{Bucket: bk, key: b.s.bucketKey(bid), exists: true, peeked: peek}
		}
		st.whole = true
	}
	if !peek && !st.wholePinned {
		b.tx.AddReadConflict(b.s.bucketsOf(id))
		st.wholePinned = true
	}
	var out []*bucketState
	for i := range uint16(ledger.MaxBuckets + 1) {
		if k := b.buckets[ledger.BucketID{Budget: id, Index: i}]; k != nil && k.exists {
			if !peek {
				b.pin(k)
			}
			out = append(out, k)
		}
	}
	return out, nil
}

// run executes one command over the overlay. Its error is the engine's and
// ends the attempt; everything else is the command's own answer. A panic is
// the command's answer too, since a decision changes nothing; a panic while a
// decision is being applied ends the attempt, and nothing is written.
func (b *batch) run(c *ledger.Command, out *Applied) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r := &ledger.Rejection{
				Code: ledger.Internal, Message: "the command failed inside the ledger",
				Cause: fmt.Errorf("panic: %v\n%s", p, debug.Stack()),
			}
			*out = Applied{Reply: ledger.Reply{Err: r}}
			if b.applying {
				err = r
			}
		}
	}()
	if b.s.hook != nil {
		b.s.hook(c)
	}
	if c.Term != 0 && c.Term != b.leader.Term {
		out.Err = b.leader.fenceOff(c.Term)
		return nil
	}
	if c.Op.OnBudget() {
		return b.runBudget(c, out)
	}
	return b.runOrder(c, out)
}
