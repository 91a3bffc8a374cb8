package intake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

func TestMain(m *testing.M) { testengine.Main(m) }

var clockStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tester is what tests and rapid checks have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// bench is an intake over a store with a clock that only the test moves.
type bench struct {
	tester
	*Intake
	st    *store.Store
	exec  *shard.Executor
	next  atomic.Pointer[func() embedded.Fault]
	clock atomic.Int64
	close func()
}

func newBench(t testing.TB, cfg Config) *bench {
	t.Helper()
	if testengine.Name() == "embedded" {
		b := open(t, cfg)
		t.Cleanup(b.close)
		return b
	}
	b := &bench{tester: t, close: func() {}} // the engine ends with the test
	e, prefix := testengine.Open(t)
	b.assemble(e, prefix, cfg)
	return b
}

// open makes a bench over a store in memory, whose commits may be given fates;
// for tests that need that, or a fresh store for each of many runs.
func open(t tester, cfg Config) *bench {
	t.Helper()
	b := &bench{tester: t}
	faults := &embedded.Faults{OnCommit: func() embedded.Fault {
		if f := b.next.Load(); f != nil {
			return (*f)()
		}
		return embedded.Fault{}
	}}
	e, err := embedded.Open(embedded.Options{Dir: "/store", FS: vfs.NewMem(), Faults: faults, CacheBytes: 4 << 20, MemTableBytes: 2 << 20})
	if err != nil {
		t.Fatalf("%v", err)
	}
	b.close = func() { _ = e.Close() }
	b.assemble(e, []byte("coffer"), cfg)
	return b
}

// assemble makes a node's parts over an engine: also again, as after a crash.
func (b *bench) assemble(e kv.Store, prefix []byte, cfg Config) {
	b.Helper()
	var err error
	if b.st, err = store.Open(context.Background(), e, store.Options{Writer: "n1", Now: b.now, Prefix: prefix}); err != nil {
		b.Fatalf("%v", err)
	}
	if b.exec, err = shard.New(shard.DefaultConfig(), b.st); err != nil {
		b.Fatalf("%v", err)
	}
	if b.Intake, err = New(cfg, b.st, b.exec, zerolog.Nop()); err != nil {
		b.Fatalf("%v", err)
	}
}

func (b *bench) now() time.Time {
	return clockStart.Add(time.Duration(b.clock.Load()) * time.Millisecond)
}

func (b *bench) advance(d time.Duration) { b.clock.Add(d.Milliseconds()) }

// fates gives the next commits these fates, and none afterwards.
func (b *bench) fates(kinds ...embedded.FaultKind) {
	var n atomic.Int64
	f := func() embedded.Fault {
		if i := n.Add(1) - 1; i < int64(len(kinds)) {
			return embedded.Fault{Kind: kinds[i]}
		}
		return embedded.Fault{}
	}
	b.next.Store(&f)
}

var (
	spring = ledger.BudgetID{Tenant: "t", Key: "spring"}
	acme   = ledger.BudgetID{Tenant: "t", Key: "acme"} // a wallet
)

// budget makes the budget of the tests.
func (b *bench) budget(amount int64, p ledger.Policy) {
	b.Helper()
	b.must(ledger.Command{Op: ledger.OpCreate, Budget: spring, Currency: "BRL", Buckets: 2, Policy: p})
	b.must(ledger.Command{Op: ledger.OpFund, Budget: spring, ID: "f", Amount: amount, Currency: "BRL"})
}

// wallet makes the wallet of the tests.
func (b *bench) wallet(amount, debtCap int64) {
	b.Helper()
	b.must(ledger.Command{Op: ledger.OpCreate, Kind: ledger.KindWallet, Budget: acme, Currency: "BRL", Policy: ledger.Policy{DebtCap: debtCap}})
	b.grant("first", amount)
}

func (b *bench) grant(id string, amount int64) {
	b.Helper()
	b.must(ledger.Command{Op: ledger.OpFund, Budget: acme, ID: id, Amount: amount, Currency: "BRL"})
}

func (b *bench) must(c ledger.Command) {
	b.Helper()
	if _, err := b.exec.Do(context.Background(), c); err != nil {
		b.Fatalf("%s of %s: %v", c.Op, c.Key, err)
	}
}

func key(order, benefit string) ledger.OrderKey {
	return ledger.OrderKey{Tenant: "t", Order: order, Benefit: benefit}
}

