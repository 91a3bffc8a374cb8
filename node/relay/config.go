package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// Config shapes the relay of a node.
type Config struct {
	// Lease is how long a relay may give no sign of life before others take its
	// partitions over. It gives one four times as often.
	Lease time.Duration `yaml:"lease"`
	// Poll is how late the relay notices what no watch told it of.
	Poll time.Duration `yaml:"poll"`
	// Watch notices new events at once. Without it there is the poll alone.
	Watch bool `yaml:"watch"`
	// Batch is the most events handed to a sink at once.
	Batch int `yaml:"batch"`
	// DeliverTimeout bounds the delivery of one batch.
	DeliverTimeout time.Duration `yaml:"deliver_timeout"`
	// Tries is how often an event is refused before its key is parked.
	Tries int `yaml:"tries"`
	// FailingTries is how often an event fails otherwise before its key is
	// parked, if the sink answers pings. With the default, and tries that are
	// 30 s apart in the end, that takes some six minutes.
	FailingTries int `yaml:"failing_tries"`
	// MaxParked is the most events of a sink that are parked in one partition. At
	// the bound the sink stands still there.
	MaxParked int `yaml:"max_parked"`
	// MaxBackoff caps the wait between tries of a sink in trouble, which starts
	// at 100 ms and doubles.
	MaxBackoff time.Duration `yaml:"max_backoff"`
	// Retention is how long pointers are kept after every sink is past them.
	Retention time.Duration `yaml:"retention"`
	// PrivateWebhooks allows webhooks to loopback, private and link-local
	// addresses.
	PrivateWebhooks bool `yaml:"private_webhooks"`
}

// DefaultConfig keeps pointers for a week.
func DefaultConfig() Config {
	return Config{
		Lease: 6 * time.Second, Poll: time.Second, Watch: true, Batch: 512, DeliverTimeout: time.Minute,
		Tries: 5, FailingTries: 20, MaxParked: store.MaxParked, MaxBackoff: 30 * time.Second, Retention: 7 * 24 * time.Hour,
	}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	duration := func(field string, v, low, high time.Duration) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %s (allowed: %s to %s)", field, v, low, high))
		}
	}
	number := func(field string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d (allowed: %d to %d)", field, v, low, high))
		}
	}
	duration("lease", c.Lease, 100*time.Millisecond, 5*time.Minute)
	duration("poll", c.Poll, 10*time.Millisecond, time.Minute)
	number("batch", c.Batch, 1, maxBatch)
	duration("deliver_timeout", c.DeliverTimeout, 100*time.Millisecond, 10*time.Minute)
	number("tries", c.Tries, 1, 100)
	number("failing_tries", c.FailingTries, 1, 10_000)
	number("max_parked", c.MaxParked, maxBatch, store.MaxParked)
	duration("max_backoff", c.MaxBackoff, firstBackoff, time.Hour)
	duration("retention", c.Retention, 0, 10*365*24*time.Hour)
	return errors.Join(errs...)
}

const (
	// maxBatch keeps what one step parks within one transaction.
	maxBatch     = 1024
	firstBackoff = 100 * time.Millisecond
	// saveEvery is how often a cursor is written that moves by deliveries, so
	// that many small ones cost one transaction; passEvery one that only passes
	// over others' events.
	saveEvery = 50 * time.Millisecond
	passEvery = time.Second
	// trimEvery spaces the looks for pointers to trim, trimPages bounds one.
	trimEvery = time.Minute
	trimPages = 64
	// lagBlocks is how far the lag is counted.
	lagBlocks = 1000
	// farewell bounds the giving back of leases at the end.
	farewell = 2 * time.Second
)
