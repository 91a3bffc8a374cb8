package scan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// openTampered is a ledger whose rows a test can change behind its back.
func openTampered(t testing.TB) (b *books, tamper func(table string, change func(k, v []byte) []byte)) {
	t.Helper()
	engine, prefix := testengine.Open(t)
	st, err := store.Open(t.Context(), engine, store.Options{Writer: "n1", Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	e, err := shard.New(shard.DefaultConfig(), st)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		_ = engine.Close()
	})
	return &books{t: t, store: st, Executor: e}, func(table string, change func(k, v []byte) []byte) {
		t.Helper()
		changed := 0
		_, err := kv.Transact(context.Background(), engine, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			changed = 0
			rows, _, err := tx.Range(kv.PrefixRange(append(bytes.Clone(prefix), "\x02"+table...)), kv.RangeOptions{}).Wait()
			for _, r := range rows {
				if v := change(r.Key, bytes.Clone(r.Value)); v != nil {
					tx.Set(r.Key, v)
					changed++
				}
			}
			return err
		})
		if err != nil || changed != 1 {
			t.Fatalf("tampered with %d rows: %v", changed, err)
		}
	}
}

func (b *books) integrity(cfg IntegrityConfig, logs *bytes.Buffer) *Integrity {
	b.t.Helper()
	log := zerolog.Nop()
	if logs != nil {
		log = zerolog.New(logs)
	}
	g, err := NewIntegrity(cfg, b.store, b.Executor, log)
	if err != nil {
		b.t.Fatal(err)
	}
	return g
}

// unhurried is the default without pauses.
func unhurried() IntegrityConfig {
	c := DefaultIntegrityConfig()
	c.Rate = 1 << 26
	return c
}

