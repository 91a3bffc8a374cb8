package bench

import (
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/coffer-ledger/coffer/ledger"
)

// Histograms hold microseconds up to ten minutes with three digits.
const (
	histLowest  = 1
	histHighest = int64(10 * time.Minute / time.Microsecond)
	histDigits  = 3
)

// recorders is over how many recorders callers are spread, so that they do
// not wait for each other.
const recorders = 16

func newHist() *hdr.Histogram { return hdr.New(histLowest, histHighest, histDigits) }

// record adds a duration, at most the highest a histogram holds.
func record(h *hdr.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d/time.Microsecond), histLowest), histHighest)) // in range
}

// recorder collects what some of the callers saw. It is safe for concurrent
// use.
type recorder struct {
	mu     sync.Mutex
	hists  map[string]*hdr.Histogram // by operation, and "phase:" and the phase
	all    *hdr.Histogram
	counts map[string]uint64 // of commands, by outcome
	calls  uint64
	tasks  uint64
	// tasksInTime and inTime are the tasks finished and the commands answered
	// within the counted window.
	tasksInTime, inTime uint64
	late                uint64 // arrivals that found no free caller
	ticks               []tick
	tally               tally
	keys                map[hotKey]uint64
	faults              []string
}

// hotKey is a bucket, the unit of contention.
type hotKey struct {
	budget string
	bucket uint16
}

// tick is one interval of the timeline.
type tick struct{ commands, refused, failed uint64 }

// tally is what callers were told, by budget.
type tally struct {
	budgets map[ledger.BudgetID]*budgetTally
}

// budgetTally sums the answers to reserves on one budget, in minor units.
type budgetTally struct {
	taken, refused         uint64
	accepted, leastRefused int64
	// falsely counts refusals that name an amount that was available.
	falsely uint64
}

func (t *tally) budget(id ledger.BudgetID) *budgetTally {
	if t.budgets == nil {
		t.budgets = map[ledger.BudgetID]*budgetTally{}
	}
	b := t.budgets[id]
	if b == nil {
		b = &budgetTally{}
		t.budgets[id] = b
	}
	return b
}

func (t *tally) add(c *ledger.Command, r *Reply) {
	if c.Op != ledger.OpReserve || r.Replayed {
		return
	}
	b := t.budget(c.Budget)
	switch r.Code {
	case "":
		b.taken++
		b.accepted += c.Amount
	case ledger.InsufficientBudget:
		b.refused++
		if b.leastRefused == 0 || c.Amount < b.leastRefused {
			b.leastRefused = c.Amount
		}
		if r.Requested <= r.Available {
			b.falsely++
		}
	}
}

func (t *tally) merge(o *tally) {
	for id, from := range o.budgets {
		b := t.budget(id)
		b.taken += from.taken
		b.refused += from.refused
		b.accepted += from.accepted
		b.falsely += from.falsely
		if b.leastRefused == 0 || (from.leastRefused != 0 && from.leastRefused < b.leastRefused) {
			b.leastRefused = from.leastRefused
		}
	}
}

func newRecorder() *recorder {
	return &recorder{hists: map[string]*hdr.Histogram{}, all: newHist(), counts: map[string]uint64{}, keys: map[hotKey]uint64{}}
}

func (r *recorder) hist(name string) *hdr.Histogram {
	h := r.hists[name]
	if h == nil {
		h = newHist()
		r.hists[name] = h
	}
	return h
}

// maxFaults is how many faults a recorder keeps in words.
const maxFaults = 10

func (r *recorder) fault(text string) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, text)
	}
}

// merge adds what another recorder holds.
func (r *recorder) merge(o *recorder) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, h := range o.hists {
		r.hist(name).Merge(h)
	}
	r.all.Merge(o.all)
	for name, n := range o.counts {
		r.counts[name] += n
	}
	for k, n := range o.keys {
		r.keys[k] += n
	}
	r.calls += o.calls
	r.tasks += o.tasks
	r.late += o.late
	r.inTime += o.inTime
	r.tasksInTime += o.tasksInTime
	for len(r.ticks) < len(o.ticks) {
		r.ticks = append(r.ticks, tick{})
	}
	for i, t := range o.ticks {
		r.ticks[i].commands += t.commands
		r.ticks[i].refused += t.refused
		r.ticks[i].failed += t.failed
	}
	r.tally.merge(&o.tally)
	for _, f := range o.faults {
		r.fault(f)
	}
}

// Percentiles are of one histogram, in seconds.
type Percentiles struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P90   float64 `json:"p90_seconds"`
	P99   float64 `json:"p99_seconds"`
	P999  float64 `json:"p999_seconds"`
	Max   float64 `json:"max_seconds"`
}

func percentiles(h *hdr.Histogram) Percentiles {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
	return Percentiles{
		Count: uint64(h.TotalCount()), Mean: h.Mean() / 1e6, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e6,
	}
}
