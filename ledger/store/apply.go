package store

import (
	"bytes"
	"context"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Applied is what became of one command of a batch.
type Applied struct {
	ledger.Reply
	// Reroute: nothing was done, the command belongs to this bucket's queue.
	// Epoch is the budget's routing epoch now: a route that was made by an older
	// one is out of date.
	Reroute *ledger.BucketID
	Epoch   uint32
	// Attempts is how often the transaction was tried, the same for all
	// commands of the batch.
	Attempts int
}

// Apply runs commands in order in one transaction: it loads what they need,
// lets the domain decide, and writes. Each command sees what the ones before
// it did; a refused one, or one that panics, leaves no trace in the others. Where
// one is rerouted, later ones on the same benefit go with it, so that they do
// not overtake it.
//
// at is the bucket whose queue this is; nil for commands on orders that have
// no bucket (a cancellation before the reservation, a resolve of nothing).
// Commands must be normalized and valid.
//
// The error is nil when the transaction committed, and then every command has
// its answer. Otherwise it is a *ledger.Rejection that holds for all of them:
// OUTCOME_UNKNOWN, or one that means nothing was done. ErrTooLarge in its
// chain says that a smaller batch may fit.
func (s *Store) Apply(ctx context.Context, at *ledger.BucketID, cmds []ledger.Command) ([]Applied, error) {
	return s.ApplyInto(ctx, at, cmds, nil)
}

// ApplyInto is Apply with its answers in buf, if that has room for all of them.
// The store keeps neither cmds nor buf.
func (s *Store) ApplyInto(ctx context.Context, at *ledger.BucketID, cmds []ledger.Command, buf []Applied) ([]Applied, error) {
	now := s.now()
	var out []Applied
	var maybe []attempted
	attempts := 0
	_, err := kv.Transact(ctx, s.kv, s.opt.Tx, func(tx kv.Tx, a kv.Attempt) error {
		attempts = a.Number
		if a.Number > 1 {
			s.retries.Add(1)
		}
		if a.MayHaveCommitted {
			landed, err := s.landed(tx, maybe)
			if err != nil {
				return err
			}
			if landed != nil {
				out = landed
				return nil
			}
		}
		b := s.newBatch(tx, now, at)
		if err := b.load(cmds); err != nil {
			return err
		}
		out = answersIn(buf, len(cmds))
		buf = nil // an attempt that may have landed keeps its answers
		for i := range cmds {
			if err := b.run(&cmds[i], &out[i]); err != nil {
				return err
			}
		}
		mark := b.flush()
		mark.replies = out
		maybe = append(maybe, mark)
		return nil
	})
	if err != nil {
		return nil, infra(err)
	}
	for i := range out {
		out[i].Attempts = attempts
	}
	return out, nil
}

// answersIn gives n empty answers, in buf if that has room.
func answersIn(buf []Applied, n int) []Applied {
	if cap(buf) < n {
		return make([]Applied, n)
	}
	buf = buf[:n]
	clear(buf)
	return buf
}

// attempted remembers what an attempt of the transaction would write, so that
// a later one can tell whether it landed.
type attempted struct {
	// blocks are all that it writes: the end of a move in another bucket says
	// too little to tell this attempt by.
	blocks []blockMark
	// rows are the reservation rows it writes, where it writes no block
	// (tombstones, voids, recorded refusals).
	rows    []kv.KeyValue
	replies []Applied
}

// blockMark is a block's place and hash.
type blockMark struct {
	key  []byte
	hash [32]byte
}

// landed looks whether an earlier attempt, whose outcome was unknown, is in
// the store. A block is written once, and its hash covers writer, time and
// every entry: the same hashes in the same places are the same attempt. Its
// callers then get their first answers, not replays of them. An attempt
// without a block landed if all its rows are just as it would have left them;
// should another writer have made the very same rows, its answers are as true.
func (s *Store) landed(tx kv.Tx, maybe []attempted) ([]Applied, error) {
	for _, m := range maybe {
		if len(m.blocks) == 0 {
			same, err := allThere(tx, m.rows)
			if err != nil {
				return nil, err
			}
			if same {
				return m.replies, nil
			}
			continue
		}
		same := true
		for _, bl := range m.blocks {
			v, ok, err := tx.Get(bl.key).Wait()
			if err != nil {
				return nil, err
			}
			if same = ok && blockHash(s.blockIdentity(bl.key), v) == bl.hash; !same {
				break
			}
		}
		if same {
			return m.replies, nil
		}
	}
	return nil, nil
}

// allThere says whether all rows are stored as they are here, and there is at
// least one.
func allThere(tx kv.Tx, rows []kv.KeyValue) (bool, error) {
	values := make([]kv.Value, len(rows))
	for i := range rows {
		values[i] = tx.Get(rows[i].Key)
	}
	same := len(rows) > 0
	for i, p := range values {
		v, ok, err := p.Wait()
		if err != nil {
			return false, err
		}
		same = same && ok && bytes.Equal(v, rows[i].Value)
	}
	return same, nil
}
