package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// runner drives one round of a workload at a target.
type runner struct {
	cfg    Config
	w      workload
	target Target

	begin, end time.Time // what is counted
	tick       time.Duration
	start      time.Time
	recs       [recorders]*recorder
	answered   atomic.Uint64
}

// lateAfter is how far behind its time an arrival starts before it counts as
// late: more than what timers are off.
const lateAfter = 2 * time.Millisecond

// drain is how long a run waits for its last answers.
const drain = 30 * time.Second

func newRunner(cfg Config, w workload, t Target) *runner {
	r := &runner{cfg: cfg, w: w, target: t}
	for i := range r.recs {
		r.recs[i] = newRecorder()
	}
	return r
}

// run drives the load and gives what was seen.
func (r *runner) run(ctx context.Context) (*recorder, error) {
	limit := r.w.tasks()
	if limit == 0 {
		limit = uint64(r.cfg.Tasks)
	}
	r.start = time.Now()
	r.begin, r.end = r.start.Add(r.cfg.Warmup), r.start.Add(r.cfg.Warmup+r.cfg.Duration)
	if limit > 0 { // all of it counts
		r.begin = r.start
	}
	if p, ok := r.w.(phased); ok {
		r.end = p.until()
	}
	r.tick = tickOf(r.end.Sub(r.start))
	s := newSchedule(r.cfg, r.start, r.end, limit)
	ctx, cancel := context.WithDeadline(ctx, r.end.Add(drain))
	defer cancel()
	var wg sync.WaitGroup
	if r.cfg.Rate > 0 {
		r.pace(ctx, s, &wg)
	} else {
		for c := range r.cfg.Callers {
			wg.Go(func() { r.caller(ctx, s, r.recs[c%recorders]) })
		}
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	if limit > 0 {
		if now := time.Now(); now.Before(r.end) {
			r.end = now
		}
	}
	sum := newRecorder()
	for _, rec := range r.recs {
		sum.merge(rec)
	}
	return sum, nil
}

// tickOf is the interval of a timeline: at most a hundred or so of them.
func tickOf(d time.Duration) time.Duration {
	for _, t := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 10 * time.Second} {
		if d/t <= 120 {
			return t
		}
	}
	return time.Minute
}

// caller sends one task after the other until there are no more.
func (r *runner) caller(ctx context.Context, s *schedule, rec *recorder) {
	for {
		i, due, ok := s.take()
		if !ok || ctx.Err() != nil {
			return
		}
		r.do(ctx, r.w.task(i), due, rec)
	}
}

// napper is newNap, but in tests: the poller knows nothing of their clock.
var napper = newNap

// longestNap bounds how late the end of a run is noticed.
const longestNap = 100 * time.Millisecond

// arrival is a task and when it is due.
type arrival struct {
	task task
	due  time.Time
}

// pace hands each arrival to a free caller when it is due. Callers are made as
// they are needed: thousands that wait for their turn would give the garbage
// collector their stacks to look at, in the process that is measured. When all
// are busy, arrivals wait; their latency counts from when they were due.
func (r *runner) pace(ctx context.Context, s *schedule, wg *sync.WaitGroup) {
	nap, end := napper()
	defer end()
	free := make(chan arrival)
	defer close(free)
	for made := 0; ; {
		i, due, ok := s.take()
		if !ok {
			return
		}
		a := arrival{r.w.task(i), due}
		for wait := time.Until(due); wait > 0 && ctx.Err() == nil; wait = time.Until(due) {
			nap(min(wait, longestNap))
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case free <- a:
			continue
		default:
		}
		if made < r.cfg.Callers {
			rec := r.recs[made%recorders]
			made++
			wg.Go(func() {
				r.do(ctx, a.task, a.due, rec)
				for a := range free {
					r.do(ctx, a.task, a.due, rec)
				}
			})
			continue
		}
		select {
		case free <- a:
		case <-ctx.Done():
			return
		}
	}
}

