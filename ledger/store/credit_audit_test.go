package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
)

// What is planted in the rows of wallets, jobs and quoted benefits is found.
func TestAuditFindsPlantedCreditCorruption(t *testing.T) {
	id := ledger.BucketID{Budget: budgetID("acme")}
	editJob := func(b *bench, fn func(r *ledger.Reservation)) {
		r, err := b.Job(context.Background(), "t1", "j")
		if err != nil {
			b.t.Fatal(causes(err))
		}
		fn(r)
		b.set(b.reservationKey(r.Key), encodeReservation(r))
	}
	editLines := func(b *bench, fn func(a *ledger.Allocation)) {
		v, err := b.Allocations(context.Background(), orderKey("o"))
		if err != nil || len(v) != 1 {
			b.t.Fatal(causes(err))
		}
		fn(&v[0].Allocation)
		b.set(b.allocationKey(orderKey("o"), 1, ""), encodeAllocation(&v[0].Allocation))
	}
	editSplit := func(b *bench, fn func(s *ledger.Split)) {
		v, err := b.Allocations(context.Background(), orderKey("o"))
		if err != nil || len(v) != 1 || v[0].Refunds[0].ID != "r1" {
			b.t.Fatal(causes(err), v)
		}
		fn(&v[0].Refunds[0].Split)
		b.set(b.allocationKey(orderKey("o"), 1, "r1"), encodeSplit(&v[0].Refunds[0].Split))
	}
	for _, tc := range []struct {
		check, name string
		plant       func(b *bench)
	}{
		{"balances_legal", "a debt above the cap", func(b *bench) {
			b.editBucket(id, func(k *ledger.Bucket) { k.Available -= 200; k.Reserved += 200 })
		}},
		{"balances_legal", "a charge below the overdraft", func(b *bench) {
			b.rewrite(id, func(es []ledger.Entry) []ledger.Entry {
				for i := range es {
					if es[i].Type == ledger.EntryCharge {
						es[i].After.Available -= 101
						es[i].After.Committed += 101
					}
				}
				return es
			})
		}},
		{"budget_definition", "another debt cap", func(b *bench) {
			b.editBudget("acme", func(v *ledger.Budget) { v.Policy.DebtCap++ })
		}},
		{"budget_definition", "another kind", func(b *bench) {
			b.editBudget("spring", func(v *ledger.Budget) { v.Kind = ledger.KindWallet })
		}},
		{"reservation_state", "a refund after the success", func(b *bench) {
			editJob(b, func(r *ledger.Reservation) { // the success before the refund it took back
				rs := r.Attempts[0].Receipts
				rs[1], rs[2] = rs[2], rs[1]
			})
		}},
		{"one_entry_per_transition", "a reclaim that is gone", func(b *bench) {
			editJob(b, func(r *ledger.Reservation) { r.Attempts[0].Receipts = r.Attempts[0].Receipts[:2] })
		}},
		{"refund_lines", "a line that paid more", func(b *bench) { editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Paid++ }) }},
		{"refund_lines", "money from one line to another", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Reversed--; a.Lines[1].Cells[0].Reversed++ })
		}},
		{"refund_lines", "money from one funder to another", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Reversed--; a.Lines[0].Cells[1].Reversed++ })
		}},
		{"refund_lines", "what one line paid given to another", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Paid--; a.Lines[1].Cells[0].Paid++ })
		}},
		{"refund_lines", "what one funder paid given to another", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Paid--; a.Lines[0].Cells[1].Paid++ })
		}},
		{"refund_lines", "more paid than was reserved", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Paid++; a.Total++ })
		}},
		{"refund_lines", "another quote", func(b *bench) { editLines(b, func(a *ledger.Allocation) { a.Quote.Lines[0].Quantity++ }) }},
		{"refund_lines", "another weight", func(b *bench) { editLines(b, func(a *ledger.Allocation) { a.Quote.Funders[0].Weight++ }) }},
		{"refund_lines", "a refund of other funders, told alike everywhere", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Reversed--; a.Lines[0].Cells[1].Reversed++ })
			editSplit(b, func(s *ledger.Split) { s.Lines[0].Amounts[0]--; s.Lines[0].Amounts[1]++ })
		}},
		{"refund_lines", "a refund of another line, told alike everywhere", func(b *bench) {
			editLines(b, func(a *ledger.Allocation) {
				l := a.Lines
				l[0].Returned, l[1].Returned = l[0].Returned-2, l[1].Returned+2
				for f := range l[0].Cells {
					n := l[0].Cells[f].Reversed
					l[0].Cells[f].Reversed -= n
					l[1].Cells[f].Reversed += n
				}
			})
			editSplit(b, func(s *ledger.Split) { s.Lines[0].Index = 1 })
		}},
		{"refund_lines", "a unit that never came back", func(b *bench) { editLines(b, func(a *ledger.Allocation) { a.Lines[0].Returned++ }) }},
		{"refund_lines", "a refund that the lines do not know", func(b *bench) { editLines(b, func(a *ledger.Allocation) { a.Lines[0].Cells[0].Reversed++ }) }},
		{"refund_lines", "an allocation that is gone", func(b *bench) { b.drop(b.allocationKey(orderKey("o"), 1, "")) }},
		{"refund_lines", "a split that is gone", func(b *bench) { b.drop(b.allocationKey(orderKey("o"), 1, "r1")) }},
		{"refund_lines", "an allocation of an attempt without a quote", func(b *bench) {
			v := b.rows(b.allocationsKey(orderKey("o")).all())[0]
			b.set(b.allocationKey(orderKey("o"), 2, ""), v.Value)
		}},
		{"rows_belong", "an allocation of no reservation", func(b *bench) {
			v := b.rows(b.allocationsKey(orderKey("o")).all())[0]
			b.set(b.allocationKey(orderKey("nobody"), 1, ""), v.Value)
		}},
		{"rows_readable", "an allocation of another form", func(b *bench) { b.set(b.allocationKey(orderKey("o"), 1, ""), []byte{9}) }},
	} {
		t.Run(tc.check+"/"+tc.name, func(t *testing.T) {
			b := newAcme(t)
			b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
			b.ok(job(ledger.OpCharge, "j", 30), job(ledger.OpRefund, "j", 0), job(ledger.OpReclaimCharge, "j", 0))
			b.ok(quoted(reserve("spring", "o", 700)), on(ledger.OpCommit, "o", "", 0), byLine("o", "r1", "A", 2), byLine("o", "r2", "B", 1), on(ledger.OpReinstate, "o", "r2", 0))
			b.audit()
			tc.plant(b)
			rep, err := b.Audit(context.Background(), nil)
			if err != nil {
				t.Fatal(causes(err))
			}
			for _, c := range rep.Checks {
				if c.Name == tc.check && c.Problems > 0 {
					return
				}
			}
			t.Errorf("check %s found nothing; the report: %+v", tc.check, rep.Checks)
		})
	}
}

