package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// incarnations are those of the outbox pointers, in the order of their keys.
func (b *bench) incarnations() []uint64 {
	b.t.Helper()
	var out []uint64
	for _, row := range b.rows(b.key(tableOutbox).all()) {
		r := b.read(row.Key, tableOutbox)
		out = append(out, r.uint())
	}
	return out
}

// A store that was restored into another cluster goes on under a new
// incarnation, also on a node that was not told: every later event stands
// after all earlier ones, whatever the new cluster's stamps are.
func TestIncarnation(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "a", 10))
	before := len(b.incarnations())
	if was, err := b.SetIncarnation(t.Context(), 7); err != nil || was != 1 {
		t.Fatalf("set incarnation: was %d, %v; want 1", was, err)
	}
	b.ok(on(ledger.OpCommit, "a", "p", 0), reserve("spring", "b", 10))
	got := b.incarnations()
	if len(got) != before+2 {
		t.Fatalf("%d pointers, want %d", len(got), before+2)
	}
	for i, n := range got {
		want := uint64(1)
		if i >= before {
			want = 7
		}
		if n != want {
			t.Errorf("pointer %d has incarnation %d, want %d", i, n, want)
		}
	}
	if was, err := b.SetIncarnation(t.Context(), 7); err != nil || was != 7 {
		t.Errorf("the same incarnation again: was %d, %v; want 7 and no error", was, err)
	}
	for n, want := range map[uint64]string{6: "allowed: more than 7", 0: "allowed: 1 to", MaxIncarnation + 1: "allowed: 1 to"} {
		if _, err := b.SetIncarnation(t.Context(), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("incarnation %d: %v, want %q", n, err, want)
		}
	}
	if in, err := b.Info(t.Context()); err != nil || in != (Info{Format: 1, Incarnation: 7}) {
		t.Errorf("info %+v, %v", in, err)
	}
	b.audit()
}

// A change of the incarnation makes a batch that read the old one fail, so
// that no event of the old one is written after the change.
func TestIncarnationConflictsWithBatch(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	calls := 0
	b.hook = func(*ledger.Command) {
		if calls++; calls != 2 { // the first only finds the bucket
			return
		}
		if _, err := b.SetIncarnation(context.Background(), 2); err != nil {
			t.Error(err)
		}
	}
	b.ok(reserve("spring", "a", 10))
	got := b.incarnations()
	if last := got[len(got)-1]; last != 2 || b.Retries() != 1 {
		t.Errorf("the reserve's event has incarnation %d after %d retries, want 2 after 1", last, b.Retries())
	}
	b.audit()
}

func TestProbeLeavesTheLedgerAlone(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	before := b.totals(budgetID("spring"))
	for range 2 {
		w, r, err := b.Probe(t.Context())
		if err != nil || w <= 0 || r <= 0 {
			t.Fatalf("probe: write %s, read %s, %v", w, r, err)
		}
	}
	if got := b.totals(budgetID("spring")); got != before {
		t.Errorf("balances %+v, before %+v", got, before)
	}
	b.audit()
}

func TestOpenSaysWhatIsNotALedger(t *testing.T) {
	b := newBench(t)
	if _, err := Open(t.Context(), b.engine, Options{Prefix: []byte("elsewhere"), ReadOnly: true}); !errors.Is(err, ErrNoLedger) {
		t.Errorf("empty prefix: %v", err)
	}
	b.tamper(func(tx kv.Tx) { tx.Set(b.metaKey(metaFormat), []byte{0, 0, 0, 0, 0, 0, 0, 9}) })
	if _, err := Open(t.Context(), b.engine, Options{Prefix: b.opt.Prefix}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "format 9, this version reads 1") {
		t.Errorf("newer format: %v", err)
	}
	b.tamper(func(tx kv.Tx) { tx.Set(b.metaKey(metaFormat), []byte("odd")) })
	if _, err := Open(t.Context(), b.engine, Options{Prefix: b.opt.Prefix}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), `meta row "format" has 3 bytes`) {
		t.Errorf("odd row: %v", err)
	}
}
