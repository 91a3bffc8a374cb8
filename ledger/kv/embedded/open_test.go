package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

func memOptions(fs vfs.FS) Options {
	return Options{Dir: "/s", FS: fs, CacheBytes: testCache, MemTableBytes: testMemTable}
}

func mustOpen(t *testing.T, opt Options) *Store {
	t.Helper()
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *Store, key string) error {
	t.Helper()
	tx, err := s.Begin(context.Background())
	if err != nil {
		return err
	}
	tx.Set([]byte(key), []byte("v"))
	_, err = tx.Commit(context.Background())
	return err
}

func writeFile(t *testing.T, fs vfs.FS, name, text string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestOpenRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testing.T, vfs.FS) vfs.FS
		ro      bool
		want    error
		names   string // what the directory holds afterwards
	}{
		"locked": {want: ErrLocked, names: "LOCK STORE data", prepare: func(t *testing.T, fs vfs.FS) vfs.FS {
			mustOpen(t, memOptions(fs))
			return fs
		}},
		"foreign": {want: ErrNotAStore, names: "notes.txt", prepare: func(t *testing.T, fs vfs.FS) vfs.FS {
			fs.MkdirAll("/s", 0o755)
			writeFile(t, fs, "/s/notes.txt", "dear diary")
			return fs
		}},
		"strange marker": {want: ErrNotAStore, names: "STORE", prepare: func(t *testing.T, fs vfs.FS) vfs.FS {
			fs.MkdirAll("/s", 0o755)
			writeFile(t, fs, "/s/STORE", "open 9 to 5\n")
			return fs
		}},
		"newer": {want: ErrNewerFormat, names: "STORE", prepare: func(t *testing.T, fs vfs.FS) vfs.FS {
			fs.MkdirAll("/s", 0o755)
			writeFile(t, fs, "/s/STORE", "coffer store\nformat 2\n")
			return fs
		}},
		"read-only medium": {want: ErrReadOnly, prepare: func(t *testing.T, fs vfs.FS) vfs.FS {
			return readOnlyMedium{readOnlyFS{fs}}
		}},
		"absent, to read": {want: ErrNotAStore, ro: true, prepare: func(t *testing.T, fs vfs.FS) vfs.FS { return fs }},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			opt := memOptions(c.prepare(t, fs))
			opt.ReadOnly = c.ro
			_, err := Open(opt)
			var oe *OpenError
			if !errors.Is(err, c.want) || !errors.As(err, &oe) || oe.Dir != "/s" || oe.Advice == "" || !strings.Contains(err.Error(), "/s") {
				t.Fatalf("got %v", err)
			}
			names, _ := fs.List("/s")
			if got := sorted(names); got != c.names {
				t.Fatalf("directory holds %q, want %q", got, c.names)
			}
		})
	}
}

func sorted(names []string) string {
	var keep []string
	for _, want := range []string{"LOCK", "STORE", "data", "notes.txt", "STORE.new"} {
		for _, n := range names {
			if n == want {
				keep = append(keep, n)
			}
		}
	}
	return strings.Join(keep, " ")
}

// readOnlyMedium is a file system mounted read-only.
type readOnlyMedium struct{ readOnlyFS }

func (readOnlyMedium) Lock(name string) (io.Closer, error) { return nil, syscall.EROFS }

