package scan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Bounds of the integrity loop.
const (
	// lookEntries is how many entries a look at a bucket counts as.
	lookEntries = 16
	// maxSteps is the most steps over one bucket in a pass.
	maxSteps = 64
	// maxDifferences bounds those that are remembered; when full they are told
	// anew.
	maxDifferences = 1024
	// maxTold is the most bytes of a difference that its FREEZE carries.
	maxTold = 96
)

// Verifier replays buckets; *store.Store is one.
type Verifier interface {
	Budgets
	VerifyNext(ctx context.Context, id ledger.BucketID, floor int64, round store.Round, every time.Duration) (store.Verification, error)
	VerifyBucket(ctx context.Context, id ledger.BucketID, floor int64) (store.BucketReplay, error)
}

// Integrity is the loop that replays every bucket's ledger from where it was
// last verified, and all of it again and again, and compares with the bucket's
// row. A difference is told (log, metric) and freezes new reservations of the
// budget; commits, releases and refunds go on. Make it with NewIntegrity, run it
// with Run while this node leads; the other methods are safe at any time.
//
// A difference freezes its budget once: whoever unfreezes it has decided, and is
// not overruled before there is another one. Two loops at once find the same
// differences and send the same commands.
type Integrity struct {
	cfg  IntegrityConfig
	v    Verifier
	exec Executor
	loop loop
	log  zerolog.Logger

	next []byte // where the next pass begins, nil: at the first budget

	mu    sync.Mutex
	known map[string]difference // by place
	count IntegrityCounters
	lag   uint64 // of the round that is being made
}

// difference is what is remembered of one.
type difference struct {
	key     string // tells it from others in the same place
	settled bool   // the FREEZE was taken: now, or before
}

// IntegrityCounters count since the start.
type IntegrityCounters struct {
	// Passes completed and failed.
	Passes, Failed uint64
	// Looks at buckets, and Entries replayed.
	Looks, Entries uint64
	// Frozen budgets, and those that should have been and could not.
	Frozen, FreezeFailed uint64
	// Lag is how many entries were not yet replayed when the last round over all
	// budgets ended.
	Lag uint64
}

// IntegrityStatus is what the loop knows about itself.
type IntegrityStatus struct {
	IntegrityCounters
	Running   bool
	SincePass time.Duration
	// Differences is the number that are there now, as far as is known.
	Differences int
}

// NewIntegrity makes the loop.
func NewIntegrity(cfg IntegrityConfig, v Verifier, exec Executor, log zerolog.Logger) (*Integrity, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("integrity config: %w", err)
	}
	g := &Integrity{cfg: cfg, v: v, exec: exec, log: log, known: map[string]difference{}}
	g.loop = newLoop("integrity", cfg.Interval, noStall, g.pass, log)
	return g, nil
}

// Run makes passes until ctx ends, and then returns nil; at once where the loop
// is off. Where ctx has a leader's term (store.WithTerm), it ends with FENCED
// once that term has passed. It may run again afterwards.
func (g *Integrity) Run(ctx context.Context) error {
	if !g.cfg.Enabled {
		return nil
	}
	return g.loop.run(ctx)
}

// Pass makes one pass by hand, for tests and tools.
func (g *Integrity) Pass(ctx context.Context) error { return g.loop.once(ctx) }

// Status tells how the loop does.
func (g *Integrity) Status() IntegrityStatus {
	l := g.loop.status()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := IntegrityStatus{IntegrityCounters: g.count, Running: l.running, SincePass: l.sincePass, Differences: len(g.known)}
	s.Passes, s.Failed = l.passes, l.failed
	return s
}

func anyBudget(*ledger.Budget) bool { return true }

// pass looks at budgets from where the last pass stopped, up to the last of
// them or its limit. more says that buckets have entries left.
func (g *Integrity) pass(ctx context.Context) (more bool, err error) {
	var faults []error
	for left := g.cfg.PassLimit; left > 0; {
		start := time.Now()
		page, err := g.v.AllBudgets(ctx, g.next, min(left, store.MaxBudgetPage), anyBudget)
		if err != nil {
			return false, err
		}
		entries := uint64(0)
		note := func(err error) error {
			if ctx.Err() != nil || fenced(err) {
				return errors.Join(err, ctx.Err())
			}
			if err != nil {
				faults = append(faults, err)
			}
			return nil
		}
		for i := range page.Unreadable {
			u := &page.Unreadable[i]
			if err := note(g.differs(ctx, u.ID, u.Budget, u.ID.String(), keyOf("unreadable", u.Problem), u.Problem)); err != nil {
				return false, err
			}
		}
		for i := range page.Budgets {
			n, rest, err := g.budget(ctx, &page.Budgets[i], start)
			entries += n
			more = more || rest
			if err := note(err); err != nil {
				return false, err
			}
		}
		left -= max(page.Looked, 1)
		if g.next = page.Next; g.next == nil {
			g.mu.Lock()
			g.count.Lag, g.lag = g.lag, 0
			g.mu.Unlock()
		}
		if err := pause(ctx, start, int(entries), g.cfg.Rate); err != nil {
			return false, err
		}
		if g.next == nil {
			break
		}
	}
	return more, errors.Join(faults...)
}

