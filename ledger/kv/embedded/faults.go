package embedded

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// FaultKind is what befalls a commit.
type FaultKind int

const (
	FaultNone FaultKind = iota
	// FaultConflict: answered as a conflict; nothing is written.
	FaultConflict
	// FaultUnknownLanded: committed and answered as unknown (1021).
	FaultUnknownLanded
	// FaultUnknownLost: answered as unknown (1021); nothing is written.
	FaultUnknownLost
	// FaultTimeoutLate: answered as timed out (1031) at once; the commit
	// enters the pipeline when Release is closed, and lands if it is then
	// still free of conflicts and young enough.
	FaultTimeoutLate
)

// Fault is the fate of one commit.
type Fault struct {
	Kind FaultKind
	// Latency passes before anything else happens.
	Latency time.Duration
	// Release lets a FaultTimeoutLate land.
	Release <-chan struct{}
	// Landed, if not nil, is called with the outcome of a late landing.
	Landed func(kv.Stamp, error)
}

// Faults inject faults into a store, for tests. The hooks are set before the
// store is opened and called by many goroutines. A nil *Faults injects none.
type Faults struct {
	// OnCommit decides the fate of each commit that writes.
	OnCommit func() Fault
	// OnRead may fail a read, by the name of its operation.
	OnRead func(op string) error
	// BeforeSync is called when a group is applied and before its sync is
	// waited for.
	BeforeSync func()

	diskBroken atomic.Bool
	mu         sync.Mutex
	hold       chan struct{}
}

// BreakDisk makes every write and sync of the disk fail from now on.
func (f *Faults) BreakDisk() { f.diskBroken.Store(true) }

// HoldSync makes syncs of the disk wait until release is called: what is
// committed meanwhile is not durable, and so not acknowledged.
func (f *Faults) HoldSync() (release func()) {
	ch := make(chan struct{})
	f.mu.Lock()
	f.hold = ch
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		if f.hold == ch {
			f.hold = nil
		}
		f.mu.Unlock()
		close(ch)
	})
}

func (f *Faults) wrap(fs vfs.FS) vfs.FS {
	if f == nil {
		return fs
	}
	return faultyFS{errorfs.Wrap(fs, errorfs.InjectorFunc(f.disk))}
}

// faultyFS has faults in files that are used again, too: errorfs hands those
// out bare, and the engine's logs are such. It makes them anew.
type faultyFS struct{ vfs.FS }

func (fs faultyFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Remove(oldname); err != nil {
		return nil, err
	}
	return fs.Create(newname, c)
}

// disk is asked before every operation on the file system.
func (f *Faults) disk(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		f.mu.Lock()
		hold := f.hold
		f.mu.Unlock()
		if hold != nil {
			<-hold
		}
	}
	if f.diskBroken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		return syscall.EIO
	}
	return nil
}

func (f *Faults) read(op string) error {
	if f == nil || f.OnRead == nil {
		return nil
	}
	return f.OnRead(op)
}

func (f *Faults) beforeSync() {
	if f != nil && f.BeforeSync != nil {
		f.BeforeSync()
	}
}

// commit runs r with the fate that the hook decides.
func (f *Faults) commit(ctx context.Context, s *Store, r *request) (kv.Stamp, error) {
	if f == nil || f.OnCommit == nil {
		return s.run(ctx, r)
	}
	fate := f.OnCommit()
	if fate.Latency > 0 {
		select {
		case <-time.After(fate.Latency):
		case <-ctx.Done():
			s.drop(r)
			return kv.Stamp{}, kv.ContextError(ctx, "commit")
		}
	}
	unknown := &kv.Error{Code: kv.CodeCommitUnknown, Op: "commit", Detail: "injected"}
	switch fate.Kind {
	case FaultConflict:
		s.drop(r)
		return kv.Stamp{}, &kv.Error{Code: kv.CodeConflict, Op: "commit", Detail: "injected"}
	case FaultUnknownLost:
		s.drop(r)
		return kv.Stamp{}, unknown
	case FaultUnknownLanded:
		if _, err := s.run(ctx, r); err != nil {
			return kv.Stamp{}, err
		}
		return kv.Stamp{}, unknown
	case FaultTimeoutLate:
		s.landLate(r, fate)
		return kv.Stamp{}, &kv.Error{Code: kv.CodeTimedOut, Op: "commit", Detail: "injected"}
	}
	return s.run(ctx, r)
}

// landLate commits r when it is released, unless the store closes first.
func (s *Store) landLate(r *request, fate Fault) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		s.drop(r)
		return
	}
	s.late.Add(1)
	go func() {
		defer s.late.Done()
		var stamp kv.Stamp
		var err error
		select {
		case <-fate.Release:
			stamp, err = s.run(context.Background(), r)
		case <-s.ending:
			s.drop(r)
			err = &kv.Error{Code: kv.CodeClosed, Op: "commit"}
		}
		if fate.Landed != nil {
			fate.Landed(stamp, err)
		}
	}()
}

// FaultRates are probabilities, in thousandths of commits.
type FaultRates struct {
	Conflict, UnknownLanded, UnknownLost, Late int
	// LateBy and Latency are the longest delays drawn.
	LateBy, Latency time.Duration
}

// RandomFaults returns a hook for Faults.OnCommit that draws fates with the
// given rates; the same seed draws the same sequence.
func RandomFaults(seed uint64, rates FaultRates) func() Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d) + 1)) }
	return func() Fault {
		mu.Lock()
		defer mu.Unlock()
		f := Fault{Latency: upTo(rates.Latency)}
		n := rng.IntN(1000)
		late := upTo(rates.LateBy)
		for _, c := range []struct {
			rate int
			kind FaultKind
		}{
			{rates.Conflict, FaultConflict},
			{rates.UnknownLanded, FaultUnknownLanded},
			{rates.UnknownLost, FaultUnknownLost},
			{rates.Late, FaultTimeoutLate},
		} {
			if n -= c.rate; n < 0 {
				f.Kind = c.kind
				break
			}
		}
		if f.Kind == FaultTimeoutLate {
			release := make(chan struct{})
			time.AfterFunc(late, func() { close(release) })
			f.Release = release
		}
		return f
	}
}
