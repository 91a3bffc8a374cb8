package rpc

import (
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// What the node puts behind the services.
var (
	_ Executor   = (*shard.Executor)(nil)
	_ Reader     = (*store.Store)(nil)
	_ Maintainer = (*store.Store)(nil)
)
