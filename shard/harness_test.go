package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// gate is a kv.Store whose commits wait while it is closed, or answer with
// what the test says.
type gate struct {
	kv.Store
	mu      sync.Mutex
	closed  chan struct{} // non-nil: commits wait until it is closed
	waiting chan struct{} // told of each commit that waits
	answer  func(n int) (err error, land bool)
	commits int
	// mark is in the keys of some commits, marked which commit was the first
	// of them.
	mark   string
	marked int
}

func newGate(s kv.Store) *gate { return &gate{Store: s, waiting: make(chan struct{}, 1024)} }

func (g *gate) Begin(ctx context.Context) (kv.Tx, error) {
	tx, err := g.Store.Begin(ctx)
	return &gateTx{Tx: tx, g: g}, err
}

func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := make(chan struct{})
	g.closed = ch
	return func() {
		g.mu.Lock()
		g.closed = nil
		g.mu.Unlock()
		close(ch)
	}
}

// pass lets one of the commits go that wait.
func (g *gate) pass() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	closed <- struct{}{}
}

type gateTx struct {
	kv.Tx
	g     *gate
	wrote bool
	mark  bool
}

func (t *gateTx) Set(k, v []byte) {
	t.wrote = true
	t.mark = t.mark || (t.g.mark != "" && strings.Contains(string(k), t.g.mark))
	t.Tx.Set(k, v)
}

func (t *gateTx) Commit(ctx context.Context) (kv.Stamp, error) {
	if !t.wrote { // reads pass
		return t.Tx.Commit(ctx)
	}
	t.g.mu.Lock()
	closed, answer := t.g.closed, t.g.answer
	t.g.commits++
	n := t.g.commits
	if t.mark && t.g.marked == 0 {
		t.g.marked = n
	}
	t.g.mu.Unlock()
	if closed != nil {
		t.g.waiting <- struct{}{}
		<-closed
	}
	if answer != nil {
		if err, land := answer(n); err != nil {
			if land {
				if _, cerr := t.Tx.Commit(ctx); cerr != nil {
					return kv.Stamp{}, cerr
				}
			}
			return kv.Stamp{}, err
		}
	}
	return t.Tx.Commit(ctx)
}

type harness struct {
	t      *testing.T
	gate   *gate
	prefix []byte
	store  *store.Store
	*Executor
}

const tenant = "acme"

func open(t *testing.T, cfg Config) *harness {
	t.Helper()
	engine, prefix := testengine.Open(t)
	g := newGate(engine)
	st, err := store.Open(t.Context(), g, store.Options{Writer: "n1", Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(cfg, st)
	if err != nil {
		t.Fatal(err)
	}
	return &harness{t: t, gate: g, prefix: prefix, store: st, Executor: e}
}

func (h *harness) must(c ledger.Command) ledger.Result {
	h.t.Helper()
	r, err := h.Do(context.Background(), c)
	if err != nil {
		h.t.Fatalf("%s: %v", c.Op, err)
	}
	return r
}

func (h *harness) refused(c ledger.Command, want ledger.Code) *ledger.Rejection {
	h.t.Helper()
	_, err := h.Do(context.Background(), c)
	return h.code(err, want)
}

func (h *harness) code(err error, want ledger.Code) *ledger.Rejection {
	h.t.Helper()
	var r *ledger.Rejection
	if !errors.As(err, &r) || r.Code != want {
		h.t.Fatalf("got %v, want %s", err, want)
	}
	return r
}

func budget(name string) ledger.BudgetID { return ledger.BudgetID{Tenant: tenant, Key: name} }

func orderKey(i int) ledger.OrderKey {
	return ledger.OrderKey{Tenant: tenant, Order: fmt.Sprintf("o%04d", i), Benefit: "coupon:A"}
}

// funded makes a budget with money in it.
func (h *harness) funded(name string, buckets int, amount int64, p ledger.Policy) ledger.BudgetID {
	h.t.Helper()
	id := budget(name)
	h.must(ledger.Command{Op: ledger.OpCreate, Budget: id, Currency: "BRL", Buckets: buckets, Policy: p})
	h.must(ledger.Command{Op: ledger.OpFund, Budget: id, Amount: amount, Currency: "BRL", ID: "fund " + name})
	return id
}

func reserve(b ledger.BudgetID, i int, amount int64) ledger.Command {
	return ledger.Command{Op: ledger.OpReserve, Key: orderKey(i), Budget: b, Amount: amount, Currency: "BRL", TTL: time.Minute}
}

func (h *harness) totals(b ledger.BudgetID) ledger.Balances {
	h.t.Helper()
	v, err := h.store.Budget(context.Background(), b)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, k := range v.Buckets {
		if err := k.Balances.Check(0); err != nil {
			h.t.Errorf("bucket %s: %v", k.ID, err)
		}
	}
	return v.Total
}

// entries lists all entries of a budget.
func (h *harness) entries(b ledger.BudgetID) []store.EntryView {
	h.t.Helper()
	var out []store.EntryView
	token := ""
	for {
		page, next, err := h.store.Entries(context.Background(), b, nil, store.Page{Size: store.MaxPageSize, Token: token})
		if err != nil {
			h.t.Fatal(err)
		}
		out = append(out, page...)
		if next == "" {
			return out
		}
		token = next
	}
}

func count(es []store.EntryView, t ledger.EntryType) int {
	n := 0
	for _, e := range es {
		if e.Type == t {
			n++
		}
	}
	return n
}
