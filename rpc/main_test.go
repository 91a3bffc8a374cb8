package rpc

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

func TestMain(m *testing.M) { testengine.Main(m) }

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeExec validates like the real executor, then answers by do, and
// remembers what ran.
type fakeExec struct {
	mu  sync.Mutex
	ran []ledger.Command
	do  func(ledger.Command) (ledger.Result, error)
}

func (f *fakeExec) Do(_ context.Context, c ledger.Command) (ledger.Result, error) {
	c = c.Normalize()
	if r := c.Validate(); r != nil {
		return ledger.Result{}, r
	}
	f.mu.Lock()
	f.ran = append(f.ran, c)
	do := f.do
	f.mu.Unlock()
	if do != nil {
		return do(c)
	}
	return accepted(c), nil
}

func (f *fakeExec) DoAll(ctx context.Context, cs []ledger.Command) []ledger.Reply {
	out := make([]ledger.Reply, len(cs))
	for i, c := range cs {
		out[i].Result, out[i].Err = f.Do(ctx, c)
	}
	return out
}

func (f *fakeExec) commands() []ledger.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]ledger.Command(nil), f.ran...)
}

// accepted is the answer of a ledger in which everything is legal.
func accepted(c ledger.Command) ledger.Result {
	if c.Op.OnBudget() {
		def := &ledger.Budget{
			ID: c.Budget, Currency: c.Currency, State: ledger.BudgetOpen, Policy: c.Policy,
			Epoch: ledger.Epoch{Number: 1, Buckets: uint16(max(c.Buckets, 1))}, Created: epoch,
		}
		return ledger.Result{Budget: c.Budget, Definition: def, Totals: ledger.Balances{Funded: c.Amount, Available: c.Amount}}
	}
	bucket := ledger.BucketID{Budget: ledger.BudgetID{Tenant: c.Key.Tenant, Funder: "acme", Key: "spring"}, Index: 3}
	return ledger.Result{
		Key: c.Key, Attempt: c.Attempt, Budget: bucket.Budget,
		Outcome: ledger.Outcome{
			State: ledger.StateReserved, Amount: c.Amount, Held: c.Amount, Expires: epoch.Add(c.TTL), At: epoch, Bucket: bucket, Seq: 42,
		},
	}
}

// fakeStore answers reads; what a test does not set is not found.
type fakeStore struct {
	Reader
	err     error
	tenants []string
	pages   []store.Page
	cutoff  time.Time
	bucket  *uint16
	audit   func(ctx context.Context, progress func(string, uint64)) (*store.AuditReport, error)
}

func (f *fakeStore) Budget(_ context.Context, id ledger.BudgetID) (*store.BudgetView, error) {
	f.tenants = append(f.tenants, id.Tenant)
	if f.err != nil {
		return nil, f.err
	}
	if id.Key != "spring" || id.Tenant != "default" {
		return nil, ledger.BudgetMissing(id)
	}
	v := &store.BudgetView{Total: ledger.Balances{Funded: 100, Available: 60, Reserved: 40}}
	v.Budget = ledger.Budget{ID: id, Currency: "BRL", State: ledger.BudgetFrozen, Epoch: ledger.Epoch{Number: 1, Buckets: 2}, Created: epoch}
	v.Buckets = []ledger.Bucket{
		{ID: ledger.BucketID{Budget: id}, Balances: ledger.Balances{Funded: 100, Available: 60, Reserved: 40}, Seq: 7},
		{ID: ledger.BucketID{Budget: id, Index: ledger.Unallocated}},
	}
	return v, nil
}

func (f *fakeStore) Budgets(_ context.Context, tenant string, p store.Page) ([]store.BudgetView, string, error) {
	f.tenants, f.pages = append(f.tenants, tenant), append(f.pages, p)
	if f.err != nil {
		return nil, "", f.err
	}
	if p.Token != "" {
		return nil, "", &ledger.Rejection{
			Code: ledger.BadPageToken, Field: "page_token", Value: p.Token, Limit: "a token of the same list", Message: "was not given by this list",
		}
	}
	return nil, "more", nil
}

func (f *fakeStore) Reservation(_ context.Context, k ledger.OrderKey) (*ledger.Reservation, error) {
	return &ledger.Reservation{Key: k, Attempts: []ledger.Attempt{
		{Number: 2, State: ledger.StateCommitted, Created: epoch},
		{Number: 1, State: ledger.StateRejected, Created: epoch, Receipts: []ledger.Receipt{
			{Op: ledger.OpReserve, Request: []byte{1}, Rejection: ledger.InsufficientBudget},
		}},
	}}, nil
}

func (f *fakeStore) Entries(_ context.Context, id ledger.BudgetID, bucket *uint16, p store.Page) ([]store.EntryView, string, error) {
	f.bucket, f.pages = bucket, append(f.pages, p)
	peer := ledger.BucketID{Budget: id, Index: 1}
	return []store.EntryView{{
		Entry: ledger.Entry{
			Seq: 9, Type: ledger.EntryMoveOut, Delta: ledger.Balances{Funded: -5, Available: -5}, After: ledger.Balances{Funded: 1, Available: 1}, Peer: &peer,
		},
		Bucket: ledger.BucketID{Budget: id}, Time: epoch,
	}}, "", nil
}

