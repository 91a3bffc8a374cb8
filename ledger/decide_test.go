package ledger

import (
	"fmt"
	"math"
	"testing"
	"time"
)

var allStates = []State{StateNone, StateReserved, StateCommitted, StatePartlyReversed, StateReversed, StateReleased, StateExpired, StateRejected, StateCancelled, StateVoid}

// TestEveryTransition is the table of commands: for each command and each
// state, what it leads to or why it is refused. The commands come with fresh
// ids, for 100 reserved (and all committed, 40 refunded where partly).
func TestEveryTransition(t *testing.T) {
	type row struct {
		cmd   Command
		entry EntryType
		legal map[State]State // from → to
		// refusal is the code elsewhere, but for those in other.
		refusal Code
		other   map[State]Code
	}
	notThere := map[State]Code{StateNone: ReservationNotFound, StateVoid: ReservationNotFound}
	for _, tc := range []row{
		{
			cmd: Command{Op: OpReserve, Amount: 100}, entry: EntryReserve, legal: map[State]State{StateNone: StateReserved}, refusal: "",
			other: map[State]Code{StateCancelled: CancelledBeforeReserve, StateVoid: Voided, StateRejected: IdempotencyConflict},
		},
		{
			cmd: Command{Op: OpCommit, ID: "c1"}, entry: EntryCommit, legal: map[State]State{StateReserved: StateCommitted}, refusal: IllegalState,
			other: map[State]Code{StateNone: ReservationNotFound, StateVoid: ReservationNotFound, StateExpired: LateCommitRejected},
		},
		{
			cmd: Command{Op: OpCommit, ID: "c1", Amount: 30, Partial: true}, entry: EntryCommit, legal: map[State]State{StateReserved: StateReserved}, refusal: IllegalState,
			other: map[State]Code{StateNone: ReservationNotFound, StateVoid: ReservationNotFound, StateExpired: LateCommitRejected},
		},
		{cmd: Command{Op: OpExtend, ID: "e1", TTL: time.Minute}, entry: EntryExtend, legal: map[State]State{StateReserved: StateReserved}, refusal: IllegalState, other: notThere},
		{
			cmd: Command{Op: OpRelease, ID: "l1"}, entry: EntryRelease, legal: map[State]State{StateReserved: StateReleased}, refusal: IllegalState,
			other: map[State]Code{StateNone: ""},
		},
		{cmd: Command{Op: OpReclaim, ID: "m1"}, entry: EntryReclaim, legal: map[State]State{StateReleased: StateCommitted, StateExpired: StateCommitted}, refusal: IllegalState, other: notThere},
		{
			cmd: Command{Op: OpReverse, ID: "r1", Amount: 10}, entry: EntryReverse,
			legal: map[State]State{StateCommitted: StatePartlyReversed, StatePartlyReversed: StatePartlyReversed}, refusal: IllegalState, other: notThere,
		},
		{
			cmd: Command{Op: OpReverse, ID: "r1", Amount: 60}, entry: EntryReverse,
			legal: map[State]State{StateCommitted: StatePartlyReversed, StatePartlyReversed: StateReversed}, refusal: IllegalState, other: notThere,
		},
		{
			cmd: Command{Op: OpReinstate, ID: "r0"}, entry: EntryReinstate,
			legal: map[State]State{StatePartlyReversed: StateCommitted, StateReversed: StateCommitted}, refusal: RefundNotFound, other: notThere,
		},
	} {
		for _, from := range allStates {
			t.Run(fmt.Sprint(tc.cmd.Op, tc.cmd.Amount, "/", from), func(t *testing.T) {
				w := bring(t, from)
				before := w.bucket.Balances
				want, legal := tc.legal[from]
				code, special := tc.other[from]
				if !special {
					code = tc.refusal
				}
				switch {
				case legal:
					d := w.ok(tc.cmd)
					if w.attempt().State != want || d.Entry.Type != tc.entry || d.Result.Outcome.State != want || d.Result.Outcome.Seq != d.Entry.Seq {
						t.Errorf("leads to %s with %+v, want %s and %s", w.attempt().State, d.Entry, want, tc.entry)
					}
				case code == "" && tc.cmd.Op == OpReserve: // it has a reserve already: the same answer
					if d := w.do(tc.cmd); d.Rejection != nil || !d.Result.Replayed || d.Entry != nil || d.Attempt != nil {
						t.Errorf("again: %+v, %v", d.Result, d.Rejection)
					}
				case code == "": // the tombstone
					if d := w.ok(tc.cmd); w.attempt().State != StateCancelled || d.Entry != nil {
						t.Errorf("leads to %s", w.attempt().State)
					}
				default:
					r := w.refused(code, tc.cmd)
					if code == IllegalState && (r.State != from.String() || r.Attempt != 1) {
						t.Errorf("the refusal names state %s of attempt %d", r.State, r.Attempt)
					}
					if w.attempt().State != from || w.bucket.Balances != before {
						t.Error("the refusal changed something")
					}
				}
			})
		}
	}
}

