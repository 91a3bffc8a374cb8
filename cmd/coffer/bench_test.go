package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/bench"
)

// quick are the flags of a run that ends by itself.
var quick = []string{"--tasks", "200", "--warmup", "0s", "--duration", "1m", "--callers", "16"}

func TestBench(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	out := must(t, append([]string{"bench", "--workload", "lifecycle", "--report", page}, quick...)...)
	contains(t, out, "lifecycle on node", "commands/s", "whole tasks", "p99.9", "hot-key share", "audit: ok", "report: "+page)
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(raw), "<svg", "Conditions", "audit: ok")

	r := decode[bench.Result](t, must(t, append([]string{"bench", "--target", "executor", "--json"}, quick...)...))
	if !r.Audit.OK || r.Commands != 200 || r.CommandsPerSecond <= 0 || r.Conditions.Cores == 0 || r.Conditions.GoProcs == 0 || r.Batches == nil {
		t.Errorf("%+v", r)
	}
}

func TestBenchExhaust(t *testing.T) {
	out := must(t, "bench", "--workload", "exhaust", "--orders", "400", "--duration", "1m")
	contains(t, out, "ok: EXACT: less than the smallest order is left", "ok: EXACT: no order was refused while the budget had its amount",
		"ok: STRICT: never oversold", "audit: ok")
}

func TestBenchCompare(t *testing.T) {
	args := append([]string{"bench", "compare", "executor", "raw", "--workload", "batch", "--rounds", "2"}, quick...)
	out := must(t, args...)
	contains(t, out, "divided by", "executor", "raw", "lowest", "medians of 2 rounds", "audit: ok")
	c := decode[bench.Comparison](t, must(t, append(args, "--json")...))
	if len(c.Sides) != 2 || len(c.Ratios) != 1 || len(c.Ratios[0].Rounds) != 2 || c.Ratios[0].Median <= 0 || !c.Sides[0].Audit.OK {
		t.Errorf("%+v", c.Ratios)
	}
}

func TestBenchList(t *testing.T) {
	out := must(t, "bench", "list")
	contains(t, out, append(bench.Workloads(), bench.Targets()...)...)
	l := decode[map[string][]map[string]string](t, must(t, "bench", "list", "--json"))
	if len(l["workloads"]) != len(bench.Workloads()) || len(l["targets"]) != len(bench.Targets()) {
		t.Errorf("%v", l)
	}
}

func TestBenchFaults(t *testing.T) {
	for words, args := range map[string]string{
		`workload is "none"`:                "--workload none",
		"rate is \"fast\"":                  "--rate fast",
		"callers is -1":                     "--callers=-1",
		"--store is \"here\"":               "--store here",
		"there is 1 side":                   "compare node",
		"target is \"nowhere\"":             "compare --vs nowhere",
		"does not run on the raw engine":    "--target raw --workload lifecycle",
		"a CSV file with the workload file": "--workload file",
	} {
		fails(t, exitUsage, words, append([]string{"bench"}, strings.Fields(args)...)...)
	}
	fails(t, exitFailed, "does not answer", "bench", "--target", "server", "--server", "http://127.0.0.1:1")
}

// A void run prints why and no figures.
func TestBenchVoid(t *testing.T) {
	var out strings.Builder
	c := &cli{stdout: &out, stderr: &out, globals: &globals{}}
	void := &bench.VoidError{Workload: "hot", Target: "node", Faults: []string{"chain_intact: 1 problems"}, Audit: &bench.Audit{}}
	if err := c.benchFailed(void); !errors.Is(err, errFailed) {
		t.Errorf("ends with %v", err)
	}
	contains(t, out.String(), "VOID", "chain_intact", "audit: FAILED")
	if strings.Contains(out.String(), "commands/s") {
		t.Errorf("a void run has figures:\n%s", out.String())
	}
	out.Reset()
	c.JSON = true
	if err := c.benchFailed(void); !errors.Is(err, errFailed) {
		t.Errorf("ends with %v", err)
	}
	if v := decode[map[string]bench.VoidError](t, out.String()); len(v) != 1 || v["void"].Workload != "hot" {
		t.Errorf("%+v", v)
	}
}
