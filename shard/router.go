package shard

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// maxCached bounds the definitions a router keeps; when full it starts over.
const maxCached = 16384

// router names the queue of each command. What it keeps may be stale: the
// store checks every route inside the transaction, and a wrong one costs a
// hop. So definitions are kept until the store says otherwise.
type router struct {
	store *store.Store
	mu    sync.RWMutex
	defs  map[ledger.BudgetID]*ledger.Budget
}

// route sets the queue of every task: commands on a budget go to its first
// bucket, or to that which a move takes from, those that name a budget to the bucket that its current epoch
// gives, and the others to where their reservation is, which one read of all
// of them tells. It returns the tasks that have a queue, in the same slice; the
// others it ended.
func (r *router) route(ctx context.Context, tasks []*task) []*task {
	type try struct {
		ledger.OrderKey
		attempt uint32
	}
	budgets := map[try]ledger.BudgetID{} // named earlier in this call
	var lost []*task
	n, aimed := len(tasks), tasks[:0]
	for _, t := range tasks {
		c := &t.cmd
		if c.Op.OnBudget() { // a move's bucket is From, which is 0 for all others
			t.at, t.routed = ledger.BucketID{Budget: c.Budget, Index: c.From}, true
			aimed = append(aimed, t)
			continue
		}
		id := c.Budget
		if k := (try{c.Key, c.Attempt}); id.IsZero() {
			id = budgets[k]
		} else if n > 1 {
			budgets[k] = id
		}
		if id.IsZero() {
			lost = append(lost, t)
			aimed = append(aimed, t)
			continue
		}
		def, err := r.definition(ctx, id)
		if err != nil {
			t.finish(ledger.Reply{Err: err})
			continue
		}
		r.aim(t, def)
		aimed = append(aimed, t)
	}
	if len(lost) == 0 {
		return aimed
	}
	if err := r.locate(ctx, lost); err != nil {
		for _, t := range lost {
			t.finish(ledger.Reply{Err: err})
		}
		return slices.DeleteFunc(aimed, func(t *task) bool { return slices.Contains(lost, t) })
	}
	return aimed
}

// aim sends a task to the bucket of a definition, or to a queue without a
// bucket where there is no such budget.
func (r *router) aim(t *task, def *ledger.Budget) {
	if def == nil {
		t.at, t.routed = unroutedQueue(t.cmd.Key), false
		return
	}
	t.at, t.routed = def.Route(t.cmd.Key), true
}

// unroutedQueue is a name no bucket can have: its budget has no key. It is the
// tenant's, so that nobody waits, or is refused, for what another tenant sends.
func unroutedQueue(k ledger.OrderKey) ledger.BucketID {
	h := uint32(2166136261)
	for i := 0; i < len(k.Order); i++ {
		h = (h ^ uint32(k.Order[i])) * 16777619
	}
	return ledger.BucketID{Budget: ledger.BudgetID{Tenant: k.Tenant}, Index: uint16(h % unroutedQueues)}
}

// locate finds the buckets of reservations by reading their rows.
func (r *router) locate(ctx context.Context, tasks []*task) error {
	keys := make([]ledger.OrderKey, len(tasks))
	for i, t := range tasks {
		keys[i] = t.cmd.Key
	}
	rows, err := r.store.Locate(ctx, keys)
	if errors.Is(err, &ledger.Rejection{Code: ledger.Corrupt}) {
		// One bad row must not harm the others: each meets its own row in
		// the store.
		rows, err = make([]*ledger.Reservation, len(tasks)), nil
	}
	if err != nil {
		return err
	}
	for i, t := range tasks {
		t.at, t.routed = unroutedQueue(t.cmd.Key), false
		if a := rows[i].Attempt(t.cmd.Attempt); a != nil && a.State.HasLeg() {
			t.at, t.routed = a.Leg.Bucket, true
		}
	}
	return nil
}

func (r *router) cached(id ledger.BudgetID) *ledger.Budget {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.defs[id]
}

// definition gives a budget's definition, nil where there is none. Absence is
// not kept.
func (r *router) definition(ctx context.Context, id ledger.BudgetID) (*ledger.Budget, error) {
	if b := r.cached(id); b != nil {
		return b, nil
	}
	b, err := r.store.Definition(ctx, id)
	if err != nil {
		var rej *ledger.Rejection
		if errors.As(err, &rej) && rej.Code == ledger.BudgetNotFound {
			return nil, nil
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.defs == nil || len(r.defs) >= maxCached {
		r.defs = map[ledger.BudgetID]*ledger.Budget{}
	}
	r.defs[id] = b
	return b, nil
}

// outdated drops a definition whose routing epoch is older than the store's.
func (r *router) outdated(id ledger.BudgetID, epoch uint32) {
	if b := r.cached(id); b != nil && b.Epoch.Number < epoch {
		r.forget(id)
	}
}

// forget drops a definition that may have changed.
func (r *router) forget(id ledger.BudgetID) {
	r.mu.Lock()
	delete(r.defs, id)
	r.mu.Unlock()
}
