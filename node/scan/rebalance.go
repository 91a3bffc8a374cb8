package scan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// Budgets gives scanners all budgets, page by page; *store.Store is one.
type Budgets interface {
	AllBudgets(ctx context.Context, from []byte, limit int, want func(*ledger.Budget) bool) (store.BudgetPage, error)
}

// Loads tells what this node did to the buckets of a budget; *shard.Executor is
// one.
type Loads interface {
	Loads(id ledger.BudgetID) map[uint16]shard.BucketLoad
}

// noStall is the bound of a loop whose passes no customer waits for: it takes
// no node out of service, its metric tells.
const noStall = 24 * time.Hour

// maxWatched bounds the budgets whose load is followed; when full it starts over.
const maxWatched = 8192

// Rebalance is the loop that keeps budgets level over their buckets, brings home
// what retired buckets got back and, where that is on, gives budgets another
// number of buckets. Make it with NewRebalance, run it with Run while this node
// leads; the other methods are safe at any time.
//
// What it does are commands like any other, planned from balances that may have
// changed by then: what no longer fits is refused and planned anew. Two loops at
// once make the same plan of the same state, under the same keys, so it is
// carried out once.
type Rebalance struct {
	cfg   RebalanceConfig
	adapt shard.Adapting
	all   Budgets
	loads Loads
	exec  Executor
	loop  loop
	log   zerolog.Logger

	next    []byte // where the next pass begins, nil: at the first budget
	watched map[ledger.BudgetID]*watched

	mu     sync.Mutex
	count  RebalanceCounters
	widest float64 // of the round that is being made
}

// watched is what the loop remembers of a budget's load.
type watched struct {
	epoch              uint32
	since              time.Time // when the epoch was first seen
	batches, conflicts uint64
	queued             float64
	// entries are those of the buckets in use when they were looked at last.
	entries uint64
	at      time.Time
}

// RebalanceCounters count since the start.
type RebalanceCounters struct {
	// Passes completed and failed.
	Passes, Failed uint64
	// Budgets that were looked at, Moves made, those refused because the state
	// had changed, and those that the store or the queue did not take.
	Budgets, Moves, Refused, Deferred uint64
	// Resharded counts budgets that got another number of buckets.
	Resharded uint64
	// WidestSkew is the largest skew of the last round over all budgets.
	WidestSkew float64
}

// RebalanceStatus is what the loop knows about itself.
type RebalanceStatus struct {
	RebalanceCounters
	Running   bool
	SincePass time.Duration
}

// NewRebalance makes the loop.
func NewRebalance(cfg RebalanceConfig, adapt shard.Adapting, all Budgets, loads Loads, exec Executor, log zerolog.Logger) (*Rebalance, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rebalance config: %w", err)
	}
	if err := adapt.Validate(); err != nil {
		return nil, fmt.Errorf("adapt config: %w", err)
	}
	r := &Rebalance{cfg: cfg, adapt: adapt, all: all, loads: loads, exec: exec, log: log, watched: map[ledger.BudgetID]*watched{}}
	r.loop = newLoop("rebalance", cfg.Interval, noStall, r.pass, log)
	return r, nil
}

// Run makes passes until ctx ends, and then returns nil; at once where the loop
// is off. Where ctx has a leader's term (store.WithTerm), it ends with FENCED
// once that term has passed. It may run again afterwards.
func (r *Rebalance) Run(ctx context.Context) error {
	if !r.cfg.Enabled && !r.adapt.Enabled {
		return nil
	}
	return r.loop.run(ctx)
}

// Pass makes one pass by hand, for tests and tools.
func (r *Rebalance) Pass(ctx context.Context) error { return r.loop.once(ctx) }

// Status tells how the loop does.
func (r *Rebalance) Status() RebalanceStatus {
	l := r.loop.status()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RebalanceStatus{RebalanceCounters: r.count, Running: l.running, SincePass: l.sincePass}
	s.Passes, s.Failed = l.passes, l.failed
	return s
}

func (r *Rebalance) wants(b *ledger.Budget) bool {
	return b.Kind == ledger.KindPromotion && b.State == ledger.BudgetOpen && (b.Made() > 1 || r.adapt.Enabled)
}

// pass looks at budgets from where the last pass stopped, up to the last of
// them or its limit. What is wrong with one of them keeps none of the others
// waiting. more is always false: there is no hurry.
func (r *Rebalance) pass(ctx context.Context) (more bool, err error) {
	var faults []error
	for left := r.cfg.PassLimit; left > 0; {
		start := time.Now()
		page, err := r.all.AllBudgets(ctx, r.next, min(left, store.MaxBudgetPage), r.wants)
		if err != nil {
			return false, err
		}
		work := page.Looked
		for i := range page.Budgets {
			n, err := r.budget(ctx, &page.Budgets[i])
			work += n
			if ctx.Err() != nil || fenced(err) {
				return false, errors.Join(err, ctx.Err())
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("budget %s: %w", page.Budgets[i].ID, err))
			}
		}
		left -= max(page.Looked, 1)
		r.looked(page.Looked, page.Next == nil)
		r.next = page.Next
		if err := pause(ctx, start, work, r.cfg.Rate); err != nil {
			return false, err
		}
		if r.next == nil {
			break
		}
	}
	return false, errors.Join(faults...)
}

