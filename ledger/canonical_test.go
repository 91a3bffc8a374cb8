package ledger

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"
)

// The canonical form is stored in every receipt: its bytes, and with them the
// request hash, are fixed for ever. A later version gets bytes of its own.
func TestCanonicalIsFixed(t *testing.T) {
	budget := BudgetID{Tenant: "t1", Funder: "brand", Key: "spring"}
	policy := Policy{
		LateCommit: LateReclaim, Exhaustion: Strict, OnUnavailable: SkipBenefit, OverCommit: OverCommit{Percent: 10, Amount: 500},
		ReversalSink: BudgetID{Tenant: "t1", Key: "sink"}, MaxLifetime: 36 * time.Hour,
	}
	for _, tc := range []struct {
		cmd  Command
		want string
	}{
		{Command{Op: OpReserve, Budget: budget, Amount: 4517, Currency: "BRL", TTL: 15 * time.Minute}, "\x01\x0cbrand/spring\x044517\x03BRL\x06900000"},
		{Command{Op: OpCommit}, "\x01\x010\x05false"},
		{Command{Op: OpCommit, Amount: 1<<63 - 1, Partial: true}, "\x01\x139223372036854775807\x04true"},
		{Command{Op: OpExtend, TTL: time.Second}, "\x01\x041000"},
		{Command{Op: OpRelease}, "\x01"},
		{Command{Op: OpExpire}, "\x01"},
		{Command{Op: OpReclaim}, "\x01"},
		{Command{Op: OpReverse, Amount: 7}, "\x01\x017"},
		{Command{Op: OpReinstate}, "\x01"},
		{
			Command{Op: OpCreate, Budget: budget, Currency: "BRL", Buckets: 16, Policy: policy},
			"\x01\x03BRL\x0216\x07RECLAIM\x06STRICT\x0cSKIP_BENEFIT\x0210\x03500\x04sink\x09129600000",
		},
		{Command{Op: OpReshard, Budget: budget, Buckets: 16, ID: "k"}, "\x01\x07RESHARD\x0cbrand/spring\x0216"},
		{Command{Op: OpMove, Budget: budget, Amount: 5, From: 12, To: 3, ID: "k"}, "\x01\x04MOVE\x0cbrand/spring\x015\x0212\x013"},
		{Command{Op: OpFund, Budget: budget, Amount: 1, Currency: "CREDIT"}, "\x01\x04FUND\x0cbrand/spring\x011\x06CREDIT"},
		{Command{Op: OpDefund, Budget: budget, Amount: 1, Currency: "CREDIT"}, "\x01\x06DEFUND\x0cbrand/spring\x011\x06CREDIT"},
		{Command{Op: OpFreeze, Budget: budget}, "\x01\x06FREEZE\x0cbrand/spring"},
		{Command{Op: OpUnfreeze, Budget: budget}, "\x01\x08UNFREEZE\x0cbrand/spring"},
		{Command{Op: OpClose, Budget: budget}, "\x01\x05CLOSE\x0cbrand/spring"},
	} {
		got := tc.cmd.Canonical()
		if string(got) != tc.want {
			t.Errorf("%s has canonical form %q, want %q", tc.cmd.Op, got, tc.want)
		}
		fields, ok := splitFields(got)
		if !ok || len(fields) != len(canonicalFields[tc.cmd.Op]) {
			t.Errorf("%s has %d fields (%v), its list names %d", tc.cmd.Op, len(fields), ok, len(canonicalFields[tc.cmd.Op]))
		}
	}
	r := Receipt{Request: []byte("\x01\x0cbrand/spring\x044517\x03BRL\x06900000")}
	h := r.RequestHash()
	if got, want := hex.EncodeToString(h[:]), "e3cd80a8f4ee883837acc7461181fee876ecee804b7dcd7864036ff390be7c97"; got != want {
		t.Errorf("the request hash is %s, want %s", got, want)
	}
}

