package bench

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Allocations implements rpc.Reader.
func (noop) Allocations(context.Context, ledger.OrderKey) ([]store.AllocationView, error) {
	return nil, errNoReads
}

// Wallet implements rpc.Reader.
func (noop) Wallet(context.Context, ledger.BudgetID) (*store.BudgetView, error) {
	return nil, errNoReads
}

// Wallets implements rpc.Reader.
func (noop) Wallets(context.Context, string, store.Page) ([]store.BudgetView, string, error) {
	return nil, "", errNoReads
}

// Statement implements rpc.Reader.
func (noop) Statement(context.Context, ledger.BudgetID, time.Time, time.Time, store.Page) (*store.StatementView, string, error) {
	return nil, "", errNoReads
}

// Job implements rpc.Reader.
func (noop) Job(context.Context, string, string) (*ledger.Reservation, error) {
	return nil, errNoReads
}
