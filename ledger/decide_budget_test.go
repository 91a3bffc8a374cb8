package ledger

import (
	"testing"
)

func budgetWorld(state BudgetState, available ...int64) *BudgetView {
	b := &Budget{ID: BudgetID{Tenant: "t1", Key: "spring"}, Currency: "BRL", State: state, Epoch: Epoch{Number: 1, Buckets: uint16(len(available))}}
	v := &BudgetView{Now: start, Budget: b}
	for i, a := range available {
		v.Buckets = append(v.Buckets, &Bucket{ID: BucketID{Budget: b.ID, Index: uint16(i)}, Balances: Balances{Funded: a, Available: a}, Seq: 3})
	}
	return v
}

func TestBudgetStates(t *testing.T) {
	legal := map[Op]map[BudgetState]BudgetState{
		OpFreeze:   {BudgetOpen: BudgetFrozen},
		OpUnfreeze: {BudgetFrozen: BudgetOpen},
		OpClose:    {BudgetOpen: BudgetClosed, BudgetFrozen: BudgetClosed},
		OpFund:     {BudgetOpen: BudgetOpen, BudgetFrozen: BudgetFrozen},
		OpDefund:   {BudgetOpen: BudgetOpen, BudgetFrozen: BudgetFrozen, BudgetClosed: BudgetClosed},
	}
	for op, table := range legal {
		for from := BudgetOpen; from <= BudgetClosed; from++ {
			c := good(op)
			d := DecideBudget(budgetWorld(from, 100, 100), &c)
			to, ok := table[from]
			if !ok {
				if d.Rejection == nil || d.Rejection.Code != BudgetIllegalState || d.Rejection.State != from.String() || d.Entries != nil || d.Budget != nil || d.Receipt != nil {
					t.Errorf("%s from %s: %+v", op, from, d)
				}
				continue
			}
			if d.Rejection != nil || d.Result.Definition.State != to || d.Receipt.State != to || len(d.Entries) == 0 {
				t.Errorf("%s from %s: %+v", op, from, d)
			}
			for _, en := range d.Entries {
				if en.Entry.Seq != 4 || en.Entry.After.Check(0) != nil || en.Entry.Cause != "id" {
					t.Errorf("%s writes %+v", op, en)
				}
			}
		}
	}
}

// New budgets are in a currency that is in use, also a young one, or in a unit of
// their owner's. What was withdrawn stays with the budgets that have it: they take
// commands, and are made again with the first answer.
func TestCurrenciesOfBudgets(t *testing.T) {
	create := func(v *BudgetView, cur string) BudgetDecision {
		c := good(OpCreate)
		c.Currency = cur
		if r := c.Validate(); r != nil {
			t.Fatalf("%s: %v", cur, r)
		}
		return DecideBudget(v, &c)
	}
	for _, cur := range []string{"BRL", "USD", "XAF", "XCG", "SLE", "VED", "ZWG", "MRU", "CREDIT", "POINTS_2"} {
		if d := create(&BudgetView{Now: start}, cur); d.Rejection != nil || d.Budget == nil || d.Budget.Currency != cur {
			t.Errorf("%s: %v", cur, d.Rejection)
		}
	}
	for _, cur := range []string{"XYZ", "XXX", "XTS", "XAU", "DEM"} {
		d := create(&BudgetView{Now: start}, cur)
		if r := d.Rejection; r == nil || r.Code != InvalidArgument || r.Field != "currency" || r.Value != `"`+cur+`"` || d.Budget != nil {
			t.Errorf("%s: %+v", cur, d)
		}
	}
	v := budgetWorld(BudgetOpen, 100)
	c := good(OpCreate)
	c.Currency = "DEM"
	v.Budget.Currency, v.Budget.Definition = "DEM", c.Canonical()
	if d := create(v, "DEM"); d.Rejection != nil || !d.Result.Replayed {
		t.Errorf("made again: %+v", d)
	}
	f := good(OpFund)
	f.Currency = "DEM"
	if d := DecideBudget(v, &f); f.Validate() != nil || d.Rejection != nil || d.Result.Totals.Funded != 110 {
		t.Errorf("funded: %+v", d)
	}
}

func TestFundSpreadsAndDefundTakesInProportion(t *testing.T) {
	c := good(OpFund)
	c.Amount = 8
	d := DecideBudget(budgetWorld(BudgetOpen, 0, 0, 0), &c)
	for i, want := range []int64{3, 3, 2} {
		if got := d.Entries[i].Entry.Delta; got != (Balances{Funded: want, Available: want}) {
			t.Errorf("bucket %d gets %+v, want %d", i, got, want)
		}
	}
	c.Amount = 2
	if d := DecideBudget(budgetWorld(BudgetOpen, 0, 0, 0), &c); len(d.Entries) != 2 {
		t.Errorf("2 over 3 buckets make %d entries", len(d.Entries))
	}
	c = good(OpDefund)
	c.Amount = 50
	d = DecideBudget(budgetWorld(BudgetOpen, 90, 10, 0), &c)
	if len(d.Entries) != 2 || d.Entries[0].Entry.Delta.Funded != -45 || d.Entries[1].Entry.Delta.Funded != -5 || d.Result.Totals.Funded != 50 {
		t.Errorf("%+v", d)
	}
}

