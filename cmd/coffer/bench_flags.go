package main

import (
	"slices"

	"github.com/coffer-ledger/coffer/bench"
)

// idleHere are the flags that mean something on some targets or with some
// workloads alone.
var idleHere = []struct {
	flag  string
	where string
	used  func(cfg *bench.Config) bool
}{
	{"server", "with the target server", onTarget("server")},
	{"ca", "with the target server", onTarget("server")},
	{"pg-dsn", "with the target postgres", onTarget("postgres")},
	{"pipeline", "with the target postgres", onTarget("postgres")},
	{"store", "with the targets node, executor, raw, rmw", onTarget("node", "executor", "raw", "rmw")},
	{"protocol", "with the targets node, server, noop", onTarget("node", "server", "noop")},
	{"unary", "with the targets node, server, noop", onTarget("node", "server", "noop")},
	{"batch", "with the workload batch, or the target raw", func(cfg *bench.Config) bool { return cfg.Workload == "batch" || cfg.Target == "raw" }},
	{"budgets", "with the workload zipf", ofWorkload("zipf")},
	{"exponent", "with the workload zipf", ofWorkload("zipf")},
	{"preload", "with the workloads grown, expiry-storm", ofWorkload("grown", "expiry-storm")},
	{"orders", "with the workload exhaust", ofWorkload("exhaust")},
	{"duplicates", "with the workload lifecycle", ofWorkload("lifecycle")},
	{"lost", "with the workload lifecycle", ofWorkload("lifecycle")},
	{"apart", "with the workloads spread, grown, file", ofWorkload("spread", "grown", "file")},
	{"arrivals", "with a --rate other than max", func(cfg *bench.Config) bool { return cfg.Rate > 0 || cfg.PeakShare > 0 }},
}

func onTarget(names ...string) func(*bench.Config) bool {
	return func(cfg *bench.Config) bool { return slices.Contains(names, cfg.Target) }
}

func ofWorkload(names ...string) func(*bench.Config) bool {
	return func(cfg *bench.Config) bool { return slices.Contains(names, cfg.Workload) }
}

// idle names a flag that no side of a run would use. What is wrong with a side
// itself is for Validate to say.
func (l *benchLoad) idle(given map[string]bool, sides ...string) error {
	base, err := l.config("")
	if err != nil {
		return err
	}
	var cfgs []bench.Config
	for _, side := range sides {
		cfg, err := base.With(side)
		if err != nil || cfg.Validate() != nil {
			return nil //nolint:nilerr // Validate says it
		}
		cfgs = append(cfgs, cfg)
	}
	for _, f := range idleHere {
		if given[f.flag] && !slices.ContainsFunc(cfgs, func(cfg bench.Config) bool { return f.used(&cfg) }) {
			return idleFlag(f.flag, f.where)
		}
	}
	return nil
}

func (b *benchRun) idle(given map[string]bool) error { return b.benchLoad.idle(given, b.Target) }

func (b *benchCompare) idle(given map[string]bool) error {
	return b.benchLoad.idle(given, b.all()...)
}
