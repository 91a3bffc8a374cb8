package shard

import (
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Adapting says when a budget gets another number of buckets by itself.
type Adapting struct {
	// Enabled turns it on.
	Enabled bool `yaml:"enabled"`
	// Min and Max bound the number.
	Min int `yaml:"min"`
	Max int `yaml:"max"`
	// GrowQueued is how many commands wait for a bucket, on the average, before
	// the number is doubled; ShrinkQueued is below how many it may be halved.
	GrowQueued   int `yaml:"grow_queued"`
	ShrinkQueued int `yaml:"shrink_queued"`
	// GrowConflicts is the percentage of batches with conflicts above which the
	// number is doubled, too.
	GrowConflicts int `yaml:"grow_conflicts"`
	// ShrinkRate is below how many commands a second and bucket it may be
	// halved.
	ShrinkRate int `yaml:"shrink_rate"`
	// LowWater is the percentage of its funds below which the number is halved,
	// and below twice of which it does not grow.
	LowWater int `yaml:"low_water"`
	// CoolDown is the least time from one change to the next.
	CoolDown time.Duration `yaml:"cool_down"`
}

// DefaultAdapting is off.
func DefaultAdapting() Adapting {
	return Adapting{
		Min: 1, Max: 64, GrowQueued: 128, ShrinkQueued: 1, GrowConflicts: 20, ShrinkRate: 5, LowWater: 1, CoolDown: 5 * time.Minute,
	}
}

// Validate names every field that is out of range.
func (p Adapting) Validate() error {
	var errs []error
	check := func(ok bool, field string, v any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v (allowed: %s)", field, v, allowed))
		}
	}
	check(p.Min >= 1 && p.Min <= ledger.MaxBuckets, "min", p.Min, "1 to 256")
	check(p.Max >= p.Min && p.Max <= ledger.MaxBuckets, "max", p.Max, fmt.Sprintf("min, %d, to 256", p.Min))
	check(p.ShrinkQueued >= 0, "shrink_queued", p.ShrinkQueued, "0 or more")
	// Doubling halves what waits for a bucket: a number that was just doubled
	// must not look as if it should be halved.
	check(p.GrowQueued >= 4*p.ShrinkQueued && p.GrowQueued > 0, "grow_queued", p.GrowQueued, "at least four times shrink_queued, and above 0")
	check(p.GrowConflicts >= 1 && p.GrowConflicts <= 100, "grow_conflicts", p.GrowConflicts, "1 to 100")
	check(p.ShrinkRate >= 0, "shrink_rate", p.ShrinkRate, "0 or more")
	check(p.LowWater >= 0 && p.LowWater <= 25, "low_water", p.LowWater, "0 to 25")
	check(p.CoolDown >= time.Second && p.CoolDown <= 24*time.Hour, "cool_down", p.CoolDown, "1s to 24h0m0s")
	return errors.Join(errs...)
}

// Pressure is what was measured of a budget since the last look.
type Pressure struct {
	// Buckets is the number in use.
	Buckets int
	// Queued is how many commands wait for a bucket, Rate its commands of a
	// second; both are averages over the buckets in use.
	Queued, Rate float64
	// Conflicts is the percentage of batches that another writer got in the way
	// of, Left that of its funds that is available.
	Conflicts, Left float64
	// SinceChange is the time since the number last changed, or since it was
	// first seen.
	SinceChange time.Duration
}

// Adapt says how many buckets the budget should have: twice as many under
// pressure, half as many where there is none or little is left, and what it has
// in between and while the last change is recent. It is a pure function.
func Adapt(m Pressure, p Adapting) int {
	n := m.Buckets
	conflicts, low := float64(p.GrowConflicts), float64(p.LowWater)
	switch {
	case !p.Enabled || m.SinceChange < p.CoolDown:
		return n
	case n > p.Max || n < p.Min:
		return min(max(n, p.Min), p.Max)
	case m.Left < low:
		return max(n/2, p.Min)
	case m.Left > 2*low && (m.Queued > float64(p.GrowQueued) || m.Conflicts > conflicts):
		return min(2*n, p.Max)
	case m.Queued < float64(p.ShrinkQueued) && m.Rate < float64(p.ShrinkRate) && m.Conflicts <= conflicts/4:
		return max(n/2, p.Min)
	default:
		return n
	}
}

// AdaptCommand makes the command of a change. Its key is that of the epoch it
// ends: two who want to end one epoch end it once.
func AdaptCommand(b *ledger.Budget, buckets int) ledger.Command {
	return ledger.Command{
		Op: ledger.OpReshard, Budget: b.ID, Buckets: buckets,
		ID: fmt.Sprintf(ledger.KeyAdapt+"%016x:%d", budgetHash(b.ID), b.Epoch.Number),
	}
}
