package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// postgresBest are the numbers of callers among which PostgreSQL's best is
// looked for.
var postgresBest = []int{4, 8, 16, 32, 64}

// CompareConfig is a comparison: sides that run in turn.
type CompareConfig struct {
	Base Config
	// Sides are targets with settings, such as "node" or
	// "executor,workload=grown". The first is divided by each of the others.
	Sides []string
	// Rounds is how often each side runs.
	Rounds int
}

// Comparison is what a comparison came to.
type Comparison struct {
	Rounds int     `json:"rounds"`
	Sides  []Side  `json:"sides"`
	Ratios []Ratio `json:"ratios"`
}

// Side is one side with its results in order.
type Side struct {
	Name string `json:"name"`
	// PerSecond are the commands per second of each round.
	PerSecond []float64 `json:"commands_per_second"`
	Median    float64   `json:"median_commands_per_second"`
	Results   []*Result `json:"results"`
	Audit     *Audit    `json:"audit"`

	// best is the group of sides among which the best counts, "" for none.
	best string
}

// Spread is the lowest and the highest round, in commands per second.
func (s *Side) Spread() (low, high float64) {
	if len(s.PerSecond) == 0 {
		return 0, 0
	}
	return slices.Min(s.PerSecond), slices.Max(s.PerSecond)
}

