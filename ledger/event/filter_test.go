package event

import (
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

func TestFilterValidate(t *testing.T) {
	ok := Filter{Types: []string{"coffer.*", "coffer.budget.*", "coffer.reservation.reserved.v1"}, Budgets: []ledger.BudgetID{{Key: "b"}}}
	if r := ok.Validate(); r != nil {
		t.Errorf("a good filter: %v", r)
	}
	for field, f := range map[string]Filter{
		"types[0]":   {Types: []string{"coffer.reservation"}},
		"types[1]":   {Types: []string{"coffer.*", "*"}},
		"budgets[0]": {Budgets: []ledger.BudgetID{{}}},
		"types":      {Types: make([]string, MaxFilterTypes+1)},
		"budgets":    {Budgets: make([]ledger.BudgetID, MaxFilterBudgets+1)},
	} {
		if r := f.Validate(); r == nil || r.Code != ledger.InvalidArgument || r.Field != field {
			t.Errorf("%s: %v", field, r)
		}
	}
}

func TestFilterWants(t *testing.T) {
	e := Event{Bucket: ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t", Key: "b"}}, Entry: ledger.Entry{Type: ledger.EntryReserve, Order: "o", Benefit: "c"}}
	move := e
	move.Entry.Type = ledger.EntryMoveIn
	for i, tc := range []struct {
		f    Filter
		e    *Event
		want bool
	}{
		{Filter{Tenant: "t"}, &e, true},
		{Filter{}, &e, false},
		{Filter{Tenant: "u"}, &e, false},
		{Filter{Tenant: "t"}, &move, false},
		{Filter{Tenant: "t", Internal: true}, &move, true},
		{Filter{Tenant: "t", Types: []string{"coffer.reservation.*"}}, &e, true},
		{Filter{Tenant: "t", Types: []string{"coffer.res*"}}, &e, true},
		{Filter{Tenant: "t", Types: []string{"coffer.job.*", "coffer.reservation.committed.v1"}}, &e, false},
		{Filter{Tenant: "t", Budgets: []ledger.BudgetID{{Tenant: "t", Key: "c"}}}, &e, false},
		{Filter{Tenant: "t", Budgets: []ledger.BudgetID{{Tenant: "t", Key: "b"}}}, &e, true},
	} {
		if got := tc.f.Wants(tc.e); got != tc.want {
			t.Errorf("%d: %v, want %v", i, got, tc.want)
		}
	}
}
