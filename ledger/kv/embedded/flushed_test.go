package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// settle writes until all that was committed before is in tables, and the
// store knows it.
func settle(t *testing.T, s *Store) {
	t.Helper()
	before := publishedVersion(s)
	for range 4 + s.opt.MemTableBytes/kv.MaxValueBytes {
		if f := s.flushed.Load(); f != nil && f.since >= before && len(f.written) == 1 {
			return
		}
		set(t, s, "filler", make([]byte, kv.MaxValueBytes))
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("version %d is not known to be in tables: %+v", before, s.flushed.Load())
}

func publishedVersion(s *Store) kv.Version {
	v := s.versions.acquire()
	defer s.versions.release(v)
	return v.version
}

func set(t *testing.T, s *Store, key string, value []byte) {
	t.Helper()
	write(t, s, func(tx kv.Tx) { tx.Set([]byte(key), value) })
}

func write(t *testing.T, s *Store, f func(kv.Tx)) {
	t.Helper()
	if _, err := kv.Transact(t.Context(), s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		f(tx)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// borrowing begins a transaction that has borrowed an iterator.
func borrowing(t *testing.T, s *Store) *tx {
	t.Helper()
	begun, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx := begun.(*tx)
	for i := range 10 { // a filter may name a key for nothing, not ten in a row
		if _, ok, err := tx.Get(fmt.Appendf(nil, "absent-%d", i)).Wait(); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if tx.tables == nil {
		t.Fatalf("ten absent keys were read without the tables (version %d, %+v)", tx.at.version, s.flushed.Load())
	}
	return tx
}

func want(t *testing.T, r kv.Reader, key, value string) {
	t.Helper()
	v, ok, err := r.Get([]byte(key)).Wait()
	if err != nil || ok != (value != "") || string(v) != value {
		t.Fatalf("%s is %q, %t, %v, want %q", key, v, ok, err, value)
	}
}

// A transaction reads some keys from the tables and others from its snapshot.
// The two must agree on one state of the store, whatever is written and
// flushed meanwhile: on what is there and what is not, on keys that begin
// alike, on the empty key and on the transaction's own writes.
func TestReadsFromTables(t *testing.T) {
	s := mustOpen(t, memOptions(vfs.NewMem()))
	fill := func(value string) {
		t.Helper()
		write(t, s, func(tx kv.Tx) {
			for i := 0; i < 40; i += 2 {
				tx.Set(fmt.Appendf(nil, "k%d", i), fmt.Append(nil, value, i))
			}
		})
	}
	fill("old")
	settle(t, s)
	tx := borrowing(t, s)
	defer tx.Cancel()
	want(t, tx, "k0", "old0")
	for round := range 3 {
		for i := range 40 {
			w := fmt.Sprint("old", i)
			if i%2 == 1 {
				w = ""
			}
			if round > 0 && i == 7 {
				w = "own"
			}
			want(t, tx, fmt.Sprint("k", i), w)
		}
		want(t, tx, "", "")
		tx.Set([]byte("k7"), []byte("own"))
		fill(fmt.Sprint("new", round))
		write(t, s, func(tx kv.Tx) { tx.ClearRange(kv.PrefixRange([]byte("k1"))) })
		settle(t, s)
	}
	set(t, s, "", []byte("empty")) // last: an engine built with -race cannot flush it
	want(t, tx, "", "")
	other := borrowing(t, s)
	defer other.Cancel()
	set(t, s, "", []byte("later"))
	want(t, other, "k2", "new22")
	want(t, other, "k12", "")
	want(t, other, "k7", "")
	want(t, other, "", "empty")
}

// What came after the last flush is found, in each of the ways it can come.
func TestWritesAfterAFlushAreSeen(t *testing.T) {
	for name, f := range map[string]func(kv.Tx){
		"set":           func(tx kv.Tx) { tx.Set([]byte("k"), []byte("after")) },
		"clear":         func(tx kv.Tx) { tx.Clear([]byte("k")) },
		"clear range":   func(tx kv.Tx) { tx.ClearRange(kv.PrefixRange([]byte("k"))) },
		"add":           func(tx kv.Tx) { tx.Add([]byte("k"), []byte{1}) },
		"stamped value": func(tx kv.Tx) { tx.SetStampedValue([]byte("k"), make([]byte, 12), 0) },
		"stamped key":   func(tx kv.Tx) { tx.SetStampedKey([]byte("k0123456789"), 1, []byte("v")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, memOptions(vfs.NewMem()))
			set(t, s, "k", []byte("before"))
			settle(t, s)
			write(t, s, f)
			tx := borrowing(t, s)
			defer tx.Cancel()
			rows, _, err := tx.Snapshot().Range(kv.PrefixRange([]byte("k")), kv.RangeOptions{}).Wait()
			if err != nil || (len(rows) == 0) != (name == "clear" || name == "clear range") {
				t.Fatalf("%q, %v", rows, err)
			}
			found := map[string]string{"k": ""}
			for _, row := range rows {
				found[string(row.Key)] = string(row.Value)
			}
			for k, v := range found {
				want(t, tx, k, v)
			}
			if found["k"] == "before" && name != "stamped key" {
				t.Fatal("the write is not there")
			}
		})
	}
}

// A transaction whose version is older than what the filter covers reads its
// snapshot, as does one whose tables ended between the choice and the read.
func TestTablesOfAnotherTime(t *testing.T) {
	s := mustOpen(t, memOptions(vfs.NewMem()))
	set(t, s, "k", []byte("before"))
	settle(t, s)
	begin := func() *tx {
		t.Helper()
		begun, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(begun.Cancel)
		tx := begun.(*tx)
		if _, err := tx.ReadVersion(); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	early, old := begin(), s.flushed.Load()
	if early.flushed != old {
		t.Fatal("a transaction at the current version has not what is flushed")
	}
	set(t, s, "k", []byte("after"))
	settle(t, s)
	if s.flushed.Load().since <= early.at.version {
		t.Fatal("what is flushed is no newer: the test shows nothing")
	}
	if !old.tells(s.hash([]byte("absent")), []byte("absent")) || old.tells(s.hash([]byte("k")), []byte("k")) {
		t.Fatal("the old filter names what was not written, or not what was")
	}
	want(t, early, "k", "before")
	want(t, early, "absent", "")
	if early.tables != nil {
		t.Fatal("borrowed an iterator of tables that are over")
	}
	late := begin()
	if late.flushed != s.flushed.Load() {
		t.Fatal("a transaction at the current version has not what is flushed")
	}
	want(t, late, "k", "after")

	// The committer is ahead of what is published.
	ahead := *s.flushed.Load()
	ahead.since = publishedVersion(s) + 1
	s.flushed.Store(&ahead)
	if between := begin(); between.flushed != nil {
		t.Fatalf("a transaction at %d reads tables of %d", between.at.version, ahead.since)
	}
}

// The version that tables are known to hold is the one before the group that
// came next: with an earlier one, readers of it would find what came after it.
func TestVersionOfAFlush(t *testing.T) {
	s := mustOpen(t, memOptions(vfs.NewMem()))
	commit := func() kv.Version {
		t.Helper()
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx.Set([]byte("k"), make([]byte, kv.MaxValueBytes))
		stamp, err := tx.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stamp.Version()
	}
	first := commit()
	if f := s.flushed.Load(); f == nil || f.since != first-1 {
		t.Fatalf("after the first commit, at %d: %+v", first, f)
	}
	for range 2 + s.opt.MemTableBytes/kv.MaxValueBytes {
		before := s.flushed.Load().since
		at := commit()
		if len(s.flushed.Load().written) == 1 {
			continue
		}
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		commit()
		if got := s.flushed.Load().since; got != at-1 || before != first-1 {
			t.Fatalf("tables hold all up to %d, want %d; before it was %d, want %d", got, at-1, before, first-1)
		}
		return
	}
	t.Fatal("no flush")
}

// While a buffer is being flushed, what is in it is found as well as what is
// written after it.
func TestReadsDuringAFlush(t *testing.T) {
	opt := memOptions(vfs.NewMem())
	s := mustOpen(t, opt)
	set(t, s, "k", []byte("before"))
	settle(t, s)
	set(t, s, "old", nil)
	since := s.flushed.Load().since
	f := flusher{s: s, written: s.flushed.Load().written[0]} // the committer is idle
	if err := f.flush(publishedVersion(s)); err != nil {
		t.Fatal(err)
	}
	var w writeSet
	w.set(s.hash([]byte("during")), []byte("during"), nil)
	f.note(&w)
	now := s.flushed.Load()
	if now.since != since || len(now.written) != 2 || now.written[1] != f.written || now.tables == nil {
		t.Fatalf("during a flush: %+v, want version %d and two filters", now, since)
	}
	for key, tells := range map[string]bool{"k": true, "old": false, "during": false} {
		if got := now.tells(s.hash([]byte(key)), []byte(key)); got != tells {
			t.Errorf("tables tell of %s: %t, want %t", key, got, tells)
		}
	}
	<-f.done
	if err := f.turn(0); err != nil {
		t.Fatal(err)
	}
	now = s.flushed.Load()
	if now.since != f.upTo || len(now.written) != 1 || now.written[0] != f.written || f.done != nil {
		t.Fatalf("after the flush: %+v, want version %d and the new filter", now, f.upTo)
	}
}

// Readers compare each key that the tables tell of with the engine's own
// answer at the same version, while writers write and buffers are flushed.
func TestTablesAgreeWithSnapshots(t *testing.T) {
	opt := memOptions(vfs.NewMem())
	opt.MemTableBytes = 1 << 16
	s := mustOpen(t, opt)
	const keys, writers, commits = 4000, 4, 300
	key := func(rng *rand.Rand) []byte { return fmt.Appendf(nil, "key/%04d", rng.IntN(keys)) }
	var told, flushes atomic.Int64
	var writing, reading sync.WaitGroup
	stop := make(chan struct{})
	for n := range writers {
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for range commits {
				_, err := kv.Transact(t.Context(), s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
					for range 5 {
						switch rng.IntN(8) {
						case 0:
							tx.Clear(key(rng))
						case 1:
							tx.Add(key(rng), []byte{1, 0})
						default:
							tx.Set(key(rng), make([]byte, 20+rng.IntN(200)))
						}
					}
					if rng.IntN(50) == 0 {
						k := key(rng)
						tx.ClearRange(kv.PrefixRange(k[:len(k)-1]))
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 2 {
		reading.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(n)))
			var last *tables
			for {
				select {
				case <-stop:
					return
				default:
				}
				begun, err := s.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				tx := begun.(*tx)
				if _, err := tx.ReadVersion(); err != nil {
					t.Error(err)
					return
				}
				for range 1 + rng.IntN(30) {
					k := key(rng)
					got, ok, err := tx.load(s.hash(k), k)
					if err != nil {
						if errors.Is(err, kv.ErrTooOld) {
							break
						}
						t.Error(err)
						return
					}
					compare(t, tx, k, got, ok)
				}
				if tx.tables != nil {
					told.Add(1)
					if tx.flushed.tables != last {
						last = tx.flushed.tables
						flushes.Add(1)
					}
				}
				tx.Cancel()
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	if told.Load() < 10 || flushes.Load() < 3 {
		t.Fatalf("%d transactions read from the tables of %d flushes: the test shows nothing", told.Load(), flushes.Load())
	}
}

// compare compares an answer with the snapshot's.
func compare(t *testing.T, tx *tx, key, got []byte, ok bool) {
	t.Helper()
	v, closer, err := tx.at.snap.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		if ok {
			t.Errorf("%s at %d is %q, want absent", key, tx.at.version, got)
		}
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	if !ok || !bytes.Equal(v, got) {
		t.Errorf("%s at %d is %q, %t, want %q", key, tx.at.version, got, ok, v)
	}
	_ = closer.Close()
}

// What a store finds in its logs when it is opened is in tables then: a row that
// is in neither the filter nor the tables would be lost to readers.
func TestRowsOfAnUnflushedStore(t *testing.T) {
	fs := vfs.NewMem()
	for life := range 3 {
		s := mustOpen(t, memOptions(fs))
		set(t, s, "filler", nil)
		tx := borrowing(t, s)
		for i := range life * 100 {
			want(t, tx, fmt.Sprint("k", i), "v")
		}
		tx.Cancel()
		for i := range 100 {
			set(t, s, fmt.Sprint("k", life*100+i), []byte("v"))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Files that a compaction has replaced are not kept for the readers of before.
func TestCompactedTablesGo(t *testing.T) {
	s := mustOpen(t, memOptions(vfs.NewMem()))
	for range 3 {
		for i := range 10 {
			set(t, s, fmt.Sprint("k", i), make([]byte, 1000))
		}
		settle(t, s)
	}
	tx := borrowing(t, s)
	if err := s.db.Compact(t.Context(), []byte("a"), []byte("z"), false); err != nil {
		t.Fatal(err)
	}
	if n := s.db.Metrics().Table.ZombieCount; n == 0 {
		t.Fatal("nothing was replaced: the test shows nothing")
	}
	set(t, s, "k", nil)
	if n := s.db.Metrics().Table.ZombieCount; n == 0 {
		t.Fatal("files of a transaction's iterator are gone")
	}
	want(t, tx, "k1", string(make([]byte, 1000)))
	tx.Cancel()
	set(t, s, "k", nil)
	if n := s.db.Metrics().Table.ZombieCount; n != 0 {
		t.Fatalf("%d replaced files are kept", n)
	}
}
