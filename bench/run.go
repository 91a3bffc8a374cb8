package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bench is a target that is open, and the load for it. It is used by one
// goroutine.
type Bench struct {
	cfg    Config
	deps   Deps
	target Target
	cond   Conditions
	round  int
}

// Run drives one round and audits it. A run that is void gives a *VoidError.
func Run(ctx context.Context, cfg Config, deps Deps) (res *Result, err error) {
	b, err := Open(ctx, cfg, deps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if res, err = b.Drive(ctx); err != nil {
		return nil, err
	}
	if cfg.PeakShare > 0 {
		peak := res.TasksPerSecond
		b.cfg.Rate, b.cfg.Callers = peak*cfg.PeakShare, max(cfg.Callers, PeakCallers)
		if res, err = b.Drive(ctx); err != nil {
			return nil, err
		}
		res.PeakTasksPerSecond = peak
	}
	res.Audit, err = b.Audit(ctx)
	if err != nil {
		return nil, err
	}
	return res, nil
}

// Open checks the config and opens the target.
func Open(ctx context.Context, cfg Config, deps Deps) (*Bench, error) {
	if cfg.RunID == "" {
		id := make([]byte, 4)
		_, _ = rand.Read(id) // never fails
		cfg.RunID = hex.EncodeToString(id)
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid run:\n%w", err)
	}
	if _, err := newWorkload(cfg, 0); err != nil { // what is wrong with it is known before anything starts
		return nil, err
	}
	t, err := openTarget(ctx, cfg, deps)
	if err != nil {
		return nil, err
	}
	return &Bench{cfg: cfg, deps: deps, target: t, cond: conditions(cfg, deps, t)}, nil
}

// Close ends the target.
func (b *Bench) Close() error {
	if err := b.target.Close(); err != nil {
		return fmt.Errorf("close target %s: %w", b.cfg.Target, err)
	}
	return nil
}

// Drive makes the budgets of the next round, drives its load, and checks what
// its workload promises. Its result counts only if an Audit passes that comes
// after it.
func (b *Bench) Drive(ctx context.Context) (*Result, error) {
	if r, ok := b.target.(resetter); ok && b.round > 0 {
		if err := r.reset(ctx); err != nil {
			return nil, fmt.Errorf("reset %s: %w", b.cfg.Target, err)
		}
	}
	w, err := newWorkload(b.cfg, b.round)
	if err != nil {
		return nil, err
	}
	b.round++
	if err := b.prepare(ctx, w); err != nil {
		return nil, err
	}
	before, err := b.target.Counters(ctx)
	if err != nil {
		return nil, fmt.Errorf("counters of %s: %w", b.cfg.Target, err)
	}
	r := newRunner(b.cfg, w, b.target)
	stop := b.watch(ctx, r)
	rec, err := r.run(ctx)
	stop()
	if err != nil {
		return nil, err
	}
	now, err := b.target.Counters(ctx)
	if err != nil {
		return nil, fmt.Errorf("counters of %s: %w", b.cfg.Target, err)
	}
	checks, err := w.check(ctx, b.target, &rec.tally)
	if err != nil {
		return nil, err
	}
	if err := b.void(rec.faults, checks, nil); err != nil {
		return nil, err
	}
	res, err := r.result(rec, before, now)
	if err != nil {
		return nil, err
	}
	res.Checks, res.Conditions = checks, b.cond
	if b.cond.SameMachine {
		res.ResidentBytes = residentBytes()
	}
	return res, nil
}

// prepareCallers is how many budgets are made at once.
const prepareCallers = 32

func (b *Bench) prepare(ctx context.Context, w workload) error {
	specs := w.budgets()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(prepareCallers)
	for i, s := range specs {
		b.deps.progress(Progress{What: "make budgets", Done: uint64(i), Of: uint64(len(specs))})
		g.Go(func() error { return b.target.Make(gctx, s) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p, ok := w.(preloader)
	if !ok {
		return nil
	}
	return p.preload(ctx, b.target, func(done, of int) {
		b.deps.progress(Progress{What: "preload", Done: uint64(done), Of: uint64(of)})
	})
}

// watch tells how far the round is, ten times a second.
func (b *Bench) watch(ctx context.Context, r *runner) (stop func()) {
	if b.deps.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	start, all := time.Now(), b.cfg.Warmup+b.cfg.Duration
	go func() {
		defer close(done)
		for sleep(ctx, 100*time.Millisecond) {
			what, since := "run", time.Since(start)
			if since < b.cfg.Warmup {
				what = "warm up"
			}
			b.deps.progress(Progress{What: what, Done: uint64(since / time.Millisecond), Of: uint64(all / time.Millisecond), Commands: r.answered.Load()})
		}
	}()
	return func() { cancel(); <-done }
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Audit checks what all rounds so far have stored. What it finds is a
// *VoidError.
func (b *Bench) Audit(ctx context.Context) (*Audit, error) {
	a, err := b.target.Audit(ctx, func(phase string, done uint64) {
		b.deps.progress(Progress{What: "audit " + phase, Done: done})
	})
	if err != nil {
		return nil, fmt.Errorf("audit of %s: %w", b.cfg.Target, err)
	}
	if err := b.void(a.Problems, nil, a); err != nil {
		return nil, err
	}
	return a, nil
}

// void is the error of what went wrong, nil if nothing did.
func (b *Bench) void(faults []string, checks []Check, a *Audit) error {
	for _, c := range checks {
		if !c.OK {
			faults = append(faults, c.Name+": not so: "+c.Says)
		}
	}
	if a != nil && !a.OK && len(faults) == 0 {
		faults = append(faults, "the audit failed")
	}
	if len(faults) == 0 {
		return nil
	}
	return &VoidError{Workload: b.cfg.Workload, Target: b.cfg.Target, Faults: faults, Checks: checks, Audit: a}
}
