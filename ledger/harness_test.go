package ledger

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is one budget with one bucket and one reservation row, and applies
// decisions as the store does: what the table tests of Decide run on.
type world struct {
	t      testing.TB
	now    time.Time
	budget Budget
	bucket Bucket
	sink   Bucket
	row    Reservation
	// whole is what the whole budget could give beyond the bucket.
	whole int64
	// entries are all entries made, in order.
	entries []Entry
	cases   []Case
	// alloc and splits are those of the last attempt.
	alloc  *Allocation
	splits map[string]*Split
}

func newWorld(t testing.TB) *world {
	id := BudgetID{Tenant: "t1", Key: "spring"}
	return &world{
		t: t, now: start,
		budget: Budget{
			ID: id, Currency: "BRL", State: BudgetOpen, Epoch: Epoch{Number: 1, Buckets: 1},
			Policy: Policy{Exhaustion: Strict, MaxLifetime: time.Hour},
		},
		bucket: Bucket{ID: BucketID{Budget: id}, Balances: Balances{Funded: 1000, Available: 1000}, Seq: 2, Time: start},
		sink:   Bucket{ID: BucketID{Budget: id, Index: Unallocated}},
		row:    Reservation{Key: OrderKey{Tenant: "t1", Order: "o", Benefit: "coupon"}},
	}
}

// do decides a command and applies the decision.
func (w *world) do(c Command) Decision {
	w.t.Helper()
	c.Key = w.row.Key
	if c.Op == OpReserve {
		c.Budget = w.budget.ID
		if c.Currency == "" {
			c.Currency = "BRL"
		}
		if c.TTL == 0 {
			c.TTL = 10 * time.Minute
		}
	}
	c = c.Normalize()
	if r := c.Validate(); r != nil {
		w.t.Fatalf("the test's own command is invalid: %v", r)
	}
	v := &View{Now: w.now, Budget: &w.budget, Bucket: &w.bucket, Row: &w.row}
	d := Decide(v, &c)
	if d.Need == NeedAllocation {
		v.Allocation, v.Split = w.alloc, w.splits[c.ID]
		d = Decide(v, &c)
	}
	if d.Need == NeedPull {
		take := min(d.Short, w.whole)
		if take == d.Short {
			w.whole -= take
			w.bucket.Available += take
			w.bucket.Funded += take
		}
		v.Pulled, v.TotalAvailable = true, w.bucket.Available+w.whole
		d = Decide(v, &c)
	}
	if d.Need == NeedSink {
		v.Sink = &w.sink
		d = Decide(v, &c)
	}
	if d.Need != NeedNothing {
		w.t.Fatalf("%s still needs %d", c.Op, d.Need)
	}
	w.apply(&d)
	return d
}

func (w *world) apply(d *Decision) {
	w.t.Helper()
	for i, en := range []*Entry{d.Entry, d.SinkEntry} {
		if en == nil {
			continue
		}
		b := []*Bucket{&w.bucket, &w.sink}[i]
		w.row.EventSeq++
		if en.Seq != b.Seq+1 || en.EventSeq != w.row.EventSeq {
			w.t.Errorf("%s has number %d after %d and event %d, want %d", en.Type, en.Seq, b.Seq, en.EventSeq, w.row.EventSeq)
		}
		after, ok := b.Balances.Add(en.Delta)
		if !ok || after != en.After || after.Check(w.budget.Policy.Floor()) != nil {
			w.t.Errorf("%s leaves %+v after %+v and %+v: %v", en.Type, en.After, b.Balances, en.Delta, after.Check(w.budget.Policy.Floor()))
		}
		b.Balances, b.Seq = en.After, en.Seq
		w.entries = append(w.entries, *en)
	}
	if d.Attempt != nil {
		if a := w.row.Attempt(d.Attempt.Number); a != nil {
			*a = *d.Attempt
		} else {
			w.row.Attempts = append(w.row.Attempts, *d.Attempt)
		}
	}
	if d.Allocation != nil {
		w.alloc = d.Allocation
	}
	if d.Split != nil {
		if w.splits == nil {
			w.splits = map[string]*Split{}
		}
		w.splits[d.Entry.Cause] = d.Split
	}
	if d.Case != nil {
		w.cases = append(w.cases, *d.Case)
	}
}

// ok runs commands that must be accepted for the first time.
func (w *world) ok(cmds ...Command) Decision {
	w.t.Helper()
	var d Decision
	for _, c := range cmds {
		d = w.do(c)
		if d.Rejection != nil {
			w.t.Fatalf("%s: %v", c.Op, d.Rejection)
		}
		if d.Result.Replayed {
			w.t.Fatalf("%s is replayed", c.Op)
		}
	}
	return d
}

// refused runs a command that must be refused, and that changes nothing but
// where the refusal is recorded.
func (w *world) refused(code Code, c Command) *Rejection {
	w.t.Helper()
	before := len(w.entries)
	d := w.do(c)
	if d.Rejection == nil || d.Rejection.Code != code {
		w.t.Fatalf("%s gives %+v, %v; want %s", c.Op, d.Result.Outcome, d.Rejection, code)
	}
	if len(w.entries) != before {
		w.t.Errorf("a refused %s wrote an entry", c.Op)
	}
	if d.Attempt != nil && !d.Rejection.Code.Info().Recorded && d.Case == nil {
		w.t.Errorf("a refused %s changed the row", c.Op)
	}
	return d.Rejection
}

func (w *world) attempt() *Attempt { return &w.row.Attempts[len(w.row.Attempts)-1] }

// bring drives attempt 1 into a state, from nothing.
func bring(t testing.TB, s State) *world {
	w := newWorld(t)
	paths := map[State][]Command{
		StateNone:           {{Op: OpResolve, Target: OpCommit, ID: "other"}},
		StateReserved:       {{Op: OpReserve, Amount: 100}},
		StateCommitted:      {{Op: OpReserve, Amount: 100}, {Op: OpCommit, ID: "c0"}},
		StatePartlyReversed: {{Op: OpReserve, Amount: 100}, {Op: OpCommit, ID: "c0"}, {Op: OpReverse, ID: "r0", Amount: 40}},
		StateReversed:       {{Op: OpReserve, Amount: 100}, {Op: OpCommit, ID: "c0"}, {Op: OpReverse, ID: "r0", Amount: 100}},
		StateReleased:       {{Op: OpReserve, Amount: 100}, {Op: OpRelease, ID: "l0"}},
		StateExpired:        {{Op: OpReserve, Amount: 100}},
		StateRejected:       {},
		StateCancelled:      {{Op: OpRelease, ID: "l0"}},
		StateVoid:           {{Op: OpResolve, Target: OpReserve}},
	}
	w.ok(paths[s]...)
	switch s {
	case StateExpired:
		w.now = w.now.Add(10 * time.Minute)
		w.ok(Command{Op: OpExpire})
	case StateRejected:
		w.refused(InsufficientBudget, Command{Op: OpReserve, Amount: 1001})
	}
	if got := w.attempt().State; got != s {
		t.Fatalf("the way to %s leads to %s", s, got)
	}
	return w
}

func wantFields(t testing.TB, r *Rejection, want ...string) {
	t.Helper()
	if r == nil || r.Code != IdempotencyConflict || !slices.Equal(r.Fields, want) {
		t.Errorf("the refusal is %v, want a conflict of %v", r, want)
	}
}
