package ledger

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The same command again gives the first answer and writes nothing, for every
// kind of command, also after the state went on.
func TestReplayOfEveryCommand(t *testing.T) {
	w := newWorld(t)
	life := []Command{
		{Op: OpReserve, Amount: 100},
		{Op: OpExtend, ID: "e", TTL: 20 * time.Minute},
		{Op: OpCommit, ID: "c1", Amount: 30, Partial: true},
		{Op: OpCommit, ID: "c2", Amount: 50},
		{Op: OpReverse, ID: "r", Amount: 80},
		{Op: OpReinstate, ID: "r"},
	}
	first := make([]Outcome, len(life))
	for i, c := range life {
		first[i] = w.ok(c).Result.Outcome
		for j := range i + 1 {
			w.now = w.now.Add(time.Second)
			d := w.do(life[j])
			if d.Rejection != nil || !d.Result.Replayed || d.Result.Outcome != first[j] || d.Entry != nil || d.Attempt != nil {
				t.Errorf("%s again after %s: %+v, %v", life[j].Op, c.Op, d.Result, d.Rejection)
			}
		}
	}
	for _, s := range []State{StateReleased, StateCancelled} {
		w = bring(t, s)
		if d := w.do(Command{Op: OpRelease, ID: "l0"}); !d.Result.Replayed || d.Result.Outcome.State != s {
			t.Errorf("release again from %s: %+v, %v", s, d.Result, d.Rejection)
		}
	}
	w = bring(t, StateReleased)
	w.ok(Command{Op: OpReclaim, ID: "m"})
	if d := w.do(Command{Op: OpReclaim, ID: "m"}); !d.Result.Replayed {
		t.Errorf("reclaim again: %+v", d.Result)
	}
}

// The same key with other values is refused and names the fields.
func TestConflictNamesFields(t *testing.T) {
	base := Command{Op: OpReserve, Amount: 100, Currency: "BRL", TTL: 10 * time.Minute}
	for _, tc := range []struct {
		edit func(c *Command)
		want []string
	}{
		{func(c *Command) { c.Amount = 101 }, []string{"amount_minor"}},
		{func(c *Command) { c.Currency = "USD" }, []string{"currency"}},
		{func(c *Command) { c.TTL = time.Minute }, []string{"ttl_ms"}},
		{func(c *Command) { c.Amount, c.TTL = 1, time.Minute }, []string{"amount_minor", "ttl_ms"}},
	} {
		w := newWorld(t)
		w.ok(base)
		c := base
		tc.edit(&c)
		wantFields(t, w.refused(IdempotencyConflict, c), tc.want...)
	}
	w := newWorld(t)
	w.ok(base)
	w.budget.ID.Key = "other"
	wantFields(t, w.refused(IdempotencyConflict, base), "budget")

	w = newWorld(t)
	w.ok(base, Command{Op: OpExtend, ID: "e", TTL: time.Minute}, Command{Op: OpCommit, ID: "c", Amount: 50, Partial: true}, Command{Op: OpCommit, ID: "d"},
		Command{Op: OpReverse, ID: "r", Amount: 10})
	wantFields(t, w.refused(IdempotencyConflict, Command{Op: OpExtend, ID: "e", TTL: 2 * time.Minute}), "ttl_ms")
	wantFields(t, w.refused(IdempotencyConflict, Command{Op: OpCommit, ID: "c", Amount: 51, Partial: true}), "amount_minor")
	wantFields(t, w.refused(IdempotencyConflict, Command{Op: OpCommit, ID: "c", Amount: 50}), "partial")
	wantFields(t, w.refused(IdempotencyConflict, Command{Op: OpReverse, ID: "r", Amount: 11}), "amount_minor")
	// A correlation id and a budget that is named carry no meaning.
	c := Command{Op: OpReverse, ID: "r", Amount: 10, Correlation: "trace", Budget: w.budget.ID}
	if d := w.do(c); d.Rejection != nil || !d.Result.Replayed {
		t.Errorf("with a correlation id: %v", d.Rejection)
	}
}