// Random commands on jobs and quoted orders, many of them illegal or sent
// before, over the store: the net of each job is its cost or nothing, and the
// audit, which follows the receipts by rules of its own, agrees with every row.
func TestStoreAgainstNets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newAcme(t)
		b.ok(create("spring", 3, ledger.Policy{LateCommit: ledger.LateReclaim}), onBudget(ledger.OpFund, "spring", "f1", 3000))
		nets := map[string]*net{}
		for range 40 {
			if rapid.Bool().Draw(rt, "job") {
				jobStep(rt, b, nets)
			} else {
				orderStep(rt, b)
			}
		}
		sum := int64(0)
		for _, n := range nets {
			sum += n.net
		}
		if got := b.totals(budgetID("acme")); got.Available != 100-sum || got.Reserved != 0 {
			rt.Fatalf("the wallet has %+v, the jobs took %d", got, sum)
		}
		b.audit()
	})
}

// net is what the plainest model knows of a job.
type net struct {
	cost, net int64
	refunded  bool
	delivered bool
}

func jobStep(rt *rapid.T, b *bench, nets map[string]*net) {
	id := fmt.Sprint("j", rapid.IntRange(0, 3).Draw(rt, "id"))
	n := nets[id]
	op := rapid.SampledFrom([]ledger.Op{ledger.OpCharge, ledger.OpRefund, ledger.OpReclaimCharge}).Draw(rt, "op")
	c := job(op, id, 0)
	if op == ledger.OpCharge {
		c.Amount = rapid.Int64Range(1, 30).Draw(rt, "cost")
	}
	sum := int64(0)
	for _, x := range nets {
		sum += x.net
	}
	code := codeOf(rt, b.one(c).Err)
	want := ledger.Code("")
	switch {
	case op == ledger.OpCharge && n == nil && c.Amount > 100-sum:
		want = ledger.InsufficientBudget
		nets[id] = &net{}
	case op == ledger.OpCharge && n == nil:
		nets[id] = &net{cost: c.Amount, net: c.Amount}
	case n == nil:
		want = ledger.ReservationNotFound
	case op == ledger.OpCharge:
		if want = ledger.IdempotencyConflict; n.cost == 0 {
			want = code // which of the two depends on the amount that was refused
		} else if c.Amount == n.cost {
			want = ""
		}
	case n.cost == 0:
		want = ledger.IllegalState
	case op == ledger.OpRefund && n.delivered && !n.refunded:
		want = ledger.JobDelivered
	case op == ledger.OpRefund && !n.refunded:
		n.refunded, n.net = true, 0
	case op == ledger.OpReclaimCharge && n.net == 0 && n.cost > 150-sum:
		want = ledger.DebtCapReached
	case op == ledger.OpReclaimCharge:
		n.delivered, n.net = true, n.cost
	}
	if code != want {
		rt.Fatalf("%s of %s: %q, want %q (%+v)", op, id, code, want, n)
	}
}

