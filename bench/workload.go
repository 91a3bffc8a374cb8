package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// tenant owns everything a run makes.
const tenant = "bench"

// currency of every budget of a run.
const currency = "BRL"

// holdTTL is how long a hold lasts that is not meant to lapse.
const holdTTL = time.Hour

// plenty is money that no run spends, in minor units.
const plenty = int64(1) << 50

// budgetSpec is a budget to make before the load.
type budgetSpec struct {
	id      ledger.BudgetID
	buckets int
	funded  int64 // minor units
	policy  ledger.Policy
}

// step is one call of a task: one command alone, or several in one request.
type step struct {
	op       string // the name its latency is reported under
	commands []ledger.Command
	// duplicate sends the call twice at once; lost drops its answer and sends
	// it again. Either way each command takes effect once.
	duplicate, lost bool
}

// task is what one arrival does: calls, one after the other. When one is
// refused, those after it are not sent.
type task []step

// workload makes tasks. Everything but expect and check is a pure function of
// the config and the round.
type workload interface {
	// budgets are made and funded before the load.
	budgets() []budgetSpec
	// task is the i-th, from 0. It is called by many callers at once.
	task(i uint64) task
	// tasks is how many there are, 0 for no end.
	tasks() uint64
	// expect reports whether a refusal belongs to the workload.
	expect(code ledger.Code) bool
	// check looks at what came out, after the load.
	check(ctx context.Context, t Target, tally *tally) ([]Check, error)
}

// preloader is a workload that stores something before the load.
type preloader interface {
	preload(ctx context.Context, t Target, progress func(done, of int)) error
}

// phased is a workload whose run falls into phases, each with figures of its
// own. phase is called with the time of an intended start.
type phased interface {
	phase(at time.Time) string
	// until is when the load ends.
	until() time.Time
}

// makers is the table of workloads.
var makers = []struct {
	name, help string
	make       func(Config, int) (workload, error)
}{
	{"hot", "one budget, one bucket: reserves", newHot},
	{"spread", "one budget of 16 buckets: reserve and commit", newSpread},
	{"zipf", "many budgets, few of them popular: reserves", newZipf},
	{"lifecycle", "reserve, then commit, release or lapse, then refunds; with duplicates and lost answers", newLifecycle},
	{"batch", "16 buckets: many reserves in one call", newBatch},
	{"exhaust", "the last 1 % of a budget, EXACT and STRICT", newExhaust},
	{"expiry-storm", "reserves while many holds lapse at once", newStorm},
	{"grown", "as spread, on a store with many reservations in it", newGrown},
	{"file", "the orders of a CSV file: reserve and commit", newFile},
}

// Workloads lists the names.
func Workloads() []string {
	var names []string
	for _, m := range makers {
		names = append(names, m.name)
	}
	return names
}

// WorkloadHelp says what a workload does.
func WorkloadHelp(name string) string {
	for _, m := range makers {
		if m.name == name {
			return m.help
		}
	}
	return ""
}

func newWorkload(cfg Config, round int) (workload, error) {
	i := slices.Index(Workloads(), cfg.Workload)
	if i < 0 {
		return nil, fmt.Errorf("workload %q is unknown", cfg.Workload)
	}
	return makers[i].make(cfg, round)
}

// plain is what the simple workloads share.
type plain struct {
	cfg   Config
	names names
	specs []budgetSpec
}

func newPlain(cfg Config, round, buckets int, policy ledger.Policy) plain {
	n := names{prefix: cfg.RunID + "-" + strconv.Itoa(round) + "-"}
	if cfg.Buckets > 0 {
		buckets = cfg.Buckets
	}
	return plain{cfg: cfg, names: n, specs: []budgetSpec{{id: n.budget("main"), buckets: buckets, funded: plenty, policy: policy}}}
}

func (p *plain) budgets() []budgetSpec     { return p.specs }
func (p *plain) tasks() uint64             { return 0 }
func (p *plain) expect(_ ledger.Code) bool { return false }

func (p *plain) check(context.Context, Target, *tally) ([]Check, error) { return nil, nil }

// rand is the source of the i-th task alone.
func (p *plain) rand(i uint64) *rand.Rand { return rand.New(rand.NewPCG(p.cfg.Seed, i)) }

// amount of an ordinary benefit, in minor units.
func amount(r *rand.Rand) int64 { return 100 + r.Int64N(4900) }

func (p *plain) reserve(b ledger.BudgetID, order string, minor int64, ttl time.Duration) ledger.Command {
	return ledger.Command{
		Op: ledger.OpReserve, Key: ledger.OrderKey{Tenant: tenant, Order: order, Benefit: benefit},
		Budget: b, Amount: minor, Currency: currency, TTL: ttl,
	}
}

func after(op ledger.Op, reserve ledger.Command) ledger.Command {
	return ledger.Command{Op: op, Key: reserve.Key, Budget: reserve.Budget}
}

// pair is reserve and commit, as one call or two.
func (p *plain) pair(r ledger.Command) task {
	c := after(ledger.OpCommit, r)
	if p.cfg.Apart {
		return task{{op: "reserve", commands: []ledger.Command{r}}, {op: "commit", commands: []ledger.Command{c}}}
	}
	return task{{op: "pair", commands: []ledger.Command{r, c}}}
}

// benefit is the benefit key of every order of a run.
const benefit = "coupon:BENCH"

// names makes the names of one round.
type names struct{ prefix string }

func (n names) budget(s string) ledger.BudgetID {
	return ledger.BudgetID{Tenant: tenant, Key: n.prefix + s}
}

// order is the name of the i-th order: short, and of one length.
func (n names) order(i uint64) string {
	b := make([]byte, 0, len(n.prefix)+10)
	b = append(b, n.prefix...)
	for d := uint64(1_000_000_000); d > 0; d /= 10 {
		b = append(b, '0'+byte(i/d%10))
	}
	return string(b)
}
