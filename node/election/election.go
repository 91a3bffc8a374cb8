package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Lead is what only the leader does. It gets a context behind the fence of its
// term (store.TermOf) and returns soon after that context ends. Before that it
// returns only because it failed, or because it was fenced off.
type Lead func(ctx context.Context) error

// Elector finds out who leads.
type Elector interface {
	// Run takes part in elections until ctx ends, and then returns nil. It
	// calls lead each time this node is to lead, one call at a time, and has
	// joined it before it returns. An error of lead, unless it says FENCED,
	// ends Run.
	Run(ctx context.Context, lead Lead) error
	// Status is safe for concurrent use.
	Status() Status
}

// Status is what an elector knows.
type Status struct {
	// Leading: this node has claimed Term and runs what the leader runs.
	Leading bool
	// Term is the term this node leads in, or the newest it knows of.
	Term uint64
	// Leader is the id of the node that leads, as far as this node knows.
	Leader string
	// Gained and Lost count this node's terms.
	Gained, Lost uint64
}

// Fence is the leader's row in the store; *store.Store is one.
type Fence interface {
	Claim(ctx context.Context, term uint64, node string) error
	ClaimNext(ctx context.Context, node string) (term uint64, err error)
	Beat(ctx context.Context) error
	Leader(ctx context.Context) (store.Leader, error)
}

// Bounds of trying a claim again.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// Fenced reports whether an error says that another term is the current one.
func Fenced(err error) bool { return errors.Is(err, &ledger.Rejection{Code: ledger.Fenced}) }

// status is the part of an elector that others look at.
type status struct {
	mu sync.Mutex
	s  Status
}

func (s *status) get() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.s
}

func (s *status) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.s)
}

func (s *status) gain(term uint64, node string) {
	s.set(func(s *Status) {
		s.Leading, s.Term, s.Leader = true, term, node
		s.Gained++
	})
}

func (s *status) lose() {
	s.set(func(s *Status) {
		s.Leading, s.Leader = false, ""
		s.Lost++
	})
}

// insist calls claim until it succeeds, is fenced off, or ctx ends: a store that
// does not answer now may answer later.
func insist(ctx context.Context, claim func(context.Context) error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := claim(ctx)
		if err == nil || Fenced(err) || ctx.Err() != nil {
			return err
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

// alive runs lead and gives signs of life, until one of them ends. They also
// tell a leader whose scanners find nothing to do that it was fenced off, and
// others that it need not be.
func alive(ctx context.Context, fence Fence, log zerolog.Logger, lead Lead) error {
	g, gctx := errgroup.WithContext(ctx)
	gctx, done := context.WithCancel(gctx)
	g.Go(func() error {
		defer done()
		return lead(gctx)
	})
	g.Go(func() error {
		for sleep(gctx, beatEvery) {
			if err := fence.Beat(gctx); Fenced(err) {
				return err
			} else if err != nil && gctx.Err() == nil {
				log.Debug().Err(err).Msg("leader could not give a sign of life")
			}
		}
		return nil
	})
	return g.Wait()
}

// unlessOver is the error, or nil where the context has ended: then what
// follows from that is no fault.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// sleep waits, or returns false when ctx ended first.
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
