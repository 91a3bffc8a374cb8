package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// story drives every command once, over three budgets, and leaves rows of all
// kinds: holds, commits, refunds, sinks, refusals, tombstones, voids, a case.
func story(b *bench) {
	b.ok(
		create("sink", 2, ledger.Policy{}),
		create("spring", 4, ledger.Policy{OverCommit: ledger.OverCommit{Percent: 10}, LateCommit: ledger.LateReclaim}),
		create("closing", 1, ledger.Policy{ReversalSink: budgetID("sink"), LateCommit: ledger.LateCase}),
		onBudget(ledger.OpFund, "spring", "f1", 10_000),
		onBudget(ledger.OpFund, "closing", "f2", 1_000),
		onBudget(ledger.OpDefund, "spring", "d1", 999),
		reserve("spring", "held", 500),
		quoted(reserve("spring", "paid", 700)),
		reserve("spring", "over", 100),
		reserve("spring", "late", 60),
		reserve("spring", "gone", 70),
		reserve("closing", "sunk", 300),
		reserve("closing", "case", 40),
		on(ledger.OpCommit, "paid", "p1", 650),
		on(ledger.OpCommit, "over", "p1", 110),
		on(ledger.OpCommit, "sunk", "p1", 300),
		on(ledger.OpReverse, "paid", "r1", 50),
		on(ledger.OpExtend, "held", "e1", 0),
		on(ledger.OpRelease, "gone", "", 0),
		on(ledger.OpRelease, "never", "", 0),
		ledger.Command{Op: ledger.OpResolve, Key: orderKey("lost"), Target: ledger.OpReserve},
	)
	b.refused(ledger.InsufficientBudget, reserve("spring", "big", 100_000))
	b.advance(16 * time.Minute)
	b.ok(on(ledger.OpExpire, "late", "", 0), on(ledger.OpExpire, "case", "", 0), on(ledger.OpCommit, "late", "p9", 0),
		on(ledger.OpReclaim, "gone", "", 0), onBudget(ledger.OpFreeze, "closing", "z1", 0), onBudget(ledger.OpClose, "closing", "z2", 0),
		on(ledger.OpReverse, "sunk", "r1", 120), on(ledger.OpReverse, "sunk", "r2", 30), on(ledger.OpReinstate, "sunk", "r2", 0),
		withAttempt(reserve("spring", "never", 25), 2))
	b.refused(ledger.LateCommitCase, on(ledger.OpCommit, "case", "p1", 0))
	b.refused(ledger.CancelledBeforeReserve, reserve("spring", "never", 25))
}

// quoted adds a quote to a reserve of 700: two lines and two funders.
func quoted(c ledger.Command) ledger.Command {
	c.Quote = &ledger.Quote{
		ID: "q-1", Lines: []ledger.QuoteLine{{ID: "A", Quantity: 3, Amount: 400}, {ID: "B", Quantity: 1, Amount: 300}},
		Funders: []ledger.Funder{{ID: "brand", Weight: 60}, {ID: "shop", Weight: 40}},
	}
	return c
}

func TestLifecycle(t *testing.T) {
	b := newBench(t)
	story(b)
	if got, want := b.totals(budgetID("spring")), (ledger.Balances{Funded: 9001, Available: 7636, Reserved: 525, Committed: 890, Reversed: 50}); got != want {
		t.Errorf("spring has %+v, want %+v", got, want)
	}
	if got, want := b.totals(budgetID("closing")), (ledger.Balances{Funded: 880, Available: 700, Committed: 300, Reversed: 120}); got != want {
		t.Errorf("closing has %+v, want %+v", got, want)
	}
	if got, want := b.totals(budgetID("sink")), (ledger.Balances{Funded: 120, Available: 120}); got != want {
		t.Errorf("sink has %+v, want %+v", got, want)
	}
	rep := b.audit()
	if rep.Budgets != 3 || rep.Reservations != 10 || rep.Cases != 1 || rep.Events != rep.Entries || rep.Entries == 0 {
		t.Errorf("the audit counted %+v", rep)
	}
	if got, want := rep.Totals["BRL"], (ledger.Balances{Funded: 10_001, Available: 8456, Reserved: 525, Committed: 1190, Reversed: 170}); got != want {
		t.Errorf("the audit's total is %+v, want %+v", got, want)
	}
	for _, c := range rep.Checks {
		if c.Checked == 0 && c.Name != "queue_jobs" && !strings.HasPrefix(c.Name, "fact") { // TestAuditCountsWork
			t.Errorf("check %s checked nothing", c.Name)
		}
	}
}

