package ledger

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestApportion(t *testing.T) {
	for _, tc := range []struct {
		total   int64
		weights []int64
		want    []int64
	}{
		{10, []int64{1, 1, 1}, []int64{4, 3, 3}},
		{100, []int64{60, 40}, []int64{60, 40}},
		{1, []int64{1, 2, 3}, []int64{0, 0, 1}},
		{7, []int64{3, 3, 1}, []int64{3, 3, 1}},
		{0, []int64{1, 1}, []int64{0, 0}},
		{5, []int64{0, 0}, []int64{0, 0}},
		{5, []int64{0, 9}, []int64{0, 5}},
		{MaxSum, []int64{MaxSum, MaxSum}, []int64{MaxSum/2 + 1, MaxSum / 2}},
	} {
		if got := Apportion(tc.total, tc.weights); !slices.Equal(got, tc.want) {
			t.Errorf("%d over %v is %v, want %v", tc.total, tc.weights, got, tc.want)
		}
	}
}

func TestApportionIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 20).Draw(t, "weights")
		sum := sumOf(weights)
		total := rapid.Int64Range(0, max(0, sum)).Draw(t, "total")
		shares := Apportion(total, weights)
		if sum == 0 {
			return
		}
		if sumOf(shares) != total {
			t.Fatalf("%v add up to %d, not %d", shares, sumOf(shares), total)
		}
		for i, s := range shares {
			// Within one unit of the exact quota, and never above what is left.
			if s < 0 || s > weights[i] {
				t.Fatalf("share %d of weight %d", s, weights[i])
			}
			quota := float64(total) * (float64(weights[i]) / float64(sum))
			if d := float64(s) - quota; d > 1.01 || d < -1.01 {
				t.Fatalf("share %d, quota %f", s, quota)
			}
		}
	})
}

func TestRounding(t *testing.T) {
	for _, tc := range []struct {
		mode    Rounding
		a, n, d int64
		want    int64
	}{
		{RoundHalfUp, 5, 1, 2, 3},
		{RoundHalfUp, 1000, 1, 3, 333},
		{RoundHalfEven, 5, 1, 2, 2},
		{RoundHalfEven, 7, 1, 2, 4},
		{RoundHalfEven, 1000, 2, 3, 667},
		{RoundDown, 1000, 2, 3, 666},
		{RoundUp, 1000, 1, 3, 334},
		{RoundUp, 1000, 3, 3, 1000},
		{RoundHalfUp, 0, 1, 3, 0},
	} {
		if got := tc.mode.round(tc.a, tc.n, tc.d); got != tc.want {
			t.Errorf("%s of %d·%d/%d is %d, want %d", tc.mode, tc.a, tc.n, tc.d, got, tc.want)
		}
	}
}

func genQuote(t *rapid.T) (*Quote, int64) {
	q := &Quote{Rounding: Rounding(rapid.IntRange(0, 3).Draw(t, "rounding"))}
	total := int64(0)
	for i := range rapid.IntRange(1, 6).Draw(t, "lines") {
		l := QuoteLine{ID: fmt.Sprint("l", i), Quantity: rapid.Int64Range(1, 7).Draw(t, "quantity"), Amount: rapid.Int64Range(0, 500).Draw(t, "amount")}
		q.Lines = append(q.Lines, l)
		total += l.Amount
	}
	if total == 0 {
		q.Lines[0].Amount, total = 1, 1
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "funders") {
		q.Funders = append(q.Funders, Funder{ID: fmt.Sprint("f", i), Weight: rapid.Int64Range(1, 100).Draw(t, "weight")})
	}
	return q, total
}

