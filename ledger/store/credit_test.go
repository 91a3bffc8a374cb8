package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

func wallet(key string, p ledger.Policy) ledger.Command {
	c := create(key, 1, p)
	c.Kind = ledger.KindWallet
	return c
}

func job(op ledger.Op, id string, amount int64) ledger.Command {
	c := ledger.Command{Op: op, Key: ledger.JobKey("t1", id), Amount: amount}
	if op.Opens() {
		c.Budget, c.Currency = budgetID("acme"), "BRL"
	}
	if op == ledger.OpHold {
		c.TTL = 15 * time.Minute
	}
	return c
}

// newAcme is a bench with wallet acme, which has 100 and may owe 50.
func newAcme(t testing.TB) *bench {
	b := newBench(t)
	b.ok(wallet("acme", ledger.Policy{LateCommit: ledger.LateReclaim, DebtCap: 50, OverCommit: ledger.OverCommit{Percent: 50}}), onBudget(ledger.OpFund, "acme", "grant", 100))
	return b
}

// rows are the entries of a job.
func (b *bench) jobRows(id string) (types []ledger.EntryType) {
	for _, en := range b.entries(budgetID("acme")) {
		if en.Order == id {
			types = append(types, en.Type)
		}
	}
	return types
}

// S1, S13 for credits: many workers signal at once that the same job failed and
// that it succeeded. Whoever is first, the net is the cost: three rows or one.
func TestConcurrentSignals(t *testing.T) {
	b := newAcme(t)
	id := ledger.BucketID{Budget: budgetID("acme")}
	const rounds = 12
	orders := map[int]int{}
	for round := range rounds {
		name := fmt.Sprint("j", round)
		b.ok(job(ledger.OpCharge, name, 3))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				op := ledger.OpRefund
				if (i+round)%2 == 0 {
					op = ledger.OpReclaimCharge
				}
				_, err := b.Apply(context.Background(), &id, []ledger.Command{job(op, name, 0).Normalize()})
				if err != nil {
					t.Errorf("%s: %v", op, causes(err))
				}
			})
		}
		wg.Wait()
		rows := b.jobRows(name)
		orders[len(rows)]++
		if len(rows) != 1 && len(rows) != 3 {
			t.Errorf("job %s has rows %v", name, rows)
		}
		if got, want := b.totals(budgetID("acme")).Available, int64(100-3*(round+1)); got != want {
			t.Fatalf("after job %s available is %d, want %d", name, got, want)
		}
	}
	t.Logf("jobs by their rows: %v", orders)
	b.audit()
}

