package intake

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// One order from payment to refund to its cancellation, with each fact sent
// twice.
func TestLifeOfAnOrder(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	b.must(reserve("o", "coupon", 100))
	b.must(reserve("o", "voucher", 30))
	paid := says(fact.PaymentSucceeded, "o", "p1")
	refund := says(fact.RefundSucceeded, "o", "r1", line("coupon", 40), line("voucher", 30))
	undone := says(fact.RefundCancelled, "o", "r1", line("coupon", 0))
	for _, step := range []struct {
		f       fact.Fact
		effects []ledger.Op
		money   [4]int64
	}{
		{paid, []ledger.Op{ledger.OpCommit, ledger.OpCommit}, [4]int64{870, 0, 130, 0}},
		{refund, []ledger.Op{ledger.OpReverse, ledger.OpReverse}, [4]int64{940, 0, 130, 70}},
		{undone, []ledger.Op{ledger.OpReinstate}, [4]int64{900, 0, 130, 30}},
	} {
		first := b.submit(step.f)[0]
		again := b.submit(step.f)[0]
		if first.State != fact.Applied || first.Replayed || again.State != fact.Applied || !again.Replayed {
			t.Errorf("%s: %s %v, again %s %v", step.f.Kind, first.State, first.Replayed, again.State, again.Replayed)
		}
		var ops []ledger.Op
		for i, e := range again.Effects {
			ops = append(ops, e.Op)
			if e.Outcome != first.Effects[i].Outcome || e.Outcome.Seq == 0 {
				t.Errorf("%s: effect %+v, first %+v", step.f.Kind, e, first.Effects[i])
			}
		}
		if !slices.Equal(ops, step.effects) {
			t.Errorf("%s did %v, want %v", step.f.Kind, ops, step.effects)
		}
		b.money(step.money[0], step.money[1], step.money[2], step.money[3])
	}
	b.audit()
}

// S10: the same event id with other content is a conflict that names the
// fields; nothing changes.
func TestSameEventOtherContent(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	b.must(reserve("o", "coupon", 100))
	b.submit(says(fact.PaymentSucceeded, "o", "p1"))
	first := says(fact.RefundSucceeded, "o", "r1", line("coupon", 40), line("gift", 5))
	b.submit(first)
	for _, tc := range []struct {
		change func(*fact.Fact)
		want   []string
	}{
		{func(f *fact.Fact) { f.Lines = []fact.Line{line("coupon", 41), line("gift", 5)} }, []string{"lines[0].amount_minor"}},
		{func(f *fact.Fact) { f.Lines = []fact.Line{line("coupon", 40)} }, []string{"lines"}},
		{func(f *fact.Fact) { f.Ref = "r2" }, []string{"reference_id"}},
		{func(f *fact.Fact) { f.Order, f.Currency = "o2", "BRL" }, []string{"order_id", "currency"}},
		{func(f *fact.Fact) { f.Kind, f.Lines = fact.RefundCancelled, nil }, []string{"kind", "lines"}},
	} {
		f := first
		tc.change(&f)
		got, err := b.Submit(context.Background(), []fact.Fact{f})
		if err != nil {
			t.Fatal(err)
		}
		r, ok := got[0].Err.(*ledger.Rejection) //nolint:errorlint // answers hold rejections as they are
		if !ok || r.Code != ledger.IdempotencyConflict || !slices.Equal(r.Fields, tc.want) {
			t.Errorf("%v: %v, want %v", f, got[0].Err, tc.want)
		}
	}
	f := first
	f.Lines = []fact.Line{line("gift", 5), line("coupon", 40)}
	f.Correlation = "another trace"
	if got := b.submit(f)[0]; !got.Replayed {
		t.Error("the same lines in another order are a new fact")
	}
	b.money(940, 0, 100, 40)
}

// What waits is applied when its predecessor comes, by whichever way: a fact, a
// command, the scan.
func TestWaitingFacts(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	refund := says(fact.RefundSucceeded, "o", "r1", line("coupon", 40))
	paid := says(fact.PaymentSucceeded, "o", "p1", line("coupon", 0))
	b.submit(refund)
	b.is(refund, fact.Pending, "nothing is reserved yet")
	b.submit(paid)
	b.is(paid, fact.Pending, "nothing is reserved yet")
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.Run(ctx) })
	wrapped := b.Wrap(b.exec)
	if _, err := wrapped.Do(ctx, reserve("o", "coupon", 100)); err != nil {
		t.Fatal(err)
	}
	for b.watches() != 0 { // it is watched until all of it is applied
		runtime.Gosched()
	}
	stop()
	wg.Wait()
	b.is(refund, fact.Applied, "")
	b.is(paid, fact.Applied, "")
	b.money(940, 0, 100, 40)
	b.audit()
}