// Whatever the weights, quantities and roundings: what lines and funders paid
// adds up to the benefit, refunding every unit of every line gives back exactly
// that, in whatever order and portions, and each funder gets exactly what it
// paid.
func TestRefundsByLineAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, total := genQuote(t)
		a := allocate(q, total)
		committed := total
		if rapid.Bool().Draw(t, "other amount") {
			committed = rapid.Int64Range(1, 2*total).Draw(t, "committed")
		}
		a.resize(committed)
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		funded := make([]int64, max(1, len(q.Funders)))
		for i := range a.Lines {
			for f, c := range a.Lines[i].Cells {
				funded[f] += c.Paid
			}
		}
		if committed == total && len(q.Funders) > 0 {
			var weights []int64
			for _, f := range q.Funders {
				weights = append(weights, f.Weight)
			}
			if want := Apportion(total, weights); !slices.Equal(funded, want) {
				t.Fatalf("funders pay %v, want %v", funded, want)
			}
		}
		sum, back := int64(0), make([]int64, len(funded))
		left := make([]int64, len(q.Lines))
		for i := range q.Lines {
			left[i] = q.Lines[i].Quantity
		}
		for sumOf(left) > 0 {
			i := rapid.IntRange(0, len(left)-1).Draw(t, "line")
			if left[i] == 0 {
				i = slices.IndexFunc(left, func(v int64) bool { return v > 0 })
			}
			n := rapid.Int64Range(1, left[i]).Draw(t, "units")
			s, r := a.byLines([]RefundLine{{ID: q.Lines[i].ID, Quantity: n}})
			if r != nil {
				t.Fatal(r)
			}
			a.book(s, 1)
			left[i] -= n
			sum += s.Amount()
			for f, v := range s.Lines[0].Amounts {
				back[f] += v
			}
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if sum != committed || !slices.Equal(back, funded) {
			t.Fatalf("refunded %d of %d, to the funders %v of %v", sum, committed, back, funded)
		}
	})
}

// Refunds by amount and by line, and reinstatements, in any order: nothing is
// refunded twice, and the tail is exact.
func TestMixedRefunds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, total := genQuote(t)
		a := allocate(q, total)
		var done []*Split
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			left := total - a.Reversed()
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				if left == 0 {
					continue
				}
				s := a.byAmount(rapid.Int64Range(1, left).Draw(t, "amount"))
				a.book(s, 1)
				done = append(done, s)
			case 1, 2:
				i := rapid.IntRange(0, len(q.Lines)-1).Draw(t, "line")
				units := q.Lines[i].Quantity - a.Lines[i].Returned
				s, r := a.byLines([]RefundLine{{ID: q.Lines[i].ID, Quantity: units + 1}})
				if r == nil || r.Code != RefundExceedsCommit || s != nil {
					t.Fatalf("more units than there are: %v, %v", s, r)
				}
				if units == 0 {
					continue
				}
				if s, r = a.byLines([]RefundLine{{ID: q.Lines[i].ID, Quantity: rapid.Int64Range(1, units).Draw(t, "units")}}); r != nil {
					t.Fatal(r)
				}
				a.book(s, 1)
				done = append(done, s)
			default:
				if len(done) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(done)-1).Draw(t, "undo")
				a.book(done[i], -1)
				done = slices.Delete(done, i, i+1)
			}
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
		}
		sum := int64(0)
		for _, s := range done {
			sum += s.Amount()
		}
		if sum != a.Reversed() {
			t.Fatalf("the refunds add up to %d, the lines to %d", sum, a.Reversed())
		}
		if left := total - sum; left > 0 {
			a.book(a.byAmount(left), 1)
		}
		if a.Reversed() != total || a.Check() != nil {
			t.Fatalf("refunded %d of %d in the end: %v", a.Reversed(), total, a.Check())
		}
	})
}

func quote() *Quote {
	return &Quote{
		ID: "q-7", Lines: []QuoteLine{{ID: "A", Quantity: 3, Amount: 1000}, {ID: "B", Quantity: 1, Amount: 250}},
		Funders: []Funder{{ID: "brand", Weight: 60}, {ID: "shop", Weight: 40}},
	}
}

