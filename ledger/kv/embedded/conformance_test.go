package embedded

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/kvtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(alone) != "" { // stores that were failed keep goroutines
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// testCache keeps the many stores of the tests small.
const testCache, testMemTable = 1 << 20, 1 << 20

// harness opens stores for the suite.
type harness struct {
	t     *testing.T
	opt   Options
	mem   *vfs.MemFS // nil on disk
	store *Store
	skew  atomic.Int64

	mu    sync.Mutex
	fates []Fault
}

func openHarness(t *testing.T, mem *vfs.MemFS) kvtest.Harness {
	h := &harness{t: t, mem: mem}
	h.opt = Options{
		Dir: "/var/store", CacheBytes: testCache, MemTableBytes: testMemTable, MaxWatches: 50,
		Clock: func() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) },
	}
	if mem == nil {
		h.opt.Dir = t.TempDir()
	} else {
		h.opt.FS = mem
	}
	h.opt.Faults = &Faults{OnCommit: h.fate}
	h.store = h.open(h.opt)
	out := kvtest.Harness{
		Store: h.store, Prefix: []byte("test/"), MaxWatches: h.opt.MaxWatches,
		Reopen:   h.reopen,
		Advance:  func(d time.Duration) { h.skew.Add(int64(d)) },
		HoldSync: h.opt.Faults.HoldSync,
		Inject:   h.inject,
	}
	if mem != nil {
		out.Crash = h.crash
	}
	return out
}

func (h *harness) open(opt Options) *Store {
	h.t.Helper()
	s, err := Open(opt)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			h.t.Errorf("close: %v", err)
		}
	})
	return s
}

func (h *harness) reopen(t *testing.T) kv.Store {
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	h.store = h.open(h.opt)
	return h.store
}

// crash opens a clone of the file system as it is after a loss of power:
// everything synced, and a random part of the rest.
func (h *harness) crash(t *testing.T) kv.Store {
	cfg := vfs.CrashCloneCfg{}
	h.opt.Faults.mu.Lock()
	if h.opt.Faults.hold == nil {
		seed := rand.Uint64()
		t.Logf("crash seed %d", seed)
		cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed % 101), RNG: rand.New(rand.NewPCG(seed, 1))}
	}
	h.opt.Faults.mu.Unlock()
	h.mem = h.mem.CrashClone(cfg)
	opt := h.opt
	opt.FS, opt.Faults = h.mem, nil
	h.store = h.open(opt)
	return h.store
}

func (h *harness) fate() Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.fates) == 0 {
		return Fault{}
	}
	f := h.fates[0]
	h.fates = h.fates[1:]
	return f
}

func (h *harness) inject(f kvtest.Fault) (land func() error) {
	release, landed := make(chan struct{}), make(chan error, 1)
	kinds := map[kvtest.Fault]FaultKind{
		kvtest.Conflict: FaultConflict, kvtest.UnknownLanded: FaultUnknownLanded,
		kvtest.UnknownLost: FaultUnknownLost, kvtest.LateLanding: FaultTimeoutLate,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fates = append(h.fates, Fault{
		Kind: kinds[f], Release: release,
		Landed: func(_ kv.Stamp, err error) { landed <- err },
	})
	return func() error {
		close(release)
		return <-landed
	}
}

func TestConformanceInMemory(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kvtest.Harness { return openHarness(t, vfs.NewCrashableMem()) })
}

func TestConformanceOnDisk(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kvtest.Harness { return openHarness(t, nil) })
}
