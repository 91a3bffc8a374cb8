package scan

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Executor is where commands go; *shard.Executor is one.
type Executor interface {
	DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply
}

// Index is the expiry index; *store.Store is one.
type Index interface {
	// DueBlocks reads up to limit rows of a slot that are due and stand behind
	// one that it gave, or from the first where that is the zero row; the oldest
	// first. Fewer are all.
	DueBlocks(ctx context.Context, slot uint64, behind store.DueBlock, limit int) ([]store.DueBlock, error)
	// DropDue removes rows. One that is gone already does no harm.
	DropDue(ctx context.Context, blocks []store.DueBlock) error
	// OldestDue is the earliest time any row is due, false where there is
	// none.
	OldestDue(ctx context.Context) (time.Time, bool, error)
	// Locate reads reservations; nil where there is none.
	Locate(ctx context.Context, keys []ledger.OrderKey) ([]*ledger.Reservation, error)
}

// Expiry is the loop that returns the money of holds that lapsed. Make it
// with New, run it with Run while this node leads; the other methods are safe at any time.
type Expiry struct {
	cfg  Config
	idx  Index
	exec Executor
	loop loop

	next  uint64                            // the slot a pass begins with
	tried [store.ExpirySlots]store.DueBlock // the last row of each slot; zero: begin with its first

	mu     sync.Mutex
	oldest time.Time // due time of the oldest row that the last look found
	count  Counters
}

// Counters count since the start.
type Counters struct {
	// Passes completed and failed.
	Passes, Failed uint64
	// Expired holds, skipped ones (settled or extended before), and those
	// left for a later pass because the store or the queue did not take them.
	Expired, Skipped, Deferred uint64
	// Rows dropped from the index.
	Rows uint64
}

// Status is what the loop knows about itself.
type Status struct {
	Counters
	// Running: Run has begun and has not returned.
	Running bool
	// SincePass is the time since the last complete pass began, or since
	// Run began while there was none; zero while Run does not run.
	SincePass time.Duration
	// OldestOverdue is how long the oldest reservation that is due has
	// waited. It is looked up whether passes complete or not.
	OldestOverdue time.Duration
}

// statusTimeout bounds the look at the index for Status.
const statusTimeout = time.Second

// New makes the loop.
func New(cfg Config, idx Index, exec Executor, log zerolog.Logger) (*Expiry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("expiry config: %w", err)
	}
	e := &Expiry{cfg: cfg, idx: idx, exec: exec}
	e.loop = newLoop("expiry", cfg.Interval, cfg.StallAfter, e.pass, log)
	return e, nil
}

// Run makes passes until ctx ends, and then returns nil. A pass that fails is
// logged and tried again; it is the readiness of the node that tells. Where ctx
// has a leader's term (store.WithTerm), Run ends with FENCED once that term has
// passed. It may run again afterwards.
func (e *Expiry) Run(ctx context.Context) error { return e.loop.run(ctx) }

// Pass makes one pass by hand, for tests and tools.
func (e *Expiry) Pass(ctx context.Context) error { return e.loop.once(ctx) }

// Status tells how the loop does. It asks the index for the oldest row, and
// where the index does not answer gives what it knew last.
func (e *Expiry) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_ = e.look(ctx)
	l := e.loop.status()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{Counters: e.count, Running: l.running, SincePass: l.sincePass, OldestOverdue: e.overdue()}
	s.Passes, s.Failed = l.passes, l.failed
	return s
}

// look asks the index for its oldest row.
func (e *Expiry) look(ctx context.Context) error {
	oldest, ok, err := e.idx.OldestDue(ctx)
	if err != nil {
		return err
	}
	if !ok {
		oldest = time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.oldest = oldest
	return nil
}

// Ready is nil while the loop completes its passes, or does not run.
func (e *Expiry) Ready() error { return e.loop.ready() }

// anythingDue says whether the oldest row that look found is due. The index
// names whole seconds, so a second of doubt is given to the row.
func (e *Expiry) anythingDue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.oldest.IsZero() && time.Since(e.oldest) > -time.Second
}

// overdue is the age of the oldest row. The caller holds mu.
func (e *Expiry) overdue() time.Duration {
	if e.oldest.IsZero() {
		return 0
	}
	return max(0, time.Since(e.oldest))
}
