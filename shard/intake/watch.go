package intake

import (
	"context"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
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
	if !waiting {
		delete(in.watched, o)
	} else if len(in.watched) < maxWatched {
		in.watched[o] = struct{}{}
	}
}

// Run settles watched orders after their commands, until ctx ends.
func (in *Intake) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-in.wake:
			if _, err := in.settle(ctx, o); err != nil && ctx.Err() == nil {
				in.log.Debug().Err(err).Str("tenant", o.tenant).Msg("facts of an order wait for the scan")
			}
		}
	}
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
	if !waits {
		return
	}
	select {
	case in.wake <- o:
	default: // too many at once: the scan finds it
	}
}