// do works through a task that was due at a time.
func (r *runner) do(ctx context.Context, t task, due time.Time, rec *recorder) {
	counted := !due.Before(r.begin)
	late := time.Since(due) > lateAfter
	phase := ""
	if p, ok := r.w.(phased); ok {
		phase = p.phase(due)
	}
	from := due // the first call is due with the task, the others when their turn comes
	for i := range t {
		answers := r.send(ctx, &t[i])
		done := time.Now()
		if ctx.Err() != nil {
			return
		}
		rec.mu.Lock()
		ok := r.note(rec, &t[i], answers, done)
		last := i == len(t)-1 || !ok
		if counted {
			rec.calls += uint64(len(answers))
			record(rec.hist(t[i].op), done.Sub(from))
			if phase != "" {
				record(rec.hist("phase:"+phase), done.Sub(from))
			}
		}
		if counted && last {
			record(rec.all, done.Sub(due))
			rec.tasks++
			if late {
				rec.late++
			}
		}
		if last && r.counts(done) {
			rec.tasksInTime++
		}
		rec.mu.Unlock()
		r.answered.Add(uint64(len(answers) * len(t[i].commands)))
		if last {
			return
		}
		from = done
	}
}

// counts reports whether an answer at a time is part of the throughput.
func (r *runner) counts(at time.Time) bool { return !at.Before(r.begin) && at.Before(r.end) }

// send sends a call, twice at once or once more where the step says so, and
// returns all answers, the ones the caller goes by last.
func (r *runner) send(ctx context.Context, s *step) (answers [][]Reply) {
	if s.duplicate {
		var twin []Reply
		var wg sync.WaitGroup
		wg.Go(func() { twin = r.target.Do(ctx, s.commands) })
		answers = append(answers, r.target.Do(ctx, s.commands))
		wg.Wait()
		answers = append(answers, twin)
	} else {
		answers = append(answers, r.target.Do(ctx, s.commands))
	}
	if s.lost { // nobody has seen these answers
		answers = append(answers, r.target.Do(ctx, s.commands))
	}
	return answers
}

// note counts the answers to a call, and keeps in words what is wrong with
// them. It reports whether all commands were accepted. The caller holds the
// recorder's mutex.
func (r *runner) note(rec *recorder, s *step, answers [][]Reply, done time.Time) bool {
	n := int(done.Sub(r.start) / r.tick)
	for len(rec.ticks) <= n {
		rec.ticks = append(rec.ticks, tick{})
	}
	ok := true
	for _, replies := range answers {
		if len(replies) != len(s.commands) {
			rec.fault(fmt.Sprintf("%s: %d commands got %d answers", s.op, len(s.commands), len(replies)))
			return false
		}
		ok = true
		for i := range replies {
			if !r.noteOne(rec, s, &s.commands[i], &replies[i], &rec.ticks[n], r.counts(done)) {
				ok = false
			}
		}
	}
	for i := range s.commands {
		effects := 0
		for _, replies := range answers {
			if replies[i].Code == "" && !replies[i].Replayed {
				effects++
			}
		}
		if effects > 1 {
			rec.fault(fmt.Sprintf("%s %s took effect %d times", s.op, s.commands[i].Key, effects))
		}
	}
	return ok
}

func (r *runner) noteOne(rec *recorder, s *step, c *ledger.Command, a *Reply, t *tick, counts bool) (accepted bool) {
	rec.tally.add(c, a)
	word := "accepted"
	switch {
	case a.Code != "":
		word = string(a.Code)
	case a.Replayed:
		word = "replayed"
	}
	answered := a.Code == "" || r.w.expect(a.Code)
	if counts {
		rec.counts[word]++
		if answered {
			rec.inTime++
		}
		if a.Code == "" { // a refusal does not name its bucket
			rec.keys[hotKey{c.Budget.Key, a.Bucket}]++
		}
	}
	switch {
	case a.Code == "":
		t.commands++
		return true
	case answered:
		t.refused++
	default:
		t.failed++
		r.surprise(rec, s, c, a)
	}
	return false
}

// surprise keeps a refusal that does not belong to the workload. Overload and
// what else may be sent again is no fault of the ledger: it is counted and
// lowers the throughput.
func (r *runner) surprise(rec *recorder, s *step, c *ledger.Command, a *Reply) {
	if !a.again() {
		rec.fault(fmt.Sprintf("%s %s: %v", s.op, c.Key, a.err()))
	}
}