// Expire is legal from RESERVED only, and only when it is due.
func TestExpire(t *testing.T) {
	for _, from := range allStates {
		w := bring(t, from)
		w.now = w.now.Add(time.Hour)
		c := Command{Op: OpExpire}
		switch from {
		case StateReserved:
			w.now = start.Add(10*time.Minute - time.Millisecond)
			if r := w.refused(NotDue, c); r.RetryAfter != time.Millisecond {
				t.Errorf("too early by %s", r.RetryAfter)
			}
			w.now = start.Add(10 * time.Minute)
			w.ok(c)
			if a := w.attempt(); a.State != StateExpired || a.Leg.Lapsed != 100 || a.Leg.Held != 0 || w.bucket.Available != 1000 {
				t.Errorf("%+v", a)
			}
		case StateExpired:
			if d := w.do(c); d.Rejection != nil || !d.Result.Replayed {
				t.Errorf("expire again: %+v, %v", d.Result, d.Rejection)
			}
		case StateNone, StateVoid:
			w.refused(ReservationNotFound, c)
		default:
			w.refused(IllegalState, c)
		}
	}
}

func TestAmountsOfALife(t *testing.T) {
	w := newWorld(t)
	want := func(b Balances) {
		t.Helper()
		if w.bucket.Balances != b {
			t.Errorf("the bucket has %+v, want %+v", w.bucket.Balances, b)
		}
	}
	w.ok(Command{Op: OpReserve, Amount: 100})
	want(Balances{Funded: 1000, Available: 900, Reserved: 100})
	w.ok(Command{Op: OpCommit, ID: "c1", Amount: 30, Partial: true})
	want(Balances{Funded: 1000, Available: 900, Reserved: 70, Committed: 30})
	w.ok(Command{Op: OpCommit, ID: "c2", Amount: 50})
	want(Balances{Funded: 1000, Available: 920, Committed: 80})
	w.ok(Command{Op: OpReverse, ID: "r1", Amount: 5})
	if d := w.entries[len(w.entries)-1]; d.RefersTo != w.attempt().CommitSeq || d.RefersTo != 5 || d.Cause != "r1" {
		t.Errorf("the refund refers to entry %d (cause %s), want the last commit 5", d.RefersTo, d.Cause)
	}
	w.ok(Command{Op: OpReverse, ID: "r2", Amount: 75})
	want(Balances{Funded: 1000, Available: 1000, Committed: 80, Reversed: 80})
	d := w.ok(Command{Op: OpReinstate, ID: "r2"})
	want(Balances{Funded: 1000, Available: 925, Committed: 80, Reversed: 5})
	if d.Entry.RefersTo != 7 || d.Result.Outcome.Amount != 75 || w.attempt().State != StatePartlyReversed {
		t.Errorf("%+v, %s", d.Entry, w.attempt().State)
	}
	if r := w.refused(RefundExceedsCommit, Command{Op: OpReverse, ID: "r3", Amount: 76}); r.Value != "76" || r.Limit != "75" || r.Available != 75 || r.Requested != 76 {
		t.Errorf("%+v", r)
	}
}

