package election

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// alone runs an elector of a node that is alone, over a gate of its own.
type alone struct {
	*Alone
	gate *gate
	book logbook
	stop context.CancelFunc
	done chan error
}

func startAlone(t *testing.T, g *gate, node string) *alone {
	t.Helper()
	st, err := store.Open(context.Background(), g, store.Options{Writer: node})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &alone{gate: g, stop: cancel, done: make(chan error, 1)}
	a.Alone = NewAlone(node, st, a.book.logger())
	go func() {
		a.done <- a.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}()
	return a
}

func (a *alone) expect(t *testing.T, leading bool, term uint64, leader string) {
	t.Helper()
	if s := a.Status(); s.Leading != leading || s.Term != term || s.Leader != leader {
		t.Errorf("%s: %+v, want leading %v, term %d, leader %q", a.node, s, leading, term, leader)
	}
}

// A process that is started later fences off one that runs already; that one
// stands by, and leads again when the later one has fallen silent.
func TestAloneTwice(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		engine := testengine.Embedded(t, vfs.NewMem(), nil)
		first := startAlone(t, &gate{Store: engine}, "n1")
		time.Sleep(time.Minute)
		first.expect(t, true, 1, "n1")
		second := startAlone(t, &gate{Store: engine}, "n2")
		time.Sleep(time.Minute)
		first.expect(t, false, 2, "n2")
		second.expect(t, true, 2, "n2")
		got := first.book.one(t, standsBy, time.Time{})
		if want := `FENCED: term 1 is not the current one, in which "n2" leads (allowed: 2)`; got.Level != "warn" || !strings.Contains(got.Error, want) {
			t.Errorf("log %+v, want a warning with %q", got, want)
		}
		second.stop()
		if err := <-second.done; err != nil {
			t.Error(err)
		}
		ended := time.Now()
		for !first.Status().Leading {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(ended)
		t.Logf("processes without cluster.peers: %s until the other one led", took)
		if took > silentAfter+3*beatEvery {
			t.Errorf("it took %s", took)
		}
		first.expect(t, true, 3, "n1")
		if s := first.Status(); s.Gained != 2 || s.Lost != 1 {
			t.Errorf("status %+v", s)
		}
		first.stop()
		if err := <-first.done; err != nil {
			t.Error(err)
		}
	})
}

// A store that does not answer delays the claim and ends nothing; what lead
// returns ends the elector.
func TestAloneErrors(t *testing.T) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Store: testengine.Embedded(t, vfs.NewMem(), nil)}
		st, err := store.Open(context.Background(), g, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g.dead = true
		broken := errors.New("scanner is broken")
		a := NewAlone("n1", st, zerolog.Nop())
		done := make(chan error, 1)
		go func() { done <- a.Run(t.Context(), func(context.Context) error { return broken }) }()
		time.Sleep(time.Minute)
		a.set(func(s *Status) {
			if s.Gained != 0 {
				t.Errorf("it leads without a claim: %+v", s)
			}
		})
		g.mu.Lock()
		g.dead = false
		g.mu.Unlock()
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("ended with %v", err)
		}
		if l, err := st.Leader(t.Context()); err != nil || l.Term != 1 || l.Node != "n1" {
			t.Errorf("leader %+v, %v", l, err)
		}
	})
}
