package election

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// Raft's own key for the term in its stable store.
var raftTerm = []byte("CurrentTerm")

const (
	// changeTimeout bounds one change of the peers.
	changeTimeout = 10 * time.Second
	// reopenAfter is the pause before elections are held anew above a term that
	// somebody outside of them claimed.
	reopenAfter = time.Second
)

// ledElsewhere says how it comes that Raft and the store name different leaders.
const ledElsewhere = "the lead was claimed outside of this cluster's elections; a node that is configured without these cluster.peers may be " +
	"running over the same store"

// Parts are what Raft works with.
type Parts struct {
	Transport raft.Transport
	Logs      raft.LogStore
	Stable    raft.StableStore
	// Close releases them; nil for nothing to release.
	Close func() error
}

// Raft is the elector of a node with peers.
type Raft struct {
	cfg   Config
	open  func() (Parts, error)
	fence Fence
	log   zerolog.Logger
	status
}

// NewRaft makes the elector of a node. What open gives is closed when Run ends;
// nil takes the configured address and directory.
func NewRaft(cfg Config, open func() (Parts, error), fence Fence, log zerolog.Logger) (*Raft, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("election config: %w", err)
	}
	if open == nil {
		open = cfg.open
	}
	return &Raft{cfg: cfg, open: open, fence: fence, log: log}, nil
}

// Status tells what the elector knows.
func (r *Raft) Status() Status { return r.get() }

// Run takes part in elections until ctx ends.
func (r *Raft) Run(ctx context.Context, lead Lead) error {
	for {
		err := r.session(ctx, lead)
		if ctx.Err() != nil || !Fenced(err) {
			return unlessOver(ctx, err)
		}
		// Raft says that this node leads, the store that another does: one
		// outside of this cluster's elections. They go on above its term.
		r.log.Warn().Err(err).Msg(ledElsewhere)
		sleep(ctx, reopenAfter)
	}
}

// session takes part in elections from opening Raft's data to closing it. It
// returns the FENCED of a claim that the elections cannot explain.
func (r *Raft) session(ctx context.Context, lead Lead) (err error) {
	p, err := r.open()
	if err != nil {
		return err
	}
	if p.Close != nil {
		defer func() {
			if cerr := p.Close(); cerr != nil && err == nil {
				err = fmt.Errorf("close raft: %w", cerr)
			}
		}()
	}
	node, err := r.start(ctx, p)
	if err != nil {
		return err
	}
	defer func() {
		if serr := node.Shutdown().Error(); serr != nil && err == nil {
			err = fmt.Errorf("stop raft: %w", serr)
		}
	}()
	return r.follow(ctx, node, p.Transport, lead)
}

// start brings Raft up, with the configured peers where it has no data yet.
func (r *Raft) start(ctx context.Context, p Parts) (*raft.Raft, error) {
	var cur store.Leader
	err := insist(ctx, func(ctx context.Context) (err error) {
		cur, err = r.fence.Leader(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the leader's term: %w", err)
	}
	conf := r.cfg.raft(writer{r.log})
	snaps := raft.NewDiscardSnapshotStore()
	known, err := raft.HasExistingState(p.Logs, p.Stable, snaps)
	if err != nil {
		return nil, fmt.Errorf("read raft's data: %w", err)
	}
	if !known {
		servers := raft.Configuration{}
		for _, s := range r.cfg.Peers {
			servers.Servers = append(servers.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address)})
		}
		if err := raft.BootstrapCluster(conf, p.Logs, p.Stable, snaps, p.Transport, servers); err != nil {
			return nil, fmt.Errorf("make raft's data: %w", err)
		}
	}
	term, err := p.Stable.GetUint64(raftTerm)
	if err != nil {
		return nil, fmt.Errorf("read raft's term: %w", err)
	}
	if term < cur.Term {
		if err := p.Stable.SetUint64(raftTerm, cur.Term); err != nil {
			return nil, fmt.Errorf("raise raft's term to the store's: %w", err)
		}
	}
	node, err := raft.NewRaft(conf, noState{}, p.Logs, p.Stable, snaps, p.Transport)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return node, nil
}

// follow leads whenever Raft says so, until ctx ends.
func (r *Raft) follow(ctx context.Context, node *raft.Raft, t raft.Transport, lead Lead) error {
	var cur *reign
	defer func() { cur.end() }()
	none := absence{after: r.cfg.WarnAfter}
	silent := make(chan []string, 1) // the peers that do not answer, once they were asked
	var asks sync.WaitGroup
	defer asks.Wait()
	asking := false
	tick := time.NewTicker(r.cfg.ElectionTimeout)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			cur.end()
			if node.State() == raft.Leader {
				// The others need not wait until they miss this node. Where
				// there is none to take over, that is no fault.
				_ = node.LeadershipTransfer().Error()
			}
			return nil
		case leading := <-node.LeaderCh():
			cur.end()
			cur = nil
			if leading {
				cur = r.begin(ctx, node, lead)
			}
		case err := <-cur.over():
			term := cur.term
			cur.end()
			cur = nil
			if !Fenced(err) && err != nil {
				return err
			}
			if err != nil && leads(node, term) {
				return err
			}
		case peers := <-silent:
			asking = false
			r.warn(&none, peers)
		case <-tick.C:
			if r.notice(node, &none) && !asking {
				asking = true
				asks.Go(func() { silent <- r.silent(t) })
			}
		}
	}
}

