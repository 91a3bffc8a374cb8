package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// executor runs commands in this process, without RPC.
type executor struct {
	engine  kv.Store
	store   *store.Store
	exec    *shard.Executor
	deps    Deps
	scanned chan error
	stop    context.CancelFunc
	remove  func() error
	prefix  []byte // of what is removed at the end, nil where the engine goes as a whole
}

// tempDir is where a target keeps its data: cfg.Dir, or a new directory that
// remove removes.
func tempDir(cfg Config) (dir string, remove func() error, err error) {
	if cfg.Dir == "" {
		if dir, err = os.MkdirTemp("", "coffer-bench-"); err != nil {
			return "", nil, fmt.Errorf("make temporary store: %w", err)
		}
		return dir, func() error { return os.RemoveAll(dir) }, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("make store directory: %w", err)
	}
	if dir, err = os.MkdirTemp(cfg.Dir, "coffer-bench-"); err != nil {
		return "", nil, fmt.Errorf("make store directory: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

func openExecutor(ctx context.Context, cfg Config, deps Deps) (_ Target, err error) {
	if deps.OpenEngine == nil {
		return nil, errors.New("there is no engine to open")
	}
	dir, remove, err := tempDir(cfg)
	if err != nil {
		return nil, err
	}
	e := &executor{deps: deps, remove: remove, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.engine, err = deps.OpenEngine(ctx, dir); err != nil {
		return nil, err
	}
	opt := store.Options{Writer: "bench"}
	if deps.Shared != "" { // others keep their data there, too
		opt.Prefix = []byte("coffer-bench-" + cfg.RunID)
		e.prefix = opt.Prefix
	}
	if e.store, err = store.Open(ctx, e.engine, opt); err != nil {
		return nil, err
	}
	if e.exec, err = shard.New(shard.DefaultConfig(), e.store); err != nil {
		return nil, err
	}
	if deps.Expire != nil {
		sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		e.stop, e.scanned = cancel, make(chan error, 1)
		go func() { e.scanned <- deps.Expire(sctx, e.store, e.exec) }()
	}
	return e, nil
}

// Make implements Target.
func (e *executor) Make(ctx context.Context, b budgetSpec) error {
	return makeBudget(b, func(c ledger.Command) error {
		_, err := e.exec.Do(ctx, c)
		return err
	})
}

// Do implements Target.
func (e *executor) Do(ctx context.Context, cmds []ledger.Command) []Reply {
	replies := e.exec.DoAll(ctx, cmds)
	out := make([]Reply, len(replies))
	for i := range replies {
		out[i] = replyOf(&replies[i])
	}
	return out
}

// Balances implements Target.
func (e *executor) Balances(ctx context.Context, id ledger.BudgetID) (ledger.Balances, error) {
	v, err := e.store.Budget(ctx, id)
	if err != nil {
		return ledger.Balances{}, err
	}
	return v.Total, nil
}

// Counters implements Target.
func (e *executor) Counters(context.Context) (Counters, error) {
	s := e.exec.Stats()
	c := Counters{Batches: map[int]uint64{}, Commands: s.Commands, Conflicts: e.store.Retries()}
	for i, n := range s.BatchSizes {
		c.Batches[1<<i] = n
	}
	return c, nil
}

// Audit implements Target.
func (e *executor) Audit(ctx context.Context, progress func(string, uint64)) (*Audit, error) {
	start := time.Now()
	r, err := e.store.Audit(ctx, progress)
	if err != nil {
		return nil, err
	}
	return auditOf(r, time.Since(start)), nil
}

// Engine implements Target.
func (e *executor) Engine() string { return e.deps.engineName() }

// Close implements Target.
func (e *executor) Close() error {
	var errs []error
	e.stop()
	if e.scanned != nil {
		errs = append(errs, <-e.scanned)
	}
	if e.exec != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		errs = append(errs, e.exec.Drain(ctx))
	}
	if e.prefix != nil {
		errs = append(errs, clearAll(e.engine, e.prefix))
	}
	if e.engine != nil {
		errs = append(errs, e.engine.Close())
	}
	return errors.Join(append(errs, e.remove())...)
}
