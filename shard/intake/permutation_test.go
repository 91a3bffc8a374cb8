package intake

import (
	"context"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
)

// permutations calls each with every order of n things.
func permutations(n int, each func([]int)) {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	var rec func(int)
	rec = func(k int) {
		if k == n {
			each(p)
			return
		}
		for i := k; i < n; i++ {
			p[k], p[i] = p[i], p[k]
			rec(k + 1)
			p[k], p[i] = p[i], p[k]
		}
	}
	rec(0)
}

// Every order of what happens to an order ends in one legal state, or in an
// exception that everybody can see; no money is lost, and nothing is left
// waiting after the deadline.
func TestEveryPermutation(t *testing.T) {
	cfg := DefaultConfig()
	coupon := reserve("o", "coupon", 100)
	for _, tc := range []struct {
		name  string
		facts []fact.Fact
		opens ledger.Command
		want  ledger.Balances // where no fact ends as an exception
		clean int             // permutations without exception
	}{
		{"refund undone", []fact.Fact{
			says(fact.PaymentSucceeded, "o", "p1", line("coupon", 0)),
			says(fact.RefundSucceeded, "o", "r1", line("coupon", 100)),
			says(fact.RefundCancelled, "o", "r1", line("coupon", 0)),
		}, coupon, ledger.Balances{Funded: 1000, Available: 900, Committed: 100}, 24},
		{"two refunds, one undone", []fact.Fact{
			says(fact.PaymentSucceeded, "o", "p1"),
			says(fact.RefundSucceeded, "o", "r1", line("coupon", 60)),
			says(fact.RefundSucceeded, "o", "r2", line("coupon", 100)),
			says(fact.RefundCancelled, "o", "r1", line("coupon", 0)),
		}, coupon, ledger.Balances{Funded: 1000, Available: 1000, Committed: 100, Reversed: 100}, 120},
		{"cancelled and refunded", []fact.Fact{
			says(fact.PaymentSucceeded, "o", "p1"),
			says(fact.RefundSucceeded, "o", "r1", line("coupon", 100)),
			says(fact.OrderCancelled, "o", ""),
		}, coupon, ledger.Balances{Funded: 1000, Available: 1000, Committed: 100, Reversed: 100}, 24},
		{"all", []fact.Fact{
			says(fact.PaymentSucceeded, "o", "p1", line("coupon", 0)),
			says(fact.RefundSucceeded, "o", "r1", line("coupon", 100)),
			says(fact.RefundCancelled, "o", "r1", line("coupon", 0)),
			says(fact.OrderCancelled, "o", "", line("coupon", 0)),
		}, coupon, ledger.Balances{Funded: 1000, Available: 900, Committed: 100}, -1},
		{"first payment failed", []fact.Fact{
			says(fact.PaymentFailed, "o", "p1"),
			says(fact.PaymentSucceeded, "o", "p2"),
		}, coupon, ledger.Balances{Funded: 1000, Available: 900, Committed: 100}, 6},
		{"job failed, then succeeded", []fact.Fact{
			says(fact.JobFailed, "job", "1"), says(fact.JobFailed, "job", "2"), says(fact.JobSucceeded, "job", ""),
		}, job(ledger.OpCharge, "job", 100), ledger.Balances{Funded: 1000, Available: 900, Committed: 100}, 24},
		{"hold failed, then succeeded", []fact.Fact{
			says(fact.JobFailed, "job", "1"), says(fact.JobFailed, "job", "2"), says(fact.JobSucceeded, "job", ""),
		}, job(ledger.OpHold, "job", 100), ledger.Balances{Funded: 1000, Available: 900, Committed: 100}, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clean := 0
			permutations(len(tc.facts)+1, func(p []int) {
				b := open(t, cfg)
				defer b.close()
				b.budget(1000, ledger.Policy{LateCommit: ledger.LateReclaim})
				b.wallet(1000, 0)
				for _, i := range p {
					if i < len(tc.facts) {
						b.submit(tc.facts[i], tc.facts[i])
						continue
					}
					if _, err := b.exec.Do(context.Background(), tc.opens); err != nil && code(err) != ledger.CancelledBeforeReserve {
						t.Fatal(err)
					}
					if err := b.Settle(context.Background(), "t", tc.opens.Key.Order); err != nil {
						t.Fatal(err)
					}
				}
				b.advance(cfg.Deadline)
				if err := b.Settle(context.Background(), "t", tc.facts[0].Order); err != nil {
					t.Fatal(err)
				}
				exceptions := 0
				for _, f := range tc.facts {
					row, err := b.Get(context.Background(), f.ID)
					if err != nil {
						t.Fatal(err)
					}
					switch row.State {
					case fact.Exception:
						exceptions++
						if row.Reason == "" || row.Settled.IsZero() {
							t.Errorf("%v: an exception without evidence: %+v", p, row)
						}
					case fact.Applied:
					default:
						t.Errorf("%v: %s is %s after the deadline", p, f.Kind, row.State)
					}
				}
				if got := b.totalsOf(tc.opens.Budget); exceptions == 0 {
					clean++
					if got != tc.want {
						t.Errorf("%v: the budget is %+v, want %+v", p, got, tc.want)
					}
				}
				b.audit()
			})
			if tc.clean >= 0 && clean != tc.clean {
				t.Errorf("%d permutations end without exception, want %d", clean, tc.clean)
			}
			t.Logf("%d permutations end without exception", clean)
		})
	}
}