func (b *bench) watches() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.watched)
}

// After the deadline a fact is an exception with evidence, in a list; it is
// applied all the same when its predecessor comes at last.
func TestDeadline(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	refund := says(fact.RefundSucceeded, "o", "r1", line("coupon", 40))
	b.submit(refund)
	b.advance(24 * time.Hour)
	if err := b.Settle(ctx, "t", "o"); err != nil {
		t.Fatal(err)
	}
	row := b.is(refund, fact.Exception, "waited until 2026-03-02T12:00:00.000Z in vain: benefit \"coupon\" attempt 1: nothing is reserved yet")
	if !row.Due.IsZero() {
		t.Errorf("an exception is still due: %s", row.Due)
	}
	list, _, err := b.st.Facts(ctx, "t", fact.Exception, store.Page{})
	if err != nil || len(list) != 1 || list[0].ID != refund.ID {
		t.Errorf("exceptions: %v %v", list, err)
	}
	if g, err := b.st.FactGauges(ctx); err != nil || g != (store.FactGauges{Exceptions: 1}) {
		t.Errorf("gauges %+v %v", g, err)
	}
	b.must(reserve("o", "coupon", 100))
	b.submit(says(fact.PaymentSucceeded, "o", "p1"))
	b.is(refund, fact.Applied, "")
	b.money(940, 0, 100, 40)
	if g, err := b.st.FactGauges(ctx); err != nil || g != (store.FactGauges{Applied: 2}) {
		t.Errorf("gauges %+v %v", g, err)
	}
}

// S4: a payment that comes after the hold has expired, or was released, is
// counted or seen, by the budget's policy.
func TestLatePayment(t *testing.T) {
	for _, tc := range []struct {
		late  ledger.LateCommit
		state fact.State
		code  [2]ledger.Code // after expiry, after release
		money [4]int64
		cases int
	}{
		{ledger.LateReclaim, fact.Applied, [2]ledger.Code{}, [4]int64{800, 0, 200, 0}, 0},
		{ledger.LateReject, fact.Exception, [2]ledger.Code{ledger.LateCommitRejected, ledger.LateCommitRejected}, [4]int64{1000, 0, 0, 0}, 0},
		{ledger.LateCase, fact.Exception, [2]ledger.Code{ledger.LateCommitCase, ledger.LateCommitRejected}, [4]int64{1000, 0, 0, 0}, 1},
	} {
		t.Run(tc.late.String(), func(t *testing.T) {
			b := newBench(t, DefaultConfig())
			b.budget(1000, ledger.Policy{LateCommit: tc.late})
			b.must(reserve("expired", "coupon", 100))
			b.must(reserve("released", "coupon", 100))
			b.must(ledger.Command{Op: ledger.OpRelease, Key: key("released", "coupon")})
			b.advance(16 * time.Minute)
			b.must(ledger.Command{Op: ledger.OpExpire, Key: key("expired", "coupon")})
			for i, order := range []string{"expired", "released"} {
				f := says(fact.PaymentSucceeded, order, "p-"+order)
				b.submit(f, f)
				if row := b.is(f, tc.state, ""); row.Code != tc.code[i] {
					t.Errorf("%s: code %q, want %q (%s)", order, row.Code, tc.code[i], row.Reason)
				}
			}
			b.money(tc.money[0], tc.money[1], tc.money[2], tc.money[3])
			cases, _, err := b.st.Cases(context.Background(), "t", store.Page{})
			if err != nil || len(cases) != tc.cases {
				t.Errorf("%d cases, %v; want %d", len(cases), err, tc.cases)
			}
			if tc.state == fact.Exception { // a person reclaims it
				b.must(ledger.Command{Op: ledger.OpReclaim, Key: key("expired", "coupon")})
				f := says(fact.PaymentSucceeded, "expired", "p-expired")
				if row, err := b.Retry(context.Background(), f.ID); err != nil || row.State != fact.Applied {
					t.Errorf("after the reclaim: %+v, %v", row, err)
				}
			}
			b.audit()
		})
	}
}