func TestDiffering(t *testing.T) {
	a := Command{Op: OpFund, Budget: BudgetID{Key: "a"}, Amount: 12, Currency: "BRL"}
	b := Command{Op: OpFund, Budget: BudgetID{Key: "b"}, Amount: 121, Currency: "BRL"}
	for _, tc := range []struct {
		op           Op
		stored, sent []byte
		want         []string
	}{
		{OpFund, a.Canonical(), a.Canonical(), nil},
		{OpFund, a.Canonical(), b.Canonical(), []string{"budget", "amount_minor"}},
		{OpFund, nil, a.Canonical(), []string{"request"}},
		{OpFund, []byte("\x02"), a.Canonical(), []string{"request"}},
		{OpFund, []byte("\x01\xff"), a.Canonical(), []string{"request"}},
		{OpRelease, []byte("\x02"), []byte("\x01"), []string{"request"}},
	} {
		if got := differing(tc.op, tc.stored, tc.sent); !slices.Equal(got, tc.want) {
			t.Errorf("%q and %q differ in %v, want %v", tc.stored, tc.sent, got, tc.want)
		}
	}
	// No two values run into each other.
	c, d := Command{Op: OpFund, Budget: BudgetID{Key: "a1"}, Amount: 2, Currency: "BRL"}, Command{Op: OpFund, Budget: BudgetID{Key: "a"}, Amount: 12, Currency: "BRL"}
	if string(c.Canonical()) == string(d.Canonical()) {
		t.Error("two requests have one canonical form")
	}
}

func TestAmountOfBudgetReceipt(t *testing.T) {
	c := Command{Op: OpDefund, Budget: BudgetID{Key: "a"}, Amount: 12, Currency: "BRL"}
	r := BudgetReceipt{Op: OpDefund, Request: c.Canonical()}
	if v, ok := r.Amount(); v != 12 || !ok {
		t.Errorf("amount %d, %v", v, ok)
	}
	for _, r := range []BudgetReceipt{{Op: OpFreeze, Request: c.Canonical()}, {Op: OpFund}, {Op: OpFund, Request: []byte("\x01\x01x")}, {Op: OpFund, Request: []byte("\x01\x01x\x01x\x01x\x01x")}} {
		if v, ok := r.Amount(); ok {
			t.Errorf("%+v has amount %d", r, v)
		}
	}
}

// Route is stored in every reservation and recomputed by every retry: it is
// fixed for ever.
func TestRouteIsFixed(t *testing.T) {
	b := &Budget{ID: BudgetID{Tenant: "t1", Funder: "brand", Key: "spring"}, Epoch: Epoch{Number: 1, Buckets: 16}}
	var got []uint16
	for i := range 12 {
		k := b.Route(OrderKey{Tenant: "t1", Order: fmt.Sprint("order-", i), Benefit: "coupon:SPRING"})
		if k.Budget != b.ID {
			t.Fatalf("routed to %s", k)
		}
		got = append(got, k.Index)
	}
	if want := []uint16{12, 2, 6, 5, 2, 7, 10, 0, 2, 8, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("routes are %d, want %d", got, want)
	}
	b.Epoch = Epoch{Number: 2, Buckets: 256}
	if got, want := b.Route(OrderKey{Tenant: "t1", Order: "order-0", Benefit: "coupon:SPRING"}).Index, uint16(238); got != want {
		t.Errorf("the second epoch routes to %d, want %d", got, want)
	}
	b.Epoch.Buckets = 1
	if got := b.Route(OrderKey{Order: "any"}).Index; got != 0 {
		t.Errorf("one bucket routes to %d", got)
	}
}

// Orders spread evenly: no bucket is far from its share, also for ids that
// count up, and a routing epoch shuffles anew.
func TestRouteDistribution(t *testing.T) {
	const orders = 100_000
	for _, buckets := range []uint16{2, 3, 16, 256} {
		b := &Budget{ID: BudgetID{Tenant: "t1", Key: "spring"}, Epoch: Epoch{Number: 1, Buckets: buckets}}
		c := &Budget{ID: b.ID, Epoch: Epoch{Number: 2, Buckets: buckets}}
		n := make([]int, buckets)
		same := 0
		for i := range orders {
			k := OrderKey{Tenant: "t1", Order: fmt.Sprintf("%08d", i), Benefit: "coupon"}
			r := b.Route(k)
			n[r.Index]++
			if r == c.Route(k) {
				same++
			}
		}
		share := float64(orders) / float64(buckets)
		for i, v := range n {
			if d := float64(v) - share; d*d > 36*share { // six standard deviations
				t.Errorf("bucket %d of %d got %d of %d orders, want about %.0f", i, buckets, v, orders, share)
			}
		}
		if d := float64(same) - share; d*d > 36*share {
			t.Errorf("%d of %d orders stay in their bucket in another epoch of %d, want about %.0f", same, orders, buckets, share)
		}
	}
}
