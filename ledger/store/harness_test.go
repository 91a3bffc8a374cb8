package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

// clockStart is where the injected clock of every test begins.
var clockStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bench is a store on the engine that tests run on, with a clock that only the
// test moves.
type bench struct {
	*Store
	t      testing.TB
	engine *counting
	faults *embedded.Faults
	clock  atomic.Int64 // milliseconds after clockStart
	fate   atomic.Pointer[func() embedded.Fault]
	older  []byte // a row as it was, for tests that put it back
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, faults: &embedded.Faults{}}
	b.faults.OnCommit = func() embedded.Fault {
		if f := b.fate.Load(); f != nil {
			return (*f)()
		}
		return embedded.Fault{}
	}
	var e kv.Store
	var prefix []byte
	if testengine.Name() == "embedded" {
		e, prefix = testengine.Embedded(t, vfs.NewMem(), b.faults), []byte("coffer")
	} else {
		e, prefix = testengine.Open(t)
	}
	b.engine = &counting{Store: e}
	var err error
	if b.Store, err = Open(context.Background(), b.engine, Options{Writer: "n1", Now: b.time, Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) time() time.Time {
	return clockStart.Add(time.Duration(b.clock.Load()) * time.Millisecond)
}

func (b *bench) advance(d time.Duration) { b.clock.Add(d.Milliseconds()) }

// nextFates gives the next writing commits these fates, and none afterwards.
func (b *bench) nextFates(kinds ...embedded.FaultKind) {
	testengine.OnlyEmbedded(b.t, "it injects faults")
	var n atomic.Int64
	f := func() embedded.Fault {
		if i := n.Add(1) - 1; i < int64(len(kinds)) {
			return embedded.Fault{Kind: kinds[i]}
		}
		return embedded.Fault{}
	}
	b.fate.Store(&f)
}

// one sends a command through Apply and follows it to its bucket, as an
// executor does.
func (b *bench) one(c ledger.Command) ledger.Reply {
	b.t.Helper()
	c = c.Normalize()
	if r := c.Validate(); r != nil {
		return ledger.Reply{Err: r}
	}
	var at *ledger.BucketID
	for range 64 { // tests may reshard meanwhile
		got, err := b.Apply(context.Background(), at, []ledger.Command{c})
		if err != nil {
			return ledger.Reply{Err: err}
		}
		if got[0].Reroute == nil {
			return got[0].Reply
		}
		at = got[0].Reroute
	}
	b.t.Fatalf("%s of %s finds no bucket", c.Op, c.Key)
	return ledger.Reply{}
}

// ok runs commands that must be accepted.
func (b *bench) ok(cmds ...ledger.Command) ledger.Result {
	b.t.Helper()
	var last ledger.Result
	for _, c := range cmds {
		r := b.one(c)
		if r.Err != nil {
			b.t.Fatalf("%s of %s: %v", c.Op, c.Key, causes(r.Err))
		}
		last = r.Result
	}
	return last
}

// refused runs a command that must be refused for a reason.
func (b *bench) refused(want ledger.Code, c ledger.Command) *ledger.Rejection {
	b.t.Helper()
	return wantCode(b.t, want, b.one(c).Err)
}

func wantCode(t testing.TB, want ledger.Code, err error) *ledger.Rejection {
	t.Helper()
	var r *ledger.Rejection
	if !errors.As(err, &r) || r.Code != want {
		t.Fatalf("error is %v, want %s", causes(err), want)
	}
	return r
}

func causes(err error) string {
	s := fmt.Sprint(err)
	for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
		s += " <- " + err.Error()
	}
	return s
}

// audit runs an audit that must pass.
func (b *bench) audit() *AuditReport {
	b.t.Helper()
	rep, err := b.Audit(context.Background(), nil)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	for _, c := range rep.Checks {
		if c.Problems > 0 {
			b.t.Errorf("check %s: %d problems:\n  %s", c.Name, c.Problems, strings.Join(c.Examples, "\n  "))
		}
	}
	if b.t.Failed() {
		b.t.FailNow()
	}
	return rep
}

func (b *bench) totals(id ledger.BudgetID) ledger.Balances {
	b.t.Helper()
	v, err := b.Budget(context.Background(), id)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return v.Total
}

