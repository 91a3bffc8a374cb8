//go:build !fdb

package testengine

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

const built = false

func openCluster(testing.TB) (kv.Store, []byte) { panic("not built with the tag fdb") }

// leaks are the goroutines that outlive every test.
func leaks() []goleak.Option { return nil }
