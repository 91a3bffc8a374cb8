package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// The targets over RPC run the workloads with single calls and with batches.
func TestNode(t *testing.T) {
	for _, workload := range []string{"hot", "spread", "lifecycle", "batch", "exhaust"} {
		cfg := testConfig(t, workload, "node")
		cfg.Duplicates, cfg.Lost = 0.2, 0.2
		r, err := Run(context.Background(), cfg, memDeps())
		if err != nil {
			t.Errorf("%s: %v", workload, err)
			continue
		}
		if !r.Audit.OK || r.Audit.Entries == 0 || r.Batches == nil || r.Batches.Count == 0 || r.ConflictRate >= 0 {
			t.Errorf("%s: audit %+v, batches %+v, conflicts %v (this engine tells none)", workload, r.Audit, r.Batches, r.ConflictRate)
		}
		if workload == "spread" && r.Commands != 2*r.Tasks {
			t.Errorf("%d tasks are %d commands, want pairs", r.Tasks, r.Commands)
		}
	}
}

// A server that somebody else runs is measured and left running.
func TestServer(t *testing.T) {
	url, stop, err := startNode(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	cfg := testConfig(t, "spread", "server")
	cfg.URL, cfg.Apart, cfg.Protocol, cfg.RunID = url, true, "grpc", ""
	for range 2 { // a second run has orders of its own
		r, err := Run(context.Background(), cfg, memDeps())
		if err != nil {
			t.Fatal(err)
		}
		if r.Conditions.SameMachine || r.Operations["commit"].Count != 200 || r.Outcomes["replayed"] != 0 {
			t.Errorf("conditions %+v, operations %+v, outcomes %v", r.Conditions, r.Operations, r.Outcomes)
		}
	}
}

func TestNoop(t *testing.T) {
	for i, workload := range []string{"hot", "batch", "hot"} {
		cfg := testConfig(t, workload, "noop")
		cfg.Unary = i > 0
		r, err := Run(context.Background(), cfg, memDeps())
		if err != nil {
			t.Fatal(err)
		}
		if !r.Audit.None || r.Commands < 200 || r.Batches != nil {
			t.Errorf("%s: %+v", workload, r)
		}
	}
}

func TestRaw(t *testing.T) {
	for _, workload := range []string{"hot", "spread", "batch", "zipf"} {
		cfg := testConfig(t, workload, "raw")
		cfg.Tasks = 20
		r, err := Run(context.Background(), cfg, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Commands != 200 || r.Audit.Reservations != 200 || r.Batches == nil || r.Batches.Mean != 10 {
			t.Errorf("%s: %d commands, audit %+v, batches %+v", workload, r.Commands, r.Audit, r.Batches)
		}
	}
}

// An engine behind the key-value contract has a ceiling and a hot key.
func TestKeyValueTargets(t *testing.T) {
	deps := memDeps()
	deps.Shared = "memory"
	for _, target := range []string{"raw", "rmw", "executor"} {
		cfg := testConfig(t, "hot", target)
		r, err := Run(context.Background(), cfg, deps)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if !strings.HasPrefix(r.Conditions.Engine, map[string]string{"executor": "memory"}[target]) || r.Batches == nil || r.ConflictRate < 0 {
			t.Errorf("%s: engine %q, batches %+v, conflicts %v", target, r.Conditions.Engine, r.Batches, r.ConflictRate)
		}
		if target == "raw" && r.Batches.Mean != float64(cfg.Batch) {
			t.Errorf("raw has batches of %v", r.Batches.Mean)
		}
	}
}

// The schema serves what it claims to, on a private server where there is a
// PostgreSQL to start.
func TestPostgres(t *testing.T) {
	if _, err := findPostgres(); errors.Is(err, ErrNoPostgres) {
		t.Skip(err)
	}
	cfg := testConfig(t, "lifecycle", "postgres")
	cfg.Dir = "" // t.TempDir is closed to the user postgres
	cfg.Duplicates, cfg.Lost = 0.2, 0.2
	b, err := Open(context.Background(), cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, workload := range []string{"lifecycle", "hot", "spread", "zipf", "batch", "exhaust", "grown"} {
		b.cfg.Workload, b.cfg.Pipeline = workload, workload == "batch"
		r, err := b.Drive(context.Background())
		if err != nil {
			t.Fatalf("%s: %v", workload, err)
		}
		a, err := b.Audit(context.Background())
		if err != nil || !a.OK || a.Entries == 0 {
			t.Errorf("%s: audit %+v, %v", workload, a, err)
		}
		if workload == "lifecycle" && (r.Outcomes["replayed"] == 0 || r.Operations["reverse"].Count == 0) {
			t.Errorf("lifecycle: outcomes %v, operations %v", r.Outcomes, r.Operations)
		}
	}
	// What the schema must refuse, and an audit that finds what is wrong.
	p := b.target.(*postgres)
	w, err := newWorkload(b.cfg, 99)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Make(t.Context(), w.budgets()[0]); err != nil {
		t.Fatal(err)
	}
	hold := w.task(0)[0].commands[0]
	other := hold
	other.Amount++
	refund := after(ledger.OpReverse, hold)
	refund.ID, refund.Amount = "r", hold.Amount+1
	missing := after(ledger.OpCommit, hold)
	missing.Key.Order = "none"
	for _, tc := range []struct {
		c        ledger.Command
		code     ledger.Code
		replayed bool
	}{
		{hold, "", false},
		{hold, "", true},
		{other, ledger.IdempotencyConflict, false},
		{refund, ledger.IllegalState, false},
		{missing, ledger.ReservationNotFound, false},
		{after(ledger.OpCommit, hold), "", false},
		{after(ledger.OpCommit, hold), "", true},
		{after(ledger.OpRelease, hold), ledger.IllegalState, false},
		{refund, ledger.RefundExceedsCommit, false},
	} {
		if r := p.Do(t.Context(), []ledger.Command{tc.c})[0]; r.Code != tc.code || r.Replayed != tc.replayed {
			t.Errorf("%s answers %+v, want %q, replayed %v", tc.c.Op, r, tc.code, tc.replayed)
		}
	}
	if _, err := p.pool.Exec(t.Context(), "UPDATE coffer_bench.balance SET available = available - 1 WHERE bucket = 0"); err != nil {
		t.Fatal(err)
	}
	var void *VoidError
	if _, err := b.Audit(t.Context()); !errors.As(err, &void) || !strings.Contains(err.Error(), "does not add up") {
		t.Errorf("audit of a wrong balance says %v", err)
	}
}

func TestTargetsThatAreNotThere(t *testing.T) {
	cfg := testConfig(t, "hot", "server")
	cfg.URL = "http://127.0.0.1:1"
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, cfg, Deps{}); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("no server: %v", err)
	}
	for _, target := range []string{"node", "executor"} {
		if _, err := Run(context.Background(), testConfig(t, "hot", target), Deps{}); err == nil || !strings.Contains(err.Error(), "target "+target) {
			t.Errorf("no %s: %v", target, err)
		}
	}
	cfg = testConfig(t, "hot", "postgres")
	cfg.DSN = "host=127.0.0.1 port=1 user=nobody dbname=none connect_timeout=5"
	if _, err := Run(context.Background(), cfg, Deps{}); err == nil || !strings.Contains(err.Error(), "--pg-dsn") {
		t.Errorf("no PostgreSQL: %v", err)
	}
}
