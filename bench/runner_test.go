package bench

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// drive runs a config at a fake target.
func drive(t *testing.T, cfg Config, f *fake) (*Result, error) {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	b := &Bench{cfg: cfg, target: f}
	r, err := b.Drive(context.Background())
	if err != nil {
		return nil, err
	}
	if r.Audit, err = b.Audit(context.Background()); err != nil {
		return nil, err
	}
	return r, nil
}

// A server that stalls for a second owes an answer to everyone who was due
// meanwhile, also with a single caller who could only send one of them. Of a
// hundred a second, all hundred of the stall are late, half of them by more
// than half a second.
func TestStallShowsFromTheIntendedStart(t *testing.T) {
	for _, callers := range []int{1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			cfg := testConfig(t, "hot", "executor")
			cfg.Rate, cfg.Arrivals, cfg.Callers, cfg.Duration, cfg.Tasks = 100, Constant, callers, 4*time.Second, 0
			stall := time.Now().Add(1 * time.Second)
			r, err := drive(t, cfg, &fake{audit: Audit{OK: true}, do: func(cmds []ledger.Command) []Reply {
				if now := time.Now(); !now.Before(stall) && now.Before(stall.Add(time.Second)) {
					time.Sleep(stall.Add(time.Second).Sub(now))
				}
				return make([]Reply, len(cmds))
			}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Tasks != 400 {
				t.Errorf("%d callers: %d tasks, want 400", callers, r.Tasks)
			}
			above := func(d time.Duration) (n int64) {
				for _, b := range r.hist.Distribution() {
					if b.From >= d.Microseconds() {
						n += b.Count
					}
				}
				return n
			}
			if n := above(500 * time.Millisecond); n < 49 || n > 51 {
				t.Errorf("%d callers: %d tasks took more than half a second, want 50", callers, n)
			}
			if n := above(time.Millisecond); n < 99 || n > 101 {
				t.Errorf("%d callers: %d tasks took more than a millisecond, want 100", callers, n)
			}
			if r.Latency.Max < 0.99 || r.Latency.Max > 1.01 {
				t.Errorf("%d callers: the longest took %v s, want 1", callers, r.Latency.Max)
			}
		})
	}
}

// What is due during the warm-up is sent and not counted.
func TestWarmupIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, "spread", "executor")
		cfg.Rate, cfg.Arrivals, cfg.Warmup, cfg.Duration, cfg.Tasks = 50, Constant, 2*time.Second, 4*time.Second, 0
		cold := time.Now().Add(cfg.Warmup)
		var sent atomic.Int64
		r, err := drive(t, cfg, &fake{audit: Audit{OK: true}, do: func(cmds []ledger.Command) []Reply {
			sent.Add(1)
			if time.Now().Before(cold) {
				time.Sleep(100 * time.Millisecond)
			}
			return make([]Reply, len(cmds))
		}})
		if err != nil {
			t.Fatal(err)
		}
		if sent.Load() != 300 || r.Tasks != 200 || r.Latency.Max > 0.001 {
			t.Errorf("%d calls sent, %d tasks count, the longest took %v s; want 300, 200 and none", sent.Load(), r.Tasks, r.Latency.Max)
		}
		if r.Seconds != 4 || r.TasksPerSecond < 49 || r.TasksPerSecond > 52 || r.CommandsPerSecond < 98 || r.CommandsPerSecond > 104 {
			t.Errorf("%v s, %v tasks/s, %v commands/s", r.Seconds, r.TasksPerSecond, r.CommandsPerSecond)
		}
		var all uint64
		for _, p := range r.Timeline {
			all += p.Commands
		}
		if all < 590 || all > 600 {
			t.Errorf("the timeline has %d commands, want those of the warm-up too", all)
		}
	})
}

// Poisson arrivals have the rate that was asked for, and are the same for the
// same seed.
func TestPoissonArrivals(t *testing.T) {
	start := time.Unix(0, 0)
	run := func(seed uint64) (n int, sum time.Duration) {
		cfg := Config{Rate: 1000, Arrivals: Poisson, Seed: seed}
		s := newSchedule(cfg, start, start.Add(100*time.Second), 0)
		var last time.Time
		for {
			i, due, ok := s.take()
			if !ok {
				return n, sum
			}
			if int(i) != n || (n > 0 && due.Before(last)) {
				t.Fatalf("arrival %d is number %d, due %s after %s", n, i, due, last)
			}
			last, sum, n = due, sum+due.Sub(start), n+1
		}
	}
	n, sum := run(1)
	if n < 99_000 || n > 101_000 { // 3 standard deviations are 949
		t.Errorf("%d arrivals in 100 s at 1000 a second", n)
	}
	if n2, sum2 := run(1); n2 != n || sum2 != sum {
		t.Error("the same seed has other arrivals")
	}
	if _, sum2 := run(2); sum2 == sum {
		t.Error("another seed has the same arrivals")
	}
}

// What callers see that must not be voids the run: no figures come out.
func TestVoidRuns(t *testing.T) {
	ok := func(cmds []ledger.Command) []Reply { return make([]Reply, len(cmds)) }
	for name, tc := range map[string]struct {
		workload string
		do       func([]ledger.Command) []Reply
		audit    Audit
	}{
		"audit":   {"hot", ok, Audit{Problems: []string{"chain_intact: 1 problems"}}},
		"silent":  {"hot", ok, Audit{}},
		"refusal": {"hot", func(c []ledger.Command) []Reply { return failed(len(c), ledger.IllegalState, errors.New("no")) }, Audit{OK: true}},
		"twice":   {"lifecycle", ok, Audit{OK: true}},
		"answers": {"hot", func([]ledger.Command) []Reply { return nil }, Audit{OK: true}},
	} {
		cfg := testConfig(t, tc.workload, "executor")
		cfg.Duplicates = 1
		r, err := drive(t, cfg, &fake{do: tc.do, audit: tc.audit})
		var void *VoidError
		if !errors.As(err, &void) || r != nil || len(void.Faults) == 0 {
			t.Errorf("%s: result %v, error %v; want a void run", name, r, err)
		}
	}
}

