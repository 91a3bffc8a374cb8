//go:build fdb

package node_test

import (
	"os"
	"testing"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
)

func init() {
	if cluster := os.Getenv("COFFER_TEST_FDB_CLUSTER"); cluster != "" {
		engines["fdb"] = func(t *testing.T) kv.Store {
			s, err := fdbkv.Open(t.Context(), fdbkv.Options{ClusterFile: cluster})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
}
