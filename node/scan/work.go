package scan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// WorkConfig shapes the loop over the due-index of jobs and facts.
type WorkConfig struct {
	// Interval is the time from one pass to the next. A pass that leaves work
	// behind is followed at once.
	Interval time.Duration `yaml:"interval"`
	// Owners is the most tenants and queues one pass looks at in each lane; the
	// next one goes on after them.
	Owners int `yaml:"owners"`
	// PassLimit is the most jobs, and orders with facts, one pass handles,
	// divided equally among the owners.
	PassLimit int `yaml:"pass_limit"`
	// StallAfter is how long no pass may complete before the node says it is
	// not ready.
	StallAfter time.Duration `yaml:"stall_after"`
}

// DefaultWorkConfig looks every second.
func DefaultWorkConfig() WorkConfig {
	return WorkConfig{Interval: time.Second, Owners: 64, PassLimit: 1024, StallAfter: 30 * time.Second}
}

// Validate names every field that is out of range.
func (c WorkConfig) Validate() error {
	var errs []error
	bad := func(field string, v, allowed any) {
		errs = append(errs, fmt.Errorf("%s is %v (allowed: %v)", field, v, allowed))
	}
	if c.Interval < 10*time.Millisecond || c.Interval > time.Hour {
		bad("interval", c.Interval, "10ms to 1h0m0s")
	}
	if c.Owners < 1 || c.Owners > 1024 {
		bad("owners", c.Owners, "1 to 1024")
	}
	if c.PassLimit < c.Owners || c.PassLimit > 1<<16 {
		bad("pass_limit", c.PassLimit, fmt.Sprintf("owners, %d, to %d", c.Owners, 1<<16))
	}
	if c.StallAfter <= c.Interval || c.StallAfter > 24*time.Hour {
		bad("stall_after", c.StallAfter, fmt.Sprintf("more than interval, %s, to 24h0m0s", c.Interval))
	}
	return errors.Join(errs...)
}

// WorkIndex is the due-index of jobs and facts; *store.Store is one.
type WorkIndex interface {
	DueOwners(ctx context.Context, l store.Lane, after work.Place, limit int) ([]store.Owner, error)
	LapseJobs(ctx context.Context, p work.Place, n int) (int, error)
	ForgetJobs(ctx context.Context, p work.Place, n int) (int, error)
	DueFacts(ctx context.Context, tenant string, n int) ([]string, error)
	FactGauges(ctx context.Context) (store.FactGauges, error)
}

// Settler drives the facts of an order; *intake.Intake is one.
type Settler interface {
	Settle(ctx context.Context, tenant, order string) error
}

// Work is the loop that ends leases which ran out, forgets finished jobs, and
// looks again at facts that wait. Make it with NewWork, run it with Run
// while this node leads; the other methods are safe at any time.
//
// Each lane is walked from where the last pass stopped, so many passes come to
// every tenant, and what one pass does is divided equally among those that have
// something due: a backlog of one costs the others nothing. Two loops at once do
// some work twice and nothing wrong: a lease ends once, and a fact is applied
// once.
type Work struct {
	cfg     WorkConfig
	idx     WorkIndex
	settler Settler
	loop    loop

	after map[store.Lane]work.Place
	turn  int

	mu    sync.Mutex
	count WorkCounters
}

// WorkCounters count since the start.
type WorkCounters struct {
	// Passes completed and failed.
	Passes, Failed uint64
	// Lapsed leases, forgotten jobs, and orders whose facts were looked at.
	Lapsed, Forgotten, Settled uint64
	// Deferred orders could not be settled and stay due.
	Deferred uint64
}

// WorkStatus is what the loop knows, and what waits in the store.
type WorkStatus struct {
	WorkCounters
	SincePass time.Duration
	Facts     store.FactGauges
	// OldestPending is how long the oldest fact has waited.
	OldestPending time.Duration
}

// NewWork makes the loop.
func NewWork(cfg WorkConfig, idx WorkIndex, settler Settler, log zerolog.Logger) (*Work, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("work config: %w", err)
	}
	w := &Work{cfg: cfg, idx: idx, settler: settler, after: map[store.Lane]work.Place{}}
	w.loop = newLoop("work", cfg.Interval, cfg.StallAfter, w.pass, log)
	return w, nil
}

