package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/election"
	"github.com/coffer-ledger/coffer/node/members"
	"github.com/coffer-ledger/coffer/node/relay"
	"github.com/coffer-ledger/coffer/node/relay/sink"
	"github.com/coffer-ledger/coffer/node/scan"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/shard"
	"github.com/coffer-ledger/coffer/shard/intake"
)

// Deps are what a node gets from its caller.
type Deps struct {
	// OpenStore opens the engine; the node closes it. Required.
	OpenStore func(context.Context) (kv.Store, error)
	// StoreKind names the engine: "embedded" or "fdb".
	StoreKind string
	// Prefix leads the keys of the ledger; empty for the default.
	Prefix  []byte
	Version string
	Log     zerolog.Logger
	// OnReady is called once the node serves, with its base URL.
	OnReady func(url string)
	// Collector gives the engine's metrics, nil for none.
	Collector func(kv.Store) prometheus.Collector
	// Raft gives what the node's Raft works with, where cluster.peers is set;
	// nil for the configured addresses and directory.
	Raft func() (election.Parts, error)
	// PeerTransport carries calls to other nodes; nil for one that the
	// configuration gives.
	PeerTransport http.RoundTripper
}

// ErrAddressInUse says that something else listens on the node's address.
var ErrAddressInUse = errors.New("address is in use")

// Node is one process of Coffer. Make it with New and run it once with Run.
type Node struct {
	cfg  Config
	deps Deps
	log  zerolog.Logger

	draining atomic.Bool
	leaving  chan struct{} // closed when the drain begins
	pause    func(time.Duration)
	tracer   trace.Tracer // nil: nothing is traced
}

// New checks the configuration and wires the node. It opens nothing.
func New(cfg Config, deps Deps) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid configuration:\n%w", err)
	}
	if deps.OpenStore == nil {
		return nil, errors.New("node: no store factory")
	}
	return &Node{cfg: cfg, deps: deps, log: deps.Log, leaving: make(chan struct{}), pause: time.Sleep}, nil
}

// parts are what a running node consists of.
type parts struct {
	engine  kv.Store
	ledger  *store.Store
	exec    *shard.Executor
	expiry  *scan.Expiry
	facts   *intake.Intake
	work    *scan.Work
	level   *scan.Rebalance
	proof   *scan.Integrity
	leader  election.Elector
	relay   *relay.Relay
	signals *relay.Signals
	drivers *relay.Drivers
	http    *http.Server
	// tokens is nil where everybody may call.
	tokens *tokens
	// members is nil where the store belongs to this process alone, peers where
	// the node shares no buckets.
	members *members.Members
	peers   *rpc.PeerClient
}

// Run serves until ctx ends, then drains and returns nil. It returns an error
// when the node cannot start, when a part of it fails, or when the drain did
// not finish in time.
func (n *Node) Run(ctx context.Context) (err error) {
	engine, err := n.deps.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = closeEngine(engine, err) }()
	endTracing, err := n.trace(ctx)
	if err != nil {
		return err
	}
	defer endTracing(ctx)
	p, err := n.assemble(ctx, engine)
	if err != nil {
		return err
	}
	if err := n.claim(ctx, p); err != nil {
		return err
	}
	// The address comes last: while a store recovers, connections are refused
	// and go elsewhere; they do not wait in line at a node that cannot answer.
	ln, err := n.listen(ctx)
	if err != nil {
		n.leave(ctx, p)
		return err
	}
	defer ln.Close() //nolint:errcheck // the server has closed it, or there never was one
	return n.serve(ctx, ln, p)
}

// listen takes the address. A taken one is the most usual fault of a start,
// so its error says what to do.
func (n *Node) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", n.cfg.Listen)
	switch {
	case err == nil:
		return limitListener(ln, n.cfg.HTTP.MaxConnections), nil
	case addressInUse(err):
		return nil, fmt.Errorf("listen %s: %w; stop the process that has it, or choose another address with --listen", n.cfg.Listen, ErrAddressInUse)
	}
	return nil, fmt.Errorf("listen %s: %w; choose another address with --listen", n.cfg.Listen, err)
}

// assemble builds the parts over an open engine.
func (n *Node) assemble(ctx context.Context, engine kv.Store) (*parts, error) {
	p := &parts{engine: engine}
	var err error
	if n.cfg.Tokens != "" {
		if p.tokens, err = loadTokens(n.cfg.Tokens, n.log.With().Str("part", "tokens").Logger()); err != nil {
			return nil, err
		}
	}
	opt := store.Options{Writer: n.cfg.NodeID, Prefix: n.deps.Prefix, EventSource: n.cfg.Events.Source, Work: n.cfg.Queue.limits()}
	if p.ledger, err = store.Open(ctx, engine, opt); err != nil {
		return nil, err
	}
	if p.exec, err = shard.New(n.cfg.Executor, p.ledger); err != nil {
		return nil, err
	}
	m := newMetered(p.exec)
	if p.facts, err = intake.New(n.cfg.Facts, p.ledger, m, n.log.With().Str("part", "facts").Logger()); err != nil {
		return nil, err
	}
	exec := p.facts.Wrap(m)
	if p.expiry, err = scan.New(n.cfg.Expiry, p.ledger, exec, n.log.With().Str("part", "expiry").Logger()); err != nil {
		return nil, err
	}
	if p.work, err = scan.NewWork(n.cfg.Work, p.ledger, p.facts, n.log.With().Str("part", "work").Logger()); err != nil {
		return nil, err
	}
	if p.level, err = scan.NewRebalance(n.cfg.Rebalance, n.cfg.Adapt, p.ledger, p.exec, exec, n.log.With().Str("part", "rebalance").Logger()); err != nil {
		return nil, err
	}
	if p.proof, err = scan.NewIntegrity(n.cfg.Integrity, p.ledger, exec, n.log.With().Str("part", "integrity").Logger()); err != nil {
		return nil, err
	}
	if p.leader, err = n.elector(p.ledger); err != nil {
		return nil, err
	}
	p.signals = relay.NewSignals(p.ledger, n.cfg.Relay.Poll, n.cfg.Relay.Watch)
	p.drivers = relay.NewDrivers(sink.Deps{Private: n.cfg.Relay.PrivateWebhooks, Source: n.cfg.Events.Source})
	if p.relay, err = relay.New(n.cfg.Relay, p.ledger, p.signals, p.drivers.Open, n.cfg.NodeID, n.log.With().Str("part", "relay").Logger()); err != nil {
		return nil, err
	}
	if err = n.joinPeers(p); err != nil {
		return nil, err
	}
	reg := newRegistry(n.deps.Version, n.deps.StoreKind, n.cfg.NodeID)
	reg.MustRegister(m, collector{p.exec, p.expiry, p.work, p.level, p.proof, p.leader, p.members}, relayCollector{p.relay})
	if n.deps.Collector != nil {
		if c := n.deps.Collector(engine); c != nil {
			reg.MustRegister(c)
		}
	}
	handler, err := n.handler(p, exec, reg)
	if err != nil {
		return nil, err
	}
	p.http, err = n.server(handler)
	return p, err
}