// notice keeps what is known of the leader up to date while another node leads.
// It reports whether to warn that none does.
func (r *Raft) notice(node *raft.Raft, none *absence) (warn bool) {
	_, id := node.LeaderWithID()
	r.set(func(s *Status) {
		if !s.Leading {
			s.Leader, s.Term = string(id), node.CurrentTerm()
		}
	})
	if none.warned && id != "" {
		r.log.Info().Str("leader", string(id)).Dur("leaderless_ms", time.Since(none.since)).Msg(leaderAgain)
	}
	return none.see(string(id), time.Now())
}

// warn says that there is no leader, unless one came while the peers were asked.
// Readiness is another matter: a node without a leader takes commands, and to
// lose them all would be worse than holds that return late.
func (r *Raft) warn(none *absence, silent []string) {
	if none.since.IsZero() || time.Since(none.since) < none.after {
		return
	}
	none.warned = true
	r.log.Warn().Time("since", none.since).Dur("leaderless_ms", time.Since(none.since)).
		Int("peers", len(r.cfg.Peers)).Strs("silent_peers", silent).Msg(noLeader)
}

// leads says whether node is the leader, in that term.
func leads(node *raft.Raft, term uint64) bool {
	return node.CurrentTerm() == term && node.VerifyLeader().Error() == nil &&
		node.State() == raft.Leader && node.CurrentTerm() == term
}

// reign is one term of this node's. A nil one has ended.
type reign struct {
	term uint64
	stop context.CancelFunc
	done chan error // has the error of the reign once it is over
}

func (g *reign) over() <-chan error {
	if g == nil {
		return nil
	}
	return g.done
}

// end stops the reign and joins it.
func (g *reign) end() {
	if g == nil {
		return
	}
	g.stop()
	for range g.done { // until it is closed; what it says no longer matters
	}
}

// begin starts to lead in the term that Raft is in.
func (r *Raft) begin(ctx context.Context, node *raft.Raft, lead Lead) *reign {
	ctx, stop := context.WithCancel(ctx)
	g := &reign{term: node.CurrentTerm(), stop: stop, done: make(chan error, 1)}
	go func() {
		defer close(g.done)
		err := r.reign(ctx, node, g.term, lead)
		if ctx.Err() == nil {
			g.done <- err
		}
	}()
	return g
}

// reign claims the term and leads. If the node does not lead in that term after
// all, Raft will say so or already has, and nothing is done.
func (r *Raft) reign(ctx context.Context, node *raft.Raft, term uint64, lead Lead) error {
	if !leads(node, term) {
		return nil
	}
	if err := insist(ctx, func(ctx context.Context) error { return r.fence.Claim(ctx, term, r.cfg.Node) }); err != nil {
		return err
	}
	r.gain(term, r.cfg.Node)
	defer r.lose()
	r.log.Info().Uint64("term", term).Msg("this node leads")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return alive(store.WithTerm(gctx, term), r.fence, r.log, lead) })
	g.Go(func() error { r.admit(node); return nil })
	err := g.Wait()
	r.log.Info().Uint64("term", term).Bool("fenced", Fenced(err)).Msg("this node leads no longer")
	return err
}

// admit makes Raft's peers those of the configuration. Each change waits for
// the one before; what fails is left to the next leader.
func (r *Raft) admit(node *raft.Raft) {
	f := node.GetConfiguration()
	if f.Error() != nil {
		return
	}
	has := map[raft.ServerID]raft.ServerAddress{}
	for _, s := range f.Configuration().Servers {
		has[s.ID] = s.Address
	}
	want := map[raft.ServerID]bool{}
	for _, p := range r.cfg.Peers {
		id, addr := raft.ServerID(p.ID), raft.ServerAddress(p.Address)
		want[id] = true
		if has[id] != addr {
			err := node.AddVoter(id, addr, 0, changeTimeout).Error()
			r.log.Info().Err(err).Str("peer", p.ID).Msg("peer joins")
		}
	}
	for id := range has {
		if !want[id] {
			err := node.RemoveServer(id, 0, changeTimeout).Error()
			r.log.Info().Err(err).Str("peer", string(id)).Msg("peer leaves")
		}
	}
}

// writer takes Raft's own log.
type writer struct{ log zerolog.Logger }

func (w writer) Write(p []byte) (int, error) {
	w.log.Debug().Str("detail", strings.TrimSpace(string(p))).Msg("raft")
	return len(p), nil
}

// noState is the state that Raft replicates: none. Its log holds elections and
// peers only, and stays short enough to need no snapshot.
type noState struct{}

func (noState) Apply(*raft.Log) any { return nil }

func (noState) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("there is no state") }

func (noState) Restore(r io.ReadCloser) error { return r.Close() }