func TestReverseByLine(t *testing.T) {
	w := newWorld(t)
	w.bucket.Balances = Balances{Funded: 2000, Available: 2000}
	w.ok(Command{Op: OpReserve, Amount: 1250, Quote: quote()}, Command{Op: OpCommit})
	if !w.attempt().Quoted() {
		t.Fatal("the quote is forgotten")
	}
	amounts := []int64{}
	for i, lines := range [][]RefundLine{{{"A", 1}}, {{"B", 1}, {"A", 1}}, {{"A", 1}}} {
		d := w.ok(Command{Op: OpReverse, ID: fmt.Sprint("r", i), Lines: lines})
		amounts = append(amounts, d.Result.Outcome.Amount)
	}
	if want := []int64{333, 584, 333}; !slices.Equal(amounts, want) {
		t.Errorf("refunds are %v, want %v", amounts, want)
	}
	if a := w.attempt(); a.State != StateReversed || a.Leg.Reversed != 1250 {
		t.Errorf("the benefit is %s, reversed %d", a.State, a.Leg.Reversed)
	}
	// The same lines in another order are the same request, others are not.
	if d := w.do(Command{Op: OpReverse, ID: "r1", Lines: []RefundLine{{"A", 1}, {"B", 1}}}); !d.Result.Replayed {
		t.Errorf("again: %v", d.Rejection)
	}
	wantFields(t, w.refused(IdempotencyConflict, Command{Op: OpReverse, ID: "r0", Lines: []RefundLine{{"A", 2}}}), "lines")
	wantFields(t, w.refused(IdempotencyConflict, Command{Op: OpReverse, ID: "r0", Amount: 333}), "amount_minor", "lines")
	w.ok(Command{Op: OpReinstate, ID: "r1"})
	if a := w.alloc; a.Lines[0].Returned != 2 || a.Lines[1].Returned != 0 || a.Reversed() != 666 {
		t.Errorf("after the reinstatement: %+v", a.Lines)
	}
	w.refused(RefundExceedsCommit, Command{Op: OpReverse, ID: "r9", Lines: []RefundLine{{"A", 2}}})
	w.refused(QuoteLineNotFound, Command{Op: OpReverse, ID: "r9", Lines: []RefundLine{{"C", 1}}})
	if d := w.ok(Command{Op: OpReverse, ID: "rest", Amount: 584}); d.Result.Outcome.State != StateReversed {
		t.Errorf("the rest: %+v", d.Result.Outcome)
	}
}

func TestReverseByLineWithoutQuote(t *testing.T) {
	w := bring(t, StateCommitted)
	if r := w.refused(QuoteMissing, Command{Op: OpReverse, ID: "r", Lines: []RefundLine{{"A", 1}}}); r.Field != "lines" {
		t.Errorf("the refusal is %+v", r)
	}
}

// A unit whose share rounds to nothing is refunded all the same.
func TestRefundOfNothing(t *testing.T) {
	w := newWorld(t)
	w.ok(Command{Op: OpReserve, Amount: 1, Quote: &Quote{Lines: []QuoteLine{{ID: "A", Quantity: 3, Amount: 1}}}}, Command{Op: OpCommit})
	if d := w.ok(Command{Op: OpReverse, ID: "r1", Lines: []RefundLine{{"A", 1}}}); d.Result.Outcome.Amount != 0 || d.Result.Outcome.State != StateCommitted {
		t.Errorf("%+v", d.Result.Outcome)
	}
	w.budget.State = BudgetClosed // and nothing goes to a sink
	if d := w.ok(Command{Op: OpReverse, ID: "r2", Lines: []RefundLine{{"A", 2}}}); d.Result.Outcome.Amount != 1 || d.SinkEntry == nil {
		t.Errorf("%+v", d.Result.Outcome)
	}
	if d := w.ok(Command{Op: OpReinstate, ID: "r1"}); d.SinkEntry != nil || w.alloc.Lines[0].Returned != 2 {
		t.Errorf("%+v", w.alloc.Lines[0])
	}
}