func TestFundOverflows(t *testing.T) {
	c := good(OpFund)
	c.Amount = MaxSum
	for _, v := range []*BudgetView{budgetWorld(BudgetOpen, 1), budgetWorld(BudgetOpen, MaxSum, 5)} {
		d := DecideBudget(v, &c)
		if d.Rejection == nil || d.Rejection.Code != AmountOverflow || d.Rejection.Field != "amount_minor" || d.Rejection.Value != itoa(MaxSum) || d.Rejection.Limit == "" || d.Receipt != nil {
			t.Errorf("%+v", d)
		}
	}
	if d := DecideBudget(budgetWorld(BudgetOpen, 0), &c); d.Rejection != nil || d.Result.Totals.Funded != MaxSum {
		t.Errorf("the largest sum: %+v", d)
	}
}

func TestCreate(t *testing.T) {
	c := good(OpCreate)
	d := DecideBudget(&BudgetView{Now: start}, &c)
	if d.Rejection != nil || d.Budget == nil || d.Budget.State != BudgetOpen || d.Budget.Epoch != (Epoch{Number: 1, Buckets: 4}) || len(d.Entries) != 1 ||
		d.Entries[0].Entry.Type != EntryCreate || d.Entries[0].Entry.Seq != 1 || d.Receipt != nil {
		t.Fatalf("%+v", d)
	}
	made := d.Budget
	made.State = BudgetClosed // the first answer stays the answer
	d = DecideBudget(&BudgetView{Now: start, Budget: made}, &c)
	if d.Rejection != nil || !d.Result.Replayed || d.Result.Definition.State != BudgetOpen || d.Budget != nil || d.Entries != nil {
		t.Errorf("again: %+v", d)
	}
	c.Policy.OverCommit.Percent, c.Currency = 7, "USD"
	d = DecideBudget(&BudgetView{Now: start, Budget: made}, &c)
	wantFields(t, d.Rejection, "currency", "policy.over_commit.percent")
	if want := "exists with other values of currency, policy.over_commit.percent (BRL, 0)"; d.Rejection.Message != want {
		t.Errorf("the refusal says %s, want %s", d.Rejection.Message, want)
	}
	c.Policy.ReversalSink = BudgetID{Tenant: "t1", Key: "sink"}
	d = DecideBudget(&BudgetView{Now: start, Budget: made}, &c)
	if want := "exists with other values of currency, policy.over_commit.percent, policy.reversal_sink (BRL, 0, none)"; d.Rejection.Message != want {
		t.Errorf("the refusal says %s, want %s", d.Rejection.Message, want)
	}
	if d := DecideBudget(&BudgetView{Now: start}, &c); d.Rejection == nil || d.Rejection.Code != BudgetNotFound || d.Rejection.Field != "policy.reversal_sink" {
		t.Errorf("a sink that is not there: %v", d.Rejection)
	}
	if d := DecideBudget(&BudgetView{Now: start, Sink: &Budget{Currency: "BRL"}}, &c); d.Rejection == nil || d.Rejection.Code != CurrencyMismatch || d.Rejection.Value != "BRL" || d.Rejection.Limit != "USD" {
		t.Errorf("a sink of another currency: %v", d.Rejection)
	}
}

func TestBudgetReplayAndRefusals(t *testing.T) {
	c := good(OpFund)
	v := budgetWorld(BudgetOpen, 0)
	d := DecideBudget(v, &c)
	v.Receipt, v.Budget.State = d.Receipt, BudgetClosed
	again := DecideBudget(v, &c)
	if again.Rejection != nil || !again.Result.Replayed || again.Result.Totals != d.Result.Totals || again.Result.Definition.State != BudgetOpen || again.Entries != nil {
		t.Errorf("again: %+v", again)
	}
	other := c
	other.Amount, other.Currency = 11, "USD"
	r := DecideBudget(v, &other).Rejection
	wantFields(t, r, "amount_minor", "currency")
	if r.Field != "idempotency_key" || r.Value != `"id"` || r.Message != "was first used for FUND of budget spring with other values of amount_minor, currency (10, BRL)" {
		t.Errorf("%+v", r)
	}
	other = good(OpDefund)
	wantFields(t, DecideBudget(v, &other).Rejection, "operation")
	v = budgetWorld(BudgetOpen, 5)
	c.Currency = "USD"
	if r := DecideBudget(v, &c).Rejection; r == nil || r.Code != CurrencyMismatch || r.Field != "currency" || r.Value != "USD" || r.Limit != "BRL" {
		t.Errorf("%+v", r)
	}
	c = good(OpDefund)
	if r := DecideBudget(v, &c).Rejection; r == nil || r.Code != InsufficientBudget || r.Available != 5 || r.Requested != 10 {
		t.Errorf("%+v", r)
	}
	v.Budget = nil
	if r := DecideBudget(v, &c).Rejection; r == nil || r.Code != BudgetNotFound || r.Value != "spring" {
		t.Errorf("%+v", r)
	}
	c = good(OpReserve)
	if r := DecideBudget(budgetWorld(BudgetOpen, 1), &c).Rejection; r == nil || r.Code != InvalidArgument {
		t.Errorf("%+v", r)
	}
}
