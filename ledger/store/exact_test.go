package store

import (
	"fmt"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// EXACT reserves to the last unit over all buckets and then refuses with what
// the whole budget has.
func TestExactToTheLastUnit(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 8, ledger.Policy{Exhaustion: ledger.Exact}), onBudget(ledger.OpFund, "spring", "f1", 1003))
	taken := int64(0)
	for i := range 200 {
		c := reserve("spring", fmt.Sprint("o", i), 7)
		if left := 1003 - taken; left < 7 {
			r := b.refused(ledger.InsufficientBudget, c)
			if r.Available != left || r.Requested != 7 {
				t.Fatalf("refused with available %d of 7, want %d", r.Available, left)
			}
			break
		}
		b.ok(c)
		taken += 7
	}
	if taken != 1001 {
		t.Fatalf("took %d of 1003 in sevens, want 1001", taken)
	}
	b.ok(reserve("spring", "rest", 2))
	if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 1003, Reserved: 1003}) {
		t.Errorf("at the end: %+v", got)
	}
	r := b.refused(ledger.InsufficientBudget, reserve("spring", "one more", 1))
	if r.Available != 0 {
		t.Errorf("an empty budget has %d available", r.Available)
	}
	b.audit()
}

// One reserve of all there is pulls from every bucket.
func TestExactPullsFromAll(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 16, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1600), reserve("spring", "all", 1600))
	moves := int64(0)
	for _, en := range b.entries(budgetID("spring")) {
		if en.Type == ledger.EntryMoveIn || en.Type == ledger.EntryMoveOut {
			moves += en.Delta.Funded
		}
	}
	if moves != 0 {
		t.Errorf("the moves add up to %d", moves)
	}
	if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 1600, Reserved: 1600}) {
		t.Errorf("%+v", got)
	}
	b.audit()
}

// STRICT refuses as soon as the order's own bucket is short, and moves nothing.
func TestStrictRefusesEarly(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 4, ledger.Policy{Exhaustion: ledger.Strict}), onBudget(ledger.OpFund, "spring", "f1", 400))
	r := b.refused(ledger.InsufficientBudget, reserve("spring", "a", 101))
	if r.Available != 100 || r.Requested != 101 {
		t.Errorf("refused with %d of %d", r.Available, r.Requested)
	}
	b.ok(reserve("spring", "b", 100))
	for _, en := range b.entries(budgetID("spring")) {
		if en.Type == ledger.EntryMoveIn || en.Type == ledger.EntryMoveOut {
			t.Errorf("STRICT moved money: %+v", en)
		}
	}
	// A refusal is recorded: the same key stays refused when there is money.
	b.ok(onBudget(ledger.OpFund, "spring", "f2", 4000))
	if r := b.refused(ledger.InsufficientBudget, reserve("spring", "a", 101)); !r.Replayed || r.Available != 100 || r.Requested != 101 {
		t.Errorf("the refusal again: %+v", r)
	}
	b.ok(withAttempt(reserve("spring", "a", 101), 2))
	b.audit()
}

// What an over-commit, a reclaim or a reinstatement needs beyond its bucket is
// pulled as well.
func TestLaterCommandsPull(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 4, ledger.Policy{OverCommit: ledger.OverCommit{Amount: 300}}), onBudget(ledger.OpFund, "spring", "f1", 400),
		reserve("spring", "a", 100), on(ledger.OpCommit, "a", "p", 400))
	if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 400, Committed: 400}) {
		t.Errorf("after an over-commit of all: %+v", got)
	}
	b.ok(on(ledger.OpReverse, "a", "r", 400), reserve("spring", "b", 150))
	r := b.refused(ledger.InsufficientBudget, on(ledger.OpReinstate, "a", "r", 0))
	if r.Requested != 400 || r.Available != 250 {
		t.Errorf("reinstate refused with %d of %d", r.Available, r.Requested)
	}
	b.ok(on(ledger.OpRelease, "b", "", 0), on(ledger.OpReinstate, "a", "r", 0))
	b.audit()
}

