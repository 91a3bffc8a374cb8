package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Arrivals is the process by which calls become due.
type Arrivals string

// Arrival processes.
const (
	Poisson  Arrivals = "poisson"  // independent customers: gaps are exponential
	Constant Arrivals = "constant" // a metronome
)

// Config is one run.
type Config struct {
	Workload string `json:"workload"`
	Target   string `json:"target"`
	// Rate is in tasks a second; 0 is "max": Callers who send as soon as they
	// have their answer.
	Rate float64 `json:"rate_per_second"`
	// PeakShare, if not 0, drives a first round at "max" and then one at this
	// share of what it reached, with PeakCallers.
	PeakShare float64  `json:"peak_share,omitempty"`
	Arrivals  Arrivals `json:"arrivals"`
	// Callers is the number of callers at the rate "max", and otherwise the
	// most tasks in work at once. An arrival that finds no free caller starts
	// late, and its wait counts.
	Callers int `json:"callers"`
	// Warmup is driven and not counted, Duration counts.
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
	Seed     uint64        `json:"seed"`
	// Tasks, if not 0, ends the load after so many, and all of them count.
	Tasks int `json:"tasks,omitempty"`

	// Batch is how many commands one call of the workload batch carries, and
	// of every workload on the target raw.
	Batch int `json:"batch"`
	// Buckets is the number of buckets of each budget, 0 for the workload's own.
	Buckets int `json:"buckets"`
	// Budgets and Exponent shape zipf: P(k) ∝ 1/(1+k)^Exponent. Above 1.
	Budgets  int     `json:"budgets"`
	Exponent float64 `json:"exponent"`
	// Preload is the number of reservations stored before (grown), or of holds
	// that lapse during the run (expiry-storm).
	Preload int `json:"preload"`
	// Orders is the number of orders of exhaust.
	Orders int `json:"orders"`
	// Duplicates and Lost are the shares of calls of lifecycle that come twice
	// at once, and whose answer is lost so that they come again. 0 to 1.
	Duplicates float64 `json:"duplicates"`
	Lost       float64 `json:"lost"`
	// Apart sends reserve and commit of a pair as two calls and not as one.
	Apart bool `json:"apart"`
	// File is the CSV file of the workload file.
	File string `json:"file,omitempty"`

	// URL is the base URL of the target server.
	URL string `json:"url,omitempty"`
	// Protocol is what rpc clients speak: connect, grpc or grpcweb.
	Protocol string `json:"protocol"`
	// Unary sends each single command as a call of its own: the client does not
	// gather concurrent ones into batches.
	Unary bool `json:"unary,omitempty"`
	// Dir is where a target keeps its store; empty for a temporary directory.
	Dir string `json:"-"`
	// DSN names a PostgreSQL to use, which needs the right to make a schema;
	// empty starts a private one.
	DSN string `json:"-"`
	// Pipeline lets PostgreSQL take the commands of one call in one
	// transaction: one fsync a call, but one refusal undoes them all.
	Pipeline bool `json:"pipeline,omitempty"`
	// RunID makes the names of a run its own; empty for a random one.
	RunID string `json:"run_id"`
}

// Bounds of a Config.
const (
	maxCallers  = 1 << 16
	maxRate     = 10_000_000
	maxBatch    = 1000
	maxPreload  = 100_000_000
	maxOrders   = 10_000_000
	maxDuration = 24 * time.Hour
)

// DefaultConfig is a short run of hot at full speed.
func DefaultConfig() Config {
	return Config{
		Workload: "hot", Target: "node", Arrivals: Poisson, Callers: 64, Warmup: 2 * time.Second, Duration: 10 * time.Second,
		Seed: 1, Batch: 100, Budgets: 1000, Exponent: 1.1, Preload: 100_000, Orders: 5000,
		Duplicates: 0.05, Lost: 0.02, Protocol: "connect",
	}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	fault := func(field string, v any, allowed string) {
		errs = append(errs, fmt.Errorf("%s is %v (allowed: %s)", field, v, allowed))
	}
	number := func(field string, v, low, high int) {
		if v < low || v > high {
			fault(field, v, fmt.Sprintf("%d to %d", low, high))
		}
	}
	share := func(field string, v float64) {
		if !(v >= 0 && v <= 1) {
			fault(field, v, "0 to 1")
		}
	}
	oneOf := func(field, v string, names []string) {
		if !slices.Contains(names, v) {
			fault(field, strconv.Quote(v), strings.Join(names, ", "))
		}
	}
	oneOf("workload", c.Workload, Workloads())
	oneOf("target", c.Target, Targets())
	oneOf("arrivals", string(c.Arrivals), []string{string(Poisson), string(Constant)})
	oneOf("protocol", c.Protocol, []string{"connect", "grpc", "grpcweb"})
	if !(c.Rate >= 0 && c.Rate <= maxRate) {
		fault("rate", c.Rate, fmt.Sprintf("max, or up to %d a second", maxRate))
	}
	number("callers", c.Callers, 1, maxCallers)
	number("batch", c.Batch, 1, maxBatch)
	number("buckets", c.Buckets, 0, 256)
	number("budgets", c.Budgets, 1, 100_000)
	number("preload", c.Preload, 0, maxPreload)
	number("orders", c.Orders, 100, maxOrders)
	number("tasks", c.Tasks, 0, math.MaxInt)
	share("peak share of rate", c.PeakShare)
	share("duplicates", c.Duplicates)
	share("lost", c.Lost)
	if !(c.Exponent > 1 && c.Exponent <= 10) || math.IsNaN(c.Exponent) {
		fault("exponent", c.Exponent, "above 1, up to 10")
	}
	if c.Warmup < 0 || c.Warmup > maxDuration {
		fault("warmup", c.Warmup, "0 to "+maxDuration.String())
	}
	if c.Duration <= 0 || c.Duration > maxDuration {
		fault("duration", c.Duration, "more than 0, up to "+maxDuration.String())
	}
	if (c.Workload == "file") != (c.File != "") {
		fault("file", strconv.Quote(c.File), "a CSV file with the workload file, and only there")
	}
	if c.Target == "server" && c.URL == "" {
		fault("url", `""`, "the server's base URL")
	}
	return errors.Join(append(errs, c.combination()...)...)
}

