package election

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// Times of nodes that are alone.
const (
	// beatEvery is the time between two signs of life of the leader, and
	// between two looks of one that stands by.
	beatEvery = 3 * time.Second
	// silentAfter is how long a leader may give no sign of life before one that
	// stands by takes over.
	silentAfter = 15 * time.Second
)

// standsBy says why a node that knows of no other does not lead.
const standsBy = "another process over this store leads, and this one stands by; cluster.peers is not set here: " +
	"if both are nodes of one cluster, set it to the same on each"

// Alone is the elector of a node that has no peers. It leads from its start,
// in the term after the store's: a process over the same store that was started
// before, and may be stuck, is fenced off. That one, should it still live,
// stands by and takes over when the leader falls silent. So processes that know
// nothing of each other also have one leader at a time.
type Alone struct {
	node  string
	fence Fence
	log   zerolog.Logger
	status
}

// NewAlone makes the elector of a node.
func NewAlone(node string, fence Fence, log zerolog.Logger) *Alone {
	return &Alone{node: node, fence: fence, log: log}
}

// Status tells what the elector knows.
func (a *Alone) Status() Status { return a.get() }

// Run leads, and stands by while another process does.
func (a *Alone) Run(ctx context.Context, lead Lead) error {
	for ctx.Err() == nil {
		var term uint64
		err := insist(ctx, func(ctx context.Context) (err error) {
			term, err = a.fence.ClaimNext(ctx, a.node)
			return err
		})
		if err == nil {
			a.gain(term, a.node)
			a.log.Info().Uint64("term", term).Msg("this node leads")
			err = alive(store.WithTerm(ctx, term), a.fence, a.log, lead)
			a.lose()
		}
		if ctx.Err() != nil || !Fenced(err) {
			return unlessOver(ctx, err)
		}
		a.log.Warn().Err(err).Uint64("term", term).Msg(standsBy)
		a.standBy(ctx)
	}
	return nil
}

// standBy returns when the leader has given no sign of life for silentAfter, by
// this process's clock, or when ctx ends. A look that fails proves nothing.
func (a *Alone) standBy(ctx context.Context) {
	var seen store.Leader
	var since time.Time
	for sleep(ctx, beatEvery) {
		l, err := a.fence.Leader(ctx)
		if err != nil {
			continue
		}
		if since.IsZero() || l.Term != seen.Term || l.Beats != seen.Beats {
			seen, since = l, time.Now()
			a.set(func(s *Status) { s.Term, s.Leader = l.Term, l.Node })
		}
		if time.Since(since) >= silentAfter {
			a.log.Warn().Str("leader", l.Node).Uint64("term", l.Term).Msg("leader is silent")
			return
		}
	}
}
