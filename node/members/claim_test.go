package members

import (
	"context"
	"errors"
	"strings"
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

// inUse is the error of a node that ended because another process has its id.
func inUse(t *testing.T, n *node) *InUseError {
	t.Helper()
	var e *InUseError
	if err := <-n.done; !errors.As(err, &e) {
		t.Fatalf("ended with %v", err)
	}
	return e
}

// Of two processes with one id the first keeps it, and the second does not start.
func TestIDInUse(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		first, other := join(t, engine, "n1"), join(t, engine, "n2")
		time.Sleep(5 * time.Second)
		expect(t, "two", []string{"n1", "n2"}, first, other)
		for range 3 { // as a supervisor would
			began := time.Now()
			e := inUse(t, join(t, engine, "n1"))
			if *e != (InUseError{Node: "n1", Address: "http://n1"}) || time.Since(began) > 4*time.Second {
				t.Errorf("%+v after %s", e, time.Since(began))
			}
			want := `node_id "n1" is in use by another process over this store, at http://n1; ` +
				`give this node another node_id (node_id, COFFER_NODE_ID or --node-id), or stop the other one first`
			if e.Error() != want {
				t.Errorf("it says %q", e)
			}
		}
		expect(t, "after the attempts", []string{"n1", "n2"}, first, other)
		if n := other.Nodes(); len(n) != 2 || n[0].Run != first.Start() || !n[0].Live {
			t.Errorf("nodes %+v", n)
		}
		first.end(t)
		other.end(t)
	})
}

// Processes that claim one id at the same moment, over no sign of life, and over
// that of a process that was killed: one gets it.
func TestIDClaimedAtOnce(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	for name, old := range map[string]store.Member{"new": {}, "killed": {Node: "n1", Run: 4, Beat: 7}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := testengine.Embedded(t, vfs.NewMem(), nil)
				st, err := store.Open(t.Context(), engine, store.Options{Writer: "n9"})
				if err != nil {
					t.Fatal(err)
				}
				if old.Node != "" {
					if _, err := st.Heartbeat(t.Context(), old, store.Member{}); err != nil {
						t.Fatal(err)
					}
				}
				all := []*node{join(t, engine, "n1"), join(t, engine, "n1"), join(t, engine, "n1")}
				time.Sleep(15 * time.Second)
				rows, _, err := st.Members(t.Context())
				if err != nil || len(rows) != 1 || rows[0].Address != "http://n1" {
					t.Fatalf("rows %+v, %v", rows, err)
				}
				owners := 0
				for _, n := range all {
					if n.Start() == rows[0].Run {
						owners++
						n.end(t)
						continue
					}
					if e := inUse(t, n); e.Lost {
						t.Errorf("it had the id: %v", e)
					}
				}
				if owners != 1 {
					t.Errorf("%d of them have the id", owners)
				}
			})
		})
	}
}

// A process that was killed keeps the next start of its node out for as long as
// a sign of life may be late, and no longer; one that left, not at all.
func TestRestart(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		ctx := t.Context()
		first := join(t, engine, "n1")
		time.Sleep(90*time.Second + DefaultConfig().Interval/2) // between two signs
		first.end(t)                                            // it says nothing any more, as if it had been killed

		claim := func() (*Members, time.Duration) {
			t.Helper()
			m, err := New(DefaultConfig(), "n1", first.table, nil, func() (int, uint64) { return 0, 0 }, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := m.Claim(ctx, "http://next"); err != nil {
				t.Fatal(err)
			}
			return m, time.Since(began)
		}
		second, took := claim()
		if c := DefaultConfig(); took < c.DeadAfter || took >= c.DeadAfter+c.Interval {
			t.Errorf("after a kill the node waited %s, want %s and less than a sign of life more", took, c.DeadAfter)
		}
		// What the first one takes away as it ends late is not the second's.
		if err := first.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		if rows, _, err := second.table.Members(ctx); err != nil || len(rows) != 1 || rows[0].Run != second.Start() || rows[0].Address != "http://next" || len(rows[0].Sees) != 0 {
			t.Errorf("rows %+v, %v", rows, err)
		}
		if err := second.Leave(ctx); err != nil { // it could not listen, say
			t.Fatal(err)
		}
		if _, took := claim(); took != 0 {
			t.Errorf("after a node that left the next one waited %s", took)
		}
	})
}