// A quote does not change what older receipts say: without one a reserve has
// the form it always had, and the fields of a quote that differ are named.
func TestQuoteInCanonicalForm(t *testing.T) {
	plain := Command{Op: OpReserve, Budget: BudgetID{Key: "b"}, Amount: 1250, Currency: "BRL", TTL: 1e9}
	if got := string(plain.Canonical()); got != "\x01\x01b\x041250\x03BRL\x041000" {
		t.Errorf("%q", got)
	}
	quoted := plain
	quoted.Quote = quote()
	if b := quoted.Canonical(); b[0] != canonicalVersionV2 || len(b) > 150 {
		t.Errorf("%q", b)
	}
	other := quoted
	other.Quote = quote()
	other.Quote.Lines[0].Quantity, other.Quote.Funders = 2, nil
	for _, tc := range []struct {
		a, b Command
		want []string
	}{
		{plain, quoted, []string{"quote.id", "quote.rounding", "quote.funders", "quote.lines"}},
		{quoted, plain, []string{"quote.id", "quote.rounding", "quote.funders", "quote.lines"}},
		{quoted, other, []string{"quote.funders", "quote.lines"}},
		{quoted, quoted, nil},
	} {
		if got := differing(OpReserve, tc.a.Canonical(), tc.b.Canonical()); !slices.Equal(got, tc.want) {
			t.Errorf("they differ in %v, want %v", got, tc.want)
		}
	}
	wallet := Command{Op: OpCreate, Kind: KindWallet, Budget: BudgetID{Key: "b"}, Currency: "BRL", Buckets: 1, Policy: Policy{DebtCap: 5}}
	promo := wallet
	promo.Kind, promo.Policy = KindPromotion, Policy{}
	if got := differing(OpCreate, promo.Canonical(), wallet.Canonical()); !slices.Equal(got, []string{"kind", "policy.debt_cap_minor"}) {
		t.Errorf("they differ in %v", got)
	}
}

func TestQuoteIsValidated(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(q *Quote)
		field  string
	}{
		"sum":             {func(q *Quote) { q.Lines[0].Amount++ }, "quote.lines"},
		"no lines":        {func(q *Quote) { q.Lines = nil }, "quote.lines"},
		"too many lines":  {func(q *Quote) { q.Lines = make([]QuoteLine, MaxQuoteLines+1) }, "quote.lines"},
		"same line twice": {func(q *Quote) { q.Lines[1].ID = "A" }, "quote.lines[1].line_id"},
		"no units":        {func(q *Quote) { q.Lines[1].Quantity = 0 }, "quote.lines[1].quantity"},
		"negative":        {func(q *Quote) { q.Lines[1].Amount = -1 }, "quote.lines[1].amount_minor"},
		"overflow":        {func(q *Quote) { q.Lines[0].Amount, q.Lines[1].Amount = 1<<62, 1<<62 }, "quote.lines[1].amount_minor"},
		"rounding":        {func(q *Quote) { q.Rounding = 4 }, "quote.rounding"},
		"weight":          {func(q *Quote) { q.Funders[0].Weight = 0 }, "quote.funders[0].weight"},
		"same funder":     {func(q *Quote) { q.Funders[1].ID = "brand" }, "quote.funders[1].funder_id"},
		"funders":         {func(q *Quote) { q.Funders = make([]Funder, MaxFunders+1) }, "quote.funders"},
	} {
		c := Command{Op: OpReserve, Key: OrderKey{"t1", "o", "b"}, Budget: BudgetID{Tenant: "t1", Key: "b"}, Amount: 1250, Currency: "BRL", TTL: 1e9, Quote: quote()}
		if r := c.Validate(); r != nil {
			t.Fatal(r)
		}
		tc.change(c.Quote)
		if r := c.Validate(); r == nil || r.Field != tc.field {
			t.Errorf("%s: %v, want a refusal of %s", name, r, tc.field)
		}
	}
}
