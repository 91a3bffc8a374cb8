package embedded

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// The block layout of a bucket's group commit: one row read and one row
// written a command, and one block, one expiry block, one pointer and one
// balance row a batch.
const (
	benchBatch = 128
	benchRow   = 250
)

func benchKey(b []byte) []byte {
	for o := 0; o < 24; o += 8 {
		binary.LittleEndian.PutUint64(b[o:], mrand.Uint64())
	}
	b[0] &= 0x7F
	return b[:24]
}

// sink takes the reads and writes of one batch.
type sink interface {
	get(key []byte)
	set(key, value []byte)
}

func benchBlock(s sink, val []byte, bucket, seq int) {
	var key [24]byte
	for j := range benchBatch {
		s.get(benchKey(key[:]))
		s.set(benchKey(key[:]), val[j:j+benchRow])
	}
	block := val[:benchBatch*180]
	s.set(fmt.Appendf(nil, "led/%d/%016x", bucket, seq), block)
	s.set(fmt.Appendf(nil, "exp/%d/%016x", bucket, seq), block[:benchBatch*30])
	s.set(fmt.Appendf(nil, "out/%d/%016x", bucket, seq), block[:32])
	hot := fmt.Appendf(nil, "hot/%d", bucket)
	s.get(hot)
	s.set(hot, val[:80])
}

type rawSink struct {
	db *pebble.DB
	b  *pebble.Batch
}

func (s rawSink) get(key []byte) {
	if _, c, err := s.db.Get(key); err == nil {
		c.Close()
	}
}
func (s rawSink) set(key, value []byte) { _ = s.b.Set(key, value, nil) }

type engineSink struct{ tx kv.Tx }

func (s engineSink) get(key []byte)        { s.tx.Get(key).Wait() }
func (s engineSink) set(key, value []byte) { s.tx.Set(key, value) }

// benchRun spreads b.N batches over buckets callers and reports commands/s.
func benchRun(b *testing.B, buckets int, commit func(val []byte, bucket, seq int) error) float64 {
	var next atomic.Int64
	var wg sync.WaitGroup
	start := b.Elapsed()
	for bucket := range buckets {
		wg.Go(func() {
			val := make([]byte, 100_000)
			rand.Read(val)
			for {
				seq := int(next.Add(1))
				if seq > b.N {
					return
				}
				if err := commit(val, bucket, seq); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(b.N*benchBatch) / (b.Elapsed() - start).Seconds()
}

// BenchmarkBlock measures raw Pebble and the engine one after the other with
// the same batches, and reports both rates and their ratio.
func BenchmarkBlock(b *testing.B) {
	for _, buckets := range []int{1, 16} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			raw := benchRaw(b, buckets)
			engine := benchEngine(b, buckets)
			b.ReportMetric(raw, "raw-commands/s")
			b.ReportMetric(engine, "commands/s")
			b.ReportMetric(engine/raw, "ratio")
		})
	}
}

func benchRaw(b *testing.B, buckets int) float64 {
	cache := pebble.NewCache(defaultCacheBytes)
	defer cache.Unref()
	po := &pebble.Options{
		Cache: cache, MemTableSize: defaultMemTableBytes, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, Logger: engineLog{},
	}
	po.EnsureDefaults()
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(b.TempDir(), po)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	return benchRun(b, buckets, func(val []byte, bucket, seq int) error {
		batch := db.NewBatch()
		benchBlock(rawSink{db, batch}, val, bucket, seq)
		defer batch.Close()
		return batch.Commit(pebble.Sync)
	})
}

func benchEngine(b *testing.B, buckets int) float64 {
	s, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	return benchRun(b, buckets, func(val []byte, bucket, seq int) error {
		_, err := kv.Transact(ctx, s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			benchBlock(engineSink{tx}, val, bucket, seq)
			return nil
		})
		return err
	})
}

// BenchmarkAbsent reads keys that are not there, as each new reservation does,
// from a store that is larger than its cache: a few of them, and a batch's
// worth, in one transaction.
func BenchmarkAbsent(b *testing.B) {
	s, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	val := make([]byte, benchRow)
	_, _ = rand.Read(val)
	var key [24]byte
	for range 5000 {
		if _, err := kv.Transact(ctx, s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			for range 300 {
				tx.Set(benchKey(key[:]), val)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	for _, keys := range []int{4, 128} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				if err := kv.Read(ctx, s, kv.Options{}, func(r kv.Reader) error {
					for range keys {
						if _, found, err := r.Get(benchKey(key[:])).Wait(); found || err != nil {
							return fmt.Errorf("found %t: %w", found, err)
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
		})
	}
}