// The last sign of life of a process that was killed may come late. One change
// is no proof of life.
func TestLastSignComesLate(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		st, err := store.Open(t.Context(), engine, store.Options{Writer: "n9"})
		if err != nil {
			t.Fatal(err)
		}
		beat := func(n uint64) {
			t.Helper()
			if _, err := st.Heartbeat(t.Context(), store.Member{Node: "n1", Run: 4, Beat: n}, store.Member{}); err != nil {
				t.Fatal(err)
			}
		}
		beat(7)
		late, began := join(t, engine, "n1"), time.Now()
		time.Sleep(2500 * time.Millisecond)
		beat(8)
		for !late.claimed.Load() {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		// The change was seen half a second after it came.
		if d, c := time.Since(began), DefaultConfig(); d < 3*time.Second+c.DeadAfter || d >= 3*time.Second+c.DeadAfter+c.Interval {
			t.Errorf("it waited %s", d)
		}
		late.end(t)
	})
}

// stopped is a table that a process does not get to while it is stopped.
type stopped struct {
	Table
	gate atomic.Pointer[chan struct{}]
}

func (s *stopped) Heartbeat(ctx context.Context, m, dead store.Member) (store.Member, error) {
	if g := s.gate.Load(); g != nil {
		<-*g
	}
	return s.Table.Heartbeat(context.WithoutCancel(ctx), m, dead)
}

// A process that was stopped for so long that its node was started again finds
// that out when it wakes up, and ends; the new one goes on.
func TestIDTaken(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		st, err := store.Open(t.Context(), engine, store.Options{Writer: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		table := &stopped{Table: st}
		old, err := New(DefaultConfig(), "n1", table, nil, func() (int, uint64) { return 0, 0 }, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- old.Run(t.Context(), "http://old") }()
		time.Sleep(5 * time.Second)
		gate := make(chan struct{})
		table.gate.Store(&gate)
		next := join(t, engine, "n1")
		time.Sleep(10 * time.Second)
		close(gate)
		var e *InUseError
		if err := <-done; !errors.As(err, &e) || *e != (InUseError{Node: "n1", Address: "http://n1", Lost: true}) {
			t.Errorf("ended with %v", err)
		} else if !strings.Contains(e.Error(), `node_id "n1" was taken by another process over this store, at http://n1, while this one gave no sign of life for cluster.dead_after`) {
			t.Errorf("it says %q", e)
		}
		if err := old.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if rows, _, err := st.Members(t.Context()); err != nil || len(rows) != 1 || rows[0].Run != next.Start() {
			t.Errorf("rows %+v, %v", rows, err)
		}
		next.end(t)
	})
}

// weak is a table that fails with an error for a while.
type weak struct {
	Table
	err   error
	fails int
}

func (w *weak) Heartbeat(ctx context.Context, m, dead store.Member) (store.Member, error) {
	if w.fails--; w.fails >= 0 {
		return store.Member{}, w.err
	}
	return w.Table.Heartbeat(ctx, m, dead)
}

// A store that is away for a moment is asked again; one that has no room for the
// node keeps it from sharing buckets, and not from serving.
func TestClaimOfAWeakStore(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	for name, c := range map[string]struct {
		err  error
		rows int
	}{
		"away":    {&ledger.Rejection{Code: ledger.Unavailable}, 1},
		"unknown": {&ledger.Rejection{Code: ledger.OutcomeUnknown, Cause: kv.ErrConflict}, 1},
		"full":    {&ledger.Rejection{Code: ledger.OperationLimit}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st, err := store.Open(t.Context(), testengine.Embedded(t, vfs.NewMem(), nil), store.Options{Writer: "n1"})
				if err != nil {
					t.Fatal(err)
				}
				m, err := New(DefaultConfig(), "n1", &weak{st, c.err, 20}, nil, nil, zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Claim(t.Context(), "http://n1"); err != nil {
					t.Fatal(err)
				}
				if rows, _, err := st.Members(t.Context()); err != nil || len(rows) != c.rows {
					t.Errorf("rows %+v, %v", rows, err)
				}
			})
		})
	}
}
