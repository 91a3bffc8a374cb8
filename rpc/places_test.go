package rpc

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// busy is a server whose calls last until the test lets them go.
type busy struct {
	fakeStore
	Queue
	Events
	url     string
	reg     *prometheus.Registry
	entered chan struct{} // told of each call that has come in
	hold    chan struct{} // closed: calls go on
}

func (b *busy) stay() {
	b.entered <- struct{}{}
	<-b.hold
}

func (b *busy) Replay(_ context.Context, id ledger.BudgetID, _ time.Time) (*store.Replay, error) {
	b.stay()
	return &store.Replay{Budget: ledger.Budget{ID: id, Currency: "BRL"}}, nil
}

func (b *busy) Budget(_ context.Context, id ledger.BudgetID) (*store.BudgetView, error) {
	b.stay()
	return &store.BudgetView{Budget: ledger.Budget{ID: id, Currency: "BRL"}}, nil
}

func (b *busy) Audit(context.Context, func(string, uint64)) (*store.AuditReport, error) {
	b.stay()
	return &store.AuditReport{}, nil
}

func (b *busy) Lease(context.Context, work.Place, int, time.Duration, string) ([]work.Job, error) {
	return nil, nil
}

func (b *busy) WaitDue(ctx context.Context, _ work.Place, _ time.Duration) error {
	<-ctx.Done()
	return nil
}

func (b *busy) EndOfEvents(_ context.Context, p uint64) (event.Position, error) {
	return store.StartOfEvents(p), nil
}

func (b *busy) ReadEvents(_ context.Context, after event.Position, _ *event.Filter, _ int) (store.EventPage, error) {
	return store.EventPage{Next: after}, nil
}

func (b *busy) Wait(uint64) <-chan struct{} { return nil }

