package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/coffer-ledger/coffer/bench"
)

type benchCompare struct {
	Sides     []string `arg:"" optional:"" help:"Targets, each with settings if need be: executor, or node,callers=128." placeholder:"SIDE"`
	Vs        []string `help:"Divide by this target, too." placeholder:"NAME"`
	Rounds    int      `help:"How often each side runs." default:"5"`
	benchLoad `embed:""`
}

// Help is the long help.
func (benchCompare) Help() string {
	return `Opens every side, runs them in turn (A B A B …), audits each, and prints the
commands/s of the first side (node, if none is named) divided by those of the
others, with the lowest and the highest round. PostgreSQL runs at the same number
of callers, and at 4, 8, 16, 32 and 64 to find its best. The raw engine gets the
batches that the first side had.

Settings of a side: apart, batch, buckets, budgets, callers, exponent, file,
orders, pipeline, preload, protocol, rate, target, unary, url, workload.

Examples:
  coffer bench compare --workload hot --vs postgres
  coffer bench compare node noop --workload hot --unary
  coffer bench compare executor raw --workload batch --callers 64
  coffer bench compare executor,workload=grown,preload=1000000 executor,workload=spread`
}

// all are the sides, with those that the first is divided by, too.
func (b *benchCompare) all() []string {
	sides := b.Sides
	if len(sides) == 0 {
		sides = []string{"node"}
	}
	return slices.Concat(sides, b.Vs)
}

// Run compares.
func (b *benchCompare) Run(c *cli) error {
	cfg, err := b.config("node")
	if err != nil {
		return err
	}
	cmp := bench.CompareConfig{Base: cfg, Sides: b.all(), Rounds: b.Rounds}
	if err := cmp.Validate(); err != nil {
		return usageError{fmt.Errorf("bench compare: %w", err)}
	}
	deps, err := c.benchDeps(&b.benchLoad)
	if err != nil {
		return err
	}
	res, err := bench.Compare(c.ctx, cmp, deps)
	c.benchDone()
	if err != nil {
		return c.benchFailed(err)
	}
	if c.JSON {
		return c.printJSON(res)
	}
	c.compareTables(res)
	return nil
}

func (c *cli) compareTables(res *bench.Comparison) {
	t := c.table([]any{"side", "commands/s", "lowest", "highest", "p50 ms", "p99 ms", "batch", "audit"}, "commands/s", "lowest", "highest", "p50 ms", "p99 ms", "batch")
	whole := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	for i := range res.Sides {
		s := &res.Sides[i]
		low, high := s.Spread()
		last := s.Results[len(s.Results)-1]
		batch := ""
		if last.Batches != nil {
			batch = strconv.FormatFloat(last.Batches.Mean, 'f', 1, 64)
		}
		audit := verdict(s.Audit.OK)
		if s.Audit.None {
			audit = "-"
		}
		t.row(s.Name, whole(s.Median), whole(low), whole(high), strconv.FormatFloat(last.Latency.P50*1000, 'f', 2, 64),
			strconv.FormatFloat(last.Latency.P99*1000, 'f', 2, 64), batch, audit)
	}
	t.print()
	c.printf("\n")
	r := c.table([]any{"commands/s of", "divided by", "ratio", "lowest", "highest", "p99 ratio"}, "ratio", "lowest", "highest", "p99 ratio")
	two := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	for _, q := range res.Ratios {
		r.row(q.Of, q.To, two(q.Median), two(q.Low), two(q.High), two(q.P99))
	}
	r.print()
	k := res.Sides[0].Results[0].Conditions
	c.printf("\nmedians of %d rounds; %s, %d cores, %s, %s\naudit: ok\n", res.Rounds, k.CPU, k.Cores, k.OS, k.Go)
}
