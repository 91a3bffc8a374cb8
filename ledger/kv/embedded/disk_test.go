package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// failing is a disk on which the operations fail that the function picks.
func failing(fs vfs.FS, err error, pick func(errorfs.Op) bool) vfs.FS {
	return faultyFS{errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if pick(op) {
			return err
		}
		return nil
	}))}
}

// A disk that has room for logs alone stops the store.
func TestNoRoomForTables(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	s := mustOpen(t, memOptions(failing(vfs.NewMem(), syscall.ENOSPC, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst")
	})))
	if err := put(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	within(t, "filling", func() {
		err := fill(t, s, 20<<10, 1000)
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("commits end with %v", err)
		}
	})
	within(t, "what follows", func() {
		if !holds(t, s, "a") {
			t.Error("a cannot be read any more")
		}
		if err := s.Close(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("close: %v", err)
		}
	})
}

// TestFaultWhileOpening fails the operations on the disk of an open one after
// the other, once or from then on: it says so, the process lives, and a later
// open finds all that was acknowledged.
func TestFaultWhileOpening(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	for name, rows := range map[string]int{"a new store": 0, "a store with a log": 20, "a store with tables to merge": mergeable} {
		for _, lasting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lasting %v", name, lasting), func(t *testing.T) {
				n := 0
				for failOpen(t, n, rows, lasting) {
					n++
				}
				if n < 20 {
					t.Errorf("only %d operations of the disk could fail", n)
				}
			})
		}
	}
}

// mergeable is for a store that has so many tables that an open begins to merge
// them, once it has made one of what is in the log.
const mergeable = -1

// storeOf is the disk of a store that was not closed: with a log of that many rows.
func storeOf(t *testing.T, rows int) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if rows == mergeable {
		writeTables(t, mem, 1)
		rows = 0
	}
	s := mustOpen(t, memOptions(mem))
	if err := errors.Join(put(t, s, "a"), put(t, s, "k/000/x"), put(t, s, "k/099/x"), fill(t, s, 20<<10, rows)); err != nil {
		t.Fatal(err)
	}
	return mem.CrashClone(vfs.CrashCloneCfg{}) // with its log
}

// failOpen fails the nth operation of an open, if there are as many, and with
// lasting all that follow.
func failOpen(t *testing.T, n, rows int, lasting bool) bool {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if rows != 0 {
		mem = storeOf(t, rows)
	}
	var seen atomic.Int64
	var what atomic.Value
	var tabled atomic.Bool
	broken := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(broken) })
	fs := failing(mem, syscall.ENOSPC, func(op errorfs.Op) bool {
		switch {
		case op.Kind == errorfs.OpFileReadAt && below(compacting):
			<-broken // the merge is in the midst of its work
		case op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst"):
			tabled.Store(true)
		case op.Kind == errorfs.OpList && tabled.Load():
			goOn() // the open waits for it next
		}
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite && (op.Kind != errorfs.OpList || !tabled.Load()) {
			return false
		}
		at := seen.Add(1) - 1
		if at == int64(n) {
			what.Store(fmt.Sprintf("%v of %s", op.Kind, op.Path))
			goOn()
		}
		return at == int64(n) || lasting && at > int64(n)
	})
	within(t, fmt.Sprintf("open with operation %d failing", n), func() {
		s, err := Open(memOptions(fs))
		goOn()
		if err == nil {
			_ = s.Close()
			return
		}
		var oe *OpenError
		if !errors.As(err, &oe) || !errors.Is(err, syscall.ENOSPC) || oe.Advice == "" {
			t.Errorf("operation %d, %v: %v", n, what.Load(), err)
		}
	})
	if seen.Load() <= int64(n) {
		return false
	}
	s := mustOpen(t, memOptions(mem.CrashClone(vfs.CrashCloneCfg{})))
	if rows != 0 && !holds(t, s, "a") {
		t.Errorf("operation %d, %v: a is lost", n, what.Load())
	}
	if err := put(t, s, "b"); err != nil {
		t.Errorf("operation %d, %v: the store is of no use: %v", n, what.Load(), err)
	}
	return true
}

// Close waits for a flush whose end nobody will see.
func TestFaultWhileClosing(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	var closing atomic.Bool
	var began <-chan struct{}
	s := mustOpen(t, memOptions(failing(vfs.NewMem(), syscall.EIO, func(op errorfs.Op) bool {
		if !closing.Load() || op.Kind != errorfs.OpFileWrite || !strings.Contains(op.Path, "MANIFEST") {
			return false
		}
		<-began
		return true
	})))
	if err := put(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	began = s.ended // Close is about to wait for the engine
	closing.Store(true)
	if _, err := s.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	within(t, "close", func() {
		if err := s.Close(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("close: %v", err)
		}
	})
}

// A disk that does not say how full it is can be written to all the same.
func TestNoDiskUsage(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	s := mustOpen(t, memOptions(failing(vfs.NewMem(), syscall.EIO, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpGetDiskUsage
	})))
	if err := errors.Join(fill(t, s, 20<<10, 200), s.Close()); err != nil {
		t.Error(err)
	}
}