// Ratio is the first side's commands per second divided by another's, by
// round: the median, and the lowest and highest round.
type Ratio struct {
	Of     string    `json:"of"`
	To     string    `json:"to"`
	Median float64   `json:"median"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
	Rounds []float64 `json:"rounds"`
	// P99 is the first side's p99 latency divided by the other's, the median
	// over rounds.
	P99 float64 `json:"p99_ratio"`
}

// maxRounds bounds a comparison.
const maxRounds = 1000

// sides expands the sides: PostgreSQL runs at the same callers and at those
// among which its best is looked for.
func (c CompareConfig) sides() ([]Config, []Side, error) {
	if len(c.Sides) < 2 {
		return nil, nil, fmt.Errorf("there is %d side to compare (allowed: 2 or more; name them, or add --vs)", len(c.Sides))
	}
	if c.Rounds < 1 || c.Rounds > maxRounds {
		return nil, nil, fmt.Errorf("rounds is %d (allowed: 1 to %d)", c.Rounds, maxRounds)
	}
	var cfgs []Config
	var out []Side
	for i, name := range c.Sides {
		cfg, err := c.Base.With(name)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(out, func(s Side) bool { return s.Name == name }) {
			name = fmt.Sprintf("%s (%d)", name, i+1)
		}
		if cfg.Target != "postgres" {
			cfgs, out = append(cfgs, cfg), append(out, Side{Name: name})
			continue
		}
		cfgs, out = append(cfgs, cfg), append(out, Side{Name: fmt.Sprintf("%s, %d callers", name, cfg.Callers), best: name})
		if cfg.Rate != 0 || i == 0 {
			continue
		}
		for _, n := range postgresBest {
			if n == cfg.Callers {
				continue
			}
			at := cfg
			at.Callers = n
			cfgs, out = append(cfgs, at), append(out, Side{Name: fmt.Sprintf("%s, %d callers", name, n), best: name})
		}
	}
	return cfgs, out, nil
}

// Validate names what is wrong with a comparison or one of its sides.
func (c CompareConfig) Validate() error {
	cfgs, sides, err := c.sides()
	if err != nil {
		return err
	}
	var errs []error
	for i := range cfgs {
		if err := cfgs[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("side %s: %w", sides[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// Compare opens all sides, runs them in turn (A B A B …), and audits each. A
// side that is void makes the comparison void: the error is a *VoidError.
func Compare(ctx context.Context, c CompareConfig, deps Deps) (out *Comparison, err error) {
	cfgs, sides, err := c.sides()
	if err != nil {
		return nil, err
	}
	benches := make([]*Bench, len(sides))
	defer func() {
		for i, b := range benches {
			if b != nil && !slices.Contains(benches[:i], b) {
				err = errors.Join(err, b.Close())
			}
		}
	}()
	for i := range cfgs {
		if benches[i], err = openSide(ctx, &cfgs[i], cfgs[:i], benches[:i], deps); err != nil {
			return nil, fmt.Errorf("side %s: %w", sides[i].Name, err)
		}
	}
	for range c.Rounds {
		for i, b := range benches {
			b.cfg.Callers = cfgs[i].Callers
			if cfgs[i].Target == "raw" {
				b.likeExecutor(sides)
			}
			r, err := b.Drive(ctx)
			if err != nil {
				return nil, fmt.Errorf("side %s: %w", sides[i].Name, err)
			}
			if _, again := b.target.(resetter); again { // before it starts from nothing
				if r.Audit, err = b.Audit(ctx); err != nil {
					return nil, fmt.Errorf("side %s: %w", sides[i].Name, err)
				}
				sides[i].Audit = r.Audit
			}
			sides[i].Results = append(sides[i].Results, r)
			sides[i].PerSecond = append(sides[i].PerSecond, r.CommandsPerSecond)
		}
	}
	for i, b := range benches {
		if sides[i].Audit == nil {
			if sides[i].Audit, err = b.Audit(ctx); err != nil {
				return nil, fmt.Errorf("side %s: %w", sides[i].Name, err)
			}
		}
		for _, r := range sides[i].Results {
			r.Audit = sides[i].Audit
		}
		sides[i].Median = median(sides[i].PerSecond)
	}
	return &Comparison{Rounds: c.Rounds, Sides: sides, Ratios: ratios(sides)}, nil
}

// openSide opens a side. Sides that differ in PostgreSQL's callers alone share
// one server.
func openSide(ctx context.Context, cfg *Config, before []Config, open []*Bench, deps Deps) (*Bench, error) {
	for i := range before {
		same := *cfg
		same.Callers, same.RunID = before[i].Callers, before[i].RunID
		if cfg.Target == "postgres" && same == before[i] {
			return open[i], nil
		}
	}
	first := *cfg
	if cfg.Target == "postgres" { // connections for the most callers
		first.Callers = max(cfg.Callers, slices.Max(postgresBest))
	}
	b, err := Open(ctx, first, deps)
	if err == nil {
		cfg.RunID = b.cfg.RunID
	}
	return b, err
}

// likeExecutor gives the raw engine the batches that the first side had in this
// round, and as many callers as it has buckets: a group commit each.
func (b *Bench) likeExecutor(sides []Side) {
	if rs := sides[0].Results; len(rs) > 0 && rs[len(rs)-1].Batches != nil {
		b.cfg.Batch = min(max(1, int(math.Round(rs[len(rs)-1].Batches.Mean))), maxBatch)
	}
	w, err := newWorkload(b.cfg, 0)
	if err != nil {
		return // Drive says so
	}
	b.cfg.Callers = 0
	for _, s := range w.budgets() {
		b.cfg.Callers += s.buckets
	}
}

// ratios divides the first side by each of the others, and by the best of
// those that belong together.
func ratios(sides []Side) []Ratio {
	var out []Ratio
	best := map[string]*Side{}
	var groups []string
	for i := 1; i < len(sides); i++ {
		s := &sides[i]
		if s.best == "" || best[s.best] == nil {
			out = append(out, ratio(&sides[0], s, s.Name))
		}
		if s.best == "" {
			continue
		}
		if b := best[s.best]; b == nil {
			groups = append(groups, s.best)
			best[s.best] = s
		} else if s.Median > b.Median {
			best[s.best] = s
		}
	}
	for _, g := range groups {
		out = append(out, ratio(&sides[0], best[g], g+" at its best: "+best[g].Name))
	}
	return out
}

func ratio(a, b *Side, to string) Ratio {
	r := Ratio{Of: a.Name, To: to}
	var p99 []float64
	for i := range min(len(a.PerSecond), len(b.PerSecond)) {
		r.Rounds = append(r.Rounds, a.PerSecond[i]/b.PerSecond[i])
		if i < len(a.Results) && i < len(b.Results) && b.Results[i].Latency.P99 > 0 {
			p99 = append(p99, a.Results[i].Latency.P99/b.Results[i].Latency.P99)
		}
	}
	if len(r.Rounds) == 0 {
		return r
	}
	r.Median, r.Low, r.High, r.P99 = median(r.Rounds), slices.Min(r.Rounds), slices.Max(r.Rounds), median(p99)
	return r
}

// median of a list, 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