// A conflict says what the first request was and how it ended, in words.
func TestConflictTellsOfTheFirst(t *testing.T) {
	w := newWorld(t)
	w.refused(InsufficientBudget, Command{Op: OpReserve, Amount: 1001})
	want := func(r *Rejection, want string) {
		t.Helper()
		if r.Message != want {
			t.Errorf("the refusal says\n%s, want\n%s", r.Message, want)
		}
	}
	// Less than was refused, and there is as much: but the key is used.
	r := w.refused(IdempotencyConflict, Command{Op: OpReserve, Amount: 1})
	want(r, "RESERVE with this key was first sent with other values of amount_minor (1001); that one was refused (INSUFFICIENT_BUDGET), and stays refused")
	if r.State != "REJECTED" {
		t.Errorf("state %s", r.State)
	}
	r = w.refused(InsufficientBudget, Command{Op: OpReserve, Amount: 1001})
	want(r, "exceeded what "+w.budget.ID.String()+" had available, and attempt 1 stays refused")
	if !r.Replayed || r.Field != "amount_minor" || r.Value != "1001" || r.Limit != "1000" || r.Requested != 1001 || r.Available != 1000 {
		t.Errorf("the refusal again is %+v", r)
	}

	w = bring(t, StateReserved)
	r = w.refused(IdempotencyConflict, Command{Op: OpReserve, Amount: 7, TTL: time.Minute})
	want(r, "RESERVE with this key was first sent with other values of amount_minor, ttl_ms (100, 600000); that one took effect")
	r = w.refused(IdempotencyConflict, Command{Op: OpReserve, Amount: 100, TTL: 10 * time.Minute, Quote: &Quote{Lines: []QuoteLine{{ID: "A", Quantity: 1, Amount: 100}}}})
	want(r, "RESERVE with this key was first sent with other values of quote.rounding, quote.funders, quote.lines; that one took effect")
}

func TestTombstoneKeepsReserveOut(t *testing.T) {
	w := newWorld(t)
	d := w.ok(Command{Op: OpRelease, ID: "l"})
	if d.Entry != nil || w.attempt().State != StateCancelled || d.Result.Outcome.Seq != 0 {
		t.Errorf("%+v", d)
	}
	if r := w.refused(CancelledBeforeReserve, Command{Op: OpReserve, Amount: 1}); r.State != "CANCELLED" || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}
	w.refused(IllegalState, Command{Op: OpRelease, ID: "other"})
	w.ok(Command{Op: OpReserve, Amount: 1, Attempt: 2})
	// A late release of the first attempt does not touch the second.
	if d := w.do(Command{Op: OpRelease, ID: "l"}); !d.Result.Replayed || w.attempt().State != StateReserved {
		t.Errorf("%+v", d.Result)
	}
}

