package intake

import (
	"context"
	"slices"
	"sync"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/shard/places"
)

// note keeps in mind which orders have facts that are not settled in the store,
// so that a command of such an order settles it at once.
func (in *Intake) note(o order, facts []fact.Row) {
	waiting := slices.ContainsFunc(facts, func(f fact.Row) bool { return f.State.Open() })
	in.mu.RLock()
	_, known := in.watched[o]
	in.mu.RUnlock()
	if known == waiting {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	share, known := in.watched[o]
	switch {
	case known == waiting:
	case !waiting:
		delete(in.watched, o)
		in.room.Give(share, 1)
	default:
		share, full := in.room.Take(o.tenant, 1)
		if full != nil {
			share = in.forget(o.tenant)
		}
		if share != nil {
			in.watched[o] = share
		}
	}
}

// forget stops watching some order of a tenant and gives its place, nil where it
// finds none soon: one whose facts another node has settled would stay for ever.
// What is forgotten too early, the scan finds. The caller holds mu.
func (in *Intake) forget(tenant string) *places.Share {
	looks := 0
	for o, share := range in.watched { // in no order, and from anywhere
		if o.tenant == tenant {
			delete(in.watched, o)
			return share
		}
		if looks++; looks == maxLooks {
			break
		}
	}
	return nil
}

// wakes are watched orders that wait to be settled, in turns of their tenants: one
// with many of them does not keep the others waiting.
type wakes struct {
	mu   sync.Mutex
	line places.Line[order]
	some chan struct{} // has a token where there may be some
}

// add never waits. What is too much for its tenant, the scan finds.
func (w *wakes) add(o order) {
	w.mu.Lock()
	w.line.Add(o.tenant, o, maxWaiting)
	w.mu.Unlock()
	select {
	case w.some <- struct{}{}:
	default:
	}
}

func (w *wakes) take() (o order, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line.Take()
}

// Run settles watched orders after their commands, until ctx ends.
func (in *Intake) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		o, ok := in.wakes.take()
		if !ok {
			select {
			case <-ctx.Done():
			case <-in.wakes.some:
			}
			continue
		}
		if _, err := in.settle(ctx, o); err != nil && ctx.Err() == nil {
			in.log.Debug().Err(err).Str("tenant", o.tenant).Msg("facts of an order wait for the scan")
		}
	}
	return nil
}

// Wrap is the executor, but that an accepted command of an order whose facts
// wait has that order settled soon after. It adds a look into a map to each
// command, and never waits.
func (in *Intake) Wrap(next Executor) Executor { return watching{next, in} }

type watching struct {
	next Executor
	in   *Intake
}

// Do runs one command.
func (w watching) Do(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	r, err := w.next.Do(ctx, c)
	if err == nil {
		w.in.saw(&c)
	}
	return r, err
}

// DoAll runs many commands.
func (w watching) DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply {
	replies := w.next.DoAll(ctx, cmds)
	for i := range replies {
		if replies[i].Err == nil {
			w.in.saw(&cmds[i])
		}
	}
	return replies
}

func (in *Intake) saw(c *ledger.Command) {
	if c.Op.OnBudget() {
		return
	}
	o := order{c.Key.Tenant, c.Key.Order}
	in.mu.RLock()
	_, waits := in.watched[o]
	in.mu.RUnlock()
	if waits {
		in.wakes.add(o)
	}
}