// Release or expiry after a partial commit keeps what was committed.
func TestPartialCommitThenEnd(t *testing.T) {
	for _, c := range []Command{{Op: OpRelease}, {Op: OpExpire}} {
		w := newWorld(t)
		w.ok(Command{Op: OpReserve, Amount: 100}, Command{Op: OpCommit, ID: "c", Amount: 30, Partial: true})
		w.now = w.now.Add(10 * time.Minute)
		d := w.ok(c)
		if a := w.attempt(); a.State != StateCommitted || a.Leg.Committed != 30 || a.Leg.Held != 0 || d.Result.Outcome.Amount != 70 {
			t.Errorf("%s leads to %+v", c.Op, a)
		}
		// What expired can still be committed late; what was released cannot.
		w.budget.Policy.LateCommit = LateReclaim
		if c.Op == OpRelease {
			w.refused(IllegalState, Command{Op: OpCommit, ID: "late"})
			continue
		}
		if r := w.refused(OverCommitRefused, Command{Op: OpCommit, ID: "late", Amount: 71}); r.Limit != "70" {
			t.Errorf("limit %s", r.Limit)
		}
		w.ok(Command{Op: OpCommit, ID: "late", Amount: 20, Partial: true}, Command{Op: OpCommit, ID: "later"})
		if a := w.attempt(); a.Leg.Committed != 100 || a.Leg.Lapsed != 0 || w.bucket.Balances != (Balances{Funded: 1000, Available: 900, Committed: 100}) {
			t.Errorf("late commits lead to %+v, %+v", a.Leg, w.bucket.Balances)
		}
		w.refused(IllegalState, Command{Op: OpCommit, ID: "latest"})
	}
}

func TestLateCommit(t *testing.T) {
	c := Command{Op: OpCommit, ID: "p"}
	w := bring(t, StateExpired)
	if r := w.refused(LateCommitRejected, c); r.State != "EXPIRED" || r.Attempt != 1 || r.Message == "" {
		t.Errorf("REJECT: %+v", r)
	}
	w.budget.Policy.LateCommit = LateCase
	for range 2 { // the second opens no second case
		w.refused(LateCommitCase, c)
	}
	if len(w.cases) != 1 || w.cases[0] != (Case{Key: w.row.Key, Attempt: 1, Budget: w.budget.ID, Amount: 100, Opened: w.now}) || !w.attempt().CaseOpened {
		t.Errorf("CASE: %+v", w.cases)
	}
	w.budget.Policy.LateCommit = LateReclaim
	d := w.ok(c)
	if d.Entry.Type != EntryReclaim || !d.Result.Outcome.Late || d.Entry.Cause != "late_commit" || w.bucket.Balances != (Balances{Funded: 1000, Available: 900, Committed: 100}) {
		t.Errorf("RECLAIM: %+v", d.Entry)
	}
	if again := w.do(c); !again.Result.Replayed || again.Result.Outcome != d.Result.Outcome {
		t.Errorf("again: %+v", again.Result)
	}
	// It fits or it is refused.
	w = bring(t, StateExpired)
	w.budget.Policy.LateCommit = LateReclaim
	w.bucket.Balances = Balances{Funded: 99, Available: 99}
	if r := w.refused(InsufficientBudget, c); r.Requested != 100 || r.Available != 99 {
		t.Errorf("%+v", r)
	}
	// A commit before the scanner came wins over the clock.
	w = bring(t, StateReserved)
	w.now = w.now.Add(time.Hour)
	w.ok(c)
}

