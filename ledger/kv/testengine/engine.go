package testengine

import (
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

// clusterEnv names the cluster file of a cluster that tests may write to.
const clusterEnv = "COFFER_TEST_FDB_CLUSTER"

// Cluster is the cluster file of the cluster that tests run on, empty where
// they run on the embedded engine.
func Cluster() string {
	if !built {
		return ""
	}
	return os.Getenv(clusterEnv)
}

// Name is the engine's: "embedded" or "fdb".
func Name() string {
	if Cluster() != "" {
		return "fdb"
	}
	return "embedded"
}

// Open gives an empty store, and the prefix that all keys of the test must
// have. It ends with the test; closing it earlier is allowed.
func Open(t testing.TB) (s kv.Store, prefix []byte) {
	t.Helper()
	if Cluster() != "" {
		return openCluster(t)
	}
	return Embedded(t, vfs.NewMem(), nil), []byte("coffer")
}

// Embedded opens an embedded store that is small, on a file system and with
// faults of the test's own.
func Embedded(t testing.TB, fs vfs.FS, faults *embedded.Faults) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: "store", FS: fs, Faults: faults, CacheBytes: 8 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// OnlyEmbedded skips a test that needs what only the embedded engine has, such
// as injected faults, where tests run on another one.
func OnlyEmbedded(t testing.TB, why string) {
	t.Helper()
	if Name() != "embedded" {
		t.Skipf("only on the embedded engine: %s", why)
	}
}

// Main is the body of TestMain: it runs the tests and fails when goroutines are
// left. Those that are about to end may take a while on a slow machine.
func Main(m *testing.M) { goleak.VerifyTestMain(patient{m}, leaks()...) }

// patience bounds the wait for goroutines that end after the last test.
const patience = time.Minute

type patient struct{ *testing.M }

// Run gives the exit code of the tests, once nothing of theirs is left.
func (p patient) Run() int {
	code := p.M.Run()
	for end := time.Now().Add(patience); code == 0 && time.Now().Before(end); {
		if goleak.Find(leaks()...) == nil { // it looks more than once, for a second
			break
		}
	}
	return code
}