func TestReadOnlyStore(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, memOptions(fs))
	if err := put(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, fs := range []vfs.FS{fs, readOnlyMedium{readOnlyFS{fs}}} {
		opt := memOptions(fs)
		opt.ReadOnly = true
		s := mustOpen(t, opt)
		tx, _ := s.Begin(context.Background())
		v, ok, err := tx.Get([]byte("a")).Wait()
		if string(v) != "v" || !ok || err != nil {
			t.Fatalf("got %q %v %v", v, ok, err)
		}
		tx.Cancel()
		err = put(t, s, "b")
		var ke *kv.Error
		if !errors.Is(err, ErrReadOnly) || !errors.As(err, &ke) || ke.CommitOutcome() != kv.NotCommitted || ke.Retryable() {
			t.Fatalf("write to a read-only store: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnfinishedCreationIsTakenUp(t *testing.T) {
	fs := vfs.NewMem()
	fs.MkdirAll("/s", 0o755)
	writeFile(t, fs, "/s/STORE.new", "coff")
	writeFile(t, fs, "/s/LOCK", "")
	if err := put(t, mustOpen(t, memOptions(fs)), "a"); err != nil {
		t.Fatal(err)
	}
}

func TestDiskFailureStopsTheStore(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	opt := memOptions(vfs.NewMem())
	opt.Faults = &Faults{}
	s := mustOpen(t, opt)
	if err := put(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	opt.Faults.BreakDisk()
	var ke *kv.Error
	if err := put(t, s, "b"); !errors.As(err, &ke) || ke.Code != kv.CodeIO || ke.CommitOutcome() != kv.Unknown || !errors.Is(err, ErrFailed) {
		t.Fatalf("commit on a broken disk: %v", err)
	}
	<-s.Failed()
	if err := put(t, s, "c"); !errors.As(err, &ke) || ke.CommitOutcome() != kv.NotCommitted || ke.Retryable() || !errors.Is(err, ErrFailed) {
		t.Fatalf("commit after the failure: %v", err)
	}
	tx, _ := s.Begin(context.Background())
	for key, want := range map[string]bool{"a": true, "b": false} {
		if _, ok, err := tx.Get([]byte(key)).Wait(); ok != want || err != nil {
			t.Fatalf("%s: %v %v, want %v", key, ok, err, want)
		}
	}
	tx.Cancel()
}

func TestCloseEndsEverything(t *testing.T) {
	s := mustOpen(t, memOptions(vfs.NewMem()))
	settle(t, s)
	tx := borrowing(t, s)
	tx.Set([]byte("a"), nil)
	w, err := s.Watch(context.Background(), []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-w.Done()
	if _, _, err := tx.Get([]byte("a")).Wait(); !errors.Is(err, kv.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := tx.Commit(context.Background()); !errors.Is(err, kv.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := s.Begin(context.Background()); !errors.Is(err, kv.ErrClosed) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRunsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := memOptions(vfs.NewMem())
		release := make(chan struct{})
		opt.Faults = &Faults{OnCommit: func() Fault { return Fault{Latency: time.Second} }}
		s := mustOpen(t, opt)
		start := time.Now()
		if err := put(t, s, "a"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != time.Second {
			t.Fatalf("commit took %v", d)
		}
		settle(t, s)
		tx := borrowing(t, s)
		time.Sleep(kv.MaxTxAge + time.Millisecond)
		if _, _, err := tx.Get([]byte("a")).Wait(); !errors.Is(err, kv.ErrTooOld) {
			t.Fatal(err)
		}
		tx.Cancel()
		close(release)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLeakedTransactionIsReaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, memOptions(vfs.NewMem()))
		settle(t, s)
		tx := borrowing(t, s)
		for range 3 {
			if err := put(t, s, "a"); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Stats().LiveVersions; n < 2 {
			t.Fatalf("%d live versions while one is held", n)
		}
		time.Sleep(kv.MaxTxAge + time.Second)
		for range 2 {
			if err := put(t, s, "a"); err != nil {
				t.Fatal(err)
			}
		}
		if st := s.Stats(); st.LiveVersions != 1 || st.RecentWrites > 2 {
			t.Fatalf("%d live versions, %d recent writes, want 1 and few", st.LiveVersions, st.RecentWrites)
		}
		if _, _, err := tx.Get([]byte("a")).Wait(); !errors.Is(err, kv.ErrTooOld) {
			t.Fatal(err)
		}
		tx.Cancel()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Damage in the midst of a log is no end of it: what follows was acknowledged.
// The first log of a store is no other than the next.
func TestDamagedLog(t *testing.T) {
	for name, again := range map[string]bool{"first log": false, "later log": true} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			s := mustOpen(t, memOptions(mem))
			if again {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = mustOpen(t, memOptions(mem))
			}
			for i := range 200 {
				set(t, s, fmt.Sprint("k", i), make([]byte, 1000))
			}
			mem = mem.CrashClone(vfs.CrashCloneCfg{})
			var log []byte
			var path string
			names, err := mem.List("/s/data")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				if !strings.HasSuffix(n, ".log") {
					continue
				}
				f, err := mem.Open("/s/data/" + n)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(f)
				_ = f.Close()
				if err != nil {
					t.Fatal(err)
				}
				if len(b) > len(log) {
					log, path = b, "/s/data/"+n
				}
			}
			for i := range 4 {
				log[100_000+i] ^= 0x55
			}
			writeFile(t, mem, path, string(log))
			_, err = Open(memOptions(mem))
			if want := "open store /s: store is damaged: " + path + ", record at byte 99717: "; !errors.Is(err, ErrCorrupt) || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "restore /s from a backup") {
				t.Fatalf("open: %v, want %s", err, want)
			}
		})
	}
}

// Whoever closes a store that another closes already waits for that: it can be
// opened again then.
func TestCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := memOptions(vfs.NewMem())
		opt.Faults = &Faults{}
		s := mustOpen(t, opt)
		release := opt.Faults.HoldSync()
		var commit, closers sync.WaitGroup
		commit.Go(func() {
			if err := put(t, s, "a"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		var closed atomic.Int32
		for range 2 {
			closers.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				closed.Add(1)
			})
		}
		synctest.Wait()
		if n := closed.Load(); n != 0 {
			t.Errorf("%d returned while a commit was not answered yet", n)
		}
		release()
		commit.Wait()
		closers.Wait()
		if err := mustOpen(t, opt).Close(); err != nil {
			t.Error(err)
		}
	})
}
