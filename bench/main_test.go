package bench

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node"
	"github.com/coffer-ledger/coffer/node/scan"
	"github.com/coffer-ledger/coffer/shard"
)

func TestMain(m *testing.M) {
	napper = func() (func(time.Duration), func()) { return time.Sleep, func() {} }
	testengine.Main(m)
}

// openMem opens an engine in memory.
func openMem(context.Context, string) (kv.Store, error) {
	return embedded.Open(embedded.Options{Dir: "store", FS: vfs.NewMem(), CacheBytes: 8 << 20, MemTableBytes: 4 << 20})
}

// memDeps are engines and nodes in memory.
func memDeps() Deps {
	return Deps{
		OpenEngine: openMem,
		StartNode:  startNode,
		ServeAPI: func(ctx context.Context, h http.Handler) (string, func() error, error) {
			return node.Bare(ctx, nodeConfig(), h, zerolog.Nop())
		},
		Expire: func(ctx context.Context, st *store.Store, exec *shard.Executor) error {
			x, err := scan.New(scan.DefaultConfig(), st, exec, zerolog.Nop())
			if err != nil {
				return err
			}
			return x.Run(ctx)
		},
		Version: "test",
	}
}

func nodeConfig() node.Config {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.Store, cfg.NodeID = "127.0.0.1:0", "embedded:memory", "test"
	return cfg
}

func startNode(ctx context.Context, _ string) (string, func() error, error) {
	ready := make(chan string, 1)
	n, err := node.New(nodeConfig(), node.Deps{
		OpenStore: func(ctx context.Context) (kv.Store, error) { return openMem(ctx, "") }, StoreKind: "embedded",
		Log: zerolog.Nop(), OnReady: func(url string) { ready <- url },
	})
	if err != nil {
		return "", nil, err
	}
	nctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- n.Run(nctx) }()
	stop := func() error { cancel(); return <-done }
	select {
	case url := <-ready:
		return url, stop, nil
	case err := <-done:
		cancel()
		return "", nil, err
	}
}

// testConfig is a run that ends by itself.
func testConfig(t *testing.T, workload, target string) Config {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Workload, cfg.Target, cfg.RunID, cfg.Dir = workload, target, "t", t.TempDir()
	cfg.Warmup, cfg.Duration, cfg.Tasks, cfg.Callers = 0, time.Minute, 200, 16
	cfg.Budgets, cfg.Batch, cfg.Preload, cfg.Orders = 20, 10, 600, 400
	return cfg
}

// fake is a target that answers what a test says.
type fake struct {
	mu      sync.Mutex
	do      func(cmds []ledger.Command) []Reply
	audit   Audit
	budgets map[ledger.BudgetID]ledger.Balances
}

func (f *fake) Make(_ context.Context, b budgetSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.budgets == nil {
		f.budgets = map[ledger.BudgetID]ledger.Balances{}
	}
	f.budgets[b.id] = ledger.Balances{Funded: b.funded, Available: b.funded}
	return nil
}

func (f *fake) Do(_ context.Context, cmds []ledger.Command) []Reply {
	if f.do != nil {
		return f.do(cmds)
	}
	return make([]Reply, len(cmds))
}

func (f *fake) Balances(_ context.Context, id ledger.BudgetID) (ledger.Balances, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.budgets[id], nil
}

func (f *fake) Counters(context.Context) (Counters, error) { return Counters{NoConflicts: true}, nil }

func (f *fake) Audit(context.Context, func(string, uint64)) (*Audit, error) {
	a := f.audit
	return &a, nil
}
func (f *fake) Engine() string { return "fake" }
func (f *fake) Close() error   { return nil }
