package shard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/shard/places"
)

// Config bounds an Executor.
type Config struct {
	// BatchLimit is the most commands one transaction takes.
	BatchLimit int `yaml:"batch_limit"`
	// QueueLimit is the most commands that may wait for one bucket, and the most
	// of one tenant that may wait for another node. One more is refused with
	// OVERLOADED.
	QueueLimit int `yaml:"queue_limit"`
	// TotalLimit is the most commands accepted and not yet answered, over
	// all buckets and tenants. A tenant gets at most half of what the others leave
	// of them, also one that is alone. What the leader does and what other nodes
	// forward counts, too, and is let in above it.
	TotalLimit int `yaml:"total_limit"`
	// TenantLimit is the most of them that one tenant may have; 0: no less than
	// that half. A call that comes alone is taken whole, whatever its size.
	TenantLimit int `yaml:"tenant_limit"`
	// TenantRate is the most commands of one tenant in a second on the average,
	// after a pause twice as many; 0: any number.
	TenantRate int `yaml:"tenant_rate"`
	// Tenants are those with limits of their own: NAME=LIMIT/RATE,… with the two
	// numbers as above.
	Tenants string `yaml:"tenants"`
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
	check("tenant_limit", c.TenantLimit, 0, 1<<24-1)
	check("tenant_rate", c.TenantRate, 0, 1<<24-1)
	if _, err := c.tenants(); err != nil {
		errs = append(errs, err)
	}
	if c.CommitTimeout < 100*time.Millisecond || c.CommitTimeout > time.Minute {
		errs = append(errs, fmt.Errorf("commit_timeout is %s (allowed: 100ms to 1m)", c.CommitTimeout))
	}
	return errors.Join(errs...)
}

// places makes the places of a valid configuration.
func (c Config) places() *places.Places {
	own, _ := c.tenants() // it was validated
	return places.New(places.Config{
		Name: "pending", Things: "commands", Places: int64(c.TotalLimit),
		Each: places.Limits{Open: int64(c.TenantLimit), Rate: int64(c.TenantRate)}, Own: own, Retry: retryAfter,
	})
}

// tenants reads the limits of single tenants.
func (c Config) tenants() (map[string]places.Limits, error) {
	own := map[string]places.Limits{}
	if c.Tenants == "" {
		return own, nil
	}
	for part := range strings.SplitSeq(c.Tenants, ",") {
		bad := func(why string) error {
			return fmt.Errorf("tenants has %.160q, %s (allowed: NAME=LIMIT/RATE,… such as acme=2000/500; 0 is no limit)", part, why)
		}
		eq := strings.LastIndexByte(part, '=')
		name := strings.TrimSpace(part[:max(eq, 0)])
		if name == ledger.EveryTenant {
			return nil, bad("which names no tenant; tenant_limit and tenant_rate are those of all others")
		}
		if r := ledger.CheckID("tenant", name); r != nil {
			return nil, bad("which names no tenant")
		}
		if _, twice := own[name]; twice {
			return nil, bad("a second time")
		}
		open, rate, _ := strings.Cut(part[eq+1:], "/")
		o, openErr := strconv.ParseUint(strings.TrimSpace(open), 10, 24)
		r, rateErr := strconv.ParseUint(strings.TrimSpace(rate), 10, 24)
		if openErr != nil || rateErr != nil {
			return nil, bad("which has no two whole numbers up to 16777215")
		}
		own[name] = places.Limits{Open: int64(o), Rate: int64(r)}
	}
	return own, nil
}
