package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/bench"
)

type benchCmd struct {
	Run     benchRun     `cmd:"" default:"withargs" help:"Run one workload at one target."`
	Compare benchCompare `cmd:"" help:"Run several targets in turn and print ratios."`
	List    benchList    `cmd:"" help:"List workloads and targets."`
}

// benchLoad are the flags of the load.
type benchLoad struct {
	Workload   string        `help:"Workload (see: coffer bench list)." default:"hot" placeholder:"NAME"`
	Rate       string        `help:"Tasks that become due in a second; max: callers who send as soon as they have their answer; 50%: a share of what max reaches." default:"max"`
	Arrivals   string        `help:"Arrivals at a rate: poisson or constant." default:"poisson"`
	Callers    int           `help:"Callers at --rate max; otherwise the most tasks in work at once (default 64, with a rate 4096)." placeholder:"N"`
	Warmup     time.Duration `help:"Time driven before anything counts." default:"2s"`
	Duration   time.Duration `help:"Time that counts." default:"10s"`
	Tasks      int           `help:"End after so many tasks, all of which count; --duration bounds them still." placeholder:"N"`
	Seed       uint64        `help:"Seed of the orders: the same seed makes the same orders." default:"1"`
	Batch      int           `help:"Commands in one call of the workload batch." default:"100"`
	Buckets    int           `help:"Buckets of each budget (default: the workload's own)." placeholder:"N"`
	Budgets    int           `help:"Budgets of the workload zipf." default:"1000"`
	Exponent   float64       `help:"Exponent of the workload zipf, above 1." default:"1.1"`
	Preload    int           `help:"Reservations stored before (grown), or holds that lapse (expiry-storm)." default:"100000"`
	Orders     int           `help:"Orders of the workload exhaust." default:"5000"`
	Duplicates float64       `help:"Share of calls of lifecycle that come twice at once." default:"0.05"`
	Lost       float64       `help:"Share of calls of lifecycle whose answer is lost." default:"0.02"`
	Apart      bool          `help:"Send reserve and commit of a pair as two calls."`
	File       string        `help:"CSV file of the workload file: order_id, benefit_key, amount_minor and, if there are several, budget." placeholder:"FILE"`
	Protocol   string        `help:"Protocol of the client: connect, grpc or grpcweb." default:"connect"`
	Unary      bool          `help:"Send each single command as a call of its own; the client does not gather concurrent ones."`
	Store      string        `help:"Engine of targets in this process: embedded, or fdb:FILE, where a run removes what it wrote, but for the target node." default:"embedded" placeholder:"STORE"`
	Dir        string        `help:"Put temporary stores here (default: the system's temporary directory)." placeholder:"DIR"`
	PgDsn      string        `help:"Use this PostgreSQL, in a schema of its own that is dropped first, instead of a private one." placeholder:"DSN"`
	Pipeline   bool          `help:"Let PostgreSQL take the commands of one call in one transaction."`
	Server     string        `help:"Base URL of the target server (default: ${default}, env COFFER_SERVER)." default:"http://127.0.0.1:7420" placeholder:"URL" empty:"name a URL, or leave the flag out to use COFFER_SERVER or the default"`
	trust      `embed:""`
}

func (l *benchLoad) config(target string) (bench.Config, error) {
	cfg := bench.Config{
		Workload: l.Workload, Target: target, Arrivals: bench.Arrivals(l.Arrivals), Callers: l.Callers, Warmup: l.Warmup,
		Duration: l.Duration, Seed: l.Seed, Tasks: l.Tasks, Batch: l.Batch, Buckets: l.Buckets, Budgets: l.Budgets, Exponent: l.Exponent,
		Preload: l.Preload, Orders: l.Orders, Duplicates: l.Duplicates, Lost: l.Lost, Apart: l.Apart, File: l.File,
		Protocol: l.Protocol, Unary: l.Unary, Dir: l.Dir, DSN: l.PgDsn, Pipeline: l.Pipeline, URL: l.Server,
	}
	if err := cfg.ParseRate(l.Rate); err != nil {
		return cfg, usageError{err}
	}
	if cfg.Callers == 0 {
		cfg.Callers = 64
		if cfg.Rate > 0 {
			cfg.Callers = bench.PeakCallers
		}
	}
	return cfg, nil
}

type benchRun struct {
	Target    string `help:"Target (see: coffer bench list)." default:"node" placeholder:"NAME"`
	Report    string `help:"Write a report with plots here; it opens offline." placeholder:"FILE.html"`
	Profile   string `name:"cpu-profile" help:"Write a CPU profile of the run here, for go tool pprof." placeholder:"FILE"`
	benchLoad `embed:""`
}

// Help is the long help.
func (benchRun) Help() string {
	return `Drives a load, then audits what it stored. Latency counts from when a task was
due, not from when it was sent. A run whose audit or checks fail prints no
figures; exit code 1.

Examples:
  coffer bench --workload hot
  coffer bench --workload spread --rate 2000 --duration 30s --report spread.html
  coffer bench --workload spread --rate 50%
  coffer bench --workload exhaust
  coffer bench --target server --workload lifecycle --json`
}