// Run makes passes until ctx ends, and then returns nil. A pass that fails is
// logged and tried again; it is the readiness of the node that tells. Where ctx
// has a leader's term (store.WithTerm), Run ends with FENCED once that term has
// passed. It may run again afterwards.
func (w *Work) Run(ctx context.Context) error { return w.loop.run(ctx) }

// Pass makes one pass by hand, for tests and tools.
func (w *Work) Pass(ctx context.Context) error { return w.loop.once(ctx) }

// pass walks all lanes once. One that fails keeps none of the others waiting.
func (w *Work) pass(ctx context.Context) (more bool, err error) {
	var faults []error
	for _, lane := range []store.Lane{store.LaneLeased, store.LaneFacts, store.LaneKept} {
		rest, err := w.lane(ctx, lane)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if fenced(err) {
			return false, err
		}
		if err != nil {
			faults = append(faults, err)
		}
		more = more || rest
	}
	w.turn++
	return more, errors.Join(faults...)
}

// lane handles what is due in one lane. more says that it left some, although
// nothing was wrong.
func (w *Work) lane(ctx context.Context, lane store.Lane) (more bool, err error) {
	owners, err := w.idx.DueOwners(ctx, lane, w.after[lane], w.cfg.Owners)
	if err != nil || len(owners) == 0 {
		return false, err
	}
	w.after[lane] = owners[len(owners)-1].Place
	want := make([]int, len(owners)) // how much each has due is not known
	for i := range want {
		want[i] = w.cfg.PassLimit
	}
	parts := work.Share(want, w.cfg.PassLimit, w.turn)
	var faults []error
	for i, o := range owners {
		n, err := w.owner(ctx, lane, o.Place, min(parts[i], work.MaxBatch))
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		more = more || n >= min(parts[i], work.MaxBatch)
	}
	return more || len(owners) == w.cfg.Owners, errors.Join(faults...)
}

// owner handles up to n things of one queue or tenant.
func (w *Work) owner(ctx context.Context, lane store.Lane, p work.Place, n int) (done int, err error) {
	switch lane {
	case store.LaneLeased:
		done, err = w.idx.LapseJobs(ctx, p, n)
		w.add(func(c *WorkCounters) { c.Lapsed += uint64(done) })
	case store.LaneKept:
		done, err = w.idx.ForgetJobs(ctx, p, n)
		w.add(func(c *WorkCounters) { c.Forgotten += uint64(done) })
	case store.LaneFacts:
		return w.facts(ctx, p.Tenant, n)
	}
	return done, err
}

// facts settles orders of a tenant. One that cannot be settled keeps none of
// the others waiting.
func (w *Work) facts(ctx context.Context, tenant string, n int) (done int, err error) {
	orders, err := w.idx.DueFacts(ctx, tenant, n)
	if err != nil {
		return 0, err
	}
	var faults []error
	for _, o := range orders {
		err := w.settler.Settle(ctx, tenant, o)
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		done++
	}
	w.add(func(c *WorkCounters) { c.Settled += uint64(done); c.Deferred += uint64(len(faults)) })
	if len(faults) > 0 {
		return done, fmt.Errorf("%d orders with facts were not settled: %w", len(faults), faults[0])
	}
	return done, nil
}

func (w *Work) add(change func(*WorkCounters)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.count)
}

// Ready is nil while the loop completes its passes, or does not run.
func (w *Work) Ready() error { return w.loop.ready() }

// Status tells how the loop does. Where the store does not answer, the figures
// of the facts are zero.
func (w *Work) Status(ctx context.Context) WorkStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	g, err := w.idx.FactGauges(ctx)
	l := w.loop.status()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := WorkStatus{WorkCounters: w.count, SincePass: l.sincePass}
	s.Passes, s.Failed = l.passes, l.failed
	if err != nil {
		return s
	}
	if s.Facts = g; !g.OldestPending.IsZero() {
		s.OldestPending = max(0, time.Since(g.OldestPending))
	}
	return s
}