// looked counts budgets, and ends a round over all of them.
func (r *Rebalance) looked(n int, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count.Budgets += uint64(n)
	if last {
		r.count.WidestSkew, r.widest = r.widest, 0
	}
}

// budget does for one budget what its state asks for, and returns how many
// commands that took.
func (r *Rebalance) budget(ctx context.Context, v *store.BudgetView) (int, error) {
	living := make([]int64, 0, v.Budget.Buckets())
	for i := range v.Buckets {
		if int(v.Buckets[i].ID.Index) < v.Budget.Buckets() {
			living = append(living, v.Buckets[i].Available)
		}
	}
	r.mu.Lock()
	r.widest = max(r.widest, shard.Skew(living))
	r.mu.Unlock()
	if r.adapt.Enabled {
		m := r.measure(v)
		if n := shard.Adapt(m, r.adapt); n != v.Budget.Buckets() {
			r.log.Info().Str("tenant", v.ID.Tenant).Str("budget", v.ID.String()).Int("buckets", v.Budget.Buckets()).Int("new_buckets", n).
				Float64("queued", m.Queued).Float64("conflict_percent", m.Conflicts).Float64("left_percent", m.Left).Msg("resharding")
			// It levels the budget, too.
			return 1, r.send(ctx, []ledger.Command{shard.AdaptCommand(&v.Budget, n)}, &r.count.Resharded)
		}
	}
	if !r.cfg.Enabled {
		return 0, nil
	}
	moves := shard.PlanRebalance(v, r.cfg.plan())
	if len(moves) == 0 {
		return 0, nil
	}
	return len(moves), r.send(ctx, shard.MoveCommands(v, moves), &r.count.Moves)
}

// send runs commands and counts what became of them.
func (r *Rebalance) send(ctx context.Context, cmds []ledger.Command, done *uint64) error {
	replies := r.exec.DoAll(ctx, cmds)
	r.mu.Lock()
	defer r.mu.Unlock()
	var fault error
	for _, reply := range replies {
		var rej *ledger.Rejection
		switch {
		case reply.Err == nil && !reply.Result.Replayed:
			*done++
		case reply.Err == nil:
			r.count.Refused++ // another loop was first
		case fenced(reply.Err):
			return reply.Err
		case errors.As(reply.Err, &rej) && stale(rej):
			r.count.Refused++
		default:
			r.count.Deferred++
			fault = reply.Err
		}
	}
	return fault
}

// stale reports whether a refusal says that the plan was made on a state that
// has changed.
func stale(r *ledger.Rejection) bool {
	switch r.Code {
	case ledger.InsufficientBudget, ledger.BudgetIllegalState, ledger.IdempotencyConflict:
		return true
	default:
		return false
	}
}

// measure is the pressure on a budget since the last look at it. What waits and
// what conflicts is known of this node alone; how fast commands come, of all: a
// bucket's ledger grows whoever works on it.
func (r *Rebalance) measure(v *store.BudgetView) shard.Pressure {
	now := time.Now()
	n := v.Budget.Buckets()
	var rate, queued float64
	var batches, conflicts, entries uint64
	for i := range v.Buckets {
		if int(v.Buckets[i].ID.Index) < n {
			entries += v.Buckets[i].Seq
		}
	}
	for i, l := range r.loads.Loads(v.ID) {
		if int(i) >= n {
			continue
		}
		rate += l.Rate / float64(n)
		queued += float64(l.Queued) / float64(n)
		batches += l.Batches
		conflicts += l.Conflicts
	}
	w := r.watched[v.ID]
	if w == nil || w.epoch != v.Epoch.Number {
		if len(r.watched) >= maxWatched {
			clear(r.watched)
		}
		w = &watched{epoch: v.Epoch.Number, since: now, batches: batches, conflicts: conflicts, entries: entries, at: now}
		r.watched[v.ID] = w
	}
	if since := now.Sub(w.at).Seconds(); since > 0 && entries > w.entries {
		rate = max(rate, float64(entries-w.entries)/since/float64(n))
	}
	w.entries, w.at = entries, now
	w.queued = (w.queued + queued) / 2
	m := shard.Pressure{Buckets: n, Queued: w.queued, Rate: rate, Left: shard.Left(v.Total), SinceChange: now.Sub(w.since)}
	if batches > w.batches && conflicts >= w.conflicts {
		m.Conflicts = 100 * float64(conflicts-w.conflicts) / float64(batches-w.batches)
	}
	w.batches, w.conflicts = batches, conflicts
	return m
}
