// Package places divides the places of a node among its tenants: those of
// commands in the executor, and those of calls and streams at the API. It imports
// ledger alone.
//
//	Take ──▶ more than the tenant's part? ──▶ more than is free? ──▶ faster than its rate? ──▶ a place
//	            refused: OVERLOADED, with the tenant, the value, the limit and a retry delay
//
// A tenant may take as many places as it leaves free: at most half of what the
// other tenants have not taken. So one that wants everything gets a half, two of
// them a third each, n of them 1/(n+1) each, and as much as each of them has is
// left for whoever comes next: no tenant, and no number of tenants that is small
// beside the number of places, keeps another out. A tenant that is alone pays for
// it with the other half, which a larger number of places gives back. The rule is
// that of dynamic thresholds for shared buffers (A. Choudhury and E. Hahne,
// 1998), with the factor 1.
//
// A tenant that has no place is let in as long as there is room for its call, also
// where its part is smaller than the call: a call of many commands is never too
// large for ever.
//
// What has to wait waits in a Line, which takes turns of the tenants.
//
// What the node does for itself, and what another node has let in already, takes
// places of nobody, and is let in where none is free, too (TakeOwn): the load of
// tenants must not stop the expiry of their holds, and what was counted at one
// door is not counted again at the next. Whoever sends it bounds it.
package places

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Limits are a tenant's own, below the part that it may have of a node. 0 is no
// limit.
type Limits struct {
	// Open is the most places it has at once.
	Open int64
	// Rate is how many it takes in a second, on the average: after a pause, twice
	// as many in the first. A call that begins within it is let in whole.
	Rate int64
}

// Config shapes Places.
type Config struct {
	// Name is what an error calls the places, such as "pending"; Things is what
	// takes them, such as "commands".
	Name, Things string
	// Places is their number.
	Places int64
	// Each are the limits of a tenant that has none in Own.
	Each Limits
	Own  map[string]Limits
	// Retry is the delay after which a refused caller may come again.
	Retry time.Duration
}

// minSweep is how many tenants are kept in mind without a look at which of them
// have gone.
const minSweep = 1024

// Places are a number of places. Make them with New. They are safe for
// concurrent use.
type Places struct {
	cfg   Config
	taken atomic.Int64 // those of a tenant change with mu held
	full  atomic.Uint64
	held  atomic.Uint64

	mu      sync.Mutex
	tenants map[string]*Share
	sweepAt int
}

// Share is what one tenant has taken. The places' mutex guards it.
type Share struct {
	taken  int64
	limits Limits
	paid   time.Time // until then what it took uses up its rate
}

// New makes places. They own no goroutine.
func New(cfg Config) *Places {
	return &Places{cfg: cfg, tenants: map[string]*Share{}, sweepAt: minSweep}
}

// Take takes n places for a tenant, all or none; what is of several tenants, or of
// all, is for "", which has a part as each of them. They are given back with Give.
func (p *Places) Take(tenant string, n int) (*Share, *ledger.Rejection) {
	s, refused, value, limit, wait := p.take(tenant, int64(n))
	switch refused {
	case noRoom:
		p.full.Add(uint64(n))
		message := p.cfg.Things + " are more than this node takes at once"
		if int64(n) > limit {
			message = p.cfg.Things + " in one call are more than this node takes at all: send fewer in one call"
		}
		return nil, &ledger.Rejection{
			Code: ledger.Overloaded, Field: p.cfg.Name, Value: fmt.Sprint(value), Limit: fmt.Sprint(limit), RetryAfter: wait, Message: message,
		}
	case overPart:
		p.held.Add(uint64(n))
		return nil, &ledger.Rejection{
			Code: ledger.Overloaded, Field: p.cfg.Name, Value: fmt.Sprint(value), Limit: fmt.Sprint(limit), RetryAfter: wait,
			Message: p.cfg.Things + " of " + whose(tenant) + " part of this node: keep fewer open at once",
		}
	case overRate:
		p.held.Add(uint64(n))
		return nil, &ledger.Rejection{
			Code: ledger.Overloaded, Field: "rate", Value: fmt.Sprintf("above %d", limit), Limit: fmt.Sprint(limit), RetryAfter: wait,
			Message: fmt.Sprintf("%s a second is more than tenant %q may send: spread them over time", p.cfg.Things, tenant),
		}
	}
	return s, nil
}