func reserve(order, benefit string, amount int64) ledger.Command {
	return ledger.Command{Op: ledger.OpReserve, Key: key(order, benefit), Budget: spring, Amount: amount, Currency: "BRL", TTL: 15 * time.Minute}
}

// job is a command on a job.
func job(op ledger.Op, id string, amount int64) ledger.Command {
	c := ledger.Command{Op: op, Key: ledger.JobKey("t", id), Amount: amount}
	if op.Opens() {
		c.Budget, c.Currency = acme, "BRL"
	}
	if op == ledger.OpHold {
		c.TTL = 15 * time.Minute
	}
	return c
}

// says makes a fact. Its event id is its kind and reference, unless the test
// sets another.
func says(k fact.Kind, order, ref string, lines ...fact.Line) fact.Fact {
	return fact.Fact{ID: fact.ID{Tenant: "t", Source: "shop", Event: order + " " + k.String() + " " + ref}, Kind: k, Order: order, Ref: ref, Lines: lines}
}

func line(benefit string, amount int64) fact.Line { return fact.Line{Benefit: benefit, Amount: amount} }

// submit sends facts that must be taken.
func (b *bench) submit(facts ...fact.Fact) []store.Submitted {
	b.Helper()
	got, err := b.Submit(context.Background(), facts)
	if err != nil {
		b.Fatalf("submit: %v", err)
	}
	for i := range got {
		if got[i].Err != nil {
			b.Fatalf("fact %s: %v", facts[i].ID, got[i].Err)
		}
	}
	return got
}

// is checks the state of a fact and that its reason holds the words.
func (b *bench) is(f fact.Fact, want fact.State, words string) *fact.Row {
	b.Helper()
	row, err := b.Get(context.Background(), f.ID)
	if err != nil {
		b.Fatalf("%s: %v", f.ID, err)
	}
	if row.State != want || !strings.Contains(row.Reason, words) {
		b.Errorf("fact %s is %s (%s), want %s (%s)", f.ID, row.State, row.Reason, want, words)
	}
	return row
}

func (b *bench) totals() ledger.Balances { b.Helper(); return b.totalsOf(spring) }

func (b *bench) totalsOf(id ledger.BudgetID) ledger.Balances {
	b.Helper()
	v, err := b.st.Budget(context.Background(), id)
	if err != nil {
		b.Fatalf("%v", err)
	}
	return v.Total
}

// credits checks the wallet: what was granted, and what the jobs cost net.
func (b *bench) credits(granted, net int64) {
	b.Helper()
	t := b.totalsOf(acme)
	if t.Funded != granted || t.Available+t.Reserved != granted-net || t.Committed-t.Reversed != net {
		b.Errorf("the wallet is %+v, want %d granted and %d spent", t, granted, net)
	}
}

// rows is how many entries a job has.
func (b *bench) rows(id string) int {
	b.Helper()
	r, err := b.st.Job(context.Background(), "t", id)
	if err != nil {
		b.Fatalf("%v", err)
	}
	return int(r.EventSeq)
}

// money checks the budget: available, reserved, committed, reversed.
func (b *bench) money(available, reserved, committed, reversed int64) {
	b.Helper()
	t := b.totals()
	if got, want := [4]int64{t.Available, t.Reserved, t.Committed, t.Reversed}, [4]int64{available, reserved, committed, reversed}; got != want {
		b.Errorf("the budget is %v, want %v (available, reserved, committed, reversed)", got, want)
	}
}

func (b *bench) audit() {
	b.Helper()
	r, err := b.st.Audit(context.Background(), nil)
	if err != nil {
		b.Fatalf("audit: %v", err)
	}
	for _, c := range r.Checks {
		if c.Problems > 0 {
			b.Errorf("audit: %s: %s", c.Name, strings.Join(c.Examples, "; "))
		}
	}
}

// entries counts the budget's entries by type.
func (b *bench) entries() map[ledger.EntryType]int {
	b.Helper()
	es, _, err := b.st.Entries(context.Background(), spring, nil, store.Page{Size: store.MaxPageSize})
	if err != nil {
		b.Fatalf("%v", err)
	}
	out := map[ledger.EntryType]int{}
	for _, e := range es {
		out[e.Type]++
	}
	return out
}

func code(err error) ledger.Code {
	var r *ledger.Rejection
	if errors.As(err, &r) {
		return r.Code
	}
	return ledger.Code(fmt.Sprint(err))
}
