package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/coffer-ledger/coffer/ledger"
)

// Sizes of what the raw engine writes, in bytes: about those of the ledger's
// rows for a reserve.
const (
	rawRow     = 250 // a reservation
	rawEntry   = 180 // one entry of a block
	rawDue     = 30  // one line of an expiry row
	rawBalance = 80
	rawPointer = 32
)

// raw is Pebble in the ledger's block layout with no ledger logic: for each
// command one row read and one row written; for each call one block that is
// hashed, one expiry row, one outbox pointer and one row of balances, all in
// one synced batch. A call is one group commit of one bucket. What the executor
// reaches divided by this says how much of the engine is left to it.
type raw struct {
	db      *pebble.DB
	free    chan *rawBucket
	mu      sync.Mutex
	buckets int
	filler  []byte
	remove  func() error

	commands atomic.Uint64
	sizes    map[int]uint64 // batches by their commands; mu guards it
}

// rawBucket is a bucket: one batch at a time is in flight for it.
type rawBucket struct {
	name string
	seq  uint64
}

// maxRawBuckets bounds the buckets of a run on the raw engine.
const maxRawBuckets = 1 << 16

// openRaw opens Pebble with the options of the embedded engine; another engine
// is reached through the key-value contract.
func openRaw(ctx context.Context, cfg Config, deps Deps) (Target, error) {
	if deps.Shared != "" {
		return openKV(ctx, cfg, deps, false)
	}
	dir, remove, err := tempDir(cfg)
	if err != nil {
		return nil, err
	}
	cache := pebble.NewCache(256 << 20)
	defer cache.Unref()
	opt := &pebble.Options{
		Cache: cache, FormatMajorVersion: pebble.FormatValueSeparation, MemTableSize: 64 << 20,
		MemTableStopWritesThreshold: 4, L0CompactionThreshold: 4, Logger: silent{},
	}
	opt.EnsureDefaults()
	for i := range opt.Levels {
		opt.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, opt)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open pebble: %w", err), remove())
	}
	r := &raw{db: db, free: make(chan *rawBucket, maxRawBuckets), remove: remove, sizes: map[int]uint64{}, filler: make([]byte, 1<<18)}
	for i := range r.filler { // does not compress
		if i%sha256.Size == 0 {
			sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
			copy(r.filler[i:], sum[:])
		}
	}
	return r, nil
}

// silent drops the engine's log; its errors come as errors.
type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// Make implements Target.
func (r *raw) Make(_ context.Context, b budgetSpec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buckets+b.buckets > maxRawBuckets {
		return fmt.Errorf("the raw engine takes up to %d buckets", maxRawBuckets)
	}
	if r.buckets > 0 && r.commands.Load() > 0 { // a later round uses its own
		for range r.buckets {
			<-r.free
		}
		r.buckets = 0
	}
	for i := range b.buckets {
		r.free <- &rawBucket{name: fmt.Sprintf("%s/%d", b.id, i)}
	}
	r.buckets += b.buckets
	return nil
}

// Do implements Target: a group commit of whichever bucket is free.
func (r *raw) Do(ctx context.Context, cmds []ledger.Command) []Reply {
	var b *rawBucket
	select {
	case b = <-r.free:
	case <-ctx.Done():
		return failed(len(cmds), ledger.Unavailable, ctx.Err())
	}
	defer func() { r.free <- b }()
	if err := r.commit(b, cmds); err != nil {
		return failed(len(cmds), ledger.Unavailable, err)
	}
	r.mu.Lock()
	r.sizes[len(cmds)]++
	r.mu.Unlock()
	r.commands.Add(uint64(len(cmds)))
	return make([]Reply, len(cmds))
}

func failed(n int, code ledger.Code, err error) []Reply {
	out := make([]Reply, n)
	for i := range out {
		out[i] = Reply{Code: code, Err: err}
	}
	return out
}

func (r *raw) commit(b *rawBucket, cmds []ledger.Command) error {
	batch := r.db.NewBatch()
	defer batch.Close() //nolint:errcheck // committed or given up
	key := make([]byte, 0, 128)
	for i := range cmds {
		key = rawKey(key[:0], &cmds[i].Key)
		if err := r.read(key); err != nil {
			return err
		}
		if err := batch.Set(key, r.filler[i:i+rawRow], nil); err != nil {
			return err
		}
	}
	n := len(cmds)
	block := r.filler[:n*rawEntry]
	sum := sha256.Sum256(block)
	b.seq += uint64(n)
	for _, row := range []struct {
		table string
		value []byte
	}{
		{"led", block}, {"exp", r.filler[:n*rawDue]}, {"out", sum[:rawPointer]},
	} {
		if err := batch.Set(fmt.Appendf(nil, "%s/%s/%016x", row.table, b.name, b.seq), row.value, nil); err != nil {
			return err
		}
	}
	hot := []byte("bal/" + b.name)
	if err := errors.Join(r.read(hot), batch.Set(hot, r.filler[:rawBalance], nil)); err != nil {
		return err
	}
	return batch.Commit(pebble.Sync)
}

// rawKey is the key of a reservation: a byte of hash that spreads load, then
// the names.
func rawKey(b []byte, k *ledger.OrderKey) []byte {
	h := fnv.New32a()
	_, _ = io.WriteString(h, k.Order)
	b = append(b, 'r', byte(h.Sum32()>>24))
	b = append(b, k.Tenant...)
	b = append(b, k.Order...)
	return append(b, k.Benefit...)
}

func (r *raw) read(key []byte) error {
	_, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return closer.Close()
}

// Balances implements Target; there are none.
func (r *raw) Balances(context.Context, ledger.BudgetID) (ledger.Balances, error) {
	return ledger.Balances{}, errNoReads
}

// Counters implements Target.
func (r *raw) Counters(context.Context) (Counters, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Counters{NoConflicts: true, Commands: r.commands.Load(), Batches: maps.Clone(r.sizes)}, nil
}

// Audit implements Target: there is no ledger, but every row must be there.
func (r *raw) Audit(ctx context.Context, _ func(string, uint64)) (*Audit, error) {
	it, err := r.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte("r"), UpperBound: []byte("s")})
	if err != nil {
		return nil, err
	}
	a := &Audit{None: true}
	for ok := it.First(); ok; ok = it.Next() {
		a.Reservations++
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, err
	}
	if a.OK = a.Reservations == r.commands.Load(); !a.OK {
		a.Problems = []string{fmt.Sprintf("%d rows are stored of %d written", a.Reservations, r.commands.Load())}
	}
	return a, nil
}

// Engine implements Target.
func (r *raw) Engine() string { return "Pebble alone, block layout, fsync of every batch" }

// Close implements Target.
func (r *raw) Close() error { return errors.Join(r.db.Close(), r.remove()) }