func TestResolve(t *testing.T) {
	w := newWorld(t)
	reserve := Command{Op: OpReserve, Amount: 100}
	resolve := Command{Op: OpResolve, Target: OpReserve}
	first := w.ok(reserve).Result.Outcome
	d := w.do(resolve)
	if d.Result.Void || !d.Result.Replayed || d.Result.Receipt == nil || d.Result.Outcome != first || d.Attempt != nil {
		t.Errorf("resolve of what happened: %+v", d.Result)
	}
	// Of what did not happen: void for ever.
	for _, c := range []Command{{Op: OpCommit, ID: "c"}, {Op: OpExtend, ID: "e", TTL: time.Minute}, {Op: OpRelease, ID: "l"}, {Op: OpReclaim, ID: "m"}, {Op: OpReverse, ID: "r", Amount: 1}, {Op: OpReinstate, ID: "r"}} {
		v := Command{Op: OpResolve, Target: c.Op, ID: c.ID}
		if d := w.ok(v); !d.Result.Void || d.Entry != nil || d.Result.Outcome.State != StateReserved {
			t.Errorf("resolve of %s: %+v", c.Op, d.Result)
		}
		if d := w.do(v); !d.Result.Void || !d.Result.Replayed || d.Attempt != nil {
			t.Errorf("resolve of %s again: %+v", c.Op, d.Result)
		}
		if r := w.refused(Voided, c); !r.Replayed || r.Attempt != 1 {
			t.Errorf("%s after its void: %+v", c.Op, r)
		}
	}
	w.ok(Command{Op: OpCommit, ID: "c2"})
	// A void reserve.
	w = newWorld(t)
	if d := w.ok(resolve); !d.Result.Void || w.attempt().State != StateVoid {
		t.Errorf("%+v", d.Result)
	}
	w.refused(Voided, reserve)
	w.ok(Command{Op: OpReserve, Amount: 100, Attempt: 2})
	// A tombstone keeps the reserve out already.
	w = bring(t, StateCancelled)
	if d := w.do(resolve); !d.Result.Void || d.Attempt != nil {
		t.Errorf("%+v", d)
	}
	// A recorded refusal is an outcome.
	w = bring(t, StateRejected)
	if d := w.do(resolve); d.Result.Void || d.Result.Receipt.Rejection != InsufficientBudget {
		t.Errorf("%+v", d.Result)
	}
	// Operations voided before the reserve stay void after it.
	w = newWorld(t)
	w.ok(Command{Op: OpResolve, Target: OpCommit, ID: "c"}, reserve)
	w.refused(Voided, Command{Op: OpCommit, ID: "c"})
	w.ok(Command{Op: OpCommit, ID: "d"})
}

func TestAttempts(t *testing.T) {
	second := Command{Op: OpReserve, Amount: 10, Attempt: 2}
	for _, s := range allStates {
		w := bring(t, s)
		if s.HoldsMoney() {
			if r := w.refused(AttemptHoldsMoney, second); r.Attempt != 1 || r.State != s.String() {
				t.Errorf("from %s: %+v", s, r)
			}
			continue
		}
		w.ok(second)
		if r := w.do(Command{Op: OpReserve, Amount: 10, Attempt: 1}).Rejection; s == StateNone && (r == nil || r.Code != AttemptHoldsMoney) {
			t.Errorf("an earlier attempt after a later one: %v", r)
		}
	}
	// Money that went back is not taken again under a new holder.
	for _, tc := range []struct {
		s State
		c Command
	}{{StateReleased, Command{Op: OpReclaim}}, {StateExpired, Command{Op: OpReclaim}}, {StateExpired, Command{Op: OpCommit, ID: "late"}}, {StateReversed, Command{Op: OpReinstate, ID: "r0"}}} {
		w := bring(t, tc.s)
		w.budget.Policy.LateCommit = LateReclaim
		w.ok(second)
		tc.c.Attempt = 1
		if r := w.refused(AttemptHoldsMoney, tc.c); r.Attempt != 2 || r.State != "RESERVED" {
			t.Errorf("%s from %s: %+v", tc.c.Op, tc.s, r)
		}
		w.ok(Command{Op: OpRelease, Attempt: 2}, tc.c)
	}
	// Attempts only count up.
	w := newWorld(t)
	w.ok(Command{Op: OpReserve, Amount: 1, Attempt: 5}, Command{Op: OpRelease, Attempt: 5})
	if r := w.refused(AttemptSuperseded, Command{Op: OpReserve, Amount: 1, Attempt: 4}); r.Field != "attempt" || r.Value != "4" || r.Limit != "above 5" || r.State != "RELEASED" {
		t.Errorf("%+v", r)
	}
	// A command of one attempt never touches another.
	w.ok(Command{Op: OpReserve, Amount: 1, Attempt: 6})
	w.refused(ReservationNotFound, Command{Op: OpCommit, Attempt: 7})
}

