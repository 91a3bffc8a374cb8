package intake

import (
	"context"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
)

// A refund by amount of a benefit that was priced with a quote: it is divided
// over the quote's lines and funders, and its cancellation gives back just that.
func TestRefundOfQuotedBenefit(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	r := reserve("o", "coupon", 100)
	r.Quote = &ledger.Quote{
		ID:      "q",
		Lines:   []ledger.QuoteLine{{ID: "A", Quantity: 2, Amount: 60}, {ID: "B", Quantity: 1, Amount: 40}},
		Funders: []ledger.Funder{{ID: "us", Weight: 3}, {ID: "maker", Weight: 1}},
	}
	b.must(r)
	refunded := func(want [2][2]int64) {
		t.Helper()
		views, err := b.st.Allocations(context.Background(), r.Key)
		if err != nil || len(views) != 1 {
			t.Fatalf("%v %v", views, err)
		}
		var got [2][2]int64
		for i, l := range views[0].Allocation.Lines {
			for f, c := range l.Cells {
				got[i][f] = c.Reversed
			}
		}
		if got != want {
			t.Errorf("refunded by line and funder: %v, want %v", got, want)
		}
	}
	first, rest := says(fact.RefundSucceeded, "o", "r1", line("coupon", 50)), says(fact.RefundSucceeded, "o", "r2", line("coupon", 50))
	b.submit(first) // before the payment: it waits
	b.submit(says(fact.PaymentSucceeded, "o", "p1"))
	if row := b.is(first, fact.Applied, ""); len(row.Effects) != 1 || row.Effects[0].Op != ledger.OpReverse || row.Effects[0].Outcome.Amount != 50 {
		t.Errorf("%+v", row.Effects)
	}
	b.money(950, 0, 100, 50)
	refunded([2][2]int64{{23, 7}, {15, 5}}) // 30 of 60 is 22.5 and 7.5, the first of equal remainders takes the unit
	b.submit(rest, rest)
	b.is(rest, fact.Applied, "")
	b.money(1000, 0, 100, 100)
	refunded([2][2]int64{{45, 15}, {30, 10}})
	above := says(fact.RefundSucceeded, "o", "r3", line("coupon", 1))
	b.submit(above)
	b.is(above, fact.Pending, "all of it is refunded already")
	b.submit(says(fact.RefundCancelled, "o", "r1"))
	b.is(above, fact.Applied, "")
	b.money(951, 0, 100, 51)
	b.audit()
}