// A hundred callers charge one job at once: one charge, one row.
func TestConcurrentCharges(t *testing.T) {
	b := newAcme(t)
	id := ledger.BucketID{Budget: budgetID("acme")}
	var wg sync.WaitGroup
	var mu sync.Mutex
	first := 0
	for range 100 {
		wg.Go(func() {
			got, err := b.Apply(context.Background(), &id, []ledger.Command{job(ledger.OpCharge, "j", 30).Normalize()})
			if err != nil || got[0].Err != nil {
				t.Errorf("%v", err)
				return
			}
			if !got[0].Result.Replayed {
				mu.Lock()
				first++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if rows := b.jobRows("j"); first != 1 || len(rows) != 1 || b.totals(budgetID("acme")).Available != 70 {
		t.Errorf("%d first answers, rows %v", first, rows)
	}
	b.audit()
}

// The answer is lost between the commit and the caller, who sends the command
// again. Whether it had landed or not: one effect.
func TestLostAnswersOfCredits(t *testing.T) {
	for name, tc := range map[string]struct {
		before []ledger.Command
		lost   ledger.Command
		want   ledger.Balances
	}{
		"charge":           {nil, job(ledger.OpCharge, "j", 30), ledger.Balances{Funded: 100, Available: 70, Committed: 30}},
		"refund":           {[]ledger.Command{job(ledger.OpCharge, "j", 30)}, job(ledger.OpRefund, "j", 0), ledger.Balances{Funded: 100, Available: 100, Committed: 30, Reversed: 30}},
		"reclaim":          {[]ledger.Command{job(ledger.OpCharge, "j", 30), job(ledger.OpRefund, "j", 0)}, job(ledger.OpReclaimCharge, "j", 0), ledger.Balances{Funded: 100, Available: 70, Committed: 30}},
		"success, noted":   {[]ledger.Command{job(ledger.OpCharge, "j", 30)}, job(ledger.OpReclaimCharge, "j", 0), ledger.Balances{Funded: 100, Available: 70, Committed: 30}},
		"settle":           {[]ledger.Command{job(ledger.OpHold, "j", 40)}, job(ledger.OpSettle, "j", 25), ledger.Balances{Funded: 100, Available: 75, Committed: 25}},
		"overage":          {[]ledger.Command{job(ledger.OpHold, "j", 40)}, job(ledger.OpSettle, "j", 55), ledger.Balances{Funded: 100, Available: 45, Committed: 55}},
		"refund of a line": {[]ledger.Command{quoted(reserve("spring", "o", 700)), on(ledger.OpCommit, "o", "", 0)}, byLine("o", "r1", "A", 2), ledger.Balances{Funded: 1000, Available: 567, Committed: 700, Reversed: 267}},
		"reinstatement": {
			[]ledger.Command{quoted(reserve("spring", "o", 700)), on(ledger.OpCommit, "o", "", 0), byLine("o", "r1", "A", 2)},
			on(ledger.OpReinstate, "o", "r1", 0), ledger.Balances{Funded: 1000, Available: 300, Committed: 700},
		},
	} {
		for _, landsFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/landed %v", name, landsFirst), func(t *testing.T) {
				b := newAcme(t)
				b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
				b.ok(tc.before...)
				id := budgetID("acme")
				if !tc.lost.Key.IsJob() {
					id = budgetID("spring")
				}
				entries := len(b.entries(id))
				release, done := b.loseNext()
				_, err := b.Apply(context.Background(), &ledger.BucketID{Budget: id}, []ledger.Command{tc.lost.Normalize()})
				wantCode(t, ledger.OutcomeUnknown, err)
				if landsFirst {
					close(release)
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
				for i := range 3 {
					r := b.one(tc.lost)
					if r.Err != nil {
						t.Fatal(causes(r.Err))
					}
					if first := i == 0 && !landsFirst; r.Result.Replayed == first {
						t.Errorf("retry %d is replayed: %v", i+1, r.Result.Replayed)
					}
				}
				if !landsFirst { // what was lost comes at last, and finds that it was done
					close(release)
					if err := <-done; !errors.Is(err, kv.ErrConflict) {
						t.Errorf("the late landing ends with %v, want a conflict", err)
					}
				}
				if got := b.totals(id); got != tc.want {
					t.Errorf("%+v, want %+v", got, tc.want)
				}
				rows := 1
				if name == "success, noted" {
					rows = 0
				}
				if got := len(b.entries(id)) - entries; got != rows {
					t.Errorf("%d rows, want %d", got, rows)
				}
				b.audit()
			})
		}
	}
}

// loseNext makes the next writing commit answer as timed out. It lands, if it
// still can, when release is closed; done tells.
func (b *bench) loseNext() (release chan struct{}, done chan error) {
	release, done = make(chan struct{}), make(chan error, 1)
	var first atomic.Bool
	f := func() embedded.Fault {
		if first.Swap(true) {
			return embedded.Fault{}
		}
		return embedded.Fault{Kind: embedded.FaultTimeoutLate, Release: release, Landed: func(_ kv.Stamp, err error) { done <- err }}
	}
	b.fate.Store(&f)
	return release, done
}

func byLine(order, refund, line string, n int64) ledger.Command {
	c := on(ledger.OpReverse, order, refund, 0)
	c.Lines = []ledger.RefundLine{{ID: line, Quantity: n}}
	return c
}

// S5: refunds of one line from all sides at once never exceed what was paid on
// it, and end exact to the unit.
func TestConcurrentRefundsByLine(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), quoted(reserve("spring", "o", 700)), on(ledger.OpCommit, "o", "", 0))
	id := ledger.BucketID{Budget: budgetID("spring")}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			c := byLine("o", fmt.Sprint("r", i%6), "A", 1) // each refund is sent twice
			if _, err := b.Apply(context.Background(), &id, []ledger.Command{c.Normalize()}); err != nil {
				t.Error(causes(err))
			}
		})
	}
	wg.Wait()
	views, err := b.Allocations(context.Background(), orderKey("o"))
	if err != nil || len(views) != 1 {
		t.Fatalf("%+v, %v", views, err)
	}
	paid, back := views[0].Lines[0].Paid()
	if paid != 400 || back != 400 || views[0].Lines[0].Returned != 3 || len(views[0].Refunds) != 3 {
		t.Errorf("line A: paid %d, refunded %d for %d units in %d refunds", paid, back, views[0].Lines[0].Returned, len(views[0].Refunds))
	}
	if _, back := views[0].Lines[1].Paid(); back != 0 {
		t.Errorf("line B refunded %d", back)
	}
	b.audit()
}

