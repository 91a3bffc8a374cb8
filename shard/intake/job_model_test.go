package intake

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
)

// debtCap is what the model's wallet may owe.
const debtCap = 20

// naiveWallet is what the ledger should have of a wallet and its jobs, written
// as plainly as can be.
type naiveWallet struct {
	granted int64
	jobs    map[string]*naiveJob
}

type naiveJob struct {
	state     string // "", held, charged, refunded, released, rejected
	cost      int64
	delivered bool
	refunded  bool // ever
	facts     []*naiveFact
}

func (w *naiveWallet) totals() ledger.Balances {
	t := ledger.Balances{Funded: w.granted}
	for _, j := range w.jobs {
		switch j.state {
		case "held":
			t.Reserved += j.cost
		case "refunded":
			t.Reversed += j.cost
			t.Committed += j.cost
		case "charged":
			t.Committed += j.cost
		}
	}
	t.Available = t.Funded - t.Reserved - t.Committed + t.Reversed
	return t
}

// deliver is the success of a job; false where it cannot be taken.
func (w *naiveWallet) deliver(j *naiveJob) bool {
	switch j.state {
	case "charged":
	case "refunded", "released":
		if w.totals().Available+debtCap < j.cost {
			return false
		}
	default:
		return false
	}
	j.state, j.delivered = "charged", true
	return true
}

// refund is a refund that somebody asks for.
func (j *naiveJob) refund() bool {
	if j.state == "charged" && !j.delivered {
		j.state, j.refunded = "refunded", true
	}
	return j.refunded
}

func (j *naiveJob) succeeded() bool {
	return slices.ContainsFunc(j.facts, func(f *naiveFact) bool { return f.Kind == fact.JobSucceeded && f.state != fact.Resolved })
}

// try gives the state that a fact comes to.
func (w *naiveWallet) try(j *naiveJob, f *naiveFact) fact.State {
	if f.Kind == fact.JobSucceeded {
		switch {
		case j.delivered, w.deliver(j):
			return fact.Applied
		case j.state == "rejected":
			return fact.Exception
		}
		return fact.Pending
	}
	switch {
	case j.state == "", j.state == "held" && j.succeeded():
		return fact.Pending
	case j.state == "held":
		j.state = "released"
	default:
		j.refund()
	}
	return fact.Applied
}

func (w *naiveWallet) settle(j *naiveJob, now time.Time) {
	slices.SortStableFunc(j.facts, func(a, b *naiveFact) int {
		first := func(f *naiveFact) int { return map[bool]int{true: 0, false: 1}[f.Kind == fact.JobSucceeded] }
		return cmp.Or(first(a)-first(b), a.received.Compare(b.received), strings.Compare(a.Event, b.Event))
	})
	for _, f := range j.facts {
		if !f.state.Open() {
			continue
		}
		switch st := w.try(j, f); {
		case st != fact.Pending:
			f.state = st
		case !now.Before(f.received.Add(24 * time.Hour)):
			f.state = fact.Exception
		}
	}
}

// Random orders of jobs' facts, with the callers' own commands, a wallet that
// runs dry and the clock in between: after every step the facts and the wallet
// are what a naive model says, and at the end the audit passes.
func TestJobFactsFollowModel(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		b := open(rt, DefaultConfig())
		defer b.close()
		b.wallet(40, debtCap)
		w := &naiveWallet{granted: 40, jobs: map[string]*naiveJob{"a": {}, "b": {}, "c": {}}}
		for i := range rapid.IntRange(20, 60).Draw(rt, "steps") {
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "job")
			w.step(rt, b, id, i)
			w.compare(rt, b, seen)
		}
		b.audit()
	})
	t.Logf("seen: %v", seen)
	for _, must := range []string{"delivered", "refunded", "released", "rejected", "EXCEPTION"} {
		if seen[must] == 0 {
			t.Errorf("the model never saw %s: %v", must, seen)
		}
	}
}

