package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what one round came to, its audit passed.
type Result struct {
	Config     Config     `json:"config"`
	Conditions Conditions `json:"conditions"`
	// Seconds that count; throughput is what was answered in them.
	Seconds float64 `json:"seconds"`
	// Tasks are arrivals whose work was finished, Calls what was sent for
	// them, Commands what was answered within the counted seconds.
	Tasks             uint64  `json:"tasks"`
	Calls             uint64  `json:"calls"`
	Commands          uint64  `json:"commands"`
	CommandsPerSecond float64 `json:"commands_per_second"`
	TasksPerSecond    float64 `json:"tasks_per_second"`
	// PeakTasksPerSecond is what a first round at "max" reached, where the rate
	// is a share of it.
	PeakTasksPerSecond float64 `json:"peak_tasks_per_second,omitempty"`
	// Outcomes counts commands: accepted, replayed, or the code of a refusal.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Late is the share of arrivals that started more than 2 ms after they were
	// due, for want of a free caller or of the processor. Their wait counts.
	Late float64 `json:"late_share"`
	// Latency is of whole tasks, from the intended start to the last answer.
	Latency Percentiles `json:"latency"`
	// Operations are the calls of a task: the first from the intended start,
	// the others from when their turn came.
	Operations map[string]Percentiles `json:"operations"`
	Phases     map[string]Percentiles `json:"phases,omitempty"`
	// Batches are the target's own, nil where it has none.
	Batches *Batches `json:"batches,omitempty"`
	// TailRatio is p99 ÷ p50 of whole tasks; StormRatio is the p99 of the phase
	// storm ÷ that of quiet, 0 where there are no such phases.
	TailRatio  float64 `json:"p99_to_p50"`
	StormRatio float64 `json:"storm_p99_to_quiet_p99,omitempty"`
	// ResidentBytes is the memory of this process at the end, load and target
	// together; 0 where it is not known or the target is elsewhere.
	ResidentBytes uint64 `json:"resident_bytes,omitempty"`
	// ConflictRate is refused transactions per batch, negative where unknown.
	ConflictRate float64 `json:"conflict_rate"`
	// HotKeyShare is the share of the busiest bucket in the accepted commands,
	// HotKey its name.
	HotKeyShare float64 `json:"hot_key_share"`
	HotKey      string  `json:"hot_key"`
	// Timeline counts answers by interval, from the start of the warm-up.
	Timeline        []Point `json:"timeline"`
	IntervalSeconds float64 `json:"interval_seconds"`
	Checks          []Check `json:"checks,omitempty"`
	Audit           *Audit  `json:"audit"`

	hist *hdr.Histogram
}

// Point is one interval of a timeline.
type Point struct {
	// At is when it ends, in seconds from the start.
	At       float64 `json:"at_seconds"`
	Commands uint64  `json:"commands"`
	Refused  uint64  `json:"refused,omitempty"`
	Failed   uint64  `json:"failed,omitempty"`
}

// Check is one thing a workload promises.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
}

func checkf(name string, ok bool, format string, args ...any) Check {
	return Check{Name: name, OK: ok, Says: fmt.Sprintf(format, args...)}
}

// Counters are a target's, since it was opened.
type Counters struct {
	// Batches counts transactions by the number of their commands: key 8
	// holds those of 5 to 8. Nil where the target tells none.
	Batches   map[int]uint64
	Commands  uint64
	Conflicts uint64
	// NoConflicts: the target does not count them.
	NoConflicts bool
}

// Batches is a distribution of batch sizes.
type Batches struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_commands"`
	// Sizes are by their upper bound.
	Sizes []BatchSize `json:"sizes"`
}

// BatchSize counts batches of up to so many commands, more than the size
// before.
type BatchSize struct {
	UpTo  int    `json:"up_to"`
	Count uint64 `json:"count"`
}

