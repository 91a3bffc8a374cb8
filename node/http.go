package node

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/rpc"
)

// readyTimeout bounds the store's answer to a readiness probe.
const readyTimeout = 2 * time.Second

// server makes the HTTP server: HTTP/1.1 and HTTP/2, with TLS or in plain
// text.
func (n *Node) server(h http.Handler) (*http.Server, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s := &http.Server{
		Handler:           bodyDeadline(h, bodyTimeout),
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: n.cfg.HTTP.MaxStreams},
		ReadHeaderTimeout: n.cfg.HTTP.ReadHeaderTimeout,
		IdleTimeout:       n.cfg.HTTP.IdleTimeout,
		ErrorLog:          log.New(logWriter{n.log}, "", 0),
	}
	if !n.cfg.TLS.On() {
		protocols.SetUnencryptedHTTP2(true)
		return s, nil
	}
	protocols.SetHTTP2(true)
	var err error
	if s.TLSConfig, err = n.cfg.TLS.load(); err == nil && n.cfg.Cluster.CAFile != "" {
		// Clients need no certificate; other nodes show theirs.
		s.TLSConfig.ClientAuth = tls.VerifyClientCertIfGiven
		s.TLSConfig.ClientCAs, err = n.cfg.Cluster.authority()
	}
	return s, err
}

// handler is everything the node's address serves.
func (n *Node) handler(p *parts, exec rpc.Executor, reg *prometheus.Registry) (http.Handler, error) {
	api, err := rpc.NewServer(n.cfg.API, rpc.Deps{
		Executor: exec, Reader: p.ledger, Loads: p.exec, Maintainer: interruptible{p.ledger, n.leaving},
		Queue: p.ledger, Facts: p.facts, FactLists: p.ledger, Leaving: n.leaving,
		Cluster: clusterView{n, p}, Peers: n.forPeers(p), Tokens: p.known(),
		Events: p.ledger, EventSignals: p.signals, Sinks: p.ledger, SinkDrivers: p.drivers,
		Status:     func(ctx context.Context) rpc.Status { return n.status(ctx, p) },
		Ready:      func() bool { return n.ready(context.Background(), p) == nil },
		Registerer: reg,
		Tracer:     n.tracer,
		Log:        n.log.With().Str("part", "rpc").Logger(),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	api.Mount(mux)
	n.plain(mux, p, reg)
	return mux, nil
}

// interruptible ends what takes as long as the ledger is large when the node
// drains; everything else is short enough to be waited for.
type interruptible struct {
	rpc.Maintainer
	leaving <-chan struct{}
}

// Audit checks every invariant, unless the node drains.
func (m interruptible) Audit(ctx context.Context, progress func(phase string, done uint64)) (r *store.AuditReport, err error) {
	err = m.bound(ctx, func(ctx context.Context) error {
		r, err = m.Maintainer.Audit(ctx, progress)
		return err
	})
	return r, err
}

// RebuildExpiry makes the expiry index again, unless the node drains.
func (m interruptible) RebuildExpiry(ctx context.Context, progress func(scanned, written uint64)) error {
	return m.bound(ctx, func(ctx context.Context) error { return m.Maintainer.RebuildExpiry(ctx, progress) })
}

func (m interruptible) bound(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-m.leaving:
			cancel()
		case <-done:
		}
	}()
	err := work(ctx)
	select {
	case <-m.leaving:
		if err != nil {
			return &ledger.Rejection{Code: ledger.Draining, Message: "this node is shutting down", RetryAfter: time.Second, Cause: err}
		}
	default:
	}
	return err
}

// status is what the node tells operators of itself.
func (n *Node) status(ctx context.Context, p *parts) rpc.Status {
	ex := p.expiry.Status(ctx)
	return rpc.Status{
		Version: n.deps.Version, NodeID: n.cfg.NodeID, Store: n.deps.StoreKind, Draining: n.draining.Load(),
		QueuedCommands: uint64(max(0, p.exec.Stats().Pending)), OldestOverdue: ex.OldestOverdue, LastExpiryPass: ex.SincePass,
	}
}

// plain adds what is not RPC to a mux. With tokens, figures and profiles take one;
// supervisors need none to see whether the node lives.
func (n *Node) plain(mux *http.ServeMux, p *parts, reg *prometheus.Registry) {
	figures := func(pattern string, h http.Handler) { mux.Handle(pattern, rpc.GuardMetrics(p.known(), h)) }
	figures("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, n.ready(r.Context(), p)) })
	if n.cfg.Debug.Pprof {
		figures("/debug/pprof/", http.HandlerFunc(pprof.Index))
		figures("/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
		figures("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
		figures("/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		figures("/debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	}
}

// ready says why the node should get no traffic, nil when it should.
func (n *Node) ready(ctx context.Context, p *parts) error {
	if n.draining.Load() {
		return errors.New("the node is draining")
	}
	if err := p.expiry.Ready(); err != nil {
		return err
	}
	if err := p.work.Ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, _, err := p.ledger.Budgets(ctx, "readyz", store.Page{Size: 1}); err != nil {
		n.log.Warn().Err(err).Msg("store does not answer")
		return errors.New("the store does not answer")
	}
	return nil
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, err.Error()+"\n")
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// url is the base URL a client on this machine may use.
func (n *Node) url(ln net.Listener) string {
	scheme := "http://"
	if n.cfg.TLS.On() {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return scheme + ln.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + net.JoinHostPort(host, port)
}

func addressInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// logWriter takes what net/http logs: mostly clients that hung up.
type logWriter struct{ log zerolog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.Debug().Bytes("detail", p).Msg("http server")
	return len(p), nil
}

// limited is a listener that has at most so many connections open.
type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func limitListener(ln net.Listener, n int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, n), done: make(chan struct{})}
}

// Accept waits for a free slot first, so that the connection stays in the
// system's backlog until there is one.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close stops accepting, also when it waits for a slot.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	free func()
}

// Close closes the connection and gives its slot back.
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