func orderStep(rt *rapid.T, b *bench) {
	order := fmt.Sprint("o", rapid.IntRange(0, 2).Draw(rt, "order"))
	refund := fmt.Sprint("r", rapid.IntRange(0, 4).Draw(rt, "refund"))
	var c ledger.Command
	switch rapid.IntRange(0, 6).Draw(rt, "kind") {
	case 0:
		c = quoted(reserve("spring", order, 700))
	case 1:
		c = on(ledger.OpCommit, order, "", rapid.SampledFrom([]int64{0, 0, 500}).Draw(rt, "amount"))
	case 2:
		c = on(ledger.OpReverse, order, refund, rapid.Int64Range(1, 300).Draw(rt, "amount"))
	case 3, 4:
		c = byLine(order, refund, rapid.SampledFrom([]string{"A", "B", "C"}).Draw(rt, "line"), rapid.Int64Range(1, 3).Draw(rt, "units"))
	case 5:
		c = on(ledger.OpReinstate, order, refund, 0)
	default:
		c = on(ledger.OpRelease, order, "", 0)
	}
	if err := b.one(c).Err; err != nil && strings.Contains(causes(err), string(ledger.Corrupt)) {
		rt.Fatal(causes(err))
	}
}

func TestAllocationCodecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &ledger.Allocation{Total: genMoney.Draw(t, "total")}
		a.Quote = ledger.Quote{ID: genMaybe.Draw(t, "id"), Rounding: ledger.Rounding(rapid.IntRange(0, 3).Draw(t, "rounding"))}
		for range rapid.IntRange(0, ledger.MaxFunders).Draw(t, "funders") {
			a.Quote.Funders = append(a.Quote.Funders, ledger.Funder{ID: genID.Draw(t, "funder"), Weight: genMoney.Draw(t, "weight")})
		}
		sp := &ledger.Split{}
		for i := range rapid.IntRange(1, 20).Draw(t, "lines") {
			a.Quote.Lines = append(a.Quote.Lines, ledger.QuoteLine{ID: genID.Draw(t, "line"), Quantity: genMoney.Draw(t, "quantity"), Amount: genMoney.Draw(t, "amount")})
			l := ledger.LineAllocation{Returned: genMoney.Draw(t, "returned")}
			s := ledger.SplitLine{Index: i, Quantity: genMoney.Draw(t, "units")}
			for range max(1, len(a.Quote.Funders)) {
				l.Cells = append(l.Cells, ledger.Cell{Paid: genMoney.Draw(t, "paid"), Reversed: genMoney.Draw(t, "reversed")})
				s.Amounts = append(s.Amounts, genMoney.Draw(t, "split"))
			}
			a.Lines = append(a.Lines, l)
			sp.Lines = append(sp.Lines, s)
		}
		got, err := decodeAllocation(encodeAllocation(a))
		same(t, a, got, err)
		split, err := decodeSplit(encodeSplit(sp), a)
		same(t, sp, split, err)
		v := encodeAllocation(a)
		if _, err := decodeAllocation(v[:len(v)-1]); err == nil {
			t.Fatal("a value that is cut short is read")
		}
		k := ledger.OrderKey{Tenant: genID.Draw(t, "tenant"), Order: genID.Draw(t, "order"), Benefit: genID.Draw(t, "benefit")}
		attempt, refund := genU32.Draw(t, "attempt"), genMaybe.Draw(t, "refund")
		gotK, gotA, gotR, err := bare().allocationOf(bare().allocationKey(k, attempt, refund))
		if err != nil || gotK != k || gotA != attempt || gotR != refund {
			t.Fatalf("%v %d %q, %v", gotK, gotA, gotR, err)
		}
	})
}

// The largest quote, and the largest refund of it, stay well below what a store
// takes as one value.
func TestLargestQuote(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1<<50))
	long := strings.Repeat("x", ledger.MaxIDBytes-4)
	c := reserve("spring", "o", 0)
	q := &ledger.Quote{}
	for i := range ledger.MaxQuoteLines {
		q.Lines = append(q.Lines, ledger.QuoteLine{ID: fmt.Sprintf("%s%04d", long, i), Quantity: 1000, Amount: 1 << 40})
		c.Amount += 1 << 40
	}
	for i := range ledger.MaxFunders {
		q.Funders = append(q.Funders, ledger.Funder{ID: fmt.Sprintf("%s%04d", long, i), Weight: int64(1 + i)})
	}
	c.Quote = q
	b.ok(c, on(ledger.OpCommit, "o", "", 0), on(ledger.OpReverse, "o", "r1", 1<<46))
	for _, row := range b.rows(b.allocationsKey(orderKey("o")).all()) {
		t.Logf("a row has %d bytes", len(row.Value))
		if len(row.Value) > 64<<10 {
			t.Errorf("a row has %d bytes", len(row.Value))
		}
	}
	b.audit()
}

func FuzzDecodeAllocation(f *testing.F) {
	fuzz(f, seeds(f, tableAllocation), decodeAllocation, encodeAllocation)
}

func FuzzDecodeSplit(f *testing.F) {
	a := &ledger.Allocation{Lines: make([]ledger.LineAllocation, 3)}
	a.Quote.Funders = make([]ledger.Funder, 2)
	fuzz(f, seeds(f, tableAllocation), func(v []byte) (*ledger.Split, error) { return decodeSplit(v, a) }, encodeSplit)
}
