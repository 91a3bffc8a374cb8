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
)

// Executor is where commands go; *shard.Executor is one.
type Executor interface {
	DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply
}

// Index is the expiry index; *store.Store is one.
type Index interface {
	// DueBlocks reads up to limit rows of a slot that are due, the oldest
	// first.
	DueBlocks(ctx context.Context, slot uint64, limit int) ([]store.DueBlock, error)
	// DropDue removes rows. One that is gone already does no harm.
	DropDue(ctx context.Context, blocks []store.DueBlock) error
	// OldestDue is the earliest time any row is due, false where there is
	// none.
	OldestDue(ctx context.Context) (time.Time, bool, error)
	// Locate reads reservations; nil where there is none.
	Locate(ctx context.Context, keys []ledger.OrderKey) ([]*ledger.Reservation, error)
}

// Expiry is the loop that returns the money of holds that lapsed. Make it
// with New, run it once with Run; the other methods are safe at any time.
type Expiry struct {
	cfg  Config
	idx  Index
	exec Executor
	log  zerolog.Logger

	passing sync.Mutex // one pass of this loop at a time
	next    uint64     // the slot a pass begins with

	mu      sync.Mutex
	running bool
	started time.Time
	passed  time.Time // when the last complete pass began
	oldest  time.Time // due time of the oldest row that the last look found
	count   Counters
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
	// Run began while there was none.
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
	return &Expiry{cfg: cfg, idx: idx, exec: exec, log: log}, nil
}

// Run makes passes until ctx ends, and then returns nil. A pass that fails is
// logged and tried again; it is the readiness of the node that tells.
func (e *Expiry) Run(ctx context.Context) error {
	e.begin()
	defer e.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		start := time.Now()
		more, err := e.safePass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		e.finish(start, err)
		wait := e.cfg.Interval
		if more && err == nil {
			wait = 0
		}
		timer.Reset(wait)
	}
}

// Pass makes one pass by hand, for tests and tools.
func (e *Expiry) Pass(ctx context.Context) error {
	start := time.Now()
	_, err := e.safePass(ctx)
	e.finish(start, err)
	return err
}

// Status tells how the loop does. It asks the index for the oldest row, and
// where the index does not answer gives what it knew last.
func (e *Expiry) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_ = e.look(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	return Status{Counters: e.count, Running: e.running, SincePass: e.sincePass(), OldestOverdue: e.overdue()}
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

// Ready is nil while the loop runs and completes its passes.
func (e *Expiry) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch since := e.sincePass(); {
	case !e.running:
		return errors.New("the expiry scanner is not running")
	case since > e.cfg.StallAfter:
		return fmt.Errorf("the expiry scanner has completed no pass for %s (allowed: %s)",
			since.Round(time.Millisecond), e.cfg.StallAfter)
	}
	return nil
}

// anythingDue says whether the oldest row that look found is due. The index
// names whole seconds, so a second of doubt is given to the row.
func (e *Expiry) anythingDue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.oldest.IsZero() && time.Since(e.oldest) > -time.Second
}

func (e *Expiry) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.started, e.passed = true, time.Now(), time.Time{}
}

func (e *Expiry) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// sincePass is the time since the last complete pass began, or the loop. The
// caller holds mu.
func (e *Expiry) sincePass() time.Duration {
	switch {
	case !e.passed.IsZero():
		return time.Since(e.passed)
	case !e.started.IsZero():
		return time.Since(e.started)
	}
	return 0
}

// overdue is the age of the oldest row. The caller holds mu.
func (e *Expiry) overdue() time.Duration {
	if e.oldest.IsZero() {
		return 0
	}
	return max(0, time.Since(e.oldest))
}

func (e *Expiry) finish(start time.Time, err error) {
	e.mu.Lock()
	if err != nil {
		e.count.Failed++
	} else {
		e.count.Passes++
		e.passed = start
	}
	e.mu.Unlock()
	if err != nil {
		e.log.Error().Err(err).Msg("expiry pass failed")
	}
}

// safePass makes one pass; a panic in it fails the pass and not the node.
func (e *Expiry) safePass(ctx context.Context) (more bool, err error) {
	e.passing.Lock()
	defer e.passing.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("expiry pass: panic: %v", p)
		}
	}()
	return e.pass(ctx)
}
