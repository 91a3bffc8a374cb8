package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

func side(name, best string, perSecond ...float64) Side {
	s := Side{Name: name, best: best, PerSecond: perSecond, Median: median(perSecond)}
	for range perSecond {
		s.Results = append(s.Results, &Result{Latency: Percentiles{P99: 1 / s.Median}})
	}
	return s
}

func TestRatios(t *testing.T) {
	got := ratios([]Side{
		side("node", "", 900, 1000, 1200),
		side("noop", "", 1800, 1000, 2400),
		side("postgres, 64 callers", "postgres", 100, 50, 80),
		side("postgres, 8 callers", "postgres", 300, 200, 400),
		side("postgres, 4 callers", "postgres", 250, 250, 250),
	})
	want := []Ratio{
		{Of: "node", To: "noop", Median: 0.5, Low: 0.5, High: 1, Rounds: []float64{0.5, 1, 0.5}, P99: 1.8},
		{Of: "node", To: "postgres, 64 callers", Median: 15, Low: 9, High: 20, Rounds: []float64{9, 20, 15}, P99: 0.08},
		{Of: "node", To: "postgres at its best: postgres, 8 callers", Median: 3, Low: 3, High: 5, Rounds: []float64{3, 5, 3}, P99: 0.3},
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if len(got) != len(want) {
		t.Fatalf("%d ratios, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if g.Of != w.Of || g.To != w.To || !near(g.Median, w.Median) || !near(g.Low, w.Low) || !near(g.High, w.High) || !near(g.P99, w.P99) {
			t.Errorf("ratio %d is %+v, want %+v", i, g, w)
		}
		for j := range w.Rounds {
			if !near(g.Rounds[j], w.Rounds[j]) {
				t.Errorf("ratio %d round %d is %v, want %v", i, j, g.Rounds[j], w.Rounds[j])
			}
		}
	}
	if median(nil) != 0 || median([]float64{4, 1}) != 2.5 || median([]float64{9, 1, 5}) != 5 {
		t.Error("medians are wrong")
	}
}

func TestCompareSides(t *testing.T) {
	base := DefaultConfig()
	for _, tc := range []struct {
		sides []string
		want  []string
	}{
		{[]string{"node", "noop"}, []string{"node", "noop"}},
		{[]string{"node", "node"}, []string{"node", "node (2)"}},
		{[]string{"node", "postgres"}, []string{
			"node", "postgres, 64 callers", "postgres, 4 callers", "postgres, 8 callers", "postgres, 16 callers", "postgres, 32 callers",
		}},
		{[]string{"postgres,callers=8", "node"}, []string{"postgres,callers=8, 8 callers", "node"}},
	} {
		_, got, err := CompareConfig{Base: base, Sides: tc.sides, Rounds: 1}.sides()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range got {
			names = append(names, s.Name)
		}
		if strings.Join(names, "|") != strings.Join(tc.want, "|") {
			t.Errorf("sides of %v are %v, want %v", tc.sides, names, tc.want)
		}
	}
	for want, c := range map[string]CompareConfig{
		"2 or more":                {Base: base, Sides: []string{"node"}, Rounds: 1},
		"rounds is 0":              {Base: base, Sides: []string{"node", "noop"}},
		`target is "nowhere"`:      {Base: base, Sides: []string{"node", "nowhere"}, Rounds: 1},
		"setting \"speed\" is unk": {Base: base, Sides: []string{"node", "node,speed=9"}, Rounds: 1},
		"is no setting":            {Base: base, Sides: []string{"node", "node,fast"}, Rounds: 1},
		`setting callers is "x"`:   {Base: base, Sides: []string{"node", "node,callers=x"}, Rounds: 1},
		"workload grown does not":  {Base: base, Sides: []string{"node", "raw,workload=grown"}, Rounds: 1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("comparison says %v, want %q", err, want)
		}
	}
}

// Two configs of the executor and the raw engine run in turn; raw gets the
// executor's batches.
func TestCompareRuns(t *testing.T) {
	cfg := testConfig(t, "batch", "executor")
	cfg.RunID, cfg.Tasks = "", 60
	c := CompareConfig{Base: cfg, Sides: []string{"executor", "executor,workload=grown,preload=500", "raw"}, Rounds: 2}
	res, err := Compare(context.Background(), c, memDeps())
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Sides) != 3 || len(res.Ratios) != 2 {
		t.Fatalf("%d sides, %d ratios", len(res.Sides), len(res.Ratios))
	}
	for _, s := range res.Sides {
		low, high := s.Spread()
		if len(s.Results) != 2 || len(s.PerSecond) != 2 || !s.Audit.OK || low <= 0 || low > s.Median || s.Median > high {
			t.Errorf("side %s: %d results, %v, audit %+v", s.Name, len(s.Results), s.PerSecond, s.Audit)
		}
	}
	raw := res.Sides[2].Results[1].Config
	if want := int(math.Round(res.Sides[0].Results[1].Batches.Mean)); raw.Batch != want || raw.Callers != 16 {
		t.Errorf("raw has batches of %d by %d callers, want %d by 16", raw.Batch, raw.Callers, want)
	}
	for _, r := range res.Ratios {
		if !(r.Low > 0 && r.Low <= r.Median && r.Median <= r.High) || len(r.Rounds) != 2 {
			t.Errorf("ratio %+v", r)
		}
	}
}

// One void side voids the comparison.
func TestCompareIsVoid(t *testing.T) {
	b := &Bench{cfg: testConfig(t, "hot", "executor"), target: &fake{audit: Audit{Problems: []string{"bad"}}, do: func(c []ledger.Command) []Reply {
		return make([]Reply, len(c))
	}}}
	_, err := b.Audit(context.Background())
	var void *VoidError
	if !errors.As(err, &void) || !strings.Contains(err.Error(), "figures do not count") {
		t.Errorf("audit says %v", err)
	}
}
