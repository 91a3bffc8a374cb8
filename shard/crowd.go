package shard

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// crowdSize is how many goroutines wait for each of Go's processors, on the
	// average, where these have no time to spare. Many wait at once elsewhere, too,
	// when a gathered call has been answered, but for a moment.
	crowdSize = 3
	// crowdWindow is the least time that is judged at once.
	crowdWindow = 10 * time.Millisecond
	// oneMeasured: the scheduler measures one wait in so many (Go 1.26).
	oneMeasured = 8
)

// crowd says whether this process has more work than its processors can do: by
// how many of its goroutines waited for one on the average, which is the sum of
// their waits in a time, divided by that time (Little's law). The scheduler measures
// waits anyway. It is safe for concurrent use.
type crowd struct {
	// waits is the sum of all waits since the process began.
	waits func() time.Duration

	mu  sync.Mutex
	at  time.Time // of the last look
	sum time.Duration
	yes bool
}

// now gives the judgment of the last window.
func (c *crowd) now() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	window := now.Sub(c.at)
	if window < crowdWindow {
		return c.yes
	}
	sum := c.waits()
	c.yes = !c.at.IsZero() && float64(sum-c.sum) >= crowdSize*float64(runtime.GOMAXPROCS(0))*float64(window)
	c.at, c.sum = now, sum
	return c.yes
}

// schedulerWaits reads the waits that the Go scheduler has measured. What it
// returns is not safe for concurrent use.
func schedulerWaits() func() time.Duration {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	return func() time.Duration {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return 0 // this Go does not measure them: there is never a crowd
		}
		return oneMeasured * sumOf(sample[0].Value.Float64Histogram())
	}
}

// sumOf adds up the values of a histogram in seconds, each as the middle of its
// bucket.
func sumOf(h *metrics.Float64Histogram) time.Duration {
	sum := 0.0
	for i, count := range h.Counts {
		if count == 0 {
			continue
		}
		low, high := max(h.Buckets[i], 0), h.Buckets[i+1]
		if math.IsInf(high, 1) {
			high = low
		}
		sum += float64(count) * (low + high) / 2
	}
	return time.Duration(sum * float64(time.Second))
}
