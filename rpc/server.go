package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	connectv1 "connectrpc.com/connect"
	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// Executor runs commands; shard.Executor is one. Every error is a
// *ledger.Rejection. It must be safe for concurrent use.
type Executor interface {
	// Do runs one command and returns when it took effect or was refused.
	Do(ctx context.Context, c ledger.Command) (ledger.Result, error)
	// DoAll runs many and gives one reply each, in the same order.
	DoAll(ctx context.Context, cs []ledger.Command) []ledger.Reply
}

// Reader answers reads; store.Store is one. Errors are *ledger.Rejection, or
// failures whose cause no caller sees. It must be safe for concurrent use.
type Reader interface {
	Budget(ctx context.Context, id ledger.BudgetID) (*store.BudgetView, error)
	Budgets(ctx context.Context, tenant string, p store.Page) (views []store.BudgetView, next string, err error)
	Reservation(ctx context.Context, key ledger.OrderKey) (*ledger.Reservation, error)
	Allocations(ctx context.Context, key ledger.OrderKey) ([]store.AllocationView, error)
	Wallet(ctx context.Context, id ledger.BudgetID) (*store.BudgetView, error)
	Wallets(ctx context.Context, tenant string, p store.Page) (views []store.BudgetView, next string, err error)
	Statement(ctx context.Context, id ledger.BudgetID, from, cutoff time.Time, p store.Page) (v *store.StatementView, next string, err error)
	Job(ctx context.Context, tenant, job string) (*ledger.Reservation, error)
	Entries(ctx context.Context, id ledger.BudgetID, bucket *uint16, p store.Page) (entries []store.EntryView, next string, err error)
	Replay(ctx context.Context, id ledger.BudgetID, cutoff time.Time) (*store.Replay, error)
	Explain(ctx context.Context, tenant, order, benefit string) (*store.Explanation, error)
	Cases(ctx context.Context, tenant string, p store.Page) (cases []store.CaseView, next string, err error)
}

// Maintainer checks and repairs the store as a whole; store.Store is one. The
// progress functions are called from the goroutine of the call.
type Maintainer interface {
	Audit(ctx context.Context, progress func(phase string, done uint64)) (*store.AuditReport, error)
	RebuildExpiry(ctx context.Context, progress func(scanned, written uint64)) error
}

// Status is what a node tells of itself.
type Status struct {
	Version, NodeID string
	// Store is the engine: "embedded" or "fdb".
	Store          string
	Draining       bool
	QueuedCommands uint64
	// OldestOverdue is how long the oldest overdue reservation has waited
	// for its expiry, LastExpiryPass how long ago the scanner last finished.
	OldestOverdue, LastExpiryPass time.Duration
}

// Deps are what a Server works with. Executor, Reader, Maintainer and Status
// are required.
type Deps struct {
	Executor   Executor
	Reader     Reader
	Maintainer Maintainer
	// Loads tells GetBuckets of each bucket's load; nil for none.
	Loads Loads
	// Queue serves QueueService, Facts and FactLists FactService; without them
	// a server has no such service.
	Queue     Queue
	Facts     Facts
	FactLists FactLists
	// Cluster answers GetCluster and DrainNode; nil: this node knows no others.
	Cluster Cluster
	// Tokens makes the server ask each call for a token, and what it may do; nil:
	// everybody may call, for the tenant that the header names.
	Tokens Tokens
	// Peers makes the server take commands of other nodes; nil for none. With
	// Tokens it must know who is one: commands of theirs need no token.
	Peers *Peers
	// Events and EventSignals serve EventService, Sinks and SinkDrivers
	// SinkService.
	Events       Events
	EventSignals EventSignals
	Sinks        Sinks
	SinkDrivers  SinkDrivers
	// Leaving is closed when the node drains: streams that would last end.
	Leaving <-chan struct{}
	// Status is called by GetStatus.
	Status func(ctx context.Context) Status
	// Ready answers health checks; nil is always ready.
	Ready func() bool
	// Tracer makes a span of each call; nil: none is made. It should record what
	// has a parent as the parent is: with Tokens, a call that is refused comes
	// with one that is not.
	Tracer trace.Tracer
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// Log gets one line a call at debug level, an error for each defect, and with
	// tokens who does what operators alone may.
	Log zerolog.Logger
}

func (d *Deps) validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"executor": d.Executor == nil, "reader": d.Reader == nil, "maintainer": d.Maintainer == nil, "status": d.Status == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("no %s", name))
		}
	}
	if d.Tokens != nil && d.Peers != nil && d.Peers.Allow == nil {
		errs = append(errs, errors.New("tokens, and no way to tell other nodes from strangers"))
	}
	return errors.Join(errs...)
}

// Server is the API of one node as an http.Handler. It owns no goroutine and
// is safe for concurrent use. For gRPC the http.Server it runs in must speak
// HTTP/2, over TLS or unencrypted.
type Server struct {
	cfg   Config
	ready func() bool
	// tokens is nil where everybody may call.
	tokens Tokens
	rpc    *connect.Server
	peers  func(connecthttp.ServeMux) // nil: no service for other nodes
	mux    *http.ServeMux

	leaving <-chan struct{}
}

