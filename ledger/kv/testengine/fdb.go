//go:build fdb

package testengine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
)

const built = true

func openCluster(t testing.TB) (s kv.Store, prefix []byte) {
	t.Helper()
	open := func() kv.Store {
		s, err := fdbkv.Open(context.Background(), fdbkv.Options{ClusterFile: Cluster()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s = open()
	prefix = fmt.Appendf(nil, "test/%016x", rand.Uint64())
	t.Cleanup(func() {
		_ = s.Close()
		wiper := open() // the test may have closed its own
		if err := wipe(wiper, prefix); err != nil {
			t.Errorf("clear the test's prefix: %v", err)
		}
		_ = wiper.Close()
	})
	return s, prefix
}

// Leaks are the goroutines that outlive every test: the client library's
// network thread lives as long as the process.
func Leaks() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb._Cfunc_fdb_run_network")}
}