// whose names a tenant that has more than its part.
func whose(tenant string) string {
	if tenant == "" {
		return "no single tenant are more than their"
	}
	return fmt.Sprintf("tenant %q are more than its", tenant)
}

// TakeOwn takes n places that count for no tenant, a nil share, whether they are
// free or not.
func (p *Places) TakeOwn(n int) { p.taken.Add(int64(n)) }

// Give gives n places back and says how many are still taken by all.
func (p *Places) Give(s *Share, n int) int64 {
	if s == nil {
		return p.taken.Add(int64(-n))
	}
	p.mu.Lock() // whoever takes places sees both numbers from before or from after
	defer p.mu.Unlock()
	s.taken -= int64(n)
	return p.taken.Add(int64(-n))
}

// Outcomes of take.
type outcome uint8

const (
	letIn outcome = iota
	noRoom
	overPart
	overRate
)

// take says what became of n places: with the number that was too high, the limit,
// and when to come again.
func (p *Places) take(tenant string, n int64) (s *Share, o outcome, value, limit int64, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.taken.Load() + n
	if s = p.tenants[tenant]; s != nil && s.taken > 0 {
		own := s.taken + n
		part := max(0, p.cfg.Places-(taken-own)) / 2
		if s.limits.Open > 0 {
			part = min(part, s.limits.Open)
		}
		if own > part {
			return s, overPart, own, part, p.cfg.Retry
		}
	}
	if taken > p.cfg.Places {
		return nil, noRoom, taken, p.cfg.Places, p.cfg.Retry
	}
	if s == nil {
		s = p.meet(tenant)
	}
	if s.limits.Rate > 0 {
		now := time.Now()
		if s.paid.Before(now) {
			s.paid = now
		}
		if wait = s.paid.Sub(now) - time.Second; wait >= 0 {
			return s, overRate, 0, s.limits.Rate, max(wait, time.Millisecond)
		}
		s.paid = s.paid.Add(time.Duration(n) * time.Second / time.Duration(s.limits.Rate))
	}
	s.taken += n
	p.taken.Add(n)
	return s, letIn, 0, 0, 0
}

// meet makes the share of a tenant. Those that have gone are forgotten whenever
// twice as many have come as there were after the last time.
func (p *Places) meet(tenant string) *Share {
	if len(p.tenants) >= p.sweepAt {
		now := time.Now()
		for name, s := range p.tenants {
			if s.taken == 0 && !s.paid.After(now) {
				delete(p.tenants, name)
			}
		}
		p.sweepAt = max(minSweep, 2*len(p.tenants))
	}
	tenant = strings.Clone(tenant) // and nothing of the message it came in
	limits, own := p.cfg.Own[tenant]
	if !own {
		limits = p.cfg.Each
	}
	s := &Share{limits: limits}
	p.tenants[tenant] = s
	return s
}

// Stats are counters since the start and gauges of now.
type Stats struct {
	// Taken is the number of places taken, Most what the tenant has that has
	// taken most of them, Tenants how many have any.
	Taken, Most int64
	Tenants     int
	// Full counts refusals since all places were taken, Held those since a tenant
	// had its part or was above its rate.
	Full, Held uint64
}

// Stats reads the counters. It looks at every tenant that is kept in mind.
func (p *Places) Stats() Stats {
	st := Stats{Taken: p.taken.Load(), Full: p.full.Load(), Held: p.Held()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.tenants {
		if n := s.taken; n > 0 {
			st.Tenants++
			st.Most = max(st.Most, n)
		}
	}
	return st
}

// Held is Stats.Held, without a look at the tenants.
func (p *Places) Held() uint64 { return p.held.Load() }

// Taken is the number of places taken.
func (p *Places) Taken() int64 { return p.taken.Load() }
