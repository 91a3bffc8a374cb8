package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// kvOnly is a storage engine behind the key-value contract, with no ledger
// logic. As raw it writes what raw writes to Pebble, for engines that cannot be
// reached otherwise; as rmw every call reads and writes the one hot key of its
// budget, which is what teams do who keep a balance in such a store.
type kvOnly struct {
	engine kv.Store
	rmw    bool
	prefix string
	free   chan *rawBucket
	remove func() error
	seed   [sha256.Size]byte

	mu      sync.Mutex
	buckets int
	sizes   map[int]uint64

	commands, attempts, batches atomic.Uint64
}

func openRmw(ctx context.Context, cfg Config, deps Deps) (Target, error) {
	return openKV(ctx, cfg, deps, true)
}

func openKV(ctx context.Context, cfg Config, deps Deps, rmw bool) (Target, error) {
	if deps.OpenEngine == nil {
		return nil, errors.New("there is no engine to open")
	}
	dir, remove, err := tempDir(cfg)
	if err != nil {
		return nil, err
	}
	engine, err := deps.OpenEngine(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return &kvOnly{
		engine: engine, rmw: rmw, prefix: "coffer-bench/" + cfg.RunID + "/", free: make(chan *rawBucket, maxRawBuckets),
		remove: remove, sizes: map[int]uint64{}, seed: sha256.Sum256([]byte(cfg.RunID)),
	}, nil
}

// Make implements Target.
func (k *kvOnly) Make(_ context.Context, b budgetSpec) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.buckets+b.buckets > maxRawBuckets {
		return fmt.Errorf("the raw engine takes up to %d buckets", maxRawBuckets)
	}
	for i := range b.buckets {
		k.free <- &rawBucket{name: fmt.Sprintf("%s/%d", b.id, i)}
	}
	k.buckets += b.buckets
	return nil
}

// Do implements Target.
func (k *kvOnly) Do(ctx context.Context, cmds []ledger.Command) []Reply {
	var err error
	if k.rmw {
		err = k.count(ctx, &cmds[0])
	} else {
		select {
		case b := <-k.free:
			err = k.commit(ctx, b, cmds)
			k.free <- b
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return failed(len(cmds), ledger.Unavailable, err)
	}
	k.commands.Add(uint64(len(cmds)))
	k.batches.Add(1)
	k.mu.Lock()
	k.sizes[len(cmds)]++
	k.mu.Unlock()
	return make([]Reply, len(cmds))
}

// count adds the command's amount to its budget's key, by reading it.
func (k *kvOnly) count(ctx context.Context, c *ledger.Command) error {
	key := []byte(k.prefix + "hot/" + c.Budget.Key)
	_, err := kv.Transact(ctx, k.engine, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		k.attempts.Add(1)
		v, ok, err := tx.Get(key).Wait()
		if err != nil {
			return err
		}
		var sum uint64
		if ok {
			sum = binary.BigEndian.Uint64(v)
		}
		tx.Set(key, binary.BigEndian.AppendUint64(nil, sum+uint64(c.Amount)))
		return nil
	})
	return err
}

// commit is one group commit in the block layout.
func (k *kvOnly) commit(ctx context.Context, b *rawBucket, cmds []ledger.Command) error {
	hot := []byte(k.prefix + "bal/" + b.name)
	row := make([]byte, rawRow)
	for i := range row {
		row[i] = k.seed[i%len(k.seed)]
	}
	b.seq += uint64(len(cmds))
	_, err := kv.Transact(ctx, k.engine, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		k.attempts.Add(1)
		reads := make([]kv.Value, 0, len(cmds)+1)
		reads = append(reads, tx.Get(hot))
		keys := make([][]byte, len(cmds))
		for i := range cmds {
			keys[i] = rawKey([]byte(k.prefix), &cmds[i].Key)
			reads = append(reads, tx.Get(keys[i]))
		}
		for _, r := range reads {
			if _, _, err := r.Wait(); err != nil {
				return err
			}
		}
		for _, key := range keys {
			tx.Set(key, row)
		}
		block := make([]byte, len(cmds)*rawEntry)
		sum := sha256.Sum256(block)
		tx.Set(fmt.Appendf(nil, "%sled/%s/%016x", k.prefix, b.name, b.seq), block[:min(len(block), kv.MaxValueBytes)])
		tx.Set(fmt.Appendf(nil, "%sexp/%s/%016x", k.prefix, b.name, b.seq), block[:len(cmds)*rawDue])
		tx.Set(fmt.Appendf(nil, "%sout/%s/%016x", k.prefix, b.name, b.seq), sum[:])
		tx.Set(hot, row[:rawBalance])
		return nil
	})
	return err
}

// Balances implements Target; there are none.
func (k *kvOnly) Balances(context.Context, ledger.BudgetID) (ledger.Balances, error) {
	return ledger.Balances{}, errNoReads
}

// Counters implements Target.
func (k *kvOnly) Counters(context.Context) (Counters, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := Counters{Commands: k.commands.Load(), Conflicts: k.attempts.Load() - k.batches.Load(), Batches: map[int]uint64{}}
	for n, count := range k.sizes {
		c.Batches[n] = count
	}
	return c, nil
}

// Audit implements Target: there is no ledger to check.
func (k *kvOnly) Audit(context.Context, func(string, uint64)) (*Audit, error) {
	return &Audit{OK: true, None: true}, nil
}

// Engine implements Target.
func (k *kvOnly) Engine() string {
	if k.rmw {
		return "the engine alone, read-modify-write of one key a call"
	}
	return "the engine alone, block layout"
}

// Close implements Target. It removes what the run wrote.
func (k *kvOnly) Close() error {
	return errors.Join(clearAll(k.engine, []byte(k.prefix)), k.engine.Close(), k.remove())
}

// clearAll removes all keys with a prefix.
func clearAll(engine kv.Store, prefix []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	_, err := kv.Transact(ctx, engine, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.PrefixRange(prefix))
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove what the run wrote: %w", err)
	}
	return nil
}