// NewServer validates and wires; it starts nothing.
func NewServer(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rpc config: %w", err)
	}
	if err := deps.validate(); err != nil {
		return nil, fmt.Errorf("rpc server: %w", err)
	}
	validator, err := newValidator()
	if err != nil {
		return nil, fmt.Errorf("rpc server: compiling the schema's rules: %w", err)
	}
	m := newMetrics(deps.Registerer)
	s := &Server{cfg: cfg, ready: deps.Ready, tokens: deps.Tokens, mux: http.NewServeMux(), leaving: deps.Leaving}
	who := tenantInterceptor(cfg.DefaultTenant)
	trusts := func(*connect.Header, string) bool { return true }
	if deps.Tokens != nil {
		who = accessInterceptor(deps.Tokens, cfg.DefaultTenant, deps.Log)
		trusts = func(h *connect.Header, procedure string) bool {
			_, _, r := deps.Tokens.caller(h, procedure, cfg.DefaultTenant)
			return r == nil
		}
	}
	interceptors := []connect.ServerInterceptor{
		observeInterceptor(m, deps.Log),
		edgeInterceptor,
		who,
		newDoors(cfg, deps.Registerer).interceptor,
		validateInterceptor(validator, cfg.MaxMessageBytes),
	}
	if deps.Tracer != nil {
		interceptors = slices.Insert(interceptors, 0, traceInterceptor(deps.Tracer, trusts))
	}
	s.rpc = connect.NewServer(interceptors...)
	cofferv1connect.RegisterBudgetServiceHandler(s.rpc, &budgetService{exec: deps.Executor, reads: deps.Reader, loads: deps.Loads})
	cofferv1connect.RegisterReservationServiceHandler(s.rpc, &reservationService{exec: deps.Executor, reads: deps.Reader, metrics: m})
	cofferv1connect.RegisterCreditServiceHandler(s.rpc, &creditService{
		exec: deps.Executor, reads: deps.Reader,
		jobs: reservationService{exec: deps.Executor, reads: deps.Reader, metrics: m},
	})
	cofferv1connect.RegisterLedgerServiceHandler(s.rpc, &ledgerService{reads: deps.Reader})
	cofferv1connect.RegisterOperatorServiceHandler(s.rpc, &operatorService{maintain: deps.Maintainer, status: deps.Status, cluster: deps.Cluster})
	if deps.Queue != nil {
		cofferv1connect.RegisterQueueServiceHandler(s.rpc, &queueService{queue: deps.Queue, metrics: m, leaving: deps.Leaving})
	}
	if deps.Facts != nil && deps.FactLists != nil {
		cofferv1connect.RegisterFactServiceHandler(s.rpc, &factService{facts: deps.Facts, lists: deps.FactLists, metrics: m})
	}
	if p := deps.Peers; p != nil {
		inner := connect.NewServer(observeInterceptor(m, deps.Log), edgeInterceptor)
		cofferv1connect.RegisterClusterServiceHandler(inner, &clusterService{here: p.Here, run: p.Run})
		s.peers = func(mux connecthttp.ServeMux) { mountPeers(mux, inner, p.Allow) }
	}
	if deps.Events != nil && deps.EventSignals != nil {
		cofferv1connect.RegisterEventServiceHandler(s.rpc, &eventService{events: deps.Events, signals: deps.EventSignals, leaving: deps.Leaving})
	}
	if deps.Sinks != nil && deps.SinkDrivers != nil {
		cofferv1connect.RegisterSinkServiceHandler(s.rpc, &sinkService{sinks: deps.Sinks, drivers: deps.SinkDrivers})
	}
	s.Mount(s.mux)
	return s, nil
}

// ServeHTTP answers the API's paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Mount puts the API, health and reflection on a mux that has other paths too.
func (s *Server) Mount(mux connecthttp.ServeMux) {
	mux = mediaMux{mux}
	opts := []connecthttp.Option{
		connecthttp.WithReadMaxBytes(s.cfg.MaxMessageBytes),
		connecthttp.WithCompressMinBytes(compressMinBytes),
	}
	connecthttp.Mount(cuttingStreams(mux, s.rpc, s.leaving, streamGrace), s.rpc, append(opts, connecthttp.WithCodecs(codecs()...))...)
	if s.peers != nil {
		s.peers(mux)
	}
	if s.cfg.Reflection {
		// Reflection has a server of its own: tools call it without a
		// tenant, and it lists the API's services from the API's server.
		through := []connect.ServerInterceptor{edgeInterceptor}
		if s.tokens != nil {
			through = append(through, anyTokenInterceptor(s.tokens))
		}
		meta := connect.NewServer(through...)
		grpcreflect.Register(meta, grpcreflect.WithNamer(grpcreflect.NamerFunc(func() []string { return services })))
		connecthttp.Mount(mux, meta, opts...)
	}
	mux.Handle(grpchealth.NewHandler(healthChecker{ready: s.ready}, connectv1.WithReadMaxBytes(4<<10)))
}

// services are what health and reflection know.
var services = []string{
	cofferv1connect.BudgetServiceName, cofferv1connect.ReservationServiceName,
	cofferv1connect.CreditServiceName, cofferv1connect.LedgerServiceName, cofferv1connect.OperatorServiceName,
	cofferv1connect.QueueServiceName, cofferv1connect.FactServiceName,
	cofferv1connect.EventServiceName, cofferv1connect.SinkServiceName,
}

// healthChecker answers gRPC health checks for the process and each service.
type healthChecker struct{ ready func() bool }

func (h healthChecker) Check(_ context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	known := req.Service == ""
	for _, s := range services {
		known = known || s == req.Service
	}
	if !known {
		return nil, connectv1.NewError(connectv1.CodeNotFound, errors.New("no such service"))
	}
	if h.ready != nil && !h.ready() {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