// A cancellation before the reserve leaves a tombstone where the benefit is
// named; where it is not, it waits for the reserve.
func TestCancelBeforeReserve(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	named, unnamed := says(fact.OrderCancelled, "a", "", line("coupon", 0)), says(fact.PaymentFailed, "b", "p")
	b.submit(named, unnamed)
	b.is(named, fact.Applied, "")
	b.is(unnamed, fact.Pending, "the order has no reservation yet")
	if _, err := b.exec.Do(context.Background(), reserve("a", "coupon", 100)); code(err) != ledger.CancelledBeforeReserve {
		t.Errorf("reserve after its cancellation: %v", err)
	}
	b.must(reserve("b", "coupon", 100))
	if err := b.Settle(context.Background(), "t", "b"); err != nil {
		t.Fatal(err)
	}
	b.is(unnamed, fact.Applied, "")
	b.money(1000, 0, 0, 0)
	empty := says(fact.OrderCancelled, "c", "")
	b.submit(empty)
	b.advance(24 * time.Hour)
	_ = b.Settle(context.Background(), "t", "c")
	b.is(empty, fact.Applied, "the order has no benefits")
	b.audit()
}

// A payment that was counted with another amount is a contradiction, whoever
// counted it; the same payment again, or one that names no amount, is not.
func TestPaymentOfAnotherAmount(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	b.must(reserve("o", "coupon", 100))
	b.must(ledger.Command{Op: ledger.OpCommit, Key: key("o", "coupon"), ID: "p1", Amount: 60})
	more := says(fact.PaymentSucceeded, "o", "p1", line("coupon", 100))
	same, unsaid := more, more
	same.Event, same.Lines = "same", []fact.Line{line("coupon", 60)}
	unsaid.Event, unsaid.Lines = "unsaid", nil
	b.submit(more, same, unsaid)
	row := b.is(more, fact.Exception, `payment "p1" was counted with 60 and is now said to be 100`)
	if row.Code != ledger.IdempotencyConflict {
		t.Errorf("code %s", row.Code)
	}
	b.is(same, fact.Applied, "")
	b.is(unsaid, fact.Applied, "")
	b.money(940, 0, 60, 0)
	b.audit()
}

// An order with more benefits than a plan looks at: a fact about all of them is
// an exception and not applied to some; one that names its benefits is applied
// where they were looked at.
func TestTooManyBenefits(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	for i := range fact.MaxLines {
		b.must(reserve("o", fmt.Sprintf("b%03d", i), 1))
	}
	all := says(fact.PaymentSucceeded, "o", "p1")
	b.submit(all)
	if row := b.is(all, fact.Applied, ""); len(row.Effects) != fact.MaxLines {
		t.Errorf("%d effects", len(row.Effects))
	}
	b.must(reserve("o", "c", 1))
	again := says(fact.PaymentSucceeded, "o", "p2")
	last := says(fact.OrderCancelled, "o", "", line("c", 0))
	first := says(fact.RefundSucceeded, "o", "r1", line("b000", 1))
	b.submit(again, last, first)
	b.is(again, fact.Exception, "the order has more than 128 benefits")
	b.is(last, fact.Exception, "the order has more than 128 benefits")
	b.is(first, fact.Applied, "")
	b.money(872, 1, 128, 1)
	b.audit()
}

// A refund that cannot be is an exception, or waits: never more is refunded than
// was committed (S5).
func TestRefundsAreBounded(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	b.must(reserve("o", "coupon", 100))
	b.submit(says(fact.PaymentSucceeded, "o", "p1"))
	r1, r2 := says(fact.RefundSucceeded, "o", "r1", line("coupon", 60)), says(fact.RefundSucceeded, "o", "r2", line("coupon", 60))
	b.submit(r1, r2)
	b.is(r1, fact.Applied, "")
	if row := b.is(r2, fact.Pending, "REVERSE was refused: REFUND_EXCEEDS_COMMITTED"); row.Code != ledger.RefundExceedsCommit {
		t.Errorf("code %s", row.Code)
	}
	other := says(fact.RefundSucceeded, "o", "r1", line("coupon", 50))
	other.Event = "another event"
	b.submit(other)
	b.is(other, fact.Exception, `refund "r1" was made with 60 and is now said to be 50`)
	wrong := says(fact.RefundSucceeded, "o", "r3", line("coupon", 1))
	wrong.Currency = "USD"
	b.submit(wrong)
	if row := b.is(wrong, fact.Exception, "is in BRL, the fact says USD"); row.Code != ledger.CurrencyMismatch {
		t.Errorf("code %s", row.Code)
	}
	b.money(960, 0, 100, 60)
	b.submit(says(fact.RefundCancelled, "o", "r1", line("coupon", 0)))
	b.is(r2, fact.Applied, "")
	b.money(960, 0, 100, 60)
	b.audit()
}

