//go:build fdb

package fdbkv

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv/kvtest"
)

// cluster is the cluster file of the cluster that tests may write to.
func cluster(t *testing.T) string {
	t.Helper()
	path := os.Getenv("COFFER_TEST_FDB_CLUSTER")
	if path == "" {
		t.Skip("COFFER_TEST_FDB_CLUSTER names no cluster file")
	}
	return path
}

func TestConformance(t *testing.T) {
	path := cluster(t)
	kvtest.Run(t, func(t *testing.T) kvtest.Harness {
		s, err := Open(t.Context(), Options{ClusterFile: path, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return kvtest.Harness{Store: s, Prefix: fmt.Appendf(nil, "kvtest/%016x/", rand.Uint64())}
	})
}
