package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s hangs", what)
	}
}

// writeTables makes a store whose rows are in tables, and closes it.
func writeTables(t *testing.T, fs vfs.FS, tables int) {
	t.Helper()
	s := mustOpen(t, memOptions(fs))
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range tables {
		tx, _ := s.Begin(context.Background())
		for i := range 100 {
			v := make([]byte, 1000)
			for j := range v {
				v[j] = byte(rng.Uint32())
			}
			tx.Set(fmt.Appendf(nil, "k/%03d/%d", i, n), v)
		}
		if _, err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// damage changes bytes of every table, at the given share of its length.
func damage(t *testing.T, fs vfs.FS, num, den int) {
	t.Helper()
	names, err := fs.List("/s/data")
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, n := range names {
		if !strings.HasSuffix(n, ".sst") {
			continue
		}
		name := "/s/data/" + n
		f, err := fs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		at := len(b) * num / den
		for i := at; i < min(at+8, len(b)); i++ {
			b[i] ^= 0x55
		}
		writeFile(t, fs, name, string(b))
		hit++
	}
	if hit == 0 {
		t.Fatal("no tables to damage")
	}
}

func TestDamagedTables(t *testing.T) {
	for name, c := range map[string]struct{ tables, num, den int }{
		"middle of one":               {1, 1, 2},
		"middle of many":              {6, 1, 2},
		"near the end, index or meta": {2, 99, 100},
		"footer":                      {1, 1<<20 - 1, 1 << 20},
	} {
		for _, ro := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, ro), func(t *testing.T) {
				fs := vfs.NewMem()
				writeTables(t, fs, c.tables)
				damage(t, fs, c.num, c.den)
				opt := memOptions(fs)
				opt.ReadOnly = ro
				var s *Store
				var err error
				within(t, "open", func() { s, err = Open(opt) })
				if err != nil {
					var oe *OpenError
					if !errors.Is(err, ErrCorrupt) || !errors.As(err, &oe) || oe.Advice == "" {
						t.Fatalf("open: %v", err)
					}
					return
				}
				within(t, "read", func() {
					tx, _ := s.Begin(context.Background())
					defer tx.Cancel()
					_, _, err = tx.Range(kv.Range{Begin: []byte{}, End: []byte("\xff")}, kv.RangeOptions{}).Wait()
				})
				var ke *kv.Error
				if !errors.Is(err, ErrCorrupt) || !errors.As(err, &ke) || ke.Code != kv.CodeIO || !strings.Contains(err.Error(), ".sst") {
					t.Errorf("read: %v", err)
				}
				if !errors.Is(s.Failure(), ErrFailed) || !errors.Is(s.Failure(), ErrCorrupt) {
					t.Errorf("failure: %v", s.Failure())
				}
				if !ro {
					if err := put(t, s, "more"); !errors.Is(err, ErrFailed) {
						t.Errorf("commit: %v", err)
					}
				}
				within(t, "close", func() { err = s.Close() })
				if err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
	}
}

// TestDamagedTableMeetsCompaction lets only the engine itself read a damaged
// table: it must end neither the process nor Close.
func TestDamagedTableMeetsCompaction(t *testing.T) {
	fs := vfs.NewMem()
	writeTables(t, fs, 2)
	damage(t, fs, 1, 2)
	s := mustOpen(t, memOptions(fs))
	for _, key := range []string{"k/000/x", "k/099/x"} { // around all that is in the table
		if err := put(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "compaction", func() {
		if err := s.db.Flush(); err != nil {
			t.Error(err)
		}
		if err := s.db.Compact(context.Background(), []byte("a"), []byte("z"), false); err == nil {
			t.Error("compaction of a damaged table succeeded")
		}
		<-s.Failed()
	})
	if !errors.Is(s.Failure(), ErrCorrupt) {
		t.Errorf("failure: %v", s.Failure())
	}
	within(t, "close", func() { _ = s.Close() })
}

// TestFatalBelowACall takes the engine's fatal report where a caller waits.
func TestFatalBelowACall(t *testing.T) {
	s := mustOpen(t, memOptions(vfs.NewMem()))
	call := func() (err error) {
		defer s.guardRead("get", &err)
		engineLog{s}.Fatalf("table %d is odd", 7)
		return nil
	}
	var err error
	within(t, "call", func() { err = call() })
	var ke *kv.Error
	if !errors.As(err, &ke) || ke.Code != kv.CodeIO || !strings.Contains(err.Error(), "table 7 is odd") {
		t.Fatalf("got %v", err)
	}
	s.abandoned = make(chan struct{}) // it is well, and the test leaks nothing
	s.versions.frozen.Store(false)
	within(t, "close", func() { _ = s.Close() })
}

func TestDataMissing(t *testing.T) {
	for name, lose := range map[string]func(vfs.FS) error{
		"gone":  func(fs vfs.FS) error { return fs.RemoveAll("/s/data") },
		"empty": func(fs vfs.FS) error { return errors.Join(fs.RemoveAll("/s/data"), fs.MkdirAll("/s/data", 0o755)) },
	} {
		for _, ro := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, ro), func(t *testing.T) {
				fs := vfs.NewMem()
				writeTables(t, fs, 1)
				if err := lose(fs); err != nil {
					t.Fatal(err)
				}
				opt := memOptions(fs)
				opt.ReadOnly = ro
				for range 2 { // refusing must not pave the way
					_, err := Open(opt)
					var oe *OpenError
					if !errors.Is(err, ErrDataMissing) || !errors.As(err, &oe) || !strings.Contains(oe.Advice, "restore /s/data from") {
						t.Fatalf("got %v", err)
					}
				}
			})
		}
	}
}

func TestDataWithoutMarkerIsForeign(t *testing.T) {
	fs := vfs.NewMem()
	writeTables(t, fs, 1)
	if err := fs.Remove("/s/STORE"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(memOptions(fs)); !errors.Is(err, ErrNotAStore) {
		t.Fatalf("got %v", err)
	}
}

// TestCrashInTheFirstOpen cuts the power before each operation on the disk of
// a creation: the next Open always takes it up.
func TestCrashInTheFirstOpen(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfs.NewCrashableMem()
	var crashed []*vfs.MemFS
	hook := func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && len(crashed) < 1000 {
			for _, percent := range []int{0, 50, 100} {
				crashed = append(crashed, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
			}
		}
		return nil
	}
	opt := memOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(hook)))
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	n := len(crashed)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n < 30 {
		t.Fatalf("%d points of a crash: the test shows nothing", n)
	}
	for i, fs := range crashed[:n] {
		s, err := Open(memOptions(fs))
		if err != nil {
			names, _ := fs.List("/s")
			t.Errorf("crash %d: %v (%v)", i, err, names)
			continue
		}
		if err := put(t, s, "a"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = mustOpen(t, memOptions(fs))
		tx, _ := s.Begin(context.Background())
		if v, _, err := tx.Get([]byte("a")).Wait(); err != nil || !bytes.Equal(v, []byte("v")) {
			t.Errorf("crash %d: read %q %v", i, v, err)
		}
		tx.Cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
