package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/node/scan"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

func TestMain(m *testing.M) { testengine.Main(m) }

// patience bounds every wait of the tests.
const patience = 2 * time.Minute

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Listen, cfg.NodeID = "127.0.0.1:0", "test"
	cfg.Expiry.Interval = 20 * time.Millisecond
	cfg.Shutdown.Timeout = time.Minute // a drain that is slow is no fault
	return cfg
}

func testDeps(t *testing.T, faults *embedded.Faults) Deps {
	dir := t.TempDir()
	return Deps{
		OpenStore: func(context.Context) (kv.Store, error) {
			return embedded.Open(embedded.Options{Dir: dir, Faults: faults})
		},
		StoreKind: "embedded", Version: "v0", Log: zerolog.Nop(),
	}
}

// running is a node that runs in this process.
type running struct {
	url  string
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, n *Node, run func(context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{stop: cancel, done: make(chan error, 1)}
	ready := make(chan string, 1)
	n.deps.OnReady = func(url string) { ready <- url }
	if run == nil {
		run = n.Run
	}
	go func() { r.done <- run(ctx) }()
	t.Cleanup(func() { cancel(); <-r.done; r.done <- nil; http.DefaultClient.CloseIdleConnections() })
	select {
	case r.url = <-ready:
	case err := <-r.done:
		r.done <- err
		t.Fatalf("node ended: %v", err)
	case <-time.After(patience):
		t.Fatal("node did not start")
	}
	return r
}

// ended waits for the node's end.
func (r *running) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(patience):
		t.Fatal("node did not end")
		return nil
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(raw)
}

// until looks at a condition again and again.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
		<-tick.C
	}
}

