package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// alone is set in the process in which a test runs alone.
const alone = "COFFER_TEST_ALONE"

// runsAlone runs the test in a process of its own, in which it is true: a fault
// of the disk may end the process, and the stores that one fails keep some
// goroutines for good.
func runsAlone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(alone) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), alone+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestFaultWhereALogBegins lets each operation on the disk fail once that ends
// a log or begins the next.
func TestFaultWhereALogBegins(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	for name, size := range map[string]int{
		"its buffer is full": 20 << 10,
		"a batch is large":   testMemTable * 3 / 4,
	} {
		enough := 2*testMemTable/size + 1 // commits that surely change the log
		t.Run(name, func(t *testing.T) {
			n := 0
			for failAt(t, n, size, enough) {
				n++
			}
			if n < 4 {
				t.Errorf("only %d operations of the disk could fail", n)
			}
		})
		t.Run(name+" and the disk breaks before", func(t *testing.T) {
			for before := range enough {
				opt := memOptions(vfs.NewMem())
				opt.Faults = &Faults{}
				s := mustOpen(t, opt)
				if err := errors.Join(put(t, s, "a"), fill(t, s, size, before)); err != nil {
					t.Fatal(err)
				}
				opt.Faults.BreakDisk()
				stopsWell(t, s, fill(t, s, size, 1))
			}
		})
	}
}

// failAt fails the nth operation of those that end a log and begin another, if
// there are as many, and checks what comes of it.
func failAt(t *testing.T, n, size, enough int) bool {
	t.Helper()
	var armed atomic.Bool
	var seen atomic.Int32
	mem := vfs.NewCrashableMem()
	opt := memOptions(faultyFS{errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && below(rotation) && seen.Add(1) == int32(n)+1 {
			return syscall.ENOSPC
		}
		return nil
	}))})
	s := mustOpen(t, opt)
	for i := range 3 { // logs to use again
		if err := errors.Join(put(t, s, fmt.Sprint("old", i)), s.db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	err := fill(t, s, size, enough)
	if int(seen.Load()) <= n {
		if err != nil {
			t.Errorf("without a fault: %v", err)
		}
		return false
	}
	var ke *kv.Error
	if !errors.As(err, &ke) || ke.CommitOutcome() != kv.Unknown || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("operation %d: %v (allowed: unknown, with its cause)", n, err)
	}
	stopsWell(t, s, err)
	restarted := mustOpen(t, memOptions(mem.CrashClone(vfs.CrashCloneCfg{})))
	if !holds(t, restarted, "a") || holds(t, restarted, "b") {
		t.Errorf("operation %d: after a restart a is there: %v, b: %v", n, holds(t, restarted, "a"), holds(t, restarted, "b"))
	}
	if err := put(t, restarted, "b"); err != nil {
		t.Error(err)
	}
	return true
}

// fill commits rows of a size until one fails.
func fill(t *testing.T, s *Store, size, rows int) error {
	t.Helper()
	for n := range rows {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const part = 20 << 10
		for at := 0; at < size; at += part {
			tx.Set(fmt.Appendf(nil, "fill/%d/%d", n, at), make([]byte, part))
		}
		if _, err := tx.Commit(t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// stopsWell checks what is promised of a store that the disk failed: err is of
// the commit that met it.
func stopsWell(t *testing.T, s *Store, err error) {
	t.Helper()
	if !errors.Is(err, ErrFailed) {
		t.Errorf("commit that met the fault, or came right after a flush that did: %v", err)
	}
	var ke *kv.Error
	within(t, "all that follows", func() {
		<-s.Failed()
		if err := put(t, s, "b"); !errors.As(err, &ke) || ke.CommitOutcome() != kv.NotCommitted || !errors.Is(err, ErrFailed) {
			t.Errorf("commit after the failure: %v", err)
		}
		if !holds(t, s, "a") || holds(t, s, "b") {
			t.Errorf("a is there: %v, b: %v", holds(t, s, "a"), holds(t, s, "b"))
		}
		_ = s.Stats()
		_ = s.Close()
	})
}

func holds(t *testing.T, s *Store, key string) bool {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	_, ok, err := tx.Get([]byte(key)).Wait()
	if err != nil {
		t.Errorf("read %s: %v", key, err)
	}
	return ok
}