func TestOverCommit(t *testing.T) {
	c := func(n int64) Command { return Command{Op: OpCommit, ID: "p", Amount: n} }
	w := bring(t, StateReserved)
	if r := w.refused(OverCommitRefused, c(101)); r.Value != "101" || r.Limit != "100" || r.State != "RESERVED" {
		t.Errorf("%+v", r)
	}
	w.budget.Policy.OverCommit = OverCommit{Percent: 10, Amount: 7}
	if r := w.refused(OverCommitRefused, c(111)); r.Limit != "110" {
		t.Errorf("%+v", r)
	}
	d := w.ok(c(110))
	if w.bucket.Balances != (Balances{Funded: 1000, Available: 890, Committed: 110}) || d.Result.Outcome.Amount != 110 {
		t.Errorf("%+v", w.bucket.Balances)
	}
	// After a part was committed, over and above the rest counts.
	w = bring(t, StateReserved)
	w.budget.Policy.OverCommit = OverCommit{Amount: 25}
	w.ok(Command{Op: OpCommit, ID: "a", Amount: 60, Partial: true})
	w.refused(OverCommitRefused, c(66))
	w.ok(Command{Op: OpCommit, ID: "b", Amount: 65, Partial: true})
	if a := w.attempt(); a.State != StateCommitted || a.Leg.Committed != 125 {
		t.Errorf("%+v", a)
	}
	// The excess must fit the bucket.
	w = bring(t, StateReserved)
	w.budget.Policy.OverCommit = OverCommit{Amount: math.MaxInt64}
	if r := w.refused(InsufficientBudget, c(1001)); r.Requested != 901 || r.Available != 900 {
		t.Errorf("%+v", r)
	}
	for _, l := range []struct {
		o              OverCommit
		reserved, want int64
	}{
		{OverCommit{}, 100, 0},
		{OverCommit{Percent: 10}, 99, 9},
		{OverCommit{Percent: 10, Amount: 50}, 100, 50},
		{OverCommit{Percent: 33}, 1_000_000_007, 330_000_002},
		{OverCommit{Percent: 1000}, math.MaxInt64, math.MaxInt64},
		{OverCommit{Percent: 100}, math.MaxInt64, math.MaxInt64},
		{OverCommit{Percent: 50}, math.MaxInt64, math.MaxInt64 / 2},
	} {
		if got := l.o.Limit(l.reserved); got != l.want {
			t.Errorf("%+v of %d allows %d more, want %d", l.o, l.reserved, got, l.want)
		}
	}
}

func TestExhaustion(t *testing.T) {
	w := newWorld(t)
	w.whole = 500
	if r := w.refused(InsufficientBudget, Command{Op: OpReserve, Amount: 1001}); r.Available != 1000 || r.Requested != 1001 || r.Field != "amount_minor" || r.Limit != "1000" {
		t.Errorf("STRICT: %+v", r)
	}
	if a := w.attempt(); a.State != StateRejected || a.Receipts[0].Rejection != InsufficientBudget || a.Receipts[0].Requested != 1001 || a.Receipts[0].Available != 1000 {
		t.Errorf("the record: %+v", a)
	}
	w.budget.Policy.Exhaustion = Exact
	if r := w.refused(InsufficientBudget, Command{Op: OpReserve, Amount: 1501, Attempt: 2}); r.Available != 1500 {
		t.Errorf("EXACT: %+v", r)
	}
	w.ok(Command{Op: OpReserve, Amount: 1500, Attempt: 3})
	if w.bucket.Balances != (Balances{Funded: 1500, Reserved: 1500}) {
		t.Errorf("%+v", w.bucket.Balances)
	}
	// The recorded refusal stays, whatever there is now.
	w.bucket.Funded, w.bucket.Available = 3500, 2000
	if r := w.refused(InsufficientBudget, Command{Op: OpReserve, Amount: 1001}); !r.Replayed || r.Available != 1000 || r.Requested != 1001 || r.State != "REJECTED" {
		t.Errorf("again: %+v", r)
	}
}

func TestReversalSinkOfAClosedBudget(t *testing.T) {
	w := bring(t, StateCommitted)
	w.budget.State = BudgetClosed
	w.ok(Command{Op: OpReverse, ID: "r1", Amount: 40})
	if w.bucket.Balances != (Balances{Funded: 960, Available: 900, Committed: 100, Reversed: 40}) || w.sink.Balances != (Balances{Funded: 40, Available: 40}) {
		t.Errorf("after the refund: %+v, sink %+v", w.bucket.Balances, w.sink.Balances)
	}
	rev, in := w.entries[len(w.entries)-2], w.entries[len(w.entries)-1]
	if rev.Type != EntryReverse || in.Type != EntryMoveIn || *rev.Peer != w.sink.ID || *in.Peer != w.bucket.ID || in.Order != "o" || in.Cause != "r1" {
		t.Errorf("the entries: %+v, %+v", rev, in)
	}
	if rc := w.attempt().receipt(OpReverse, "r1"); rc.Sink == nil || *rc.Sink != w.sink.ID {
		t.Errorf("the receipt: %+v", rc)
	}
	w.sink.Balances = Balances{Funded: 39, Available: 39}
	if r := w.refused(InsufficientBudget, Command{Op: OpReinstate, ID: "r1"}); r.Requested != 40 || r.Available != 39 || r.Field != "refund_id" {
		t.Errorf("%+v", r)
	}
	w.sink.Balances = Balances{Funded: 40, Available: 40}
	w.ok(Command{Op: OpReinstate, ID: "r1"})
	if w.bucket.Balances != (Balances{Funded: 1000, Available: 900, Committed: 100}) || w.sink.Balances != (Balances{}) {
		t.Errorf("after it was undone: %+v, sink %+v", w.bucket.Balances, w.sink.Balances)
	}
	if out := w.entries[len(w.entries)-1]; out.Type != EntryMoveOut {
		t.Errorf("the sink's entry is a %s", out.Type)
	}
}