// newBusy has four places of each kind.
func newBusy(t *testing.T) *busy {
	t.Helper()
	b := &busy{reg: prometheus.NewRegistry(), entered: make(chan struct{}, 64), hold: make(chan struct{})}
	exec := &fakeExec{do: func(c ledger.Command) (ledger.Result, error) {
		b.stay()
		return accepted(c), nil
	}}
	cfg := DefaultConfig()
	cfg.MaxCommandCalls, cfg.MaxCalls, cfg.MaxScans, cfg.MaxEventStreams, cfg.MaxWorkStreams = 4, 4, 4, 4, 4
	server, err := NewServer(cfg, Deps{
		Executor: exec, Reader: b, Maintainer: b, Queue: b, Events: b, EventSignals: b, Log: zerolog.Nop(), Registerer: b.reg,
		Status: func(context.Context) Status { return Status{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(server)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetHTTP1(true)
	hs.Start()
	t.Cleanup(hs.Close)
	b.url = hs.URL
	return b
}

func (b *busy) client(t *testing.T, tenant string) *Client {
	t.Helper()
	c := NewClient(b.url, WithTenant(tenant), WithMaxAttempts(1), WithoutBatching(), WithAttemptTimeout(time.Minute))
	t.Cleanup(c.Close)
	return c
}

// unary begins a call and returns its error if it is answered before the server
// has let it in.
func (b *busy) unary(ended chan<- error, call func() error) error {
	err := make(chan error, 1)
	go func() { err <- call() }()
	select {
	case <-b.entered:
		go func() { ended <- <-err }()
		return nil
	case e := <-err:
		return e
	}
}

// A tenant that opens as many calls of a kind as it can leaves room for the calls
// of others, and for its own of other kinds.
func TestCallsLeavePlacesToOthers(t *testing.T) {
	b := newBusy(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, 64)
	kinds := []struct {
		kind, things string
		open         func(c *Client) error
	}{
		{"command", "calls with commands", func(c *Client) error {
			return b.unary(ended, func() error { _, err := c.Reserve(ctx, reserveRequest()); return err })
		}},
		{"scan", "replays, verifications and audits", func(c *Client) error {
			return b.unary(ended, func() error { _, err := c.VerifyChain(ctx, "spring"); return err })
		}},
		{"scan", "replays, verifications and audits", func(c *Client) error {
			return b.unary(ended, func() error { _, err := c.Replay(ctx, &cofferv1.ReplayRequest{Budget: "spring"}); return err })
		}},
		{"work_stream", "work streams", func(c *Client) error {
			s, err := c.Queue().Work(ctx, &cofferv1.WorkRequest{Queue: "q", Worker: "w"})
			if err != nil {
				return err
			}
			_, err = s.Receive()
			return err
		}},
		{"event_stream", "event streams", func(c *Client) error {
			s, err := c.Events().Subscribe(ctx, &cofferv1.SubscribeRequest{})
			if err != nil {
				return err
			}
			_, err = s.Receive()
			return err
		}},
		{"other", "calls", func(c *Client) error {
			return b.unary(ended, func() error { _, err := c.GetBudget(ctx, "spring"); return err })
		}},
	}
	hot, quiet := b.client(t, "hot"), b.client(t, "quiet")
	refused := func(err error, things, value, limit string) {
		t.Helper()
		e := judge(err, true).err
		want := "OVERLOADED: open " + value + " " + things + ` of tenant "hot" are more than its part of this node: keep fewer open at once (allowed: ` + limit + ")"
		if e.Code != connect.CodeUnavailable || !strings.HasPrefix(e.Error(), want) || e.Detail.GetRetryDelay().AsDuration() <= 0 {
			t.Errorf("got  %v\nwant %s", e, want)
		}
	}
	for _, i := range []int{0, 1, 3, 4, 5} {
		for range 2 {
			if err := kinds[i].open(hot); err != nil {
				t.Errorf("%s of the hot tenant: %v", kinds[i].kind, err)
			}
		}
	}
	for _, k := range kinds {
		refused(k.open(hot), k.things, "3", "2")
	}
	for _, i := range []int{0, 2, 3, 4, 5} {
		if err := kinds[i].open(quiet); err != nil {
			t.Errorf("%s of the quiet tenant: %v", kinds[i].kind, err)
		}
	}
	want := `
# HELP coffer_rpc_places_taken Calls open now, by kind.
# TYPE coffer_rpc_places_taken gauge
coffer_rpc_places_taken{kind="command"} 3
coffer_rpc_places_taken{kind="event_stream"} 3
coffer_rpc_places_taken{kind="other"} 3
coffer_rpc_places_taken{kind="scan"} 3
coffer_rpc_places_taken{kind="work_stream"} 3
# HELP coffer_rpc_tenant_limited_total Calls refused because their tenant had its part of the node's places, by kind.
# TYPE coffer_rpc_tenant_limited_total counter
coffer_rpc_tenant_limited_total{kind="command"} 1
coffer_rpc_tenant_limited_total{kind="event_stream"} 1
coffer_rpc_tenant_limited_total{kind="other"} 1
coffer_rpc_tenant_limited_total{kind="scan"} 2
coffer_rpc_tenant_limited_total{kind="work_stream"} 1
`
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want), "coffer_rpc_places_taken", "coffer_rpc_tenant_limited_total"); err != nil {
		t.Error(err)
	}
	close(b.hold)
	for range 9 { // three of each unary kind
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	// An answer is sent a moment before its place is given back: send again.
	patient := NewClient(b.url, WithTenant("hot"), WithoutBatching(), WithAttemptTimeout(time.Minute))
	defer patient.Close()
	if _, err := patient.Reserve(ctx, reserveRequest()); err != nil {
		t.Errorf("a place that was given back: %v", err)
	}
}

// A call about all tenants is no tenant's: whoever looks after a node gets in
// while the tenant whose name the call goes by has its part, and takes nothing of
// that.
func TestOperatorsCallsAreNoTenants(t *testing.T) {
	b := newBusy(t)
	ended := make(chan error, 16)
	hot := b.client(t, "hot")
	opened := 0
	open := func(call func() error) {
		t.Helper()
		if err := b.unary(ended, call); err != nil {
			t.Errorf("before its part is taken: %v", err)
			return
		}
		opened++
	}
	audit := func() error { _, err := hot.Audit(t.Context(), nil); return err }
	verify := func() error { _, err := hot.VerifyChain(t.Context(), "spring"); return err }
	read := func() error { _, err := hot.GetBudget(t.Context(), "spring"); return err }
	for range 2 {
		open(read)
		open(verify)
	}
	for _, call := range []func() error{read, verify} {
		if e := judge(call(), true).err; e.Detail.GetReason() != string(ledger.Overloaded) || e.Detail.GetLimit() != "2" {
			t.Errorf("above the tenant's part: %v", e)
		}
	}
	if _, err := hot.GetStatus(t.Context()); err != nil {
		t.Errorf("GetStatus: %v", err)
	}
	open(audit)
	e := judge(audit(), true).err
	want := "OVERLOADED: open 2 replays, verifications and audits of no single tenant are more than their part of this node: keep fewer open at once (allowed: 1)"
	if !strings.HasPrefix(e.Error(), want) {
		t.Errorf("got  %v\nwant %s", e, want)
	}
	close(b.hold)
	for range opened {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A call that panics gives its place back.
func TestPanicsTakeNoPlaces(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxCommandCalls = 1
	reg := prometheus.NewRegistry()
	exec := &fakeExec{do: func(ledger.Command) (ledger.Result, error) { panic("a fault") }}
	server, err := NewServer(cfg, Deps{
		Executor: exec, Reader: &fakeStore{}, Maintainer: &fakeStore{}, Log: zerolog.Nop(), Registerer: reg,
		Status: func(context.Context) Status { return Status{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(server)
	defer hs.Close()
	c := NewClient(hs.URL, WithMaxAttempts(1), WithoutBatching(), WithProtocol(ProtocolConnect))
	defer c.Close()
	for range 3 {
		_, err := c.Reserve(t.Context(), reserveRequest())
		if e := judge(err, true).err; e.Code != connect.CodeInternal {
			t.Errorf("got %v, want a failed call", e)
		}
	}
	want := strings.NewReader(`
# HELP coffer_rpc_places_taken Calls open now, by kind.
# TYPE coffer_rpc_places_taken gauge
coffer_rpc_places_taken{kind="command"} 0
coffer_rpc_places_taken{kind="event_stream"} 0
coffer_rpc_places_taken{kind="other"} 0
coffer_rpc_places_taken{kind="scan"} 0
coffer_rpc_places_taken{kind="work_stream"} 0
`)
	if err := testutil.GatherAndCompare(reg, want, "coffer_rpc_places_taken"); err != nil {
		t.Error(err)
	}
}

// A call of the services that take commands either reads or brings one.
func TestCommandsGoThroughTheirDoor(t *testing.T) {
	rpc := connect.NewServer()
	cofferv1connect.RegisterBudgetServiceHandler(rpc, &budgetService{})
	cofferv1connect.RegisterCreditServiceHandler(rpc, &creditService{})
	cofferv1connect.RegisterReservationServiceHandler(rpc, &reservationService{})
	n := 0
	for spec := range rpc.Specs() {
		method := spec.Procedure[strings.LastIndexByte(spec.Procedure, '/')+1:]
		reads := strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") || method == "Statement"
		if slices.Contains(commandProcedures, spec.Procedure) == reads {
			t.Errorf("%s is at the wrong door", spec.Procedure)
		}
		if !reads {
			n++
		}
	}
	if n != len(commandProcedures) {
		t.Errorf("%d procedures bring commands, the door knows %d", n, len(commandProcedures))
	}
}

func TestConfigNamesEveryBound(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxCommandCalls, cfg.MaxCalls, cfg.MaxEventStreams, cfg.MaxWorkStreams, cfg.MaxScans = 0, 0, -1, 1<<20+1, 0
	err := cfg.Validate()
	for _, want := range []string{
		"max_command_calls is 0", "max_calls is 0 (allowed: 1 to 1048576)", "max_event_streams is -1", "max_work_streams is 1048577", "max_scans is 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}
