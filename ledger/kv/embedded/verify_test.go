package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

func TestVerify(t *testing.T) {
	fs := vfs.NewMem()
	writeTables(t, fs, 2)
	opt := memOptions(fs)
	opt.ReadOnly = true
	s := mustOpen(t, opt)
	var told []int64
	var total int64
	if err := s.Verify(t.Context(), func(done, all int64) { told, total = append(told, done), all }); err != nil {
		t.Fatal(err)
	}
	if n := len(told); n == 0 || !slices.IsSorted(told) || told[n-1] != total || total < 200_000 {
		t.Errorf("told of %v bytes of %d, want all of more than 200,000", told, total)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), nil); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := mustOpen(t, memOptions(fs)).Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "open for writing") {
		t.Errorf("open for writing: %v", err)
	}
}

// Wherever a table is damaged, it is found and named.
func TestVerifyFindsDamage(t *testing.T) {
	clean := vfs.NewMem()
	writeTables(t, clean, 1)
	path, content := oneTable(t, clean)
	opened, found := 0, 0
	for at, step := 0, 4999; at < len(content); at += step {
		if at > len(content)-3000 { // indexes, properties, footer
			step = 37
		}
		fs := vfs.NewMem()
		if _, err := vfs.Clone(clean, fs, "/", "/"); err != nil {
			t.Fatal(err)
		}
		b := []byte(content)
		for i := at; i < min(at+4, len(b)); i++ {
			b[i] ^= 0x55
		}
		writeFile(t, fs, path, string(b))
		opt := memOptions(fs)
		opt.ReadOnly = true
		s, err := Open(opt)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d of %d: open: %v", at, len(content), err)
			}
			continue
		}
		opened++
		if err := s.Verify(t.Context(), nil); errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), path) {
			found++
		} else {
			t.Errorf("byte %d of %d: %v", at, len(content), err)
		}
		_ = s.Close()
	}
	if opened == 0 || found != opened {
		t.Errorf("found %d of %d", found, opened)
	}
}

// oneTable is the path and content of the first table.
func oneTable(t *testing.T, fs vfs.FS) (path, content string) {
	t.Helper()
	names, err := fs.List("/s/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".sst") {
			continue
		}
		path = fmt.Sprint("/s/data/", n)
		f, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return path, string(b)
	}
	t.Fatal("no table")
	return "", ""
}

// A table that is gone or was cut off is damage, and found when the store is
// opened.
func TestTablesGoneOrCut(t *testing.T) {
	for _, tc := range []struct {
		harm func(fs vfs.FS, path, content string) error
		want error
	}{
		{func(fs vfs.FS, path, _ string) error { return fs.Remove(path) }, ErrDataMissing},
		{func(fs vfs.FS, path, content string) error {
			writeFile(t, fs, path, content[:len(content)-10])
			return nil
		}, ErrCorrupt},
	} {
		fs := vfs.NewMem()
		writeTables(t, fs, 1)
		path, content := oneTable(t, fs)
		if err := tc.harm(fs, path, content); err != nil {
			t.Fatal(err)
		}
		for _, ro := range []bool{true, false} {
			opt := memOptions(fs)
			opt.ReadOnly = ro
			_, err := Open(opt)
			var oe *OpenError
			if !errors.Is(err, tc.want) || !errors.As(err, &oe) || !strings.Contains(oe.Advice, "backup") {
				t.Errorf("read-only %v: %v, want %v and what to do", ro, err, tc.want)
			}
		}
	}
}

// A store that lost its logs, a marker, or what its marker says is no other
// store: nobody is told to make a new one in its place.
func TestSmallFilesGoneOrDamaged(t *testing.T) {
	remove := func(suffix, prefix string) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fs vfs.FS) {
			names, err := fs.List("/s/data")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				if strings.HasSuffix(n, suffix) && strings.HasPrefix(n, prefix) {
					if err := fs.Remove("/s/data/" + n); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		harm func(t *testing.T, fs vfs.FS)
		want error
	}{
		"no log":           {remove(".log", ""), ErrDataMissing},
		"no format marker": {remove("", "marker.format"), ErrDataMissing},
		"a bad marker":     {func(t *testing.T, fs vfs.FS) { writeFile(t, fs, "/s/STORE", "coffer stork\nformat 1\n") }, ErrCorrupt},
		"an empty marker":  {func(t *testing.T, fs vfs.FS) { writeFile(t, fs, "/s/STORE", "") }, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			writeTables(t, fs, 1)
			tc.harm(t, fs)
			for _, ro := range []bool{true, false} {
				opt := memOptions(fs)
				opt.ReadOnly = ro
				_, err := Open(opt)
				var oe *OpenError
				if !errors.Is(err, tc.want) || errors.Is(err, ErrNotAStore) || !errors.As(err, &oe) || !strings.Contains(oe.Advice, "backup") {
					t.Errorf("read-only %v: %v, want %v and what to do", ro, err, tc.want)
				}
			}
		})
	}
}

// A table that is cut off while the store is open is damage, too.
func TestTableCutOffUnderTheStore(t *testing.T) {
	for _, ro := range []bool{true, false} {
		opt := Options{Dir: t.TempDir() + "/s", CacheBytes: testCache, MemTableBytes: testMemTable}
		s := mustOpen(t, opt)
		if err := errors.Join(fill(t, s, 20<<10, 20), s.db.Flush(), s.Close()); err != nil {
			t.Fatal(err)
		}
		opt.ReadOnly = ro
		s = mustOpen(t, opt)
		tables, err := filepath.Glob(opt.Dir + "/data/*.sst")
		if err != nil || len(tables) == 0 {
			t.Fatal(tables, err)
		}
		for _, path := range tables {
			if err := os.Truncate(path, 100); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := tx.Get([]byte("fill/10/0")).Wait(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("read-only %v: a read ends with %v", ro, err)
		}
		tx.Cancel()
		if err := s.Failure(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("read-only %v: the store's failure is %v", ro, err)
		}
		if ro {
			if err := s.Verify(t.Context(), nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), ".sst") {
				t.Errorf("verify: %v", err)
			}
		}
		_ = s.Close()
	}
}

// The engine meets such a table where it merges it.
func TestTableCutOffMeetsCompaction(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	mem := vfs.NewMem()
	writeTables(t, mem, 2)
	var cut atomic.Bool
	s := mustOpen(t, memOptions(failing(mem, io.EOF, func(op errorfs.Op) bool {
		return cut.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst")
	})))
	if err := errors.Join(put(t, s, "k/000/x"), put(t, s, "k/099/x"), s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	cut.Store(true)
	within(t, "compaction", func() {
		if err := s.db.Compact(t.Context(), []byte("a"), []byte("z"), false); err == nil {
			t.Error("a table was merged that cannot be read")
		}
		<-s.Failed()
	})
	if err := s.Failure(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("failure: %v", err)
	}
	within(t, "close", func() { _ = s.Close() })
}
