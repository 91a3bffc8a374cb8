package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// All budgets of all tenants come up once, those that are wanted with their
// buckets; one that cannot be read keeps none of the others away.
func TestAllBudgets(t *testing.T) {
	b := newBench(t)
	for i := range 37 {
		c := create(fmt.Sprintf("b%02d", i), 1+i%3, ledger.Policy{})
		c.Budget.Tenant = fmt.Sprint("t", i%2)
		b.ok(c)
	}
	bad := ledger.BudgetID{Tenant: "t0", Key: "b04"}
	b.set(b.budgetKey(bad), []byte{9, 9})
	torn := ledger.BudgetID{Tenant: "t1", Key: "b05"}
	b.set(b.bucketKey(ledger.BucketID{Budget: torn, Index: 1}), []byte{9})
	seen, looked, broken := map[ledger.BudgetID]int{}, 0, map[ledger.BudgetID]bool{}
	var from []byte
	for pages := 0; ; pages++ {
		page, err := b.AllBudgets(context.Background(), from, 7, func(d *ledger.Budget) bool { return d.Made() > 1 })
		if err != nil {
			t.Fatal(causes(err))
		}
		looked += page.Looked
		for _, u := range page.Unreadable {
			broken[u.ID] = u.Budget == nil
			if u.Problem == "" {
				t.Errorf("%s is unreadable for no reason", u.ID)
			}
		}
		for i := range page.Budgets {
			v := &page.Budgets[i]
			seen[v.ID]++
			if len(v.Buckets) != v.Made() || v.Made() < 2 {
				t.Errorf("%s has %d buckets of %d", v.ID, len(v.Buckets), v.Made())
			}
		}
		if from = page.Next; from == nil {
			break
		}
		if pages > 37 {
			t.Fatal("the pages do not end")
		}
	}
	if looked != 37 || len(seen) != 24-2 || seen[bad] != 0 || seen[torn] != 0 { // every third has one bucket
		t.Errorf("looked at %d, read %d", looked, len(seen))
	}
	if len(broken) != 2 || !broken[bad] || broken[torn] {
		t.Errorf("unreadable are %v", broken)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came up %d times", id, n)
		}
	}
}