func (b *books) state(id ledger.BudgetID) ledger.BudgetState {
	b.t.Helper()
	d, err := b.store.Definition(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return d.State
}

// A row that was changed freezes its budget and no other, once; the log and the
// FREEZE entry say why. Whoever opens the budget again is not overruled, also by
// another node; and what is reserved can still be settled.
func TestIntegrityFreezesWhatDiffers(t *testing.T) {
	b, tamper := openTampered(t)
	good, bad := b.funded("good", 2, 1000, ledger.Policy{}), b.funded("bad", 2, 1000, ledger.Policy{})
	for i := range 20 {
		b.must(paid(good, fmt.Sprint("g", i), 3)...)
		b.must(paid(bad, fmt.Sprint("b", i), 3)...)
	}
	held := paid(bad, "held", 5)
	b.must(held[0])
	var logs bytes.Buffer
	g := b.integrity(unhurried(), &logs)
	pass := func(g *Integrity) IntegrityStatus {
		t.Helper()
		if err := g.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		return g.Status()
	}
	if s := pass(g); s.Differences != 0 || s.Frozen != 0 || s.Entries == 0 || s.Lag != 0 || logs.Len() != 0 {
		t.Fatalf("a ledger in order: %+v\n%s", s, logs.String())
	}
	v, err := b.store.Budget(t.Context(), bad)
	if err != nil {
		t.Fatal(err)
	}
	tamper("K\x00\x02t\x00\x02\x00\x02bad\x00\x15\x01", func(_, row []byte) []byte {
		// The row begins with its form and what is funded and available, each a
		// zigzag varint: two units are put into both.
		row[1] += 4
		i := 1
		for row[i] >= 0x80 {
			i++
		}
		row[i+1] += 4
		return row
	})
	if w, err := b.store.Budget(t.Context(), bad); err != nil || w.Buckets[1].Available != v.Buckets[1].Available+2 || w.Buckets[1].Check(0) != nil {
		t.Fatalf("the test has not put in two units: %+v, %v", w.Buckets[1], err)
	}
	s := pass(g)
	if s.Differences != 1 || s.Frozen != 1 || b.state(bad) != ledger.BudgetFrozen || b.state(good) != ledger.BudgetOpen {
		t.Fatalf("%+v, the bad budget is %s", s, b.state(bad))
	}
	if !strings.Contains(logs.String(), "a ledger does not agree with itself") || !strings.Contains(logs.String(), `"level":"error"`) || !strings.Contains(logs.String(), "bucket bad#1") {
		t.Errorf("the log says %s", logs.String())
	}
	entries, _, err := b.store.Entries(t.Context(), bad, nil, store.Page{Size: 1000})
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	for _, e := range entries {
		if e.Type == ledger.EntryFreeze {
			told = e.Cause + " " + e.Correlation
		}
	}
	if !strings.HasPrefix(told, "integrity:") || !strings.Contains(told, "the entries of bucket bad#1 add up to") {
		t.Errorf("the FREEZE says %q", told)
	}
	if _, err := b.Do(t.Context(), paid(bad, "new", 1)[0]); !errors.Is(err, &ledger.Rejection{Code: ledger.BudgetFrozenCode}) {
		t.Errorf("a new reservation gives %v", err)
	}
	b.must(held[1])
	if s := pass(g); s.Frozen != 1 || s.Differences != 1 {
		t.Errorf("a second look: %+v", s)
	}
	b.must(ledger.Command{Op: ledger.OpUnfreeze, Budget: bad, ID: "a person"})
	if pass(g); b.state(bad) != ledger.BudgetOpen {
		t.Error("the person is overruled")
	}
	if s := pass(b.integrity(unhurried(), nil)); s.Differences != 1 || s.Frozen != 0 || b.state(bad) != ledger.BudgetOpen {
		t.Errorf("another node: %+v, the budget is %s", s, b.state(bad))
	}
}

// Rows that cannot be read or are gone, and a loop that only tells.
func TestIntegrityOfBrokenRows(t *testing.T) {
	b, tamper := openTampered(t)
	torn, quiet := b.funded("torn", 3, 300, ledger.Policy{}), b.funded("quiet", 2, 300, ledger.Policy{})
	tamper("K\x00\x02t\x00\x02\x00\x02torn\x00\x15\x02", func(_, _ []byte) []byte { return []byte{9} })
	var logs bytes.Buffer
	g := b.integrity(unhurried(), &logs)
	if err := g.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Differences != 1 || s.Frozen != 1 || b.state(torn) != ledger.BudgetFrozen || b.state(quiet) != ledger.BudgetOpen {
		t.Errorf("%+v\n%s", s, logs.String())
	}
	tamper("B\x00\x02t\x00\x02\x00\x02torn", func(_, _ []byte) []byte { return []byte{9} })
	if err := g.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Differences != 1 || s.Frozen != 1 || s.FreezeFailed != 0 {
		t.Errorf("a budget that cannot be read: %+v\n%s", s, logs.String())
	}
	tamper("K\x00\x02t\x00\x02\x00\x02quiet\x00\x15\x01", func(_, _ []byte) []byte { return []byte{9} })
	cfg := unhurried()
	cfg.Freeze = false
	g = b.integrity(cfg, nil)
	if err := g.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Differences != 2 || s.Frozen != 0 || b.state(quiet) != ledger.BudgetOpen {
		t.Errorf("a loop that only tells: %+v", s)
	}
}

// stuckVerifier says what the test wants of one bucket.
type stuckVerifier struct {
	Verifier
	step store.Verification
	full store.BucketReplay
	err  error
}

func (v *stuckVerifier) VerifyNext(_ context.Context, id ledger.BucketID, _ int64, r store.Round, _ time.Duration) (store.Verification, error) {
	s := v.step
	s.Bucket = id
	if r == store.RoundAll {
		s.Problem, s.More = "", false
	}
	return s, v.err
}

func (v *stuckVerifier) VerifyBucket(context.Context, ledger.BucketID, int64) (store.BucketReplay, error) {
	return v.full, v.err
}

func TestIntegrityDoubts(t *testing.T) {
	b := openBooks(t)
	id := b.funded("b", 1, 100, ledger.Policy{})
	v := &stuckVerifier{Verifier: b.store, step: store.Verification{From: 3, To: 3, Head: 9, Problem: "something"}}
	var logs bytes.Buffer
	g, err := NewIntegrity(unhurried(), v, b.Executor, zerolog.New(&logs))
	if err != nil {
		t.Fatal(err)
	}
	// The whole bucket is in order: the record of it was wrong.
	if err := g.Pass(t.Context()); err != nil || g.Status().Differences != 0 || b.state(id) != ledger.BudgetOpen || !strings.Contains(logs.String(), "the ledger is in order") {
		t.Errorf("%v, %+v\n%s", err, g.Status(), logs.String())
	}
	// Entries that are left are counted, and the next pass follows at once.
	v.step = store.Verification{From: 10, To: 30, Head: 100, More: true}
	if more, err := g.pass(t.Context()); err != nil || !more || g.Status().Lag != 70 {
		t.Errorf("%v, %v, %+v", more, err, g.Status())
	}
	// What the store does not answer fails the pass, and freezes nothing.
	v.err = &ledger.Rejection{Code: ledger.Unavailable, Message: "said the test"}
	if err := g.Pass(t.Context()); err == nil || b.state(id) != ledger.BudgetOpen {
		t.Errorf("%v", err)
	}
	v.err = &ledger.Rejection{Code: ledger.Fenced, Message: "said the test"}
	if err := g.Run(t.Context()); !fenced(err) {
		t.Errorf("a loop that was fenced off ends with %v", err)
	}
	// A FREEZE that is not taken is sent again.
	v.err, v.step.Problem, v.full.Problem = nil, "something", "something"
	p := &pressed{code: ledger.Overloaded}
	if g, err = NewIntegrity(unhurried(), v, p, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Pass(t.Context()); err == nil {
			t.Error("the pass completes")
		}
	}
	p.code = ""
	for range 3 {
		if err := g.Pass(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if c := p.sent[0].Normalize(); c.Validate() != nil {
		t.Errorf("%+v: %v", c, c.Validate())
	}
	if s := g.Status(); len(p.sent) != 3 || s.FreezeFailed != 2 || s.Frozen != 1 || p.sent[0].ID != p.sent[2].ID {
		t.Errorf("%d commands, %+v, %v", len(p.sent), s, p.sent[0])
	}
	// The difference is gone.
	v.step = store.Verification{From: 3, To: 3, Head: 3}
	if err := g.Pass(t.Context()); err != nil || g.Status().Differences != 0 {
		t.Errorf("%v, %+v", err, g.Status())
	}
	if got := told("x\ny\x00 " + strings.Repeat("ü", 200)); strings.ContainsAny(got, "\n\x00") || len(got) > maxTold || !strings.HasPrefix(got, "integrity: xy ü") {
		t.Errorf("%q", got)
	}
}

// Healthy budgets stay open, whatever goes on: customers, moves, reshards, funds,
// wallets in debt, closed budgets, and two loops at once.
func TestIntegrityLeavesHealthyBudgetsAlone(t *testing.T) {
	b := openBooks(t)
	hot, sink := b.funded("hot", 4, 1<<40, ledger.Policy{}), b.funded("sink", 2, 100, ledger.Policy{})
	wallet := bookID("wallet")
	b.must(ledger.Command{Op: ledger.OpCreate, Kind: ledger.KindWallet, Budget: wallet, Currency: "CREDIT", Buckets: 1, Policy: ledger.Policy{DebtCap: 100, Overdraft: 100}},
		ledger.Command{Op: ledger.OpCharge, Key: ledger.JobKey("t", "j1"), Budget: wallet, Amount: 60, Currency: "CREDIT"})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				b.must(paid(hot, fmt.Sprintf("w%d-%d", w, i), 2)...)
			}
		})
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			own := b.funded(fmt.Sprint("own", i), 1, 50, ledger.Policy{ReversalSink: sink})
			b.must(paid(own, fmt.Sprint("o", i), 20)...)
			b.must(ledger.Command{Op: ledger.OpClose, Budget: own, ID: fmt.Sprint("close", i)},
				ledger.Command{Op: ledger.OpReverse, Key: ledger.OrderKey{Tenant: "t", Order: fmt.Sprint("o", i), Benefit: "b"}, ID: "r", Amount: 7},
				ledger.Command{Op: ledger.OpFund, Budget: hot, Amount: 100, Currency: "BRL", ID: fmt.Sprint("more", i)},
				ledger.Command{Op: ledger.OpReshard, Budget: hot, Buckets: 1 + (i+1)%6, ID: fmt.Sprint("reshard", i)})
			if i == 40 { // the rest of the test only needs that some of it goes on
				return
			}
		}
	})
	loops := []*Integrity{b.integrity(unhurried(), nil), b.integrity(unhurried(), nil)}
	for range 20 {
		var both sync.WaitGroup
		for _, g := range loops {
			both.Go(func() {
				if err := g.Pass(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	cancel()
	wg.Wait()
	for _, g := range loops {
		if err := g.Pass(t.Context()); err != nil {
			t.Error(err)
		}
		if s := g.Status(); s.Differences != 0 || s.Frozen != 0 || s.FreezeFailed != 0 || s.Failed != 0 || s.Entries == 0 {
			t.Errorf("%+v", s)
		}
	}
	for _, id := range []ledger.BudgetID{hot, sink, wallet} {
		if got := b.state(id); got != ledger.BudgetOpen {
			t.Errorf("%s is %s", id, got)
		}
	}
	b.audit()
}
