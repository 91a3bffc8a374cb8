package scan

import (
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/shard"
)

// RebalanceConfig shapes the loop that keeps budgets level over their buckets.
type RebalanceConfig struct {
	// Enabled runs the loop.
	Enabled bool `yaml:"enabled"`
	// Interval is the time from one pass to the next.
	Interval time.Duration `yaml:"interval"`
	// PassLimit is the most budgets one pass looks at; the next one goes on
	// where it stopped.
	PassLimit int `yaml:"pass_limit"`
	// Rate is the most budgets looked at, and moves made, in a second.
	Rate int `yaml:"rate"`
	// SkewLimit, LowWater and MaxMoves are those of shard.Rebalancing.
	SkewLimit int `yaml:"skew_limit"`
	LowWater  int `yaml:"low_water"`
	MaxMoves  int `yaml:"max_moves"`
}

// DefaultRebalanceConfig looks every ten seconds.
func DefaultRebalanceConfig() RebalanceConfig {
	p := shard.DefaultRebalancing()
	return RebalanceConfig{
		Enabled: true, Interval: 10 * time.Second, PassLimit: 4096, Rate: 400,
		SkewLimit: p.SkewLimit, LowWater: p.LowWater, MaxMoves: p.MaxMoves,
	}
}

// plan is when money moves.
func (c RebalanceConfig) plan() shard.Rebalancing {
	return shard.Rebalancing{SkewLimit: c.SkewLimit, LowWater: c.LowWater, MaxMoves: c.MaxMoves}
}

// Validate names every field that is out of range.
func (c RebalanceConfig) Validate() error {
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
	if c.Rate < 1 || c.Rate > 1<<20 {
		bad("rate", c.Rate, "1 to 1048576")
	}
	if err := c.plan().Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