func (f *fakeStore) Replay(_ context.Context, id ledger.BudgetID, cutoff time.Time) (*store.Replay, error) {
	f.cutoff = cutoff
	if f.err != nil {
		return nil, f.err
	}
	return &store.Replay{
		Budget: ledger.Budget{ID: id, Currency: "BRL"}, Cutoff: cutoff, Total: ledger.Balances{Funded: 3, Available: 3},
		Buckets: []store.BucketReplay{{
			Bucket: ledger.BucketID{Budget: id}, Seq: 4, Entries: 4, Blocks: 2, Head: [32]byte{0xab},
			Replayed: ledger.Balances{Funded: 3, Available: 3}, Stored: ledger.Balances{Funded: 3, Available: 2}, HasStored: cutoff.IsZero(),
			Problem: "available is 2, the entries say 3",
		}},
	}, nil
}

func (f *fakeStore) Explain(_ context.Context, tenant, order, benefit string) (*store.Explanation, error) {
	res, _ := f.Reservation(context.Background(), ledger.OrderKey{Tenant: tenant, Order: order, Benefit: "b" + benefit})
	return &store.Explanation{Order: order, Reservations: []ledger.Reservation{*res}, Timeline: []store.TimelineEvent{
		{Time: epoch, Benefit: "b", Attempt: 1, Op: ledger.OpExpire, Text: "the hold lapsed"},
	}}, nil
}

func (f *fakeStore) Cases(_ context.Context, tenant string, p store.Page) ([]store.CaseView, string, error) {
	f.pages = append(f.pages, p)
	c := store.CaseView{State: ledger.StateExpired}
	c.Case = ledger.Case{Key: ledger.OrderKey{Tenant: tenant, Order: "o", Benefit: "b"}, Attempt: 1, Amount: 5, Opened: epoch}
	return []store.CaseView{c}, "", nil
}

func (f *fakeStore) Audit(ctx context.Context, progress func(string, uint64)) (*store.AuditReport, error) {
	if f.audit != nil {
		return f.audit(ctx, progress)
	}
	progress("entries", 10)
	progress("entries", 20) // mostly too soon to be sent
	progress("events", 1)
	return &store.AuditReport{
		Checks: []store.AuditCheck{{Name: "balances", Statement: "they add up", Checked: 20}}, Entries: 20,
		Totals: map[string]ledger.Balances{"BRL": {Funded: 1, Available: 1}, "AUD": {}},
	}, nil
}

func (f *fakeStore) RebuildExpiry(_ context.Context, progress func(scanned, written uint64)) error {
	progress(1, 1)
	progress(500, 20)
	return f.err
}

// world is a running server with everything behind it faked.
type world struct {
	exec  *fakeExec
	store *fakeStore
	url   string
	reg   *prometheus.Registry
	logs  *syncBuffer
	ready bool
}

type syncBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = append(s.b, p...)
	return len(p), nil
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.b)
}

func newWorld(t *testing.T, wrap ...func(http.Handler) http.Handler) *world {
	t.Helper()
	return newWorldWith(t, func(*Deps) {}, wrap...)
}

// newWorldWith is newWorld with other dependencies.
func newWorldWith(t *testing.T, change func(*Deps), wrap ...func(http.Handler) http.Handler) *world {
	t.Helper()
	w := &world{exec: &fakeExec{}, store: &fakeStore{}, reg: prometheus.NewRegistry(), logs: &syncBuffer{}, ready: true}
	deps := Deps{
		Executor: w.exec, Reader: w.store, Maintainer: w.store, Registerer: w.reg, Log: zerolog.New(w.logs),
		Ready: func() bool { return w.ready },
		Status: func(context.Context) Status {
			return Status{Version: "v1", NodeID: "n1", Store: "embedded", OldestOverdue: 1500 * time.Millisecond}
		},
	}
	change(&deps)
	server, err := NewServer(DefaultConfig(), deps)
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler = server
	for _, f := range wrap {
		h = f(h)
	}
	hs := httptest.NewUnstartedServer(h)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetHTTP1(true)
	hs.Config.Protocols.SetUnencryptedHTTP2(true)
	hs.Start()
	t.Cleanup(hs.Close)
	w.url = hs.URL
	return w
}

func (w *world) client(t *testing.T, opts ...Option) *Client {
	t.Helper()
	c := NewClient(w.url, append([]Option{WithAttemptTimeout(time.Minute)}, opts...)...) // a loaded machine is no fault
	c.opt.firstDelay = time.Millisecond
	t.Cleanup(c.Close)
	return c
}

// refusal is the error of a client call, with a detail.
func refusal(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T %v, want *Error", err, err)
	}
	if e.Detail == nil {
		t.Fatalf("error has no detail: %v", err)
	}
	return e
}