func TestLimits(t *testing.T) {
	// A new attempt needs half of the row's receipts free.
	w := newWorld(t)
	for n := range uint32(3) {
		w.ok(Command{Op: OpReserve, Amount: 1, Attempt: n + 1})
		for i := range 20 {
			w.ok(Command{Op: OpExtend, Attempt: n + 1, ID: fmt.Sprint("e", i), TTL: time.Minute})
		}
		w.ok(Command{Op: OpRelease, Attempt: n + 1})
	}
	for _, c := range []Command{{Op: OpReserve, Amount: 1, Attempt: 4}, {Op: OpRelease, Attempt: 4}, {Op: OpResolve, Target: OpCommit, Attempt: 4}} {
		if r := w.refused(OperationLimit, c); r.Field != "attempt" || r.Value != "4" || r.Limit != "64 operations before" {
			t.Errorf("%s: %+v", c.Op, r)
		}
	}
	// Repeats leave room for the way back.
	w = bring(t, StateReserved)
	for i := range MaxRepeats - 1 {
		w.ok(Command{Op: OpExtend, ID: fmt.Sprint("e", i), TTL: time.Minute})
	}
	for _, c := range []Command{{Op: OpExtend, ID: "e", TTL: time.Minute}, {Op: OpCommit, ID: "c", Amount: 1, Partial: true}} {
		if r := w.refused(OperationLimit, c); r.Field != "operation" || r.Value != c.Op.String() || r.Limit != "32 operations an attempt, 96 a benefit" || r.State != "RESERVED" {
			t.Errorf("%s: %+v", c.Op, r)
		}
	}
	w.ok(Command{Op: OpCommit, ID: "c"})
	for i := range MaxReceipts - MaxRepeats - 1 {
		w.ok(Command{Op: OpReverse, ID: fmt.Sprint("r", i), Amount: 1})
	}
	if r := w.refused(OperationLimit, Command{Op: OpReverse, ID: "r", Amount: 1}); r.Limit != "64 operations an attempt, 128 a benefit" {
		t.Errorf("%+v", r)
	}
	if n := len(w.attempt().Receipts); n != MaxReceipts {
		t.Errorf("the attempt has %d receipts, want %d", n, MaxReceipts)
	}
	// Also when all is used up, every refund can be undone and the rest be
	// refunded at once.
	left := w.attempt().Leg.Committed - w.attempt().Leg.Reversed
	w.ok(Command{Op: OpReinstate, ID: "r0"}, Command{Op: OpReverse, ID: "rest", Amount: left + 1})
	if a := w.attempt(); a.State != StateReversed {
		t.Errorf("the attempt is %s, want all of it refunded", a.State)
	}
	// Lifetime.
	w = newWorld(t)
	if r := w.refused(TTLTooLong, Command{Op: OpReserve, Amount: 1, TTL: time.Hour + time.Millisecond}); r.Field != "ttl" || r.Value != "1h0m0.001s" || r.Limit != "1ms to 1h0m0s" {
		t.Errorf("%+v", r)
	}
	w.ok(Command{Op: OpReserve, Amount: 1, TTL: time.Hour})
	w.now = w.now.Add(20 * time.Minute)
	if r := w.refused(TTLTooLong, Command{Op: OpExtend, ID: "e", TTL: 41 * time.Minute}); r.Value != "41m0s" || r.Limit != "0s to 40m0s" {
		t.Errorf("%+v", r)
	}
	// An extension gives more time, never less.
	if d := w.ok(Command{Op: OpExtend, ID: "e", TTL: time.Minute}); !d.Result.Outcome.Expires.Equal(start.Add(time.Hour)) {
		t.Errorf("expires %s", d.Result.Outcome.Expires)
	}
}

