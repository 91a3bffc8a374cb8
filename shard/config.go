package shard

import (
	"errors"
	"fmt"
	"time"
)

// Config bounds an Executor.
type Config struct {
	// BatchLimit is the most commands one transaction takes.
	BatchLimit int `yaml:"batch_limit"`
	// QueueLimit is the most commands that may wait for one bucket. One more
	// is refused with OVERLOADED.
	QueueLimit int `yaml:"queue_limit"`
	// TotalLimit is the most commands accepted and not yet answered, over
	// all buckets.
	TotalLimit int `yaml:"total_limit"`
	// CommitTimeout bounds one batch, all its retries included.
	CommitTimeout time.Duration `yaml:"commit_timeout"`
}

// DefaultConfig is sized for one node on a small machine.
func DefaultConfig() Config {
	return Config{BatchLimit: 128, QueueLimit: 8192, TotalLimit: 65536, CommitTimeout: 5 * time.Second}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	check := func(field string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d (allowed: %d to %d)", field, v, low, high))
		}
	}
	check("batch_limit", c.BatchLimit, 1, 1024)
	check("queue_limit", c.QueueLimit, 1, 1<<20)
	check("total_limit", c.TotalLimit, 1, 1<<24)
	if c.CommitTimeout < 100*time.Millisecond || c.CommitTimeout > time.Minute {
		errs = append(errs, fmt.Errorf("commit_timeout is %s (allowed: 100ms to 1m)", c.CommitTimeout))
	}
	return errors.Join(errs...)
}
