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

func connect(t testing.TB) kv.Store {
	t.Helper()
	s, err := fdbkv.Open(context.Background(), fdbkv.Options{ClusterFile: Cluster()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openCluster(t testing.TB) (s kv.Store, prefix []byte) {
	t.Helper()
	s = connect(t)
	prefix = fmt.Appendf(nil, "test/%016x", rand.Uint64())
	t.Cleanup(func() {
		_ = s.Close()
		Wipe(t, prefix)
	})
	return s, prefix
}

// Wipe removes all keys with a prefix from the cluster.
func Wipe(t testing.TB, prefix []byte) {
	t.Helper()
	s := connect(t)
	defer s.Close() //nolint:errcheck // nothing of it is used any more
	_, err := kv.Transact(context.Background(), s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.PrefixRange(prefix))
		return nil
	})
	if err != nil {
		t.Errorf("clear the test's prefix: %v", err)
	}
}

// leaks are the goroutines that outlive every test: the client library's
// network thread lives as long as the process.
func leaks() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb._Cfunc_fdb_run_network")}
}