// Refunds of a closed budget: to the sink it names, to its own unallocated
// bucket when the sink is closed too, and back again.
func TestReversalSink(t *testing.T) {
	b := newBench(t)
	b.ok(create("sink", 2, ledger.Policy{}), create("shut", 1, ledger.Policy{ReversalSink: budgetID("sink")}), create("own", 1, ledger.Policy{}))
	for _, name := range []string{"shut", "own"} {
		b.ok(onBudget(ledger.OpFund, name, "f-"+name, 100), reserve(name, name, 80), on(ledger.OpCommit, name, "", 0), onBudget(ledger.OpClose, name, "c-"+name, 0),
			on(ledger.OpReverse, name, "r1", 30))
	}
	want := func(name string, w ledger.Balances) {
		t.Helper()
		if got := b.totals(budgetID(name)); got != w {
			t.Errorf("%s has %+v, want %+v", name, got, w)
		}
	}
	want("sink", ledger.Balances{Funded: 30, Available: 30})
	want("shut", ledger.Balances{Funded: 70, Available: 20, Committed: 80, Reversed: 30})
	want("own", ledger.Balances{Funded: 100, Available: 50, Committed: 80, Reversed: 30})
	own := b.bucketRow(ledger.BucketID{Budget: budgetID("own"), Index: ledger.Unallocated})
	if own.Balances != (ledger.Balances{Funded: 30, Available: 30}) {
		t.Errorf("the unallocated bucket has %+v", own.Balances)
	}
	// The sink closes too: the next refund stays in the budget.
	b.ok(onBudget(ledger.OpClose, "sink", "c-sink", 0), on(ledger.OpReverse, "shut", "r2", 10))
	want("sink", ledger.Balances{Funded: 30, Available: 30})
	want("shut", ledger.Balances{Funded: 70, Available: 30, Committed: 80, Reversed: 40})
	// A reinstatement takes it from where it went.
	b.ok(on(ledger.OpReinstate, "shut", "r1", 0), on(ledger.OpReinstate, "own", "r1", 0))
	want("sink", ledger.Balances{})
	want("shut", ledger.Balances{Funded: 100, Available: 30, Committed: 80, Reversed: 10})
	want("own", ledger.Balances{Funded: 100, Available: 20, Committed: 80})
	// What left the sink cannot be taken from it.
	b.ok(create("sink2", 1, ledger.Policy{}), create("shut2", 1, ledger.Policy{ReversalSink: budgetID("sink2")}), onBudget(ledger.OpFund, "shut2", "f3", 50),
		reserve("shut2", "x", 50), on(ledger.OpCommit, "x", "", 0), onBudget(ledger.OpClose, "shut2", "c3", 0), on(ledger.OpReverse, "x", "r", 50),
		onBudget(ledger.OpDefund, "sink2", "d3", 20))
	r := b.refused(ledger.InsufficientBudget, on(ledger.OpReinstate, "x", "r", 0))
	if r.Available != 30 || r.Requested != 50 || r.Field != "refund_id" {
		t.Errorf("%+v", r)
	}
	b.audit()
}

func TestControlCommands(t *testing.T) {
	b := newBench(t)
	r := b.ok(create("spring", 3, ledger.Policy{}))
	if r.Replayed || r.Definition.State != ledger.BudgetOpen || r.Definition.Epoch.Buckets != 3 {
		t.Errorf("create: %+v", r)
	}
	r = b.ok(onBudget(ledger.OpFund, "spring", "f1", 100))
	if r.Totals != (ledger.Balances{Funded: 100, Available: 100}) {
		t.Errorf("fund: %+v", r.Totals)
	}
	for i, want := range []int64{34, 33, 33} {
		if got := b.bucketRow(ledger.BucketID{Budget: budgetID("spring"), Index: uint16(i)}).Available; got != want {
			t.Errorf("bucket %d has %d, want %d", i, got, want)
		}
	}
	if r := b.ok(onBudget(ledger.OpFund, "spring", "f1", 100)); !r.Replayed || r.Totals.Funded != 100 {
		t.Errorf("fund again: %+v", r)
	}
	if r := b.refused(ledger.IdempotencyConflict, onBudget(ledger.OpFund, "spring", "f1", 101)); len(r.Fields) != 1 || r.Fields[0] != "amount_minor" {
		t.Errorf("fund with another amount differs in %v", r.Fields)
	}
	if r := b.refused(ledger.IdempotencyConflict, onBudget(ledger.OpFreeze, "spring", "f1", 0)); r.Fields[0] != "operation" {
		t.Errorf("freeze with the key of a fund differs in %v", r.Fields)
	}
	if r := b.refused(ledger.IdempotencyConflict, create("spring", 4, ledger.Policy{})); len(r.Fields) != 1 || r.Fields[0] != "buckets" {
		t.Errorf("create with other buckets differs in %v", r.Fields)
	}
	if r := b.refused(ledger.InsufficientBudget, onBudget(ledger.OpDefund, "spring", "d1", 101)); r.Available != 100 {
		t.Errorf("defund of too much: %+v", r)
	}
	b.ok(onBudget(ledger.OpDefund, "spring", "d2", 10), onBudget(ledger.OpFreeze, "spring", "z1", 0))
	b.refused(ledger.BudgetFrozenCode, reserve("spring", "a", 1))
	b.refused(ledger.BudgetIllegalState, onBudget(ledger.OpFreeze, "spring", "z2", 0))
	b.ok(onBudget(ledger.OpFund, "spring", "f2", 1), onBudget(ledger.OpUnfreeze, "spring", "u1", 0))
	if r := b.refused(ledger.BudgetFrozenCode, reserve("spring", "a", 1)); !r.Replayed {
		t.Error("a recorded refusal was forgotten")
	}
	b.ok(reserve("spring", "b", 1), onBudget(ledger.OpClose, "spring", "c1", 0), on(ledger.OpCommit, "b", "", 0))
	b.refused(ledger.BudgetClosedCode, reserve("spring", "c", 1))
	b.refused(ledger.BudgetIllegalState, onBudget(ledger.OpFund, "spring", "f3", 1))
	b.refused(ledger.BudgetIllegalState, onBudget(ledger.OpUnfreeze, "spring", "u2", 0))
	b.refused(ledger.BudgetIllegalState, onBudget(ledger.OpClose, "spring", "c2", 0))
	b.ok(onBudget(ledger.OpDefund, "spring", "d3", 90))
	b.refused(ledger.BudgetNotFound, onBudget(ledger.OpFund, "nowhere", "f4", 1))
	b.refused(ledger.BudgetNotFound, reserve("nowhere", "a2", 1))
	b.refused(ledger.BudgetNotFound, create("x", 1, ledger.Policy{ReversalSink: budgetID("nowhere")}))
	if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 1, Committed: 1}) {
		t.Errorf("at the end: %+v", got)
	}
	b.audit()
}
