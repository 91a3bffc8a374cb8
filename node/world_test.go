package node_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay"
	"github.com/coffer-ledger/coffer/node/relay/sink"
	"github.com/coffer-ledger/coffer/node/scan"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/shard"
	"github.com/coffer-ledger/coffer/shard/intake"
)

// world is a node's parts behind its public API, with a clock of its own and
// an expiry scanner that runs when the test says.
type world struct {
	*testing.T
	engine kv.Store
	prefix []byte
	store  *store.Store
	exec   *shard.Executor
	expiry *scan.Expiry
	facts  *intake.Intake
	work   *scan.Work
	client *rpc.Client
	url    string
	// signals wake those who wait for events, drivers open sinks; relay runs one.
	signals *relay.Signals
	drivers *relay.Drivers
	leave   func() // begins the drain

	mu  sync.Mutex
	now time.Time
}

// onEngine runs a scenario on the engine that tests run on.
func onEngine(t *testing.T, scenario func(w *world)) {
	t.Run(testengine.Name(), func(t *testing.T) {
		engine, prefix := testengine.Open(t)
		w := newWorld(t, engine, prefix)
		scenario(w)
		w.audit()
	})
}

func newWorld(t *testing.T, engine kv.Store, prefix []byte) *world {
	t.Helper()
	w := &world{T: t, engine: engine, prefix: prefix, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	var err error
	if w.store, err = store.Open(t.Context(), engine, store.Options{Writer: "n1", Now: w.clock, Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	if w.exec, err = shard.New(shard.DefaultConfig(), w.store); err != nil {
		t.Fatal(err)
	}
	if w.expiry, err = scan.New(scan.DefaultConfig(), w.store, w.exec, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if w.facts, err = intake.New(intake.DefaultConfig(), w.store, w.exec, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if w.work, err = scan.NewWork(scan.DefaultWorkConfig(), w.store, w.facts, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	leaving := make(chan struct{})
	w.leave = sync.OnceFunc(func() { close(leaving) })
	w.signals = relay.NewSignals(w.store, time.Second, true)
	w.drivers = relay.NewDrivers(sink.Deps{Private: true})
	handler, err := rpc.NewServer(rpc.DefaultConfig(), rpc.Deps{
		Executor: w.facts.Wrap(w.exec), Reader: w.store, Maintainer: w.store, Log: zerolog.Nop(),
		Queue: w.store, Facts: w.facts, FactLists: w.store, Leaving: leaving,
		Events: w.store, EventSignals: w.signals, Sinks: w.store, SinkDrivers: w.drivers,
		Status: func(context.Context) rpc.Status { return rpc.Status{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	w.url = srv.URL
	w.client = rpc.NewClient(srv.URL, rpc.WithAttemptTimeout(time.Minute)) // a loaded machine is no fault
	t.Cleanup(func() {
		w.leave()
		w.client.Close()
		srv.Close()
		if err := w.exec.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if err := w.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	w.background(w.signals.Run)
	return w
}

// background runs something until the test ends, or stop is called.
func (w *world) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			w.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	w.Cleanup(stop)
	return stop
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// expire moves the clock and lets the scanner do its work.
func (w *world) expire(d time.Duration) {
	w.Helper()
	w.advance(d)
	if err := w.expiry.Pass(context.Background()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) audit() {
	w.Helper()
	r, err := w.client.Audit(context.Background(), nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range r.GetChecks() {
		if c.GetProblems() > 0 {
			w.Errorf("audit: %s: %d problems: %q", c.GetName(), c.GetProblems(), c.GetExamples())
		}
	}
	if !r.GetOk() {
		w.Error("audit: not ok")
	}
}

// budget makes a budget with money in it.
func (w *world) budget(name string, buckets uint32, amount int64, p *cofferv1.BudgetPolicy) string {
	w.Helper()
	ctx := context.Background()
	if _, err := w.client.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: name, Currency: "BRL", Buckets: buckets, Policy: p}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.client.FundBudget(ctx, &cofferv1.FundBudgetRequest{Budget: name, AmountMinor: amount, Currency: "BRL", IdempotencyKey: "fund " + name}); err != nil {
		w.Fatal(err)
	}
	return name
}

func reserve(budget, order string, amount int64) *cofferv1.ReserveRequest {
	return &cofferv1.ReserveRequest{
		OrderId: order, BenefitKey: "coupon:A", Budget: budget, AmountMinor: amount, Currency: "BRL",
		Ttl: durationpb.New(15 * time.Minute),
	}
}

func commit(order string) *cofferv1.CommitRequest {
	return &cofferv1.CommitRequest{OrderId: order, BenefitKey: "coupon:A"}
}

// ok ends the test when a command that must succeed was refused.
func (w *world) ok(o *cofferv1.Outcome, err error) *cofferv1.Outcome {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// refused checks the reason of a refusal and returns its details.
func (w *world) refused(err error, want ledger.Code) *cofferv1.ErrorDetail {
	w.Helper()
	if got := rpc.ReasonOf(err); got != want {
		w.Fatalf("got %v, want %s", err, want)
	}
	return rpcDetail(err)
}

func (w *world) balances(budget string) *cofferv1.Balances {
	w.Helper()
	b, err := w.client.GetBudget(context.Background(), budget)
	if err != nil {
		w.Fatal(err)
	}
	return b.GetBudget().GetBalances()
}

// expect compares a budget's balances.
func (w *world) expect(budget string, funded, available, reserved, committed, reversed int64) {
	w.Helper()
	b := w.balances(budget)
	got := [5]int64{b.GetFundedMinor(), b.GetAvailableMinor(), b.GetReservedMinor(), b.GetCommittedMinor(), b.GetReversedMinor()}
	if want := [5]int64{funded, available, reserved, committed, reversed}; got != want {
		w.Errorf("budget %s is %v, want %v (funded, available, reserved, committed, reversed)", budget, got, want)
	}
}

// entries counts a budget's entries by type.
func (w *world) entries(budget string) map[cofferv1.EntryType]int {
	w.Helper()
	out := map[cofferv1.EntryType]int{}
	req := &cofferv1.ListEntriesRequest{Budget: budget, PageSize: 1000}
	for {
		page, err := w.client.ListEntries(context.Background(), req)
		if err != nil {
			w.Fatal(err)
		}
		for _, e := range page.GetEntries() {
			out[e.GetType()]++
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return out
		}
	}
}

// together runs n calls at once and returns their answers in order.
func together(n int, call func(i int) (*cofferv1.Outcome, error)) ([]*cofferv1.Outcome, []error) {
	outs, errs := make([]*cofferv1.Outcome, n), make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			outs[i], errs[i] = call(i)
		})
	}
	close(start)
	wg.Wait()
	return outs, errs
}