func TestExplainTellsEverything(t *testing.T) {
	b := newBench(t)
	story(b)
	for _, tc := range []struct {
		order string
		want  []string
	}{
		{"paid", []string{
			"reserved 7.00 BRL of budget spring for 15m, until 2026-03-01 12:15:00.000 UTC; quote q-1: 2 lines, funded by brand 60, shop 40", "committed 6.50 BRL (payment p1)",
			"refunded 0.50 BRL (refund r1) to the budget; 0.50 BRL of 6.50 BRL refunded; line A 0.29 BRL (brand 0.17, shop 0.12); line B 0.21 BRL (brand 0.13, shop 0.08)",
		}},
		{"over", []string{"reserved 1.00 BRL", "committed 1.10 BRL (payment p1), which is 0.10 BRL above what was reserved"}},
		{"held", []string{"reserved 5.00 BRL", "extended (operation e1), now held until 2026-03-01 12:30:00.000 UTC"}},
		{"late", []string{"reserved 0.60 BRL", "expired: 0.60 BRL returned to the budget", "committed 0.60 BRL (payment p9) after expiry: a late commit, taken from available again"}},
		{"gone", []string{"reserved 0.70 BRL", "released 0.70 BRL back to the budget", "reclaimed 0.70 BRL from available: the order was paid after all"}},
		{"never", []string{"cancelled before any reserve arrived", "reserved 0.25 BRL"}},
		{"lost", []string{"RESERVE settled as never happening"}},
		{"big", []string{"refused: INSUFFICIENT_BUDGET, 1000.00 BRL asked of budget spring, "}},
		{"sunk", []string{
			"reserved 3.00 BRL of budget closing", "committed 3.00 BRL", "refunded 1.20 BRL (refund r1) to bucket sink#",
			"refunded 0.30 BRL (refund r2) to bucket sink#", "refund (refund r2) undone: 0.30 BRL taken from bucket sink#",
		}},
		{"case", []string{"reserved 0.40 BRL", "expired: 0.40 BRL", "late commit of 0.40 BRL refused after expiry; a case was opened"}},
	} {
		ex, err := b.Explain(context.Background(), "t1", tc.order, "")
		if err != nil {
			t.Fatal(causes(err))
		}
		if len(ex.Timeline) != len(tc.want) {
			t.Errorf("%s has %d events, want %d: %+v", tc.order, len(ex.Timeline), len(tc.want), ex.Timeline)
			continue
		}
		for i, ev := range ex.Timeline {
			if !strings.HasPrefix(ev.Text, tc.want[i]) {
				t.Errorf("%s, event %d: %q, want %q…", tc.order, i+1, ev.Text, tc.want[i])
			}
			if i > 0 && ev.Time.Before(ex.Timeline[i-1].Time) {
				t.Errorf("%s, event %d goes back in time", tc.order, i+1)
			}
			if ev.Entry != nil && (ev.Entry.Order != tc.order || ev.Entry.Seq == 0 || !ev.Entry.Time.Equal(ev.Time)) {
				t.Errorf("%s, event %d has entry %+v", tc.order, i+1, ev.Entry)
			}
		}
	}
	_, err := b.Explain(context.Background(), "t1", "nobody", "")
	wantCode(t, ledger.ReservationNotFound, err)
	_, err = b.Explain(context.Background(), "t2", "paid", "")
	wantCode(t, ledger.ReservationNotFound, err)
	_, err = b.Explain(context.Background(), "t1", "paid", "other")
	if r := wantCode(t, ledger.ReservationNotFound, err); !strings.Contains(r.Message, "other") {
		t.Errorf("the error %q does not name the benefit", r)
	}
}

func TestExplainManyBenefits(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 4, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 10_000))
	for i := range 29 {
		c := reserve("spring", "o", int64(i+1))
		c.Key.Benefit = fmt.Sprintf("voucher-%02d", i)
		b.ok(c)
		c.Op = ledger.OpCommit
		b.ok(c)
	}
	ex, err := b.Explain(context.Background(), "t1", "o", "")
	if err != nil {
		t.Fatal(causes(err))
	}
	if len(ex.Reservations) != 29 || len(ex.Timeline) != 58 {
		t.Errorf("explained %d benefits with %d events, want 29 with 58", len(ex.Reservations), len(ex.Timeline))
	}
	one, err := b.Explain(context.Background(), "t1", "o", "voucher-07")
	if err != nil || len(one.Timeline) != 2 || one.Timeline[0].Entry.Delta.Reserved != 8 {
		t.Errorf("one benefit: %+v, %v", one, err)
	}
}
