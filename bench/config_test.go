package bench

import (
	"math"
	"strings"
	"testing"
)

func TestConfigNamesEveryFault(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Workload, c.Target, c.Arrivals, c.Protocol = "none", "nowhere", "never", "smoke"
	c.Rate, c.PeakShare, c.Duplicates, c.Lost, c.Exponent = -1, 2, math.NaN(), -0.1, 1
	c.Callers, c.Batch, c.Buckets, c.Budgets, c.Preload, c.Orders, c.Tasks = 0, 1001, 257, 0, -1, 1, -1
	c.Warmup, c.Duration, c.File = -1, 0, "x.csv"
	err := c.Validate()
	if err == nil {
		t.Fatal("passes")
	}
	for _, field := range []string{
		"workload", "target", "arrivals", "protocol", "rate", "peak share", "duplicates", "lost", "exponent",
		"callers", "batch", "buckets", "budgets", "preload", "orders", "tasks", "warmup", "duration", "file",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+field) {
			t.Errorf("the error does not name %s:\n%v", field, err)
		}
	}
}

func TestCombinationsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"does not run on the raw engine":     func(c *Config) { c.Target, c.Workload = "raw", "exhaust" },
		"runs at --rate max only":            func(c *Config) { c.Target, c.Rate = "raw", 10 },
		"does not run on the target noop":    func(c *Config) { c.Target, c.Workload = "noop", "lifecycle" },
		"does not run on postgres":           func(c *Config) { c.Target, c.Workload = "postgres", "expiry-storm" },
		"takes no share of the peak":         func(c *Config) { c.Workload, c.PeakShare = "exhaust", 0.5 },
		"the server's base URL":              func(c *Config) { c.Target = "server" },
		"a CSV file with the workload file,": func(c *Config) { c.Workload = "file" },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestRates(t *testing.T) {
	for in, want := range map[string][2]float64{"max": {}, "": {}, "250": {250, 0}, "1.5": {1.5, 0}, "50%": {0, 0.5}} {
		var c Config
		if err := c.ParseRate(in); err != nil || c.Rate != want[0] || c.PeakShare != want[1] {
			t.Errorf("%q: rate %v, share %v, %v; want %v", in, c.Rate, c.PeakShare, err, want)
		}
	}
	for _, in := range []string{"0", "-1", "fast", "101%", "%", "1e9", "NaN"} {
		var c Config
		if err := c.ParseRate(in); err == nil {
			t.Errorf("%q is a rate", in)
		}
	}
}

func TestSideSettings(t *testing.T) {
	c, err := DefaultConfig().With("executor,workload=grown,preload=7,callers=3,batch=4,buckets=5,budgets=6,orders=800,rate=50%,exponent=2,apart=true,pipeline=true,unary=true,protocol=grpc")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Target, want.Workload, want.Preload, want.Callers, want.Batch, want.Buckets, want.Budgets, want.Orders = "executor", "grown", 7, 3, 4, 5, 6, 800
	want.PeakShare, want.Exponent, want.Apart, want.Pipeline, want.Unary, want.Protocol = 0.5, 2, true, true, true, "grpc"
	if c != want {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	if c, err := DefaultConfig().With("callers=9"); err != nil || c.Target != "node" || c.Callers != 9 {
		t.Errorf("settings alone: %+v, %v", c, err)
	}
}
