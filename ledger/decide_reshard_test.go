package ledger

import (
	"testing"

	"pgregory.net/rapid"
)

// apply takes a decision's entries into the view, as the store does, and checks
// that each follows from the one before it.
func (v *BudgetView) apply(t testing.TB, d *BudgetDecision) {
	t.Helper()
	if d.Budget != nil {
		for i := len(v.Buckets); i < d.Budget.Made(); i++ {
			v.Buckets = append(v.Buckets, &Bucket{ID: BucketID{Budget: v.Budget.ID, Index: uint16(i)}})
		}
		v.Budget = d.Budget
	}
	for i := range d.Entries {
		en := &d.Entries[i].Entry
		b := v.Buckets[d.Entries[i].Bucket.Index]
		after, ok := b.Balances.Add(en.Delta)
		if !ok || after != en.After || en.Seq != b.Seq+1 || after.Check(0) != nil {
			t.Fatalf("%s in %s: number %d after %d, %+v and %+v make %+v", en.Type, b.ID, en.Seq, b.Seq, b.Balances, en.Delta, en.After)
		}
		b.Balances, b.Seq = en.After, en.Seq
	}
}

func reshardTo(n int, key string) *Command {
	return &Command{Op: OpReshard, Budget: BudgetID{Tenant: "t1", Key: "spring"}, ID: key, Buckets: n}
}

func TestReshardLevelsAndRetires(t *testing.T) {
	v := budgetWorld(BudgetOpen, 103)
	v.Buckets[0].Reserved, v.Buckets[0].Funded = 50, 153
	d := DecideBudget(v, reshardTo(4, "up"))
	if d.Rejection != nil || d.Budget.Epoch != (Epoch{Number: 2, Buckets: 4}) || d.Receipt.Epoch != d.Budget.Epoch || d.Result.Definition.Epoch != d.Budget.Epoch {
		t.Fatalf("%+v", d)
	}
	first := d.Entries[0]
	if first.Bucket.Index != 0 || first.Entry.Type != EntryReshard || first.Entry.Peer.Index != 3 || first.Entry.Delta != (Balances{}) || first.Entry.Cause != "up" {
		t.Errorf("the first entry is %+v", first)
	}
	if en := d.Entries[1].Entry; en.Type != EntryMoveOut || en.Cause != "reshard:up" {
		t.Errorf("the second entry is %+v", en)
	}
	v.apply(t, &d)
	for i, want := range []int64{26, 26, 26, 25} {
		if got := v.Buckets[i].Available; got != want {
			t.Errorf("bucket %d has %d, want %d", i, got, want)
		}
	}
	if v.Buckets[0].Reserved != 50 || d.Result.Totals != (Balances{Funded: 153, Available: 103, Reserved: 50}) {
		t.Errorf("bucket 0 has %+v, the answer says %+v", v.Buckets[0].Balances, d.Result.Totals)
	}
	d = DecideBudget(v, reshardTo(2, "down"))
	v.apply(t, &d)
	if v.Budget.Epoch != (Epoch{Number: 3, Buckets: 2, Retired: 2}) || v.Budget.Made() != 4 {
		t.Errorf("epoch %+v", v.Budget.Epoch)
	}
	for i, want := range []int64{52, 51, 0, 0} {
		if got := v.Buckets[i].Available; got != want {
			t.Errorf("bucket %d has %d, want %d", i, got, want)
		}
	}
	// What a retired bucket gets back later goes home by a move.
	v.Buckets[3].Available, v.Buckets[3].Funded = 7, 7
	d = DecideBudget(v, reshardTo(8, "up again"))
	v.apply(t, &d)
	if v.Budget.Epoch != (Epoch{Number: 4, Buckets: 8}) || v.Buckets[7].Available != 13 || v.Buckets[0].Available != 14 {
		t.Errorf("epoch %+v, %+v", v.Budget.Epoch, v.Buckets[7])
	}
	// A repeated command gets the epoch that it began.
	r := BudgetReceipt{Op: OpReshard, Budget: v.Budget.ID, Request: reshardTo(4, "up").Canonical(), State: BudgetOpen, Epoch: Epoch{Number: 2, Buckets: 4}}
	v.Receipt = &r
	if d := DecideBudget(v, reshardTo(4, "up")); !d.Result.Replayed || d.Result.Definition.Epoch != r.Epoch || d.Entries != nil || d.Budget != nil {
		t.Errorf("the replay is %+v", d)
	}
	if d := DecideBudget(v, reshardTo(5, "up")); d.Rejection == nil || d.Rejection.Code != IdempotencyConflict || d.Rejection.Fields[0] != "buckets" {
		t.Errorf("another number under the same key: %+v", d.Rejection)
	}
}