// serveHTTP answers calls until the server is closed.
func (n *Node) serveHTTP(s *http.Server, ln net.Listener) (err error) {
	if s.TLSConfig != nil {
		err = s.ServeTLS(ln, "", "")
	} else {
		err = s.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

// serve runs the parts and, when ctx ends or one of them fails, drains them.
func (n *Node) serve(ctx context.Context, ln net.Listener, p *parts) error {
	g, gctx := errgroup.WithContext(ctx)
	scanCtx, stopScan := context.WithCancel(gctx)
	defer stopScan()
	g.Go(func() error {
		if err := p.leader.Run(scanCtx, p.lead); err != nil {
			return fmt.Errorf("election: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		if err := p.facts.Run(scanCtx); err != nil {
			return fmt.Errorf("fact intake: %w", err)
		}
		return nil
	})
	g.Go(func() error { return p.signals.Run(scanCtx) })
	g.Go(func() error {
		if err := p.relay.Run(scanCtx); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		return nil
	})
	g.Go(func() error { return n.serveHTTP(p.http, ln) })
	g.Go(func() error { return watchEngine(gctx, p.engine) })
	g.Go(func() error {
		logReadFaults(gctx, n.log, p.engine)
		return nil
	})
	if p.tokens != nil {
		g.Go(func() error {
			p.tokens.run(gctx)
			return nil
		})
	}
	memberCtx, stopMembers := context.WithCancel(context.WithoutCancel(ctx)) // the drain needs it
	defer stopMembers()
	url := n.url(ln)
	if p.members != nil {
		g.Go(func() error {
			if err := p.members.Run(memberCtx, n.advertised(url)); err != nil {
				return fmt.Errorf("node members: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-gctx.Done()
		// A part has failed, rather than the caller asked for the end. Whoever
		// reads the log must not have to wait for the drain to see why.
		if cause := context.Cause(gctx); !errors.Is(cause, context.Cause(ctx)) {
			n.log.Error().Err(cause).Msg("failed")
		}
		return n.drain(ctx, stopScan, stopMembers, p)
	})
	n.warnOpen()
	n.log.Info().Str("url", url).Str("store", n.cfg.Store).Str("node_id", n.cfg.NodeID).Str("version", n.deps.Version).Msg("serving")
	if n.deps.OnReady != nil {
		n.deps.OnReady(url)
	}
	err := g.Wait()
	n.log.Info().Msg("stopped")
	return err
}

// lead runs the scanners, while this node leads.
func (p *parts) lead(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := p.expiry.Run(ctx); err != nil {
			return fmt.Errorf("expiry scanner: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		if err := p.work.Run(ctx); err != nil {
			return fmt.Errorf("work scanner: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		if err := p.level.Run(ctx); err != nil {
			return fmt.Errorf("rebalance scanner: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		if err := p.proof.Run(ctx); err != nil {
			return fmt.Errorf("integrity scanner: %w", err)
		}
		return nil
	})
	return g.Wait()
}

// drain ends the node in order: not ready, its buckets with the other nodes, no new commands, no new
// connections, every accepted command answered.
func (n *Node) drain(ctx context.Context, stopScan, stopMembers context.CancelFunc, p *parts) error {
	n.draining.Store(true)
	n.log.Info().Int64("pending_commands", p.exec.Stats().Pending).Dur("timeout_ms", n.cfg.Shutdown.Timeout).Msg("draining")
	if ctx.Err() != nil { // asked to end, not failed
		n.announce(context.WithoutCancel(ctx), p)
	}
	close(n.leaving)
	stopScan()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Shutdown.Timeout)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { return p.exec.Drain(ctx) })
	g.Go(func() error { return p.http.Shutdown(ctx) })
	err := g.Wait()
	if err != nil {
		err = errors.Join(fmt.Errorf("drain cut off after %s: %w", n.cfg.Shutdown.Timeout, err), p.http.Close())
	}
	stopMembers()
	n.leave(ctx, p)
	return err
}

// announce lets load balancers and the other nodes know that this one ends.
func (n *Node) announce(ctx context.Context, p *parts) {
	var wg sync.WaitGroup
	wg.Go(func() { n.pause(n.cfg.Shutdown.Delay) })
	if p.peers != nil {
		wg.Go(func() { n.handOver(ctx, p) })
	}
	wg.Wait()
}