// combination names what does not go together.
func (c Config) combination() (errs []error) {
	if c.Target == "rmw" && c.Workload != "hot" && c.Workload != "zipf" {
		errs = append(errs, fmt.Errorf("workload %s does not run on the target rmw (allowed: hot, zipf)", c.Workload))
	}
	if c.Target == "raw" {
		if !slices.Contains([]string{"hot", "spread", "batch", "zipf"}, c.Workload) {
			errs = append(errs, fmt.Errorf("workload %s does not run on the raw engine (allowed: hot, spread, batch, zipf): it has no ledger logic", c.Workload))
		}
		if c.Rate != 0 || c.PeakShare != 0 {
			errs = append(errs, errors.New("the raw engine runs at --rate max only: it is the ceiling of the executor at its best"))
		}
	}
	if c.Target == "noop" && c.Workload != "hot" && c.Workload != "spread" && c.Workload != "batch" && c.Workload != "zipf" {
		errs = append(errs, fmt.Errorf("workload %s does not run on the target noop (allowed: hot, spread, batch, zipf): it keeps nothing", c.Workload))
	}
	if c.Target == "postgres" && c.Workload == "expiry-storm" {
		errs = append(errs, errors.New("workload expiry-storm does not run on postgres: its schema has no scanner"))
	}
	if c.PeakShare > 0 && (c.Workload == "exhaust" || c.Workload == "expiry-storm") {
		errs = append(errs, fmt.Errorf("workload %s takes no share of the peak as its rate (allowed: max, or a number)", c.Workload))
	}
	return errs
}

// rateName is the rate as people write it.
func (c Config) rateName() string {
	if c.PeakShare > 0 && c.Rate > 0 {
		return fmt.Sprintf("%.0f (%.0f %% of the peak)", c.Rate, 100*c.PeakShare)
	}
	if c.Rate == 0 {
		return "max"
	}
	return strconv.FormatFloat(c.Rate, 'g', -1, 64)
}

// clientName says how commands reach the target.
func (c Config) clientName() string {
	switch c.Target {
	case "node", "server", "noop":
		if c.Unary {
			return c.Protocol + ", a call a command"
		}
		return c.Protocol + ", concurrent commands gathered into batches"
	case "postgres":
		return "pgx, prepared"
	}
	return "in process"
}

// PeakCallers is the most tasks in work at once at a rate, where nothing else
// is said: so many that arrivals do not wait for callers.
const PeakCallers = 4096

// ParseRate reads a rate: max, a number, or a share of the peak such as 50%.
func (c *Config) ParseRate(s string) error {
	c.Rate, c.PeakShare = 0, 0
	if s == "max" || s == "" {
		return nil
	}
	text, isShare := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err == nil && isShare && v > 0 && v <= 100:
		c.PeakShare = v / 100
	case err == nil && !isShare && v > 0 && v <= maxRate:
		c.Rate = v
	default:
		return fmt.Errorf("rate is %.40q (allowed: max, more than 0 up to %d a second, or a share of the peak such as 50%%)", s, maxRate)
	}
	return nil
}

// With is the config with one side's settings: a target, or a target and
// settings, such as "executor,workload=grown,preload=1000000".
func (c Config) With(side string) (Config, error) {
	parts := strings.Split(side, ",")
	if parts[0] != "" && !strings.Contains(parts[0], "=") {
		c.Target = parts[0]
		parts = parts[1:]
	}
	for _, p := range parts {
		name, v, ok := strings.Cut(p, "=")
		if !ok {
			return c, fmt.Errorf("side %.80q: %.40q is no setting (allowed: target,name=value,…)", side, p)
		}
		if err := c.set(name, v); err != nil {
			return c, fmt.Errorf("side %.80q: %w", side, err)
		}
	}
	return c, nil
}

func (c *Config) set(name, v string) (err error) {
	numbers := map[string]*int{
		"callers": &c.Callers, "batch": &c.Batch, "buckets": &c.Buckets, "budgets": &c.Budgets, "preload": &c.Preload, "orders": &c.Orders,
	}
	flags := map[string]*bool{"apart": &c.Apart, "pipeline": &c.Pipeline, "unary": &c.Unary}
	texts := map[string]*string{"workload": &c.Workload, "target": &c.Target, "url": &c.URL, "protocol": &c.Protocol, "file": &c.File}
	switch {
	case numbers[name] != nil:
		*numbers[name], err = strconv.Atoi(v)
	case flags[name] != nil:
		*flags[name], err = strconv.ParseBool(v)
	case texts[name] != nil:
		*texts[name] = v
	case name == "rate":
		err = c.ParseRate(v)
	case name == "exponent":
		c.Exponent, err = strconv.ParseFloat(v, 64)
	default:
		return fmt.Errorf("setting %.40q is unknown (allowed: apart, batch, buckets, budgets, callers, exponent, file, orders, pipeline, preload, protocol, rate, target, unary, url, workload)", name)
	}
	if err != nil {
		return fmt.Errorf("setting %s is %.40q: %w", name, v, err)
	}
	return nil
}