// since is what was counted between two readings.
func (c Counters) since(before Counters) (*Batches, float64) {
	rate := -1.0
	if c.Batches == nil {
		return nil, rate
	}
	b := &Batches{}
	for _, size := range slices.Sorted(maps.Keys(c.Batches)) {
		if n := c.Batches[size] - before.Batches[size]; n > 0 {
			b.Sizes = append(b.Sizes, BatchSize{UpTo: size, Count: n})
			b.Count += n
		}
	}
	if b.Count == 0 {
		return nil, rate
	}
	b.Mean = float64(c.Commands-before.Commands) / float64(b.Count)
	if !c.NoConflicts {
		rate = float64(c.Conflicts-before.Conflicts) / float64(b.Count)
	}
	return b, rate
}

// VoidError is a run without figures: what was stored or answered is wrong.
type VoidError struct {
	Workload string   `json:"workload"`
	Target   string   `json:"target"`
	Faults   []string `json:"faults"`
	Checks   []Check  `json:"checks,omitempty"`
	Audit    *Audit   `json:"audit,omitempty"`
}

// Error names the faults.
func (e *VoidError) Error() string {
	return fmt.Sprintf("workload %s on %s is void, its figures do not count: %s", e.Workload, e.Target, strings.Join(e.Faults, "; "))
}

// errNothing says that a run has nothing to show.
var errNothing = errors.New("no command was answered in the counted time; is the run long enough")

// result sums up a round. It has no audit yet.
func (r *runner) result(rec *recorder, before, now Counters) (*Result, error) {
	secs := r.end.Sub(r.begin).Seconds()
	if rec.inTime == 0 || rec.tasks == 0 || secs <= 0 {
		return nil, errNothing
	}
	out := &Result{
		Config: r.cfg, Seconds: secs, Tasks: rec.tasks, Calls: rec.calls, Commands: rec.inTime,
		CommandsPerSecond: float64(rec.inTime) / secs, TasksPerSecond: float64(rec.tasksInTime) / secs, Outcomes: rec.counts,
		Late: float64(rec.late) / float64(rec.tasks), Latency: percentiles(rec.all),
		Operations: map[string]Percentiles{}, IntervalSeconds: r.tick.Seconds(), hist: rec.all,
	}
	for name, h := range rec.hists {
		if phase, ok := strings.CutPrefix(name, "phase:"); ok {
			if out.Phases == nil {
				out.Phases = map[string]Percentiles{}
			}
			out.Phases[phase] = percentiles(h)
			continue
		}
		out.Operations[name] = percentiles(h)
	}
	for i, t := range rec.ticks {
		if at := time.Duration(i+1) * r.tick; at <= r.end.Sub(r.start) {
			out.Timeline = append(out.Timeline, Point{At: at.Seconds(), Commands: t.commands, Refused: t.refused, Failed: t.failed})
		}
	}
	if p50 := out.Latency.P50; p50 > 0 {
		out.TailRatio = out.Latency.P99 / p50
	}
	if quiet := out.Phases["quiet"]; quiet.P99 > 0 {
		out.StormRatio = out.Phases["storm"].P99 / quiet.P99
	}
	out.Batches, out.ConflictRate = now.since(before)
	out.HotKey, out.HotKeyShare = rec.hottest()
	return out, nil
}

// hottest is the busiest bucket and its share of the accepted commands.
func (r *recorder) hottest() (name string, share float64) {
	if len(r.keys) == 0 {
		return "", 0
	}
	var all uint64
	for _, n := range r.keys {
		all += n
	}
	hot := slices.MaxFunc(slices.Collect(maps.Keys(r.keys)), func(a, b hotKey) int {
		return cmp.Or(cmp.Compare(r.keys[a], r.keys[b]), cmp.Compare(b.budget, a.budget), cmp.Compare(b.bucket, a.bucket))
	})
	return fmt.Sprintf("%s#%d", hot.budget, hot.bucket), float64(r.keys[hot]) / float64(all)
}
