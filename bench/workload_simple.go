package bench

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/coffer-ledger/coffer/ledger"
)

// hot is one budget with one bucket: every order meets every other. On the
// raw engine its calls carry Batch commands, as a full group commit does.
type hot struct{ plain }

func newHot(cfg Config, round int) (workload, error) {
	return &hot{newPlain(cfg, round, 1, ledger.Policy{})}, nil
}

func (h *hot) task(i uint64) task {
	if h.cfg.Target == "raw" {
		return h.many(i)
	}
	return h.one(i)
}

// one is a call of one reserve.
func (p *plain) one(i uint64) task {
	return task{{op: "reserve", commands: []ledger.Command{p.reserve(p.specs[0].id, p.names.order(i), amount(p.rand(i)), holdTTL)}}}
}

// many is a call of Batch reserves.
func (p *plain) many(i uint64) task {
	r := p.rand(i)
	cmds := make([]ledger.Command, p.cfg.Batch)
	for k := range cmds {
		cmds[k] = p.reserve(p.specs[0].id, p.names.order(i*uint64(p.cfg.Batch)+uint64(k)), amount(r), holdTTL)
	}
	return task{{op: "execute", commands: cmds}}
}

// spread is one budget with 16 buckets: reserve and commit of each order.
type spread struct{ plain }

func newSpread(cfg Config, round int) (workload, error) {
	return &spread{newPlain(cfg, round, 16, ledger.Policy{})}, nil
}

func (s *spread) task(i uint64) task {
	if s.cfg.Target == "raw" {
		return s.many(i)
	}
	return s.pair(s.reserve(s.specs[0].id, s.names.order(i), amount(s.rand(i)), holdTTL))
}

// batch is calls of many reserves over 16 buckets. PostgreSQL gets the same
// reserves as single calls, unless it may take a call in one transaction.
type batch struct{ plain }

func newBatch(cfg Config, round int) (workload, error) {
	return &batch{newPlain(cfg, round, 16, ledger.Policy{})}, nil
}

func (b *batch) task(i uint64) task {
	if b.cfg.Target == "postgres" && !b.cfg.Pipeline {
		return b.one(i)
	}
	return b.many(i)
}

// zipf is many budgets of which few are popular, as promotions are.
type zipf struct{ plain }

func newZipf(cfg Config, round int) (workload, error) {
	z := &zipf{newPlain(cfg, round, 1, ledger.Policy{})}
	first := z.specs[0]
	z.specs = nil
	for i := range cfg.Budgets {
		s := first
		s.id, s.funded = z.names.budget(fmt.Sprintf("z%05d", i)), plenty/1024
		z.specs = append(z.specs, s)
	}
	return z, nil
}

func (z *zipf) task(i uint64) task {
	r := z.rand(i)
	dist := rand.NewZipf(r, z.cfg.Exponent, 1, uint64(len(z.specs)-1))
	if z.cfg.Target == "raw" {
		return z.many(i)
	}
	b := z.specs[dist.Uint64()].id
	return task{{op: "reserve", commands: []ledger.Command{z.reserve(b, z.names.order(i), amount(r), holdTTL)}}}
}

// grown is spread on a store that has held Preload reservations before.
type grown struct {
	spread
	round int
}

func newGrown(cfg Config, round int) (workload, error) {
	return &grown{spread{newPlain(cfg, round, 16, ledger.Policy{})}, round}, nil
}

// preload stores the reservations once for all rounds, unless the target
// starts each from nothing.
func (g *grown) preload(ctx context.Context, t Target, progress func(done, of int)) error {
	if _, anew := t.(resetter); g.round > 0 && !anew {
		return nil
	}
	return fill(ctx, t, g.cfg.Preload, func(i int) ledger.Command {
		return g.reserve(g.specs[0].id, g.names.order(uint64(i)+1<<32), 100, holdTTL)
	}, progress)
}

// fillBatch and fillCallers shape the load of a preload.
const (
	fillBatch   = 500
	fillCallers = 16
)

// fill stores n reservations as fast as the target takes them.
func fill(ctx context.Context, t Target, n int, command func(i int) ledger.Command, progress func(done, of int)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fillCallers)
	for at := 0; at < n && ctx.Err() == nil; at += fillBatch {
		progress(at, n)
		g.Go(func() error {
			cmds := make([]ledger.Command, min(fillBatch, n-at))
			for i := range cmds {
				cmds[i] = command(at + i)
			}
			for i, r := range settle(ctx, t, cmds) {
				if r.Code != "" {
					return fmt.Errorf("preload %s: %w", cmds[i].Key, r.err())
				}
			}
			return nil
		})
	}
	err := g.Wait()
	progress(n, n)
	return err
}

// settleTries bounds how often a command of a preload is sent.
const settleTries = 10

// settle sends commands until each has its answer: what the target could not
// take, or may have taken without saying so, is sent again.
func settle(ctx context.Context, t Target, cmds []ledger.Command) []Reply {
	replies := t.Do(ctx, cmds)
	for range settleTries - 1 {
		var open []int
		var again []ledger.Command
		for i := range replies {
			if replies[i].again() {
				open, again = append(open, i), append(again, cmds[i])
			}
		}
		if len(open) == 0 || ctx.Err() != nil {
			break
		}
		for i, r := range t.Do(ctx, again) {
			replies[open[i]] = r
		}
	}
	return replies
}
