package bench

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/rpc"
)

// noop is the work of a node whose executor accepts everything at once and
// keeps nothing: what is left is the cost of a call of the same size on the
// same stack, with the same limits and timeouts.
type noop struct{}

// openNoop serves the API over loopback as a node does.
func openNoop(ctx context.Context, cfg Config, deps Deps) (Target, error) {
	if deps.ServeAPI == nil {
		return nil, errors.New("there is no server to start")
	}
	api, err := rpc.NewServer(rpc.DefaultConfig(), rpc.Deps{
		Executor: noop{}, Reader: noop{}, Maintainer: noop{}, Log: zerolog.Nop(),
		Status: func(context.Context) rpc.Status { return rpc.Status{} },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	api.Mount(mux)
	url, stop, err := deps.ServeAPI(ctx, mux)
	if err != nil {
		return nil, err
	}
	r := connected(url, cfg, nil, "")
	r.engine, r.stop, r.keeps = "none: every command is accepted and forgotten", stop, false
	return r, nil
}

// Do accepts a command, with an answer of the usual size.
func (noop) Do(_ context.Context, c ledger.Command) (ledger.Result, error) {
	now := time.Now()
	r := ledger.Result{Key: c.Key, Attempt: 1, Budget: c.Budget}
	if c.Op.OnBudget() {
		r.Definition = &ledger.Budget{ID: c.Budget, Currency: currency, State: ledger.BudgetOpen, Created: now}
		return r, nil
	}
	r.Outcome = ledger.Outcome{State: ledger.StateReserved, Amount: c.Amount, Held: c.Amount, At: now, Expires: now.Add(c.TTL), Seq: 1 << 20}
	r.Outcome.Bucket.Budget = c.Budget
	return r, nil
}

// DoAll accepts many.
func (n noop) DoAll(ctx context.Context, cs []ledger.Command) []ledger.Reply {
	out := make([]ledger.Reply, len(cs))
	for i := range cs {
		out[i].Result, out[i].Err = n.Do(ctx, cs[i])
	}
	return out
}

// errNoReads answers what a load does not ask.
var errNoReads = errors.New("this server keeps nothing to read")

// Budget implements rpc.Reader.
func (noop) Budget(context.Context, ledger.BudgetID) (*store.BudgetView, error) {
	return nil, errNoReads
}

// Budgets implements rpc.Reader.
func (noop) Budgets(context.Context, string, store.Page) ([]store.BudgetView, string, error) {
	return nil, "", errNoReads
}

// Reservation implements rpc.Reader.
func (noop) Reservation(context.Context, ledger.OrderKey) (*ledger.Reservation, error) {
	return nil, errNoReads
}

// Entries implements rpc.Reader.
func (noop) Entries(context.Context, ledger.BudgetID, *uint16, store.Page) ([]store.EntryView, string, error) {
	return nil, "", errNoReads
}

// Replay implements rpc.Reader.
func (noop) Replay(context.Context, ledger.BudgetID, time.Time) (*store.Replay, error) {
	return nil, errNoReads
}

// Explain implements rpc.Reader.
func (noop) Explain(context.Context, string, string, string) (*store.Explanation, error) {
	return nil, errNoReads
}

// Cases implements rpc.Reader.
func (noop) Cases(context.Context, string, store.Page) ([]store.CaseView, string, error) {
	return nil, "", errNoReads
}

// Audit implements rpc.Maintainer.
func (noop) Audit(context.Context, func(string, uint64)) (*store.AuditReport, error) {
	return nil, errNoReads
}

// RebuildExpiry implements rpc.Maintainer.
func (noop) RebuildExpiry(context.Context, func(scanned, written uint64)) error { return errNoReads }