// step does one thing to a job, in both worlds.
func (w *naiveWallet) step(rt *rapid.T, b *bench, id string, n int) {
	ctx := context.Background()
	j := w.jobs[id]
	command := func(op ledger.Op, amount int64, legal bool) {
		if _, err := b.exec.Do(ctx, job(op, id, amount)); (err == nil) != legal {
			rt.Fatalf("%s of job %s in state %q (delivered %v): %v", op, id, j.state, j.delivered, err)
		}
	}
	cost := rapid.Int64Range(1, 4).Draw(rt, "cost") * 10
	switch what := rapid.SampledFrom([]string{"fact", "fact", "fact", "charge", "hold", "settle", "release", "expire", "refund", "reclaim", "grant", "clock", "deadline", "resolve"}).Draw(rt, "step"); what {
	case "fact":
		k := rapid.SampledFrom([]fact.Kind{fact.JobSucceeded, fact.JobFailed}).Draw(rt, "kind")
		f := says(k, id, fmt.Sprint(n)).Normalize()
		got := b.submit(f, f) // at least once
		if got[0].Replayed || !got[1].Replayed {
			rt.Fatalf("a new fact, told twice: %v %v", got[0].Replayed, got[1].Replayed)
		}
		j.facts = append(j.facts, &naiveFact{Fact: f, state: fact.Pending, received: got[0].Received})
	case "charge", "hold":
		if j.state != "" {
			return
		}
		legal := w.totals().Available >= cost
		op, state := ledger.OpCharge, "charged"
		if what == "hold" {
			op, state = ledger.OpHold, "held"
		}
		command(op, cost, legal)
		if j.cost, j.state = cost, state; !legal {
			j.state = "rejected"
		}
	case "settle":
		if j.state == "held" {
			j.cost = min(j.cost, cost)
			command(ledger.OpSettle, j.cost, true)
			j.state, j.delivered = "charged", true
		}
	case "release", "expire":
		if j.state == "held" {
			op := ledger.OpRelease
			if what == "expire" {
				op = ledger.OpExpire
				b.advance(16 * time.Minute)
			}
			command(op, 0, true)
			j.state = "released"
		}
	case "refund":
		command(ledger.OpRefund, 0, j.refund())
	case "reclaim":
		command(ledger.OpReclaimCharge, 0, w.deliver(j))
	case "grant":
		w.granted += cost
		b.grant(fmt.Sprint("g", n), cost)
	case "clock":
		b.advance(time.Duration(rapid.IntRange(1, 600).Draw(rt, "seconds")) * time.Second)
	case "deadline":
		b.advance(24 * time.Hour)
	case "resolve":
		for _, f := range j.facts {
			_, _, err := b.Resolve(ctx, f.ID, "by hand")
			if (err == nil) != (f.state == fact.Exception || f.state == fact.Resolved) {
				rt.Fatalf("resolve of a fact that is %s: %v", f.state, err)
			}
			if err == nil {
				f.state = fact.Resolved
			}
		}
	}
	if err := b.Settle(ctx, "t", id); err != nil {
		rt.Fatalf("settle: %v", err)
	}
	w.settle(j, b.now())
}

func (w *naiveWallet) compare(rt *rapid.T, b *bench, seen map[string]int) {
	for id, j := range w.jobs {
		seen[j.state]++
		if j.delivered {
			seen["delivered"]++
			if j.state != "charged" {
				rt.Fatalf("job %s is delivered and %s", id, j.state)
			}
		}
		view, err := b.st.OrderFacts(context.Background(), "t", id)
		if err != nil {
			rt.Fatalf("%v", err)
		}
		states := map[string]fact.State{}
		for _, row := range view.Facts {
			states[row.Event] = row.State
			seen[row.State.String()]++
			seen[string(row.Code)]++
		}
		if len(states) != len(j.facts) {
			rt.Fatalf("job %s has %d facts, the model %d", id, len(states), len(j.facts))
		}
		for _, f := range j.facts {
			if states[f.Event] != f.state {
				rt.Fatalf("job %s, %s is %s, the model says %s; the job is %q, delivered %v", id, f.Event, states[f.Event], f.state, j.state, j.delivered)
			}
		}
	}
	got, want := b.totalsOf(acme), w.totals()
	if got.Available < 0 {
		seen["debt"]++
	}
	if got != want {
		rt.Fatalf("the wallet is %+v, the model says %+v", got, want)
	}
}
