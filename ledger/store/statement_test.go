package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

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
	for _, cutoff := range []time.Time{hour(1), {}} { // none is now
		_, _, err = b.Statement(ctx, id, hour(98), cutoff, Page{})
		if r := wantCode(t, ledger.InvalidArgument, err); r.Field != "from_time" || r.Message != "lies after the cutoff" {
			t.Errorf("%+v", r)
		}
	}
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