// Overload is counted and lowers the throughput; it is no fault.
func TestOverloadIsCounted(t *testing.T) {
	n := 0
	cfg := testConfig(t, "hot", "executor")
	cfg.Callers = 1
	r, err := drive(t, cfg, &fake{audit: Audit{OK: true}, do: func(c []ledger.Command) []Reply {
		if n++; n%2 == 0 {
			return failed(len(c), ledger.Overloaded, errors.New("busy"))
		}
		return make([]Reply, len(c))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Commands != 100 || r.Outcomes["OVERLOADED"] != 100 || r.Outcomes["accepted"] != 100 {
		t.Errorf("%d commands, outcomes %v", r.Commands, r.Outcomes)
	}
	if _, err := drive(t, cfg, &fake{do: func(c []ledger.Command) []Reply {
		return failed(len(c), ledger.Unavailable, errors.New("down"))
	}}); !errors.Is(err, errNothing) {
		t.Errorf("a target that is down: %v", err)
	}
}

func TestRecordersMerge(t *testing.T) {
	one, a, b := newRecorder(), newRecorder(), newRecorder()
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		part := a
		if i%3 == 0 {
			part = b
		}
		for _, r := range []*recorder{one, part} {
			record(r.all, d)
			record(r.hist("reserve"), d)
			r.counts["accepted"]++
			r.keys[hotKey{"b", uint16(i % 2)}]++
			r.tasks++
			r.inTime += 2
			r.tally.add(&ledger.Command{Op: ledger.OpReserve, Amount: int64(i) + 1}, &Reply{})
		}
	}
	sum := newRecorder()
	sum.merge(a)
	sum.merge(b)
	if got, want := percentiles(sum.all), percentiles(one.all); got != want {
		t.Errorf("merged %+v, want %+v", got, want)
	}
	if got, want := percentiles(sum.hist("reserve")), percentiles(one.hist("reserve")); got != want {
		t.Errorf("merged %+v, want %+v", got, want)
	}
	if sum.tasks != 1000 || sum.inTime != 2000 || sum.counts["accepted"] != 1000 || sum.keys[hotKey{"b", 1}] != 500 {
		t.Errorf("merged counts: %+v", sum)
	}
	if got := sum.tally.budget(ledger.BudgetID{}); got.taken != 1000 || got.accepted != 500_500 {
		t.Errorf("merged tally: %+v", got)
	}
	record(one.all, 24*time.Hour) // more than it holds
	record(one.all, -time.Second)
	if got := one.all.TotalCount(); got != 1002 {
		t.Errorf("%d recorded, want 1002", got)
	}
}

// A preload sends again what a busy target did not take, and only that, and
// gives up on a target that stays down.
func TestPreloadSettles(t *testing.T) {
	sent := map[string]int{}
	busy := &fake{do: func(c []ledger.Command) []Reply {
		out := make([]Reply, len(c))
		for i := range c {
			if sent[c[i].Key.Order]++; i%2 == 1 && sent[c[i].Key.Order] < 3 {
				out[i].Code = []ledger.Code{ledger.Overloaded, ledger.OutcomeUnknown}[i/2%2]
			}
		}
		return out
	}}
	command := func(i int) ledger.Command {
		return ledger.Command{Op: ledger.OpReserve, Key: ledger.OrderKey{Order: string(rune('a' + i))}}
	}
	if err := fill(t.Context(), busy, 8, command, func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	// Of [b d f h], sent a second time, d and h come a third time.
	want := map[string]int{"a": 1, "b": 2, "c": 1, "d": 3, "e": 1, "f": 2, "g": 1, "h": 3}
	if !maps.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	down := &fake{do: func(c []ledger.Command) []Reply { return failed(len(c), ledger.Unavailable, errors.New("down")) }}
	if err := fill(t.Context(), down, 1, command, func(int, int) {}); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("a target that is down: %v", err)
	}
}

// Naps are never short, and their number is not bounded.
func TestNap(t *testing.T) {
	nap, end := newNap()
	defer end()
	for range 100 {
		start := time.Now()
		nap(100 * time.Microsecond)
		if d := time.Since(start); d < 100*time.Microsecond {
			t.Fatalf("a nap of 100 µs took %s", d)
		}
	}
	nap(0)
	nap(-time.Second)
}

// A load that is cancelled ends at once, whatever its callers wait for, with
// no more of them than were allowed, and none is left.
func TestCancelledLoadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, "hot", "executor")
		cfg.Rate, cfg.Arrivals, cfg.Callers, cfg.Duration, cfg.Tasks = 1000, Constant, 3, time.Hour, 0
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var busy, most atomic.Int64
		b := &Bench{cfg: cfg, target: &fake{do: func(cmds []ledger.Command) []Reply {
			if n := busy.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer busy.Add(-1)
			<-ctx.Done()
			return make([]Reply, len(cmds))
		}}}
		start := time.Now()
		time.AfterFunc(10*time.Second, cancel)
		if _, err := b.Drive(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the load ended with %v", err)
		}
		if took := time.Since(start); took > 11*time.Second || most.Load() != 3 || busy.Load() != 0 {
			t.Errorf("it took %s; %d callers at once, want 3, and %d are left", took, most.Load(), busy.Load())
		}
	})
}
