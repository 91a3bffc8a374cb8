package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

const orders = "order_id,benefit_key,amount_minor,budget,note\na,coupon:A,100,spring,x\nb,coupon:A,250,spring,\nc,coupon:B,300,summer,\na,coupon:A,100,spring,again\n"

func ordersFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func workloadConfig(t *testing.T, name, target string) Config {
	t.Helper()
	cfg := testConfig(t, name, target)
	if name == "file" {
		cfg.File = ordersFile(t, orders)
	}
	return cfg
}

// The same seed makes the same orders, whoever asks for them in whatever
// order; another seed makes others.
func TestWorkloadsAreDeterministic(t *testing.T) {
	for _, name := range Workloads() {
		t.Run(name, func(t *testing.T) {
			cfg := workloadConfig(t, name, "executor")
			a, b := make200(t, cfg, false), make200(t, cfg, true)
			if !reflect.DeepEqual(a, b) {
				t.Error("the same seed makes other tasks")
			}
			cfg.Seed++
			if other := make200(t, cfg, false); name != "file" && reflect.DeepEqual(a, other) {
				t.Error("another seed makes the same tasks")
			}
			keys := map[string]bool{}
			for i, tk := range a {
				k := tk[0].commands[0].Key.String()
				if keys[k] && name != "file" {
					t.Errorf("task %d uses the key %s again", i, k)
				}
				keys[k] = true
			}
		})
	}
}

func make200(t *testing.T, cfg Config, backwards bool) []task {
	t.Helper()
	w, err := newWorkload(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]task, 200)
	for i := range out {
		if backwards {
			i = len(out) - 1 - i
		}
		out[i] = w.task(uint64(i))
	}
	return out
}

// Each workload runs on the executor, in time that the test owns, and its
// audit passes.
func TestWorkloadsOnTheExecutor(t *testing.T) {
	for _, name := range Workloads() {
		t.Run(name, func(t *testing.T) {
			cfg := workloadConfig(t, name, "executor")
			cfg.Rate, cfg.Duplicates, cfg.Lost = 100, 0.2, 0.2
			if name == "expiry-storm" {
				cfg.Tasks, cfg.Duration = 0, 5*time.Second
			}
			synctest.Test(t, func(t *testing.T) {
				r, err := Run(context.Background(), cfg, memDeps())
				if err != nil {
					t.Fatal(err)
				}
				checkResult(t, r)
				if name == "expiry-storm" {
					if r.Phases["quiet"].Count == 0 || r.Phases["storm"].Count == 0 {
						t.Errorf("phases: %+v", r.Phases)
					}
				} else if want := max(200, uint64(cfg.Orders)); r.Tasks != want && r.Tasks != 200 {
					t.Errorf("%d tasks, want %d", r.Tasks, want)
				}
			})
		})
	}
}

func checkResult(t *testing.T, r *Result) {
	t.Helper()
	if !r.Audit.OK || r.Audit.Entries == 0 || r.Commands < 200 {
		t.Errorf("audit %+v of %d commands", r.Audit, r.Commands)
	}
	if r.Batches == nil || r.Batches.Count == 0 || r.Batches.Mean < 1 || r.ConflictRate < 0 {
		t.Errorf("batches %+v, conflict rate %v", r.Batches, r.ConflictRate)
	}
	if r.HotKeyShare <= 0 || r.HotKeyShare > 1 || r.HotKey == "" {
		t.Errorf("hot key %q has a share of %v", r.HotKey, r.HotKeyShare)
	}
	for _, c := range r.Checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Says)
		}
	}
}

func TestExhaustChecks(t *testing.T) {
	cfg := testConfig(t, "exhaust", "executor")
	r, err := Run(context.Background(), cfg, memDeps())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Checks) != 8 {
		t.Errorf("%d checks, want 5 of EXACT and 3 of STRICT: %+v", len(r.Checks), r.Checks)
	}
	if r.Outcomes["accepted"] == 0 || r.Outcomes["INSUFFICIENT_BUDGET"] == 0 {
		t.Errorf("outcomes %v", r.Outcomes)
	}
}

// A target that sells too much, keeps too much, or refuses what it had is
// found out.
func TestExhaustFindsFaults(t *testing.T) {
	cfg := testConfig(t, "exhaust", "executor")
	w, err := newExhaust(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := w.(*exhaust)
	exact := e.specs[0].id
	for name, tc := range map[string]struct {
		left   int64
		reply  Reply
		amount int64
	}{
		"EXACT: never oversold":                                         {left: -1},
		"EXACT: less than the smallest order is left":                   {left: exhaustLeast},
		"EXACT: callers were told what is stored":                       {left: 3, reply: Reply{}, amount: e.left},
		"EXACT: no order was refused while the budget had its amount":   {left: 2, reply: Reply{Code: ledger.InsufficientBudget, Requested: 5, Available: 7}, amount: 5},
		"EXACT: no order was refused while the budget had its amount: ": {left: 4, reply: Reply{Code: ledger.InsufficientBudget, Requested: 3, Available: 1}, amount: 3},
	} {
		f := &fake{budgets: map[ledger.BudgetID]ledger.Balances{}}
		for _, s := range e.specs {
			f.budgets[s.id] = ledger.Balances{Funded: s.funded, Reserved: s.funded - tc.left, Available: tc.left}
		}
		ty := &tally{}
		ty.add(&ledger.Command{Op: ledger.OpReserve, Budget: exact, Amount: tc.amount}, &tc.reply)
		checks, err := e.check(context.Background(), f, ty)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range checks {
			if c.Name == strings.TrimSuffix(name, ": ") && c.OK {
				t.Errorf("%s: passes with %d left: %s", name, tc.left, c.Says)
			}
		}
	}
}

func TestFileFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "header",
		"order_id,benefit_key\na,b\n":         "no column amount_minor",
		"order_id,benefit_key,amount_minor\n": "no orders",
		"order_id,benefit_key,amount_minor\na,b,1.5\n":        "line 2: amount_minor",
		"order_id,benefit_key,amount_minor\na,b,1\na,,1\n":    "line 3",
		"order_id,benefit_key,amount_minor\na,b,1\na,b,1,1\n": "wrong number of fields",
	} {
		cfg := testConfig(t, "file", "executor")
		cfg.File = ordersFile(t, text)
		if _, err := Open(context.Background(), cfg, memDeps()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("file %q: %v, want %q", text, err, want)
		}
	}
	cfg := testConfig(t, "file", "executor")
	cfg.File = filepath.Join(t.TempDir(), "none.csv")
	if _, err := Open(context.Background(), cfg, memDeps()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