// A hold of a job expires as any hold does (S3, S7), and the late settlement
// is not thrown away (S4).
func TestHoldOfAJobExpires(t *testing.T) {
	b := newAcme(t)
	b.ok(job(ledger.OpHold, "j", 60))
	b.advance(16 * time.Minute)
	if err := b.RebuildExpiry(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	found := 0
	for slot := range uint64(ExpirySlots) {
		blocks, err := b.DueBlocks(context.Background(), slot, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, bl := range blocks {
			for _, k := range bl.Keys {
				found++
				b.ok(ledger.Command{Op: ledger.OpExpire, Key: k.OrderKey, Attempt: k.Attempt})
			}
		}
	}
	if found != 1 || b.totals(budgetID("acme")).Available != 100 {
		t.Fatalf("found %d holds, available is %d", found, b.totals(budgetID("acme")).Available)
	}
	b.ok(job(ledger.OpCharge, "other", 90))
	if r := b.ok(job(ledger.OpSettle, "j", 55)); !r.Outcome.Late {
		t.Errorf("%+v", r.Outcome)
	}
	if got := b.totals(budgetID("acme")); got != (ledger.Balances{Funded: 100, Available: -45, Committed: 145}) {
		t.Errorf("%+v", got)
	}
	b.refused(ledger.JobDelivered, job(ledger.OpRefund, "j", 0))
	b.audit()
	ex, err := b.Explain(context.Background(), "t1", "j", ledger.JobBenefit)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"held 0.60 BRL of wallet acme for 15m", "expired: 0.60 BRL returned", "settled 0.55 BRL after expiry: a late commit"} {
		if !strings.HasPrefix(ex.Timeline[i].Text, want) {
			t.Errorf("event %d: %q, want %q…", i, ex.Timeline[i].Text, want)
		}
	}
}

// S10: another cost under the same key is a conflict that names the field.
func TestAnotherCost(t *testing.T) {
	b := newAcme(t)
	b.ok(job(ledger.OpCharge, "j", 30))
	if r := b.refused(ledger.IdempotencyConflict, job(ledger.OpCharge, "j", 31)); len(r.Fields) != 1 || r.Fields[0] != "amount_minor" {
		t.Errorf("%v", r.Fields)
	}
	other := job(ledger.OpCharge, "j", 30)
	other.Budget = budgetID("else")
	if r := b.refused(ledger.IdempotencyConflict, other); len(r.Fields) != 1 || r.Fields[0] != "wallet" {
		t.Errorf("%v", r.Fields)
	}
}

func TestStatement(t *testing.T) {
	b := newAcme(t)
	ctx := context.Background()
	id := budgetID("acme")
	b.advance(time.Hour)
	b.ok(job(ledger.OpCharge, "a", 30), job(ledger.OpRefund, "a", 0), onBudget(ledger.OpFreeze, "acme", "z", 0), onBudget(ledger.OpUnfreeze, "acme", "y", 0))
	b.advance(time.Hour)
	b.ok(job(ledger.OpReclaimCharge, "a", 0), job(ledger.OpHold, "h", 40))
	b.advance(time.Hour)
	b.ok(job(ledger.OpSettle, "h", 10))
	hour := func(n int) time.Time { return clockStart.Add(time.Duration(n) * time.Hour) }
	for _, tc := range []struct {
		name             string
		from, cutoff     time.Time
		opening, closing int64
		rows             []int64 // the balance after each
	}{
		{"all", time.Time{}, time.Time{}, 0, 60, []int64{100, 70, 100, 70, 30, 60}},
		{"one hour", hour(1), hour(1), 100, 100, []int64{70, 100}},
		{"to a cutoff", time.Time{}, hour(2), 0, 30, []int64{100, 70, 100, 70, 30}},
		{"between", hour(1).Add(time.Minute), hour(2), 100, 30, []int64{70, 30}},
		{"before the first", time.Time{}, hour(0).Add(-time.Second), 0, 0, nil},
		{"after the last", hour(3).Add(-time.Minute), hour(3), 30, 60, []int64{60}},
	} {
		for _, size := range []int{1, 2, 100} {
			var rows []int64
			p := Page{Size: size}
			for {
				v, next, err := b.Statement(ctx, id, tc.from, tc.cutoff, p)
				if err != nil {
					t.Fatal(causes(err))
				}
				if v.Opening.Available != tc.opening || v.Closing.Available != tc.closing || len(v.Rows) > size {
					t.Errorf("%s by %d: opening %d, closing %d, %d rows", tc.name, size, v.Opening.Available, v.Closing.Available, len(v.Rows))
				}
				balance := v.Opening.Available
				if len(rows) > 0 {
					balance = rows[len(rows)-1]
				}
				for _, r := range v.Rows {
					if balance += r.Delta.Available; balance != r.After.Available {
						t.Errorf("%s: the rows add up to %d, the balance is %d", tc.name, balance, r.After.Available)
					}
					rows = append(rows, r.After.Available)
				}
				if next == "" {
					break
				}
				p.Token = next
			}
			if fmt.Sprint(rows) != fmt.Sprint(tc.rows) {
				t.Errorf("%s by %d: balances %v, want %v", tc.name, size, rows, tc.rows)
			}
		}
	}
	// What is written meanwhile is on no page of a statement that has begun.
	v, next, err := b.Statement(ctx, id, time.Time{}, time.Time{}, Page{Size: 4})
	if err != nil || len(v.Rows) != 4 || next == "" {
		t.Fatalf("%d rows, %v", len(v.Rows), err)
	}
	b.ok(job(ledger.OpCharge, "later", 5))
	if v, next, err = b.Statement(ctx, id, time.Time{}, time.Time{}, Page{Size: 4, Token: next}); err != nil || len(v.Rows) != 2 || next != "" || v.Closing.Available != 60 {
		t.Errorf("%d rows to %d, %v", len(v.Rows), v.Closing.Available, err)
	}
	_, _, err = b.Statement(ctx, id, time.Time{}, hour(99), Page{})
	wantCode(t, ledger.CutoffInFuture, err)
	_, _, err = b.Statement(ctx, id, hour(2), hour(1), Page{})
	wantCode(t, ledger.InvalidArgument, err)
	_, _, err = b.Statement(ctx, budgetID("none"), time.Time{}, time.Time{}, Page{})
	wantCode(t, ledger.BudgetNotFound, err)
	b.ok(create("spring", 1, ledger.Policy{}))
	_, _, err = b.Statement(ctx, budgetID("spring"), time.Time{}, time.Time{}, Page{})
	wantCode(t, ledger.BudgetKindMismatch, err)
	_, err = b.Wallet(ctx, budgetID("spring"))
	wantCode(t, ledger.BudgetKindMismatch, err)
	_, err = b.Job(ctx, "t1", "nothing")
	wantCode(t, ledger.ReservationNotFound, err)
}

// Wallets and promotion budgets have lists of their own.
func TestListsByKind(t *testing.T) {
	b := newBench(t)
	for i := range 9 {
		b.ok(wallet(fmt.Sprint("w", i), ledger.Policy{}), create(fmt.Sprint("p", i), 1, ledger.Policy{}), wallet(fmt.Sprint("a", i), ledger.Policy{}))
	}
	for name, list := range map[string]func(context.Context, string, Page) ([]BudgetView, string, error){"wallets": b.Wallets, "budgets": b.Budgets} {
		want := map[string]int{"wallets": 18, "budgets": 9}[name]
		for _, size := range []int{1, 4, 100} {
			n, p := 0, Page{Size: size}
			for {
				views, next, err := list(context.Background(), "t1", p)
				if err != nil {
					t.Fatal(causes(err))
				}
				for _, v := range views {
					if n++; (v.Kind == ledger.KindWallet) != (name == "wallets") {
						t.Errorf("%s is among the %s", v.ID, name)
					}
				}
				if next == "" {
					break
				}
				p.Token = next
			}
			if n != want {
				t.Errorf("%d %s by %d, want %d", n, name, size, want)
			}
		}
	}
}

// The row of a budget that was written before there were wallets is read as it
// was, and written as it was.
func TestOldBudgetRow(t *testing.T) {
	b := &ledger.Budget{
		ID: budgetID("spring"), Currency: "BRL", State: ledger.BudgetOpen, Epoch: ledger.Epoch{Number: 1, Buckets: 4}, Created: clockStart,
		Policy: ledger.Policy{MaxLifetime: time.Hour}, Definition: []byte("d"),
	}
	if v := encodeBudget(b); v[0] != 1 {
		t.Errorf("a promotion budget has form %d", v[0])
	}
	b.Kind, b.Policy.Overdraft, b.Policy.DebtCap = ledger.KindWallet, 5, 7
	v := encodeBudget(b)
	got, err := decodeBudget(b.ID, v)
	if err != nil || got.Kind != b.Kind || got.Policy != b.Policy || v[0] != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := decodeBudget(b.ID, append([]byte{3}, v[1:]...)); err == nil {
		t.Error("a form of the future is read")
	}
}