// Run runs a workload.
func (b *benchRun) Run(c *cli) error {
	cfg, err := b.config(b.Target)
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return usageError{fmt.Errorf("bench: %w", err)}
	}
	deps, err := c.benchDeps(&b.benchLoad)
	if err != nil {
		return err
	}
	stop, err := profile(b.Profile)
	if err != nil {
		return err
	}
	res, err := bench.Run(c.ctx, cfg, deps)
	c.benchDone()
	if err := errors.Join(err, stop()); err != nil {
		return c.benchFailed(err)
	}
	if b.Report != "" {
		if err := writeBenchReport(b.Report, res); err != nil {
			return err
		}
	}
	if c.JSON {
		return c.printJSON(res)
	}
	c.benchTables(res)
	if b.Report != "" {
		c.printf("report: %s\n", b.Report)
	}
	return nil
}

// profile starts a CPU profile, if a file is named, and returns what ends it.
func profile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("start profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func writeBenchReport(path string, res *bench.Result) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return bench.WriteReport(f, res)
}

// benchFailed prints why a run has no figures.
func (c *cli) benchFailed(err error) error {
	var void *bench.VoidError
	if errors.Is(err, context.Canceled) && c.ctx.Err() != nil {
		return fmt.Errorf("bench: %w; a run that was cut short has no figures", context.Cause(c.ctx))
	}
	if !errors.As(err, &void) {
		return fmt.Errorf("bench: %w", err)
	}
	if c.JSON {
		if err := c.printJSON(map[string]any{"void": void}); err != nil {
			return err
		}
		return errFailed
	}
	c.printf("%s on %s: VOID, there are no figures\n", void.Workload, void.Target)
	for _, f := range void.Faults {
		c.printf("  %s\n", f)
	}
	if void.Audit != nil {
		c.printf("audit: %s\n", verdict(void.Audit.OK))
	}
	return errFailed
}

func (c *cli) benchTables(r *bench.Result) {
	t := c.table([]any{r.Config.Workload + " on " + r.Config.Target, ""})
	for _, row := range r.Summary() {
		t.row(row[0], row[1])
	}
	t.print()
	c.printf("\n")
	l := c.table([]any{"latency, ms", "count", "mean", "p50", "p90", "p99", "p99.9", "max"}, "count", "mean", "p50", "p90", "p99", "p99.9", "max")
	add := func(name string, p bench.Percentiles) {
		ms := func(s float64) string { return strconv.FormatFloat(s*1000, 'f', 2, 64) }
		l.row(name, p.Count, ms(p.Mean), ms(p.P50), ms(p.P90), ms(p.P99), ms(p.P999), ms(p.Max))
	}
	add("whole tasks", r.Latency)
	for _, name := range slices.Sorted(maps.Keys(r.Operations)) {
		add(name, r.Operations[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Phases)) {
		add("phase "+name, r.Phases[name])
	}
	l.print()
	c.printf("\n")
	for _, k := range r.Checks {
		c.printf("%s: %s: %s\n", verdict(k.OK), k.Name, k.Says)
	}
	c.auditLine(r.Audit)
}

func (c *cli) auditLine(a *bench.Audit) {
	if a.None {
		c.printf("audit: ok (there is no ledger behind this target)\n")
		return
	}
	c.printf("audit: %s (%d entries, %d reservations, %.1f s, %.0f entries/s)\n", verdict(a.OK), a.Entries, a.Reservations, a.Seconds, float64(a.Entries)/max(a.Seconds, 1e-9))
}

type benchList struct{}

// Help is the long help.
func (benchList) Help() string {
	return `Example:
  coffer bench list`
}

// Run lists what there is.
func (benchList) Run(c *cli) error {
	type item struct {
		Name string `json:"name"`
		Help string `json:"help"`
	}
	var workloads, targets []item
	for _, n := range bench.Workloads() {
		workloads = append(workloads, item{n, bench.WorkloadHelp(n)})
	}
	for _, n := range bench.Targets() {
		targets = append(targets, item{n, bench.TargetHelp(n)})
	}
	if c.JSON {
		return c.printJSON(map[string]any{"workloads": workloads, "targets": targets})
	}
	for _, list := range []struct {
		title string
		items []item
	}{{"workload", workloads}, {"target", targets}} {
		if list.title == "target" {
			c.printf("\n")
		}
		t := c.table([]any{list.title, "what"})
		for _, i := range list.items {
			t.row(i.Name, i.Help)
		}
		t.print()
	}
	return nil
}

// benchDone clears the line of progress.
func (c *cli) benchDone() {
	if !c.JSON && terminal(c.stderr) {
		c.notef("\r\x1b[K")
	}
}

// benchProgress shows what a bench does on a terminal, nothing elsewhere.
func (c *cli) benchProgress() func(bench.Progress) {
	if c.JSON || !terminal(c.stderr) {
		return nil
	}
	return func(p bench.Progress) {
		var b strings.Builder
		fmt.Fprintf(&b, "\r\x1b[K%s", p.What)
		switch {
		case p.Of > 0:
			fmt.Fprintf(&b, " %d %%", min(100, p.Done*100/p.Of))
		case p.Done > 0:
			fmt.Fprintf(&b, " %d", p.Done)
		}
		if p.Commands > 0 {
			fmt.Fprintf(&b, ", %d commands", p.Commands)
		}
		c.notef("%s", b.String())
	}
}