// budget steps over each bucket of a budget. It keeps the rate by itself, since
// a budget may have much to replay.
func (g *Integrity) budget(ctx context.Context, v *store.BudgetView, start time.Time) (entries uint64, more bool, err error) {
	made := 0
	for i := range v.Buckets {
		if int(v.Buckets[i].ID.Index) < v.Made() {
			made++
		}
		for _, round := range []store.Round{store.RoundNew, store.RoundAll} {
			n, rest, err := g.bucket(ctx, v, v.Buckets[i].ID, round)
			entries += n
			more = more || rest
			if err != nil {
				return entries, more, err
			}
			if err := pause(ctx, start, int(entries), g.cfg.Rate); err != nil {
				return entries, more, err
			}
		}
	}
	if made != v.Made() {
		problem := fmt.Sprintf("budget %s has %d of its %d bucket rows", v.ID, made, v.Made())
		return entries, more, g.differs(ctx, v.ID, &v.Budget, v.ID.String(), keyOf("rows", problem), problem)
	}
	g.agrees(v.ID, v.ID.String())
	return entries, more, nil
}

// bucket steps over a bucket in one kind of round. entries is what that counts
// as.
func (g *Integrity) bucket(ctx context.Context, v *store.BudgetView, id ledger.BucketID, round store.Round) (entries uint64, more bool, err error) {
	floor := v.Policy.Floor()
	var step store.Verification
	for range maxSteps {
		step, err = g.v.VerifyNext(ctx, id, floor, round, g.cfg.FullEvery)
		if err != nil {
			return entries, false, fmt.Errorf("bucket %s: %w", id, err)
		}
		n := step.To - min(step.From, step.To)
		entries += n + lookEntries
		g.mu.Lock()
		g.count.Looks++
		g.count.Entries += n
		g.mu.Unlock()
		if step.Problem != "" {
			return entries, false, g.suspect(ctx, v, &step, round)
		}
		if !step.More {
			g.agrees(v.ID, place(id, round))
			return entries, false, nil
		}
	}
	if round == store.RoundNew {
		g.mu.Lock()
		g.lag += step.Head - min(step.To, step.Head)
		g.mu.Unlock()
	}
	return entries, true, nil
}

// place names where a difference is.
func place(id ledger.BucketID, round store.Round) string {
	return fmt.Sprintf("%s/%d", id, round)
}

// suspect looks at a bucket as a whole before it is called different: what was
// recorded of it may be what is wrong.
func (g *Integrity) suspect(ctx context.Context, v *store.BudgetView, step *store.Verification, round store.Round) error {
	at, problem := place(step.Bucket, round), step.Problem
	key := fmt.Sprintf("%d:%d:%d", step.Bucket.Index, round, step.From)
	if g.remembered(v.ID, at).key != key {
		full, err := g.v.VerifyBucket(ctx, step.Bucket, v.Policy.Floor())
		if err != nil {
			return fmt.Errorf("bucket %s: %w", step.Bucket, err)
		}
		if full.Problem == "" {
			g.log.Warn().Str("tenant", v.ID.Tenant).Str("bucket", step.Bucket.String()).Str("problem", problem).
				Msg("the record of a verification was wrong, the ledger is in order")
			g.agrees(v.ID, at)
			return nil
		}
	}
	return g.differs(ctx, v.ID, &v.Budget, at, key, problem)
}

func (g *Integrity) remembered(id ledger.BudgetID, at string) difference {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[id.Tenant+"\x00"+at]
}

// agrees ends a difference.
func (g *Integrity) agrees(id ledger.BudgetID, at string) {
	g.mu.Lock()
	_, was := g.known[id.Tenant+"\x00"+at]
	delete(g.known, id.Tenant+"\x00"+at)
	g.mu.Unlock()
	if was {
		g.log.Info().Str("tenant", id.Tenant).Str("place", at).Msg("a difference is gone")
	}
}

// differs tells of a difference, once, and freezes the budget. key tells
// differences of a budget apart. b is nil where the budget cannot be read.
func (g *Integrity) differs(ctx context.Context, id ledger.BudgetID, b *ledger.Budget, at, key, problem string) error {
	old := g.remembered(id, at)
	if old.key != key {
		g.log.Error().Str("tenant", id.Tenant).Str("budget", id.String()).Str("place", at).Str("problem", problem).Msg("a ledger does not agree with itself")
	}
	if old.key == key && old.settled {
		return nil
	}
	settled, frozen, err := g.freeze(ctx, id, b, key, problem)
	if fenced(err) {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxDifferences {
		clear(g.known)
	}
	g.known[id.Tenant+"\x00"+at] = difference{key: key, settled: settled}
	if frozen {
		g.count.Frozen++
	}
	if err != nil {
		g.count.FreezeFailed++
		return fmt.Errorf("budget %s has a difference and could not be frozen: %w", id, err)
	}
	return nil
}

// freeze refuses new reservations of a budget. Where it is not open there is
// nothing to refuse; that is looked at again, since it may be opened.
func (g *Integrity) freeze(ctx context.Context, id ledger.BudgetID, b *ledger.Budget, key, problem string) (settled, frozen bool, err error) {
	if b == nil || !g.cfg.Freeze || b.State != ledger.BudgetOpen {
		return false, false, nil
	}
	r := g.exec.DoAll(ctx, []ledger.Command{{
		Op: ledger.OpFreeze, Budget: id, Correlation: told(problem),
		ID: fmt.Sprintf(ledger.KeyIntegrity+"%016x:%s", ledger.Hash64(0, id.Tenant, id.Funder, id.Key), key),
	}})[0]
	switch {
	case r.Err == nil:
		return true, !r.Result.Replayed, nil
	case errors.Is(r.Err, &ledger.Rejection{Code: ledger.BudgetIllegalState}):
		return false, false, nil // somebody else was first
	}
	return false, false, r.Err
}

// told is as much of a difference as an entry carries.
func told(problem string) string {
	s := "integrity: " + problem
	if len(s) > maxTold {
		s = s[:maxTold]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// keyOf tells differences apart that have no number.
func keyOf(kind, problem string) string {
	return fmt.Sprintf("%s:%016x", kind, ledger.Hash64(0, problem))
}
