package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

func (b *bench) batch(bucket ledger.BucketID, cmds ...ledger.Command) []Applied {
	b.t.Helper()
	for i := range cmds {
		cmds[i] = cmds[i].Normalize()
	}
	got, err := b.Apply(context.Background(), &bucket, cmds)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return got
}

// Commands of one batch see each other.
func TestDuplicatesInOneBatch(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	bucket := ledger.BucketID{Budget: budgetID("spring")}
	got := b.batch(bucket, reserve("spring", "a", 10), reserve("spring", "a", 10), reserve("spring", "a", 11), on(ledger.OpCommit, "a", "p", 0),
		on(ledger.OpCommit, "a", "p", 0), on(ledger.OpReverse, "a", "r", 10), on(ledger.OpReverse, "a", "r", 10), on(ledger.OpReverse, "a", "r2", 1))
	for i, want := range []struct {
		code     ledger.Code
		replayed bool
	}{{"", false}, {"", true}, {ledger.IdempotencyConflict, false}, {"", false}, {"", true}, {"", false}, {"", true}, {ledger.IllegalState, false}} {
		if want.code != "" {
			wantCode(t, want.code, got[i].Err)
		} else if got[i].Err != nil || got[i].Result.Replayed != want.replayed {
			t.Errorf("command %d: %+v, %v", i, got[i].Result, got[i].Err)
		}
	}
	if n := len(b.entries(budgetID("spring"))); n != 5 {
		t.Errorf("there are %d entries, want 5", n)
	}
	b.audit()
}

// A batch takes what is left exactly, whatever the order.
func TestBatchNeverOversells(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 95))
	var cmds []ledger.Command
	for i := range 20 {
		cmds = append(cmds, reserve("spring", fmt.Sprint("o", i), 10))
	}
	n := 0
	for _, g := range b.batch(ledger.BucketID{Budget: budgetID("spring")}, cmds...) {
		if g.Err == nil {
			n++
		}
	}
	if n != 9 {
		t.Errorf("%d of 20 reserves of 10 were taken from 95, want 9", n)
	}
	b.audit()
}

func TestRerouteSaysWhereTo(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 16, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 16_000))
	def, err := b.Definition(context.Background(), budgetID("spring"))
	if err != nil {
		t.Fatal(causes(err))
	}
	c := reserve("spring", "a", 10)
	want := def.Route(c.Key)
	other := ledger.BucketID{Budget: want.Budget, Index: (want.Index + 1) % 16}
	for _, at := range []*ledger.BucketID{nil, &other} {
		got, err := b.Apply(context.Background(), at, []ledger.Command{c.Normalize()})
		if err != nil || got[0].Reroute == nil || *got[0].Reroute != want {
			t.Errorf("sent to %v: %+v, %v; want a reroute to %s", at, got, err, want)
		}
	}
	if _, err := b.Reservation(context.Background(), c.Key); err == nil {
		t.Error("a rerouted command left a row")
	}
	if got := b.batch(want, c); got[0].Err != nil || got[0].Result.Outcome.Bucket != want {
		t.Errorf("in its own queue: %+v", got[0])
	}
	b.ok(on(ledger.OpCommit, "a", "", 0))
	b.audit()
}

// A command that panics inside the domain is answered alone; its neighbours go
// on.
func TestPanicHarmsNoNeighbour(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	bucket := ledger.BucketID{Budget: budgetID("spring")}
	b.hook = func(c *ledger.Command) {
		if strings.HasPrefix(c.Key.Order, "panic") {
			panic("provoked")
		}
	}
	got := b.batch(bucket, reserve("spring", "a", 10), reserve("spring", "panic", 10), reserve("spring", "b", 20))
	if got[0].Err != nil || got[2].Err != nil {
		t.Errorf("the neighbours: %v, %v", got[0].Err, got[2].Err)
	}
	r := wantCode(t, ledger.Internal, got[1].Err)
	if r.Cause == nil || !strings.Contains(r.Cause.Error(), "provoked") || strings.Contains(r.Error(), "provoked") {
		t.Errorf("the panic is told as %q with cause %v", r, r.Cause)
	}
	if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 1000, Available: 970, Reserved: 30}) {
		t.Errorf("%+v", got)
	}
	b.audit()
}

// Rows that cannot be read are a defect that is named, not a panic, and harm
// no other command but those that need the row.
func TestCorruptRowsAreNamed(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "a", 10), reserve("spring", "b", 10))
	b.set(b.reservationKey(orderKey("a")), []byte{1, 2})
	r := b.refused(ledger.Corrupt, on(ledger.OpCommit, "a", "", 0))
	if !strings.Contains(r.Message, "a/coupon") {
		t.Errorf("the error %q does not name the row", r)
	}
	b.ok(on(ledger.OpCommit, "b", "", 0))
	b.set(b.bucketKey(ledger.BucketID{Budget: budgetID("spring")}), []byte{0xFF})
	b.refused(ledger.Corrupt, reserve("spring", "c", 1))
	b.drop(b.bucketKey(ledger.BucketID{Budget: budgetID("spring")}))
	b.refused(ledger.Corrupt, reserve("spring", "d", 1))
	b.refused(ledger.Corrupt, onBudget(ledger.OpFund, "spring", "f2", 1))
}

// A batch of the largest entries is cut into blocks that fit a value.
func TestLargeBatchesAreCutIntoBlocks(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("x", ledger.MaxIDBytes-4)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	bucket := ledger.BucketID{Budget: budgetID("spring")}
	var cmds []ledger.Command
	for i := range 400 {
		c := reserve("spring", fmt.Sprintf("%s%04d", long, i), 1)
		c.Key.Benefit, c.Correlation = long, long
		cmds = append(cmds, c)
	}
	for _, g := range b.batch(bucket, cmds...) {
		if g.Err != nil {
			t.Fatal(causes(g.Err))
		}
	}
	rows := b.rows(b.key(tableBlock).bucket(bucket).all())
	if len(rows) < 4 {
		t.Errorf("400 large entries make %d blocks", len(rows))
	}
	for _, r := range rows {
		if len(r.Value) > 64<<10 {
			t.Errorf("a block has %d bytes, above 64 KiB", len(r.Value))
		}
	}
	b.audit()
}
