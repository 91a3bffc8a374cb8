package scan

import (
	"errors"
	"fmt"
	"time"
)

// IntegrityConfig shapes the loop that replays ledgers.
type IntegrityConfig struct {
	// Enabled runs the loop.
	Enabled bool `yaml:"enabled"`
	// Freeze refuses new reservations of a budget in which a difference was
	// found. Without it a difference is only told.
	Freeze bool `yaml:"freeze"`
	// Interval is the time from one pass to the next. A pass that leaves
	// entries behind is followed at once.
	Interval time.Duration `yaml:"interval"`
	// PassLimit is the most budgets one pass looks at; the next one goes on
	// where it stopped.
	PassLimit int `yaml:"pass_limit"`
	// Rate is the most entries replayed in a second. Each look at a bucket
	// counts as sixteen.
	Rate int `yaml:"rate"`
	// FullEvery is the time from one round over a bucket's whole ledger to the
	// next.
	FullEvery time.Duration `yaml:"full_every"`
}

// DefaultIntegrityConfig looks every ten seconds.
func DefaultIntegrityConfig() IntegrityConfig {
	return IntegrityConfig{Enabled: true, Freeze: true, Interval: 10 * time.Second, PassLimit: 4096, Rate: 40_000, FullEvery: 24 * time.Hour}
}

// Validate names every field that is out of range.
func (c IntegrityConfig) Validate() error {
	var errs []error
	bad := func(field string, v, allowed any) {
		errs = append(errs, fmt.Errorf("%s is %v (allowed: %v)", field, v, allowed))
	}
	if c.Interval < 10*time.Millisecond || c.Interval > time.Hour {
		bad("interval", c.Interval, "10ms to 1h0m0s")
	}
	if c.PassLimit < 1 || c.PassLimit > 1<<20 {
		bad("pass_limit", c.PassLimit, "1 to 1048576")
	}
	if c.Rate < 1 || c.Rate > 1<<26 {
		bad("rate", c.Rate, "1 to 67108864")
	}
	if c.FullEvery < time.Minute || c.FullEvery > 400*24*time.Hour {
		bad("full_every", c.FullEvery, "1m0s to 9600h0m0s")
	}
	return errors.Join(errs...)
}