func TestResolve(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	f := says(fact.PaymentSucceeded, "o", "p1", line("coupon", 0))
	b.submit(f)
	if _, _, err := b.Resolve(ctx, f.ID, "paid back by hand"); code(err) != ledger.FactIllegalState {
		t.Errorf("a fact that waits is resolved: %v", err)
	}
	b.advance(24 * time.Hour)
	_ = b.Settle(ctx, "t", "o")
	if _, _, err := b.Resolve(ctx, f.ID, " "); code(err) != ledger.InvalidArgument {
		t.Errorf("resolved without a reason: %v", err)
	}
	for i := range 2 {
		row, replayed, err := b.Resolve(ctx, f.ID, "paid back by hand")
		if err != nil || row.State != fact.Resolved || row.Resolution != "paid back by hand" || replayed != (i == 1) {
			t.Errorf("%+v %v %v", row, replayed, err)
		}
	}
	if _, _, err := b.Resolve(ctx, f.ID, "other"); code(err) != ledger.IdempotencyConflict {
		t.Errorf("resolved twice for two reasons: %v", err)
	}
	b.must(reserve("o", "coupon", 100))
	_ = b.Settle(ctx, "t", "o")
	b.is(f, fact.Resolved, "")
	b.money(900, 100, 0, 0)
	if _, _, err := b.Resolve(ctx, fact.ID{Tenant: "other", Source: "shop", Event: f.Event}, "x"); code(err) != ledger.FactNotFound {
		t.Errorf("another tenant's fact: %v", err)
	}
}

func TestSubmitRefusesOneByOne(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	bad := says(fact.RefundSucceeded, "o", "r1")
	good := says(fact.PaymentFailed, "o", "p1", line("coupon", 0))
	got, err := b.Submit(context.Background(), []fact.Fact{bad, good, good})
	if err != nil {
		t.Fatal(err)
	}
	if code(got[0].Err) != ledger.InvalidArgument || !strings.Contains(got[0].Err.Error(), "lines 0 are missing") {
		t.Errorf("%v", got[0].Err)
	}
	if got[1].Err != nil || got[1].Replayed || got[2].Err != nil || !got[2].Replayed || got[2].State != fact.Applied {
		t.Errorf("%+v", got[1:])
	}
	for i := range fact.MaxPerOrder - 1 {
		b.submit(says(fact.PaymentFailed, "o", fmt.Sprint(i), line("coupon", 0)))
	}
	got, err = b.Submit(context.Background(), []fact.Fact{says(fact.PaymentFailed, "o", "one more", line("coupon", 0)), good})
	if err != nil || code(got[0].Err) != ledger.FactLimit || got[1].Err != nil {
		t.Errorf("%v %+v", err, got)
	}
}

// The largest facts there may be, with all names as long as names may be: they
// are stored with what they did, also many of one order at once.
func TestLargestFacts(t *testing.T) {
	b := newBench(t, DefaultConfig())
	long := func(s string) string { return s + strings.Repeat("x", ledger.MaxIDBytes-len(s)) }
	budget := ledger.BudgetID{Tenant: "t", Funder: long("f"), Key: long("k")}
	b.must(ledger.Command{Op: ledger.OpCreate, Budget: budget, Currency: "BRL", Buckets: 1})
	b.must(ledger.Command{Op: ledger.OpFund, Budget: budget, ID: "f", Amount: 1 << 50, Currency: "BRL"})
	order := long("o")
	var lines []fact.Line
	for i := range fact.MaxLines {
		c := reserve(order, long(fmt.Sprintf("b%03d", i)), 1<<40)
		c.Budget = budget
		b.must(c)
		lines = append(lines, line(c.Key.Benefit, 1<<40))
	}
	var facts []fact.Fact
	for i := range 40 {
		f := says(fact.PaymentSucceeded, order, long("p"), lines...)
		f.Source, f.Event, f.Correlation = "shop", long(fmt.Sprint(i)), long("c")
		facts = append(facts, f)
	}
	b.submit(facts...)
	for _, f := range facts {
		if row := b.is(f, fact.Applied, ""); len(row.Effects) != fact.MaxLines {
			t.Fatalf("%d effects", len(row.Effects))
		}
	}
	b.audit()
}