// The engine reads statistics of tables until it has them. It does not try again
// at once, which would cost a processor, and the store goes on meanwhile.
func TestStatisticsCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		writeTables(t, mem, 1)
		const fails = 3
		reads, read := 0, make(chan struct{})
		start := time.Now()
		s := mustOpen(t, memOptions(failing(mem, syscall.EIO, func(op errorfs.Op) bool {
			if op.Kind != errorfs.OpFileReadAt || !below(statistics) || reads > fails {
				return false
			}
			if reads++; reads > fails {
				close(read)
				return false
			}
			return true
		})))
		if err := put(t, s, "a"); err != nil {
			t.Error(err)
		}
		<-read
		if took := time.Since(start); took != fails*enginePause {
			t.Errorf("%d failed reads took %s, want a pause of %s after each", fails, took, enginePause)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A table that the disk does not give fails the reads that need it, and no others:
// it may give it again. Whoever runs the store hears of it, and which file it is.
func TestTableThatTheDiskDoesNotGive(t *testing.T) {
	mem := vfs.NewMem()
	writeTables(t, mem, 1)
	path, _ := oneTable(t, mem)
	var broken atomic.Bool
	s := mustOpen(t, memOptions(failing(mem, &os.PathError{Op: "read", Path: path, Err: syscall.EIO}, func(op errorfs.Op) bool {
		return broken.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst")
	})))
	read := func(key string) error {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Cancel()
		_, _, err = tx.Get([]byte(key)).Wait()
		return err
	}
	if err := put(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	for range 3 {
		var ke *kv.Error
		if err := read("k/050/0"); !errors.As(err, &ke) || ke.Code != kv.CodeIO || !errors.Is(err, syscall.EIO) || errors.Is(err, ErrCorrupt) {
			t.Errorf("a read ends with %v", err)
		}
	}
	if err := errors.Join(read("a"), put(t, s, "b"), s.Failure()); err != nil {
		t.Errorf("what needs no table: %v", err)
	}
	if err := <-s.ReadFaults(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), path) {
		t.Errorf("told of %v", err)
	}
	if n := s.Stats().ReadFaults; n != 3 {
		t.Errorf("%d reads are counted, want 3", n)
	}
	broken.Store(false)
	if err := errors.Join(read("k/050/0"), s.Close()); err != nil {
		t.Errorf("once the disk is well: %v", err)
	}
}

// An open that the disk does not let read says what to do.
func TestOpenOnADiskThatDoesNotRead(t *testing.T) {
	mem := storeOf(t, 20)
	_, err := Open(memOptions(failing(mem, syscall.EIO, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileRead && strings.HasSuffix(op.Path, ".log")
	})))
	var oe *OpenError
	if !errors.Is(err, syscall.EIO) || errors.Is(err, ErrCorrupt) || !errors.As(err, &oe) || !strings.HasPrefix(oe.Advice, "see that the disk of /s is well, then try again") {
		t.Errorf("open: %v", err)
	}
}

// A commit that the pipeline could not apply says why, whether its caller hears
// that from the pipeline or from the store's failure, which come at once.
func TestReadFailsInTheMidstOfACommit(t *testing.T) {
	mem := vfs.NewMem()
	writeTables(t, mem, 1)
	var broken atomic.Bool
	s := mustOpen(t, memOptions(failing(mem, syscall.EIO, func(op errorfs.Op) bool {
		return broken.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst")
	})))
	began, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began.Add([]byte("k/050/0"), []byte{1})
	broken.Store(true)
	r := began.(*tx).hand()
	if err := s.submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	<-r.done
	var ke *kv.Error
	if !errors.As(r.err, &ke) || ke.CommitOutcome() != kv.Unknown || !errors.Is(r.err, ErrFailed) || !errors.Is(r.err, syscall.EIO) {
		t.Errorf("answered with %v", r.err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Close waits for no commit that waits for a merge that will never be: of tables
// one of which is damaged, while there are too many.
func TestDamageWhileCommitsWaitForTheMerge(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	merge := make(chan struct{})
	s := mustOpen(t, memOptions(failing(vfs.NewMem(), pebble.ErrCorruption, func(op errorfs.Op) bool {
		if op.Kind != errorfs.OpFileReadAt || !below(compacting) {
			return false
		}
		<-merge
		return true
	})))
	filled := make(chan error)
	go func() {
		var err error
		for err == nil { // the same rows again: tables that overlap
			err = fill(t, s, 20<<10, 20)
		}
		filled <- err
	}()
	within(t, "filling", func() {
		stacks := make([]byte, 1<<20)
		for !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("makeRoomForWrite(")) || s.db.Metrics().Levels[0].Sublevels < 12 {
			runtime.Gosched()
		}
		close(merge)
		if err := <-filled; !errors.Is(err, ErrFailed) {
			t.Errorf("commits end with %v", err)
		}
	})
	within(t, "close", func() { _ = s.Close() })
	if err := s.Failure(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("failure: %v", err)
	}
}

// The engine that a store leaves behind still holds a lock of its own. Whoever
// comes before its process has ended is told that, and what to do.
func TestOpenWhileAFailedStoreEnds(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	opt := Options{Dir: t.TempDir() + "/s", CacheBytes: testCache, MemTableBytes: testMemTable}
	s := mustOpen(t, opt)
	s.abandon(syscall.EIO)
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
	_, err := Open(opt)
	var oe *OpenError
	if !errors.Is(err, ErrLocked) || !errors.As(err, &oe) || !strings.HasPrefix(oe.Advice, "stop that process") {
		t.Errorf("open: %v", err)
	}
}