// entries lists all entries of a budget.
func (b *bench) entries(id ledger.BudgetID) []EntryView {
	b.t.Helper()
	var all []EntryView
	p := Page{Size: MaxPageSize}
	for {
		es, next, err := b.Entries(context.Background(), id, nil, p)
		if err != nil {
			b.t.Fatal(causes(err))
		}
		all = append(all, es...)
		if next == "" {
			return all
		}
		p.Token = next
	}
}

// tamper changes the store below the ledger.
func (b *bench) tamper(fn func(tx kv.Tx)) {
	b.t.Helper()
	_, err := kv.Transact(context.Background(), b.kv, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error { fn(tx); return nil })
	if err != nil {
		b.t.Fatal(err)
	}
}

// Commands of tests. The tenant is t1, the currency BRL, the time to live 15
// minutes.
func budgetID(key string) ledger.BudgetID { return ledger.BudgetID{Tenant: "t1", Key: key} }

func orderKey(order string) ledger.OrderKey {
	return ledger.OrderKey{Tenant: "t1", Order: order, Benefit: "coupon"}
}

func create(key string, buckets int, p ledger.Policy) ledger.Command {
	return ledger.Command{Op: ledger.OpCreate, Budget: budgetID(key), Currency: "BRL", Buckets: buckets, Policy: p}
}

func onBudget(op ledger.Op, key, id string, amount int64) ledger.Command {
	c := ledger.Command{Op: op, Budget: budgetID(key), ID: id, Amount: amount}
	if op == ledger.OpFund || op == ledger.OpDefund {
		c.Currency = "BRL"
	}
	return c
}

func reserve(budget, order string, amount int64) ledger.Command {
	return ledger.Command{Op: ledger.OpReserve, Key: orderKey(order), Budget: budgetID(budget), Amount: amount, Currency: "BRL", TTL: 15 * time.Minute}
}

func on(op ledger.Op, order, id string, amount int64) ledger.Command {
	c := ledger.Command{Op: op, Key: orderKey(order), ID: id, Amount: amount}
	if op == ledger.OpExtend {
		c.TTL = 30 * time.Minute
	}
	return c
}

func withAttempt(c ledger.Command, n uint32) ledger.Command {
	c.Attempt = n
	return c
}

// counting counts what a store asks of its engine.
type counting struct {
	kv.Store
	reads, writes, commits atomic.Int64
}

func (c *counting) reset() {
	c.reads.Store(0)
	c.writes.Store(0)
	c.commits.Store(0)
}

func (c *counting) Begin(ctx context.Context) (kv.Tx, error) {
	tx, err := c.Store.Begin(ctx)
	return &countingTx{Tx: tx, c: c}, err
}

type countingTx struct {
	kv.Tx
	c *counting
}

func (t *countingTx) Get(k []byte) kv.Value { t.c.reads.Add(1); return t.Tx.Get(k) }
func (t *countingTx) Range(r kv.Range, o kv.RangeOptions) kv.Rows {
	t.c.reads.Add(1)
	return t.Tx.Range(r, o)
}
func (t *countingTx) Snapshot() kv.Reader { return &countingReader{t.Tx.Snapshot(), t.c} }
func (t *countingTx) Set(k, v []byte)     { t.c.writes.Add(1); t.Tx.Set(k, v) }
func (t *countingTx) Clear(k []byte)      { t.c.writes.Add(1); t.Tx.Clear(k) }
func (t *countingTx) ClearRange(r kv.Range) {
	t.c.writes.Add(1)
	t.Tx.ClearRange(r)
}
func (t *countingTx) Add(k, v []byte) { t.c.writes.Add(1); t.Tx.Add(k, v) }
func (t *countingTx) SetStampedKey(k []byte, o int, v []byte) {
	t.c.writes.Add(1)
	t.Tx.SetStampedKey(k, o, v)
}

func (t *countingTx) SetStampedValue(k, v []byte, o int) {
	t.c.writes.Add(1)
	t.Tx.SetStampedValue(k, v, o)
}

func (t *countingTx) Commit(ctx context.Context) (kv.Stamp, error) {
	t.c.commits.Add(1)
	return t.Tx.Commit(ctx)
}

type countingReader struct {
	kv.Reader
	c *counting
}

func (r *countingReader) Get(k []byte) kv.Value { r.c.reads.Add(1); return r.Reader.Get(k) }
func (r *countingReader) Range(g kv.Range, o kv.RangeOptions) kv.Rows {
	r.c.reads.Add(1)
	return r.Reader.Range(g, o)
}