func TestSinkBucket(t *testing.T) {
	b := &Budget{ID: BudgetID{Tenant: "t", Key: "b"}, Currency: "BRL"}
	k := OrderKey{Tenant: "t", Order: "o", Benefit: "c"}
	own := BucketID{Budget: b.ID, Index: Unallocated}
	sink := &Budget{ID: BudgetID{Tenant: "t", Key: "s"}, Currency: "BRL", State: BudgetOpen, Epoch: Epoch{Number: 1, Buckets: 8}}
	if b.SinkBudget() != b.ID {
		t.Error("without a policy the sink is another budget")
	}
	b.Policy.ReversalSink = sink.ID
	if b.SinkBudget() != sink.ID || b.SinkBucket(sink, k) != sink.Route(k) {
		t.Errorf("the sink is %s", b.SinkBucket(sink, k))
	}
	closed, foreign, frozen := *sink, *sink, *sink
	closed.State, foreign.Currency, frozen.State = BudgetClosed, "USD", BudgetFrozen
	for _, s := range []*Budget{nil, &closed, &foreign, b} {
		if got := b.SinkBucket(s, k); got != own {
			t.Errorf("sink %+v gives %s, want the own unallocated bucket", s, got)
		}
	}
	if got := b.SinkBucket(&frozen, k); got.Budget != sink.ID {
		t.Errorf("a frozen sink refuses: %s", got)
	}
}

// What expired after a partial commit can still be counted: late under the
// policy, after a refund too, or by a person's reclaim, and never twice.
func TestLapsedRestIsNeverLost(t *testing.T) {
	lapsed := func() *world {
		w := newWorld(t)
		w.budget.Policy.LateCommit = LateReclaim
		w.ok(Command{Op: OpReserve, Amount: 100}, Command{Op: OpCommit, ID: "c", Amount: 30, Partial: true})
		w.now = w.now.Add(10 * time.Minute)
		w.ok(Command{Op: OpExpire})
		return w
	}
	w := lapsed()
	w.ok(Command{Op: OpReverse, ID: "r", Amount: 10}, Command{Op: OpCommit, ID: "late", Amount: 70})
	if a := w.attempt(); a.State != StatePartlyReversed || a.Leg.Committed != 100 || a.Leg.Reversed != 10 || a.Leg.Lapsed != 0 {
		t.Errorf("late commit after a refund leads to %+v", a)
	}
	w = lapsed()
	d := w.ok(Command{Op: OpReclaim})
	if a := w.attempt(); d.Result.Outcome.Amount != 70 || a.State != StateCommitted || a.Leg.Committed != 100 || a.Leg.Lapsed != 0 {
		t.Errorf("reclaim of the rest leads to %+v", a)
	}
	w.refused(IllegalState, Command{Op: OpReclaim, ID: "again"})
	// A final late commit gives up the rest, as one in time does.
	w = lapsed()
	w.ok(Command{Op: OpCommit, ID: "late1", Amount: 40})
	w.refused(IllegalState, Command{Op: OpCommit, ID: "late2", Amount: 30})
	w = lapsed()
	w.ok(Command{Op: OpCommit, ID: "late1", Amount: 40, Partial: true}, Command{Op: OpCommit, ID: "late2", Amount: 30})
	// A case is about all that lapsed, whatever the first payment was.
	w = lapsed()
	w.budget.Policy.LateCommit = LateCase
	if d := w.do(Command{Op: OpCommit, ID: "late", Amount: 20}); d.Case == nil || d.Case.Amount != 70 {
		t.Errorf("case %+v, want one of 70", d.Case)
	}
}