func TestOtherRefusals(t *testing.T) {
	w := newWorld(t)
	if r := w.refused(CurrencyMismatch, Command{Op: OpReserve, Amount: 1, Currency: "USD"}); r.Field != "currency" || r.Value != "USD" || r.Limit != "BRL" {
		t.Errorf("%+v", r)
	}
	for s, code := range map[BudgetState]Code{BudgetFrozen: BudgetFrozenCode, BudgetClosed: BudgetClosedCode} {
		w = newWorld(t)
		w.budget.State = s
		if r := w.refused(code, Command{Op: OpReserve, Amount: 1}); r.State != s.String() || w.attempt().State != StateRejected {
			t.Errorf("%+v", r)
		}
		w.budget.State = BudgetOpen
		if r := w.refused(code, Command{Op: OpReserve, Amount: 1}); !r.Replayed {
			t.Error("the refusal is not remembered")
		}
	}
	for _, s := range []BudgetState{BudgetFrozen, BudgetClosed} { // what is reserved goes on
		w = bring(t, StateReserved)
		w.budget.State = s
		w.ok(Command{Op: OpExtend, ID: "e", TTL: time.Minute}, Command{Op: OpCommit, ID: "c"}, Command{Op: OpReverse, ID: "r", Amount: 1})
	}
	w = bring(t, StateReserved)
	other := BudgetID{Tenant: "t1", Key: "other"}
	for _, op := range []Op{OpCommit, OpRelease} {
		if r := w.refused(BudgetMismatch, Command{Op: op, Budget: other}); r.Field != "budget" || r.Value != "other" || r.Limit != "spring" {
			t.Errorf("%+v", r)
		}
	}
	d := Decide(&View{Now: start, Row: &Reservation{}}, &Command{Op: OpReserve, Attempt: 1, Amount: 1, Budget: other})
	if d.Rejection == nil || d.Rejection.Code != BudgetNotFound || d.Rejection.Value != "other" {
		t.Errorf("%v", d.Rejection)
	}
	if d := Decide(&View{Now: start, Row: &Reservation{}}, &Command{Op: OpFund}); d.Rejection == nil || d.Rejection.Code != InvalidArgument {
		t.Errorf("%v", d.Rejection)
	}
}

// Sums that do not fit are refused, and a hole in the ladders fails loudly.
func TestOverflow(t *testing.T) {
	w := bring(t, StateCommitted)
	w.bucket.Balances = Balances{Funded: math.MaxInt64, Available: math.MaxInt64, Committed: math.MaxInt64, Reversed: math.MaxInt64}
	w.attempt().Leg.Committed = 100
	if d := w.do(Command{Op: OpReverse, ID: "r", Amount: 1}); d.Rejection == nil || d.Rejection.Code != AmountOverflow || d.Rejection.Limit != "35888607147294847 minor units in each sum of a bucket" || d.Entry != nil {
		t.Errorf("%+v", d)
	}
	w = bring(t, StateCommitted)
	w.bucket.Balances = Balances{Funded: 5, Available: 5}
	if d := w.do(Command{Op: OpReverse, ID: "r", Amount: 1}); d.Rejection == nil || d.Rejection.Code != Corrupt || d.Rejection.Cause == nil || d.Entry != nil {
		t.Errorf("%+v", d)
	}
	for _, tc := range []struct {
		a, b, want int64
		ok         bool
	}{{1, 2, 3, true}, {math.MaxInt64, 1, 0, false}, {math.MinInt64, -1, 0, false}, {math.MaxInt64, math.MinInt64, -1, true}, {math.MinInt64, 0, math.MinInt64, true}} {
		if got, ok := add(tc.a, tc.b); got != tc.want || ok != tc.ok {
			t.Errorf("%d + %d = %d, %v", tc.a, tc.b, got, ok)
		}
	}
}

// Times of a bucket never go back, whatever the clock does.
func TestTimeNeverGoesBack(t *testing.T) {
	w := newWorld(t)
	w.now = start.Add(-time.Hour)
	if d := w.ok(Command{Op: OpReserve, Amount: 1}); !d.Result.Outcome.At.Equal(start) {
		t.Errorf("the entry is of %s, before the last block's %s", d.Result.Outcome.At, start)
	}
}
