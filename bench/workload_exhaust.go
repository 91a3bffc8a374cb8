package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Amounts of exhaust's orders, in minor units, and how its orders relate to
// its money: they ask for more than is left, and a last share of them is for
// the smallest amount, so that what is left in the end is less than any order.
const (
	exhaustLeast  = 5
	exhaustMost   = 45
	exhaustDemand = 2 // orders ask for about so many times what is left
	sweepShare    = 4 // one in so many orders is of the smallest amount, at the end
	// holdsPerBucket is how many holds a bucket's first 99 % are spent in.
	holdsPerBucket = 200
)

// exhaust spends the last hundredth of two budgets, one EXACT and one STRICT,
// by turns. PostgreSQL has only the latter.
type exhaust struct {
	plain
	left int64 // minor units in each budget when the load begins
}

func newExhaust(cfg Config, round int) (workload, error) {
	e := &exhaust{plain: newPlain(cfg, round, 16, ledger.Policy{})}
	kinds := []ledger.Exhaustion{ledger.Exact, ledger.Strict}
	if cfg.Target == "postgres" {
		kinds = kinds[1:]
	}
	e.left = int64(cfg.Orders) / int64(len(kinds)) * (exhaustLeast + exhaustMost) / 2 / exhaustDemand
	buckets := e.specs[0].buckets
	e.specs = nil
	for _, k := range kinds {
		e.specs = append(e.specs, budgetSpec{
			id: e.names.budget("exhaust-" + k.String()), buckets: buckets, funded: e.left * 100, policy: ledger.Policy{Exhaustion: k},
		})
	}
	return e, nil
}

func (e *exhaust) tasks() uint64 { return uint64(e.cfg.Orders) }

func (e *exhaust) expect(code ledger.Code) bool { return code == ledger.InsufficientBudget }

func (e *exhaust) task(i uint64) task {
	minor := int64(exhaustLeast)
	if i < e.tasks()-e.tasks()/sweepShare {
		minor += e.rand(i).Int64N(exhaustMost - exhaustLeast + 1)
	}
	b := e.specs[i%uint64(len(e.specs))].id
	return task{{op: "reserve", commands: []ledger.Command{e.reserve(b, e.names.order(i), minor, holdTTL)}}}
}

// preload spends the first 99 % in small holds. A STRICT budget refuses some of
// them while its other buckets have money left, so it goes on until all is spent.
func (e *exhaust) preload(ctx context.Context, t Target, progress func(done, of int)) error {
	for n, s := range e.specs {
		progress(n, len(e.specs))
		spend, each := s.funded-e.left, max(1, (s.funded-e.left)/int64(holdsPerBucket*s.buckets))
		for next := uint64(n+1) << 32; spend > 0; {
			var cmds []ledger.Command
			for rest := spend; rest > 0 && len(cmds) < fillBatch; next++ {
				r := e.reserve(s.id, e.names.order(next), min(each, rest), holdTTL)
				rest -= r.Amount
				cmds = append(cmds, r)
			}
			for i, reply := range settle(ctx, t, cmds) {
				switch reply.Code {
				case "":
					spend -= cmds[i].Amount
				case ledger.InsufficientBudget:
				default:
					return fmt.Errorf("preload %s: %w", s.id, reply.err())
				}
			}
		}
	}
	return ctx.Err()
}

// check compares what callers were told with what the store says.
func (e *exhaust) check(ctx context.Context, t Target, tally *tally) ([]Check, error) {
	var out []Check
	for _, s := range e.specs {
		b, err := t.Balances(ctx, s.id)
		if err != nil {
			return nil, fmt.Errorf("balances of %s: %w", s.id, err)
		}
		g := tally.budget(s.id)
		name := s.policy.Exhaustion.String()
		taken := b.Reserved + b.Committed - b.Reversed
		out = append(out,
			checkf(name+": never oversold", b.Available >= 0 && taken <= s.funded && b.Funded == s.funded,
				"%d of %d minor units are held or spent, %d are left", taken, s.funded, b.Available),
			checkf(name+": callers were told what is stored", g.accepted == e.left-b.Available,
				"callers were granted %d, the budget went from %d to %d", g.accepted, e.left, b.Available),
			checkf(name+": orders were refused", g.refused > 0, "%d orders taken, %d refused", g.taken, g.refused))
		if s.policy.Exhaustion != ledger.Exact {
			continue
		}
		out = append(out,
			checkf(name+": less than the smallest order is left", b.Available < exhaustLeast, "%d left, the smallest order is %d", b.Available, exhaustLeast),
			checkf(name+": no order was refused while the budget had its amount", g.falsely == 0 && (g.refused == 0 || g.leastRefused > b.Available),
				"%d refusals name an amount that was there; the least amount refused is %d, %d are left", g.falsely, g.leastRefused, b.Available))
	}
	return out, nil
}

// storm is reserves while Preload holds lapse, all within a second or so.
type storm struct {
	plain
	cfgNow func() time.Time
	due    time.Time
}

func newStorm(cfg Config, round int) (workload, error) {
	s := &storm{plain: newPlain(cfg, round, 16, ledger.Policy{}), cfgNow: time.Now}
	lapse := s.specs[0]
	lapse.id = s.names.budget("lapse")
	s.specs = append(s.specs, lapse)
	return s, nil
}

func (s *storm) task(i uint64) task { return s.one(i) }

// stormFill is how many holds a second a preload is sure to store.
const stormFill = 5000

// preload stores holds that are all due at one time: late enough to store
// them all before, to warm up and to see the quiet phase.
func (s *storm) preload(ctx context.Context, t Target, progress func(done, of int)) error {
	s.due = s.cfgNow().Add(time.Second + time.Duration(s.cfg.Preload)*time.Second/stormFill + s.cfg.Warmup + s.cfg.Duration)
	err := fill(ctx, t, s.cfg.Preload, func(i int) ledger.Command {
		return s.reserve(s.specs[1].id, s.names.order(uint64(i)+1<<32), 100, max(time.Second, s.due.Sub(s.cfgNow())))
	}, progress)
	if err == nil && s.due.Sub(s.cfgNow()) < s.cfg.Warmup+s.cfg.Duration/2 {
		return fmt.Errorf("storing %d holds took so long that they lapse before the quiet phase is measured; lower --preload", s.cfg.Preload)
	}
	return err
}

// phase says on which side of the wave an arrival is. The second around its
// beginning belongs to none.
func (s *storm) phase(at time.Time) string {
	switch {
	case at.Before(s.due.Add(-time.Second)):
		return "quiet"
	case at.After(s.due.Add(time.Second)):
		return "storm"
	}
	return ""
}

func (s *storm) until() time.Time { return s.due.Add(s.cfg.Duration) }

// check says how much of the wave has passed: figures of a storm that never
// came say nothing.
func (s *storm) check(ctx context.Context, t Target, _ *tally) ([]Check, error) {
	b, err := t.Balances(ctx, s.specs[1].id)
	if err != nil {
		return nil, fmt.Errorf("balances of %s: %w", s.specs[1].id, err)
	}
	all := int64(s.cfg.Preload) * 100
	return []Check{checkf("holds lapsed during the storm", b.Reserved < all || all == 0, "%d of %d holds lapsed", (all-b.Reserved)/100, s.cfg.Preload)}, nil
}