func fund(t *testing.T, c *rpc.Client, buckets uint32) {
	t.Helper()
	if _, err := c.CreateBudget(t.Context(), &cofferv1.CreateBudgetRequest{Budget: "B", Currency: "BRL", Buckets: buckets}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.FundBudget(t.Context(), &cofferv1.FundBudgetRequest{Budget: "B", AmountMinor: 1e9, Currency: "BRL", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
}

func reserve(ctx context.Context, c *rpc.Client, order string, ttl time.Duration) error {
	_, err := c.Reserve(ctx, &cofferv1.ReserveRequest{OrderId: order, BenefitKey: "b", Budget: "B", AmountMinor: 100, Currency: "BRL", Ttl: durationpb.New(ttl)})
	return err
}

func TestServes(t *testing.T) {
	n, err := New(testConfig(), testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	c := rpc.NewClient(r.url, rpc.WithAttemptTimeout(patience))
	defer c.Close()
	fund(t, c, 4)
	if err := reserve(t.Context(), c, "o1", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := reserve(t.Context(), c, "o1", time.Hour); err != nil {
		t.Fatal(err)
	}
	g := rpc.NewClient(r.url, rpc.WithProtocol(rpc.ProtocolGRPC), rpc.WithAttemptTimeout(patience)) // HTTP/2 without TLS
	defer g.Close()
	if err := reserve(t.Context(), g, "o2", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	until(t, "the scanner to expire o2", func() bool {
		got, err := c.GetReservation(t.Context(), "o2", "b")
		return err == nil && got[0].GetState() == cofferv1.ReservationState_RESERVATION_STATE_EXPIRED
	})
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ok\n",
	} {
		if code, body := get(t, r.url+path); code != 200 || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	// The reservation is seen expired before the scanner has its answer.
	until(t, "the scanner to have its answer", func() bool {
		_, body := get(t, r.url+"/metrics")
		return strings.Contains(body, "coffer_expired_total 1") && strings.Contains(body, "coffer_queue_depth 0")
	})
	code, metrics := get(t, r.url+"/metrics")
	for _, want := range []string{
		`coffer_build_info{node_id="test",store="embedded",version="v0"} 1`, `coffer_commands_total{op="reserve",outcome="applied"} 2`,
		`coffer_commands_total{op="reserve",outcome="replayed"} 1`, `coffer_batch_size_count`, "coffer_queue_depth 0",
		"coffer_expiry_oldest_overdue_seconds 0", "coffer_expired_total 1", "coffer_skipped_benefits_total 0", "coffer_leader 1", "coffer_leader_term 1", "go_goroutines", "coffer_rpc_requests_total",
	} {
		if code != 200 || !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q (%d)", want, code)
		}
	}
	if code, _ := get(t, r.url+"/debug/pprof/"); code != 404 {
		t.Errorf("pprof is on by default: %d", code)
	}
	st, err := c.GetStatus(t.Context())
	if err != nil || st.NodeId != "test" || st.Store != "embedded" || st.Version != "v0" {
		t.Errorf("status %v, %v", st, err)
	}
	r.stop()
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
}

// A scanner that is stuck is seen from outside: the oldest overdue rises and
// readiness fails, while the node lives.
func TestScannerStops(t *testing.T) {
	cfg := testConfig()
	cfg.Expiry.StallAfter = 200 * time.Millisecond
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	var stuck atomic.Bool
	r := start(t, n, func(ctx context.Context) error {
		ln, err := n.listen(ctx)
		if err != nil {
			return err
		}
		engine, err := n.deps.OpenStore(ctx)
		if err != nil {
			return err
		}
		defer engine.Close()
		p, err := n.assemble(ctx, engine)
		if err != nil {
			return err
		}
		idle := executorFunc(func(ctx context.Context) {
			if stuck.Load() {
				<-ctx.Done()
			}
		})
		if p.expiry, err = scan.New(cfg.Expiry, p.ledger, idle, zerolog.Nop()); err != nil {
			return err
		}
		return n.serve(ctx, ln, p)
	})
	c := rpc.NewClient(r.url)
	defer c.Close()
	fund(t, c, 1)
	until(t, "readiness", func() bool { code, _ := get(t, r.url+"/readyz"); return code == 200 })
	stuck.Store(true)
	if err := reserve(t.Context(), c, "o1", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	until(t, "readiness to fail", func() bool {
		code, body := get(t, r.url+"/readyz")
		return code == 503 && strings.Contains(body, "the expiry scanner has completed no pass for")
	})
	until(t, "the oldest overdue to rise", func() bool {
		st, err := c.GetStatus(t.Context())
		return err == nil && st.OldestOverdueSeconds > 0.5 && st.LastExpiryPassSeconds > 0.2
	})
	if code, _ := get(t, r.url+"/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
}

// executorFunc runs before every call and expires nothing.
type executorFunc func(context.Context)

func (f executorFunc) DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply {
	f(ctx)
	return make([]ledger.Reply, len(cmds))
}

// While it drains, a node that is asked says so, and ends without error.
func TestDrainDelay(t *testing.T) {
	cfg := testConfig()
	cfg.Shutdown.Delay = 300 * time.Millisecond
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{}) // ends the delay, which is too short for a slow machine
	end := sync.OnceFunc(func() { close(over) })
	n.pause = func(d time.Duration) {
		if d != cfg.Shutdown.Delay {
			t.Errorf("delay of %s, want %s", d, cfg.Shutdown.Delay)
		}
		<-over
	}
	r := start(t, n, nil)
	t.Cleanup(end)
	c := rpc.NewClient(r.url, rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(patience))
	defer c.Close()
	fund(t, c, 1)
	r.stop()
	until(t, "readiness to end", func() bool {
		code, body := get(t, r.url+"/readyz")
		return code == 503 && strings.Contains(body, "draining")
	})
	if err := reserve(t.Context(), c, "o1", time.Hour); err != nil {
		t.Errorf("a command within the delay is refused: %v", err)
	}
	end()
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
	// On a new connection: of an old one the client cannot tell when it ended.
	late := rpc.NewClient(r.url, rpc.WithMaxAttempts(1))
	defer late.Close()
	if err := reserve(t.Context(), late, "o2", time.Hour); err == nil || errors.Is(err, rpc.ErrOutcomeUnknown) {
		t.Errorf("after the end: %v", err)
	}
}

func TestStartFaults(t *testing.T) {
	cfg := testConfig()
	cfg.Listen = "nowhere"
	if _, err := New(cfg, testDeps(t, nil)); err == nil || !strings.Contains(err.Error(), `listen is "nowhere"`) {
		t.Errorf("bad address: %v", err)
	}
	if _, err := New(testConfig(), Deps{}); err == nil {
		t.Error("no store factory is accepted")
	}
	n, err := New(testConfig(), testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	taken := testConfig()
	taken.Listen = strings.TrimPrefix(r.url, "http://")
	m, err := New(taken, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); !errors.Is(err, ErrAddressInUse) || !strings.Contains(err.Error(), taken.Listen) {
		t.Errorf("taken address: %v", err)
	}
	broken, err := New(testConfig(), Deps{OpenStore: func(context.Context) (kv.Store, error) { return nil, fmt.Errorf("no disk") }})
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Run(t.Context()); err == nil || err.Error() != "no disk" {
		t.Errorf("store that does not open: %v", err)
	}
}

// While the store opens nobody waits at the address: it is taken afterwards.
func TestListensOnceTheStoreIsOpen(t *testing.T) {
	// An address that no other test or connection of this machine uses.
	free, err := net.Listen("tcp", "127.83.71.5:0")
	if err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	cfg := testConfig()
	cfg.Listen = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	opened := errors.New("no disk")
	n, err := New(cfg, Deps{OpenStore: func(context.Context) (kv.Store, error) {
		if conn, err := net.Dial("tcp", cfg.Listen); err == nil {
			_ = conn.Close()
			t.Error("the address is taken before the store is open")
		}
		return nil, opened
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Run(t.Context()); !errors.Is(err, opened) {
		t.Errorf("got %v", err)
	}
}
