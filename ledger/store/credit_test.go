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
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
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
			on(ledger.OpReinstate, "o", "r1", 0),
			ledger.Balances{Funded: 1000, Available: 300, Committed: 700},
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
	testengine.OnlyEmbedded(b.t, "it injects faults")
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
		blocks, err := b.DueBlocks(context.Background(), slot, DueBlock{}, 10)
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

// Delivered work that the wallet may not owe is refused, seen by a person, and
// paid once the wallet was funded.
func TestReclaimAboveTheDebtCap(t *testing.T) {
	b := newAcme(t)
	b.ok(job(ledger.OpCharge, "j", 80), job(ledger.OpRefund, "j", 0), job(ledger.OpCharge, "other", 75))
	for range 2 {
		b.refused(ledger.DebtCapReached, job(ledger.OpReclaimCharge, "j", 0))
	}
	cases, _, err := b.Cases(context.Background(), "t1", Page{})
	if err != nil || len(cases) != 1 || cases[0].Amount != 80 || !cases[0].Key.IsJob() || cases[0].State != ledger.StateReversed {
		t.Errorf("cases: %+v, %v", cases, err)
	}
	b.audit()
	b.advance(time.Minute)
	b.ok(onBudget(ledger.OpFund, "acme", "more", 5), job(ledger.OpReclaimCharge, "j", 0))
	if got := b.totals(budgetID("acme")); got != (ledger.Balances{Funded: 105, Available: -50, Committed: 155}) {
		t.Errorf("%+v", got)
	}
	ex, err := b.Explain(context.Background(), "t1", "j", ledger.JobBenefit)
	if err != nil || len(ex.Timeline) != 4 || !strings.HasPrefix(ex.Timeline[2].Text, "delivered, but 0.80 BRL could not be taken; a case was opened") {
		t.Errorf("%+v, %v", ex, err)
	}
	b.audit()
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

// S1, S2, S6 for credits: settlements of one hold from all sides at once, whole
// and in parts, take together what was held and what the policy allows above
// it, once.
func TestConcurrentSettlements(t *testing.T) {
	b := newAcme(t)
	id := ledger.BucketID{Budget: budgetID("acme")}
	b.ok(job(ledger.OpHold, "whole", 30), job(ledger.OpHold, "parts", 30))
	var wg sync.WaitGroup
	var mu sync.Mutex
	parts := 0
	for i := range 16 {
		wg.Go(func() {
			c := job(ledger.OpSettle, "parts", 7)
			c.Partial, c.ID = true, fmt.Sprint("part-", i)
			if i%2 == 0 {
				c = job(ledger.OpSettle, "whole", 25)
			}
			got, err := b.Apply(context.Background(), &id, []ledger.Command{c.Normalize()})
			if err != nil {
				t.Error(causes(err))
				return
			}
			if mu.Lock(); c.Partial && got[0].Err == nil {
				parts++
			}
			mu.Unlock()
		})
	}
	wg.Wait()
	// Four parts fit into the hold; the fifth takes what is left of it and 5
	// above, and ends it.
	if got := b.totals(budgetID("acme")); parts != 5 || got != (ledger.Balances{Funded: 100, Available: 40, Committed: 60}) {
		t.Errorf("%d parts, %+v", parts, got)
	}
	if rows := b.jobRows("whole"); len(rows) != 2 || rows[1] != ledger.EntrySettle {
		t.Errorf("rows %v", rows)
	}
	b.audit()
}
