package store

import (
	"context"
	"fmt"
	"math/bits"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// Every order in which two workers' signals can come, five failures and five
// successes, over the store: each job in one batch, so that its commands see
// each other before anything is written, and the last signals once more alone.
func TestEveryOrderOfSignals(t *testing.T) {
	b := newAcme(t)
	b.ok(onBudget(ledger.OpFund, "acme", "more", 900))
	id := ledger.BucketID{Budget: budgetID("acme")}
	seen := map[int]int{} // jobs by their rows
	for mask := range 1 << 10 {
		if bits.OnesCount(uint(mask)) != 5 {
			continue
		}
		name := fmt.Sprint("j", mask)
		cmds := []ledger.Command{job(ledger.OpCharge, name, 3).Normalize()}
		for i := range 10 {
			op := ledger.OpRefund
			if mask>>i&1 == 1 {
				op = ledger.OpReclaimCharge
			}
			cmds = append(cmds, job(op, name, 0).Normalize())
		}
		got, err := b.Apply(context.Background(), &id, cmds)
		if err != nil {
			t.Fatal(causes(err))
		}
		successFirst := mask&1 == 1
		for i, g := range got {
			if late := successFirst && cmds[i].Op == ledger.OpRefund; late {
				wantCode(t, ledger.JobDelivered, g.Err)
			} else if g.Err != nil {
				t.Fatalf("order %b, signal %d: %v", mask, i, g.Err)
			}
		}
		rows := 3
		if successFirst {
			rows = 1
			b.refused(ledger.JobDelivered, job(ledger.OpRefund, name, 0))
		} else if !b.ok(job(ledger.OpRefund, name, 0)).Replayed {
			t.Fatal("a late failure is not replayed")
		}
		if !b.ok(job(ledger.OpReclaimCharge, name, 0)).Replayed {
			t.Fatal("a late success is not replayed")
		}
		a := must(b.Job(context.Background(), "t1", name))(t).Attempts[0]
		if int(a.Leg.Committed-a.Leg.Reversed) != 3 {
			t.Fatalf("order %b has net %d", mask, a.Leg.Committed-a.Leg.Reversed)
		}
		seen[rows]++
		if want := int64(1000 - 3*(seen[1]+seen[3])); b.totals(id.Budget).Available != want {
			t.Fatalf("order %b leaves %d, want %d", mask, b.totals(id.Budget).Available, want)
		}
	}
	entries := 0
	for _, en := range b.entries(id.Budget) {
		if en.Order != "" {
			entries++
		}
	}
	if seen[1] != 126 || seen[3] != 126 || entries != 126*1+126*3 {
		t.Errorf("jobs by rows: %v, %d rows in all", seen, entries)
	}
	b.audit()
}

// must is a value that has to come without an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(causes(err))
		}
		return v
	}
}
