//go:build !fdb

package fdbkv

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Open fails with ErrNotBuilt.
func Open(context.Context, Options) (kv.Store, error) { return nil, ErrNotBuilt }

// Check fails with ErrNotBuilt.
func Check(context.Context, Options) error { return ErrNotBuilt }
