package shard

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// inCrowd makes the executor take its processors for busy, however they are.
func (e *Executor) inCrowd() {
	e.crowd.mu.Lock()
	defer e.crowd.mu.Unlock()
	e.crowd.waits = func() time.Duration { return e.crowd.sum + 100*time.Hour }
	e.crowd.at = time.Now().Add(-time.Hour)
}

// put adds tasks to a queue as enqueue does.
func (q *queue) put(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range n {
		q.tasks = append(q.tasks, &task{})
		q.came()
	}
}

func TestGather(t *testing.T) {
	type after struct {
		d time.Duration
		n int
	}
	const us = time.Microsecond
	for name, c := range map[string]struct {
		peak    int
		calm    bool
		cfg     Config
		comes   []after // the first before it gathers
		returns time.Duration
		with    int
		tie     bool // which of two comes first is open
	}{
		"enough come":               {peak: 8, comes: []after{{0, 1}, {300 * us, 4}, {500 * us, 1}, {600 * us, 1}}, returns: 500 * us, with: 6},
		"enough are there":          {peak: 8, comes: []after{{0, 6}, {300 * us, 1}}, with: 6},
		"some stay away":            {peak: 8, comes: []after{{0, 1}, {300 * us, 4}, {1100 * us, 1}}, returns: longestGather, with: 5},
		"the last come at the end":  {peak: 8, comes: []after{{0, 1}, {longestGather, 5}}, returns: longestGather, tie: true},
		"nobody waits":              {peak: 8, comes: []after{{0, 0}, {300 * us, 9}}},
		"a lone caller":             {peak: 1, comes: []after{{0, 1}, {300 * us, 1}}, with: 1},
		"two callers":               {peak: 2, comes: []after{{0, 1}, {300 * us, 1}}, with: 1},
		"nothing is known":          {peak: 0, comes: []after{{0, 1}, {300 * us, 9}}, with: 1},
		"processors are free":       {peak: 8, calm: true, comes: []after{{0, 1}, {300 * us, 9}}, with: 1},
		"a batch takes fewer":       {peak: 400, cfg: Config{BatchLimit: 4, QueueLimit: 100}, comes: []after{{0, 1}, {300 * us, 3}, {400 * us, 9}}, returns: 300 * us, with: 4},
		"a queue has room for less": {peak: 400, cfg: Config{BatchLimit: 100, QueueLimit: 3}, comes: []after{{0, 1}, {300 * us, 2}, {400 * us, 1}}, returns: 300 * us, with: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &Executor{cfg: c.cfg}
				if e.cfg.BatchLimit == 0 {
					e.cfg = DefaultConfig()
				}
				e.crowd.waits = func() time.Duration { return 0 }
				if !c.calm {
					e.inCrowd()
				}
				q := newQueue(e, &task{})
				for round := range 3 { // what one round leaves behind would show in the next
					q.peak, q.tasks = c.peak, nil
					start := time.Now()
					q.put(c.comes[0].n)
					for _, a := range c.comes[1:] {
						time.AfterFunc(a.d, func() { q.put(a.n) })
					}
					q.gather()
					took := time.Since(start)
					q.mu.Lock()
					n := len(q.tasks)
					q.mu.Unlock()
					if took != c.returns || (n != c.with && !c.tie) {
						t.Errorf("round %d: gathered %d commands in %s, want %d in %s", round, n, took, c.with, c.returns)
					}
					time.Sleep(time.Second)
					synctest.Wait()
					if q.want != 0 || len(q.enough) != 0 {
						t.Errorf("round %d: it waits for %d commands, with %d signals", round, q.want, len(q.enough))
					}
				}
			})
		})
	}
}

// What a queue expects rises at once, and falls when fewer come.
func TestExpectationsFollowCallers(t *testing.T) {
	e := &Executor{cfg: DefaultConfig()}
	e.inCrowd()
	q := newQueue(e, &task{})
	for i, c := range []struct{ batch, waiting, want int }{
		{1, 0, 0}, {1, 1, 0}, {2, 1, 2}, {40, 24, 48}, {10, 10, 42}, {10, 10, 36}, {1, 0, 31}, {60, 140, 128},
	} {
		q.tasks = make([]*task, c.waiting)
		q.committed(c.batch)
		if got := q.expected(); got != c.want {
			t.Errorf("after batch %d of %d with %d waiting it expects %d, want %d", i, c.batch, c.waiting, got, c.want)
		}
	}
	q.tasks = nil
	batches := 0
	for ; q.expected() > 0; batches++ {
		q.committed(1)
	}
	if batches > 40 {
		t.Errorf("a lone caller waits for others that have gone in %d batches", batches)
	}
}

func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sum time.Duration
		c := crowd{waits: func() time.Duration { return sum }}
		sum = 1000 * time.Hour
		many := crowdSize * runtime.GOMAXPROCS(0)
		for i, s := range []struct {
			pass    time.Duration
			waiting int // goroutines, all the time that passes
			more    time.Duration
			want    bool
		}{
			{want: false}, // what was before says nothing
			{pass: crowdWindow - 1, waiting: 1000},
			{pass: 1, want: true}, // the window is over
			{pass: crowdWindow, waiting: many, want: true},
			{pass: crowdWindow - 1, want: true},
			{pass: 1},
			{pass: crowdWindow, waiting: many, more: -1},
			{pass: time.Minute, waiting: many, want: true},
			{pass: time.Hour, waiting: many - 1, more: time.Hour - 1},
		} {
			time.Sleep(s.pass)
			sum += time.Duration(s.waiting)*s.pass + s.more
			if got := c.now(); got != s.want {
				t.Errorf("look %d: a crowd: %t, want %t", i, got, s.want)
			}
		}
	})
}

func TestSumOf(t *testing.T) {
	h := &metrics.Float64Histogram{
		Counts:  []uint64{1, 2, 0, 3, 4},
		Buckets: []float64{math.Inf(-1), 0, 0.002, 0.004, 0.006, math.Inf(1)},
	}
	sum := sumOf(h)
	if want := 2*time.Millisecond + 3*5*time.Millisecond + 4*6*time.Millisecond; (sum - want).Abs() > time.Microsecond {
		t.Errorf("the sum is %s, want %s", sum, want)
	}
}

// The scheduler measures, and one wait in eight. Otherwise there would never be a
// crowd, or always one, and nobody would notice.
func TestSchedulerWaits(t *testing.T) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	measured := func() (n uint64) {
		metrics.Read(sample)
		for _, c := range sample[0].Value.Float64Histogram().Counts {
			n += c
		}
		return n
	}
	waits := schedulerWaits()
	sum, n := waits(), measured()
	const goroutines = 8000
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {})
	}
	wg.Wait()
	if more := waits() - sum; more <= 0 {
		t.Errorf("%d goroutines have waited for %s", goroutines, more)
	}
	if got := measured() - n; got < goroutines/oneMeasured/4 || got > goroutines/oneMeasured*4 {
		t.Errorf("%d waits of %d were measured, want about one of %d", got, goroutines, oneMeasured)
	}
}