func TestReshardIsRefused(t *testing.T) {
	wallet := budgetWorld(BudgetOpen, 5)
	wallet.Budget.Kind = KindWallet
	full := budgetWorld(BudgetOpen, MaxSum, MaxSum)
	for name, c := range map[string]struct {
		v    *BudgetView
		n    int
		code Code
	}{
		"closed":       {budgetWorld(BudgetClosed, 5), 2, BudgetIllegalState},
		"same number":  {budgetWorld(BudgetOpen, 5, 5), 2, BudgetIllegalState},
		"wallet":       {wallet, 2, BudgetKindMismatch},
		"too much":     {full, 1, AmountOverflow},
		"no budget":    {&BudgetView{}, 2, BudgetNotFound},
		"frozen is ok": {budgetWorld(BudgetFrozen, 5), 2, ""},
	} {
		d := DecideBudget(c.v, reshardTo(c.n, "k"))
		if c.code == "" {
			if d.Rejection != nil || d.Result.Definition.State != BudgetFrozen {
				t.Errorf("%s: %+v", name, d)
			}
			continue
		}
		if d.Rejection == nil || d.Rejection.Code != c.code || d.Entries != nil || d.Budget != nil || d.Receipt != nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, n := range []int{-1, 0, 257} {
		if r := reshardTo(n, "k").Validate(); r == nil || r.Field != "buckets" || r.Limit != "1 to 256" {
			t.Errorf("%d buckets: %v", n, r)
		}
	}
	if r := reshardTo(2, "").Validate(); r == nil || r.Field != "idempotency_key" {
		t.Errorf("without a key: %v", r)
	}
}

func moveOf(from, to uint16, amount int64) *Command {
	return &Command{Op: OpMove, Budget: BudgetID{Tenant: "t1", Key: "spring"}, ID: "m1", From: from, To: to, Amount: amount}
}

func TestMove(t *testing.T) {
	v := budgetWorld(BudgetOpen, 10, 20, 30)
	v.Budget.Epoch = Epoch{Number: 2, Buckets: 2, Retired: 1}
	d := DecideBudget(v, moveOf(2, 1, 30))
	if d.Rejection != nil || len(d.Entries) != 2 || d.Entries[0].Entry.Cause != "move:m1" || d.Entries[0].Entry.Peer.Index != 1 || d.Entries[1].Entry.Peer.Index != 2 || d.Receipt.Op != OpMove {
		t.Fatalf("%+v", d)
	}
	if n, ok := d.Receipt.Amount(); n != 30 || !ok {
		t.Errorf("its receipt says %d, %v", n, ok)
	}
	v.apply(t, &d)
	if v.Buckets[1].Available != 50 || v.Buckets[2].Balances != (Balances{}) {
		t.Errorf("buckets %+v and %+v", v.Buckets[1].Balances, v.Buckets[2].Balances)
	}
	for name, c := range map[string]struct {
		state BudgetState
		c     *Command
		code  Code
		field string
	}{
		"more than it has":      {BudgetOpen, moveOf(0, 1, 11), InsufficientBudget, "amount_minor"},
		"from nowhere":          {BudgetOpen, moveOf(9, 1, 1), InvalidArgument, "from"},
		"to nowhere":            {BudgetOpen, moveOf(0, 9, 1), BudgetIllegalState, "to"},
		"to a retired bucket":   {BudgetOpen, moveOf(0, 2, 1), BudgetIllegalState, "to"},
		"within a closed one":   {BudgetClosed, moveOf(0, 1, 1), BudgetIllegalState, ""},
		"to the same bucket":    {BudgetOpen, moveOf(1, 1, 1), InvalidArgument, "to"},
		"nothing":               {BudgetOpen, moveOf(0, 1, 0), InvalidArgument, "amount_minor"},
		"to the unallocated":    {BudgetOpen, moveOf(0, Unallocated, 1), InvalidArgument, "to"},
		"from a bucket too far": {BudgetOpen, moveOf(257, 0, 1), InvalidArgument, "from"},
	} {
		v.Budget.State = c.state
		r := c.c.Validate()
		if r == nil {
			r = DecideBudget(v, c.c).Rejection
		}
		if r == nil || r.Code != c.code || r.Field != c.field {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func TestPlanSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, total := genHave(t)
		living := rapid.IntRange(1, len(have)).Draw(t, "living")
		moves := PlanSpread(have, living)
		if len(moves) >= len(have) {
			t.Fatalf("%d moves over %d buckets", len(moves), len(have))
		}
		left := append([]int64(nil), have...)
		for _, m := range moves {
			if left[m.From] -= m.Amount; m.Amount <= 0 || left[m.From] < 0 || int(m.To) >= living || m.From == m.To {
				t.Fatalf("move %+v leaves %d", m, left[m.From])
			}
			left[m.To] += m.Amount
		}
		for i, v := range left {
			want := int64(0)
			if i < living {
				want = total / int64(living)
				if int64(i) < total%int64(living) {
					want++
				}
			}
			if v != want {
				t.Fatalf("bucket %d of %d ends with %d, want %d", i, living, v, want)
			}
		}
		if again := PlanSpread(left, living); again != nil {
			t.Fatalf("a level budget is levelled by %v", again)
		}
	})
	if got := PlanSpread([]int64{-1, 5}, 1); got != nil {
		t.Errorf("a bucket in debt makes moves %v", got)
	}
}
