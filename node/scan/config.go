package scan

import (
	"errors"
	"fmt"
	"time"
)

// Config shapes the expiry loop.
type Config struct {
	// Interval is the time from one pass to the next. A pass that leaves
	// work behind is followed at once.
	Interval time.Duration `yaml:"interval"`
	// PageRows is the most index rows read at once.
	PageRows int `yaml:"page_rows"`
	// PassLimit is the most reservations one pass expires; the next one goes
	// on behind the slot of the index where it stopped.
	PassLimit int `yaml:"pass_limit"`
	// Rate is the most reservations expired in a second, so that a wave of
	// expiries does not crowd out customers.
	Rate int `yaml:"rate"`
	// CatchUpAfter is how long money may be overdue before CatchUpRate
	// replaces Rate.
	CatchUpAfter time.Duration `yaml:"catch_up_after"`
	CatchUpRate  int           `yaml:"catch_up_rate"`
	// StallAfter is how long no pass may complete before the node says it is
	// not ready. A node that does not lead makes none, and is.
	StallAfter time.Duration `yaml:"stall_after"`
}

// DefaultConfig returns money within about a second of its expiry.
func DefaultConfig() Config {
	return Config{
		Interval: time.Second, PageRows: 64, PassLimit: 4096,
		Rate: 4000, CatchUpAfter: 30 * time.Second, CatchUpRate: 40000,
		StallAfter: 30 * time.Second,
	}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	number := func(field string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d (allowed: %d to %d)", field, v, low, high))
		}
	}
	duration := func(field string, v, low, high time.Duration) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %s (allowed: %s to %s)", field, v, low, high))
		}
	}
	duration("interval", c.Interval, 10*time.Millisecond, time.Hour)
	number("page_rows", c.PageRows, 1, 1024)
	number("pass_limit", c.PassLimit, 1, 1<<20)
	number("rate", c.Rate, 1, 1<<24)
	duration("catch_up_after", c.CatchUpAfter, 0, 24*time.Hour)
	number("catch_up_rate", c.CatchUpRate, 1, 1<<24)
	duration("stall_after", c.StallAfter, 100*time.Millisecond, 24*time.Hour)
	if len(errs) == 0 && c.StallAfter <= c.Interval {
		errs = append(errs, fmt.Errorf("stall_after is %s (allowed: more than interval, %s)", c.StallAfter, c.Interval))
	}
	return errors.Join(errs...)
}
