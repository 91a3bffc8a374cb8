package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

func TestMain(m *testing.M) { testengine.Main(m) }

// node is a membership that runs.
type node struct {
	*Members
	stop context.CancelFunc
	done chan error

	mu   sync.Mutex
	got  map[string]int // commands forwarded, by address
	last uint64         // of the node that was called last
	err  error
}

func (n *node) call(_ context.Context, to store.Member, cmds []ledger.Command) ([]ledger.Reply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got[to.Address] += len(cmds)
	n.last = to.Run
	return make([]ledger.Reply, len(cmds)), n.err
}

// join starts a member over an engine. Clocks are off by hours on purpose.
func join(t *testing.T, engine kv.Store, id string) *node {
	t.Helper()
	st, err := store.Open(context.Background(), engine, store.Options{
		Writer: id, Now: func() time.Time { return time.Now().Add(time.Duration(id[1]-'2') * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{got: map[string]int{}, done: make(chan error, 1)}
	if n.Members, err = New(DefaultConfig(), id, st, n.call, func() (int, uint64) { return 7, 3 }, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	go func() { n.done <- n.Run(ctx, "http://"+id) }()
	return n
}

func (n *node) end(t *testing.T) {
	t.Helper()
	n.stop()
	if err := <-n.done; err != nil {
		t.Error(err)
	}
}

func (n *node) sees() []string { return n.view.Load().nodes }

func expect(t *testing.T, when string, want []string, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		if got := n.sees(); !slices.Equal(got, want) {
			t.Errorf("%s: %s sees %v, want %v", when, n.self, got, want)
		}
	}
}

// prefers counts the buckets that a node sends elsewhere, by node.
func prefers(n *node) map[string]int {
	out := map[string]int{}
	for i := range uint16(256) {
		out[n.Prefer(ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t", Key: "b"}, Index: i})]++
	}
	return out
}

func TestMembership(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		ctx := t.Context()
		a := join(t, engine, "n1")
		time.Sleep(10 * time.Second)
		expect(t, "alone", []string{"n1"}, a)
		if got := prefers(a); len(got) != 1 || got[""] != 256 {
			t.Errorf("alone: %v", got)
		}
		b, c := join(t, engine, "n2"), join(t, engine, "n3")
		time.Sleep(5 * time.Second)
		expect(t, "three", []string{"n1", "n2", "n3"}, a, b, c)
		at := prefers(a)
		if len(at) != 3 || at[""] < 60 || at["n2"] < 60 || at["n3"] < 60 || prefers(b)["n3"] != at["n3"] || prefers(b)["n1"] != at[""] {
			t.Errorf("buckets by node: %v, %v", at, prefers(b))
		}
		if r, err := a.Forward(ctx, "n2", make([]ledger.Command, 3)); err != nil || len(r) != 3 || a.got["http://n2"] != 3 || a.last != b.Start() {
			t.Errorf("forward: %d replies, %v, %v", len(r), err, a.got)
		}
		for _, s := range b.Nodes() {
			if !s.Live || s.Draining || s.Address != "http://"+s.Node || s.Buckets != 7 || s.Term != 3 || s.Since > 2*time.Second {
				t.Errorf("node %+v", s)
			}
		}

		// One falls silent: it is left out after a while, and forgotten by none.
		silent := time.Now()
		c.end(t)
		for slices.Contains(a.sees(), "n3") {
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("a silent node was left out after %s", time.Since(silent))
		if d := time.Since(silent); d > 6*time.Second {
			t.Errorf("left out after %s", d)
		}
		time.Sleep(2 * time.Second)
		expect(t, "one is silent", []string{"n1", "n2"}, a, b)
		if _, err := a.Forward(ctx, "n3", nil); err == nil {
			t.Error("forwarded to a node that is gone")
		}
		// A node that starts does not take its old sign of life for a new one.
		d := join(t, engine, "n4")
		time.Sleep(1500 * time.Millisecond)
		expect(t, "a stale sign", []string{"n1", "n2", "n4"}, d)
		if n := d.Nodes(); len(n) != 4 || n[2].Node != "n3" || n[2].Live {
			t.Errorf("nodes %+v", n)
		}
		// It comes back.
		c = join(t, engine, "n3")
		time.Sleep(10 * time.Second)
		expect(t, "back", []string{"n1", "n2", "n3", "n4"}, a, b, c, d)
		for _, n := range []*node{a, b, c, d} {
			n.end(t)
		}
	})
}

// A node that drains is preferred by none when Drain returns, itself included;
// and one that an operator marked, likewise, until the mark goes.
func TestDrain(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		ctx := t.Context()
		a, b, c := join(t, engine, "n1"), join(t, engine, "n2"), join(t, engine, "n3")
		time.Sleep(5 * time.Second)
		if err := a.table.MarkDrain(ctx, "n2", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		expect(t, "marked", []string{"n1", "n3"}, a, b, c)
		if !b.Draining() || prefers(b)[""] != 0 {
			t.Errorf("the marked node drains: %v, buckets %v", b.Draining(), prefers(b))
		}
		if err := a.table.MarkDrain(ctx, "n2", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		expect(t, "the mark is gone", []string{"n1", "n2", "n3"}, a, b, c)

		began := time.Now()
		if err := c.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		expect(t, "drained", []string{"n1", "n2"}, a, b, c)
		t.Logf("buckets were handed over in %s", time.Since(began))
		c.end(t)
		if err := c.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := a.Nodes(); len(n) != 2 {
			t.Errorf("nodes %+v", n)
		}

		// The others are gone: the last one keeps its buckets, and waits for no
		// one but those that still name it.
		a.end(t)
		time.Sleep(10 * time.Second)
		if err := b.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		expect(t, "the last one", []string{"n2"}, b)
		b.end(t)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		idle, err := New(DefaultConfig(), "n9", b.table, nil, nil, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if err := idle.Drain(short); !errors.Is(err, context.DeadlineExceeded) { // nobody writes its sign any more
			t.Errorf("drain of a node that does not run: %v", err)
		}
	})
}

// A node that was killed leaves its sign of life behind. Were it there for ever,
// nodes with new names would be refused one day.
func TestDeadNodesAreForgotten(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		ctx := t.Context()
		a, b := join(t, engine, "n1"), join(t, engine, "n2")
		time.Sleep(5 * time.Second)
		if err := a.table.MarkDrain(ctx, "n2", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		b.end(t)
		time.Sleep(forgetAfter - 10*time.Second)
		if rows, marks, err := a.table.Members(ctx); err != nil || len(rows) != 2 || !marks["n2"] || len(a.Nodes()) != 2 {
			t.Errorf("before its time: %+v, %v, %v", rows, marks, err)
		}
		time.Sleep(20 * time.Second)
		if rows, marks, err := a.table.Members(ctx); err != nil || len(rows) != 1 || rows[0].Node != "n1" || len(marks) != 0 || len(a.Nodes()) != 1 {
			t.Errorf("forgotten: %+v, %v, %v", rows, marks, err)
		}
		a.end(t)
		// One that gave a sign of life meanwhile is not dead.
		if _, err := a.table.Heartbeat(ctx, store.Member{Node: "n3", Run: 4, Beat: 7}, store.Member{}); err != nil {
			t.Fatal(err)
		}
		for _, old := range []store.Member{{Node: "n3", Run: 4, Beat: 6}, {Node: "n3", Run: 3, Beat: 7}, {Node: "n9"}} {
			if err := a.table.Forget(ctx, old); err != nil {
				t.Error(err)
			}
		}
		if rows, _, err := a.table.Members(ctx); err != nil || len(rows) != 2 || rows[1].Node != "n3" {
			t.Errorf("a node that lives: %+v, %v", rows, err)
		}
	})
}

// slowTable is one whose sign of life takes until it is let go, whatever became
// of the caller, as a commit may.
type slowTable struct {
	Table
	letGo chan struct{}
	left  atomic.Bool
}

func (s *slowTable) Heartbeat(_ context.Context, m, _ store.Member) (store.Member, error) {
	<-s.letGo
	return m, nil
}

func (s *slowTable) Leave(context.Context, string, uint64) error { s.left.Store(true); return nil }

// A node leaves after its last sign of life: one that came later would stay.
func TestLeaveComesLast(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(t.Context(), testengine.Embedded(t, vfs.NewMem(), nil), store.Options{Writer: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		table := &slowTable{Table: st, letGo: make(chan struct{})}
		m, err := New(DefaultConfig(), "n1", table, nil, func() (int, uint64) { return 0, 0 }, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- m.Run(ctx, "http://n1") }()
		synctest.Wait()
		stop()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Leave(short); !errors.Is(err, context.DeadlineExceeded) || table.left.Load() {
			t.Errorf("left before the last sign of life was through: %v", err)
		}
		go func() { done <- m.Leave(t.Context()) }()
		close(table.letGo)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if !table.left.Load() {
			t.Error("it did not leave")
		}
	})
}

func TestBounds(t *testing.T) {
	err := Config{Interval: time.Millisecond, DeadAfter: time.Millisecond, ForwardTimeout: time.Hour}.Validate()
	for _, want := range []string{"heartbeat is 1ms (allowed: 10ms to 1m0s)", "dead_after is 1ms (allowed: 2ms to 1h0m0s)", "forward_timeout is 1h0m0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	engine, prefix := testengine.Open(t)
	st, err := store.Open(t.Context(), engine, store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	for i := range store.MaxMembers {
		if _, err := st.Heartbeat(t.Context(), store.Member{Node: fmt.Sprintf("n%02d", i), Sees: []string{"n00", "n01"}, Draining: i == 3}, store.Member{}); err != nil {
			t.Fatal(err)
		}
	}
	one := &ledger.Rejection{Code: ledger.OperationLimit}
	if _, err := st.Heartbeat(t.Context(), store.Member{Node: "more"}, store.Member{}); !errors.Is(err, one) {
		t.Errorf("a node too many: %v", err)
	}
	if _, err := st.Heartbeat(t.Context(), store.Member{Node: "n05", Beat: 2}, store.Member{}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if _, err := st.Heartbeat(t.Context(), store.Member{}, store.Member{}); !errors.Is(err, &ledger.Rejection{Code: ledger.InvalidArgument}) {
		t.Errorf("a node without a name: %v", err)
	}
	got, _, err := st.Members(t.Context())
	if err != nil || len(got) != store.MaxMembers || got[3].Node != "n03" || !got[3].Draining || len(got[4].Sees) != 2 || got[5].Beat != 2 {
		t.Errorf("%d members, %v", len(got), err)
	}
}
