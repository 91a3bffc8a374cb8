package bench

import (
	"math/rand/v2"
	"sync"
	"time"
)

// schedule gives each arrival its number and the time it is due. It is safe
// for concurrent use.
type schedule struct {
	mu    sync.Mutex
	next  time.Time
	end   time.Time // no arrival is due at or after it
	n     uint64
	limit uint64 // 0 is no limit
	gap   func() time.Duration
}

// newSchedule begins at start. A rate of 0 means that an arrival is due
// whenever a caller is free.
func newSchedule(cfg Config, start, end time.Time, limit uint64) *schedule {
	s := &schedule{next: start, end: end, limit: limit}
	if cfg.Rate == 0 {
		return s
	}
	mean := float64(time.Second) / cfg.Rate
	s.gap = func() time.Duration { return time.Duration(mean) }
	if cfg.Arrivals != Constant {
		r := rand.New(rand.NewPCG(cfg.Seed, 0x6172726976616c73)) // apart from the workload's
		s.gap = func() time.Duration { return time.Duration(r.ExpFloat64() * mean) }
	}
	return s
}

// take is the next arrival: its number and when it is due, which may be long
// past. ok is false at the end.
func (s *schedule) take() (i uint64, due time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap == nil {
		s.next = time.Now()
	}
	if (s.limit > 0 && s.n >= s.limit) || !s.next.Before(s.end) {
		return 0, time.Time{}, false
	}
	i, due = s.n, s.next
	s.n++
	if s.gap != nil {
		s.next = s.next.Add(s.gap())
	}
	return i, due, true
}
