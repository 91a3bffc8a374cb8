package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// Scenarios that need an engine which can be cut off or made to fail.

// S8: the process died between writing the row and the balance. Power is cut
// at many points under load; after each, balances equal the replay, and what
// was acknowledged is there.
func TestPowerCutAtAnyPoint(t *testing.T) {
	const cuts = 8
	fs := vfs.NewCrashableMem()
	acked := map[string]bool{}
	for cut := range cuts {
		w := newWorld(t, testengine.Embedded(t, fs, nil), []byte("coffer"))
		if cut == 0 {
			w.budget("hot", 4, 1_000_000, nil)
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		enough := make(chan struct{})
		ctx, stop := context.WithCancel(context.Background())
		n := 0
		for c := range 8 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					order := fmt.Sprintf("o-%d-%d-%d", cut, c, i)
					_, err := w.client.Reserve(ctx, reserve("hot", order, 10))
					mu.Lock()
					if err == nil {
						acked[order] = true
						if n++; n == 40+30*cut {
							close(enough)
						}
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		mu.Lock()
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		must := make([]string, 0, len(acked))
		for o := range acked {
			must = append(must, o)
		}
		mu.Unlock()
		stop()
		wg.Wait()
		fs = after
		mu.Lock()
		acked = map[string]bool{}
		for _, o := range must {
			acked[o] = true
		}
		mu.Unlock()
		restarted := newWorld(t, testengine.Embedded(t, after.CrashClone(vfs.CrashCloneCfg{}), nil), []byte("coffer"))
		restarted.checkAcked(must)
		restarted.audit()
	}
}

func (w *world) checkAcked(orders []string) {
	w.Helper()
	slices.Sort(orders)
	for _, o := range orders {
		got, err := w.client.GetReservation(context.Background(), o, "coupon:A")
		if err != nil || got[0].GetState() != cofferv1.ReservationState_RESERVATION_STATE_RESERVED {
			w.Fatalf("acknowledged order %s is lost: %v %v", o, got, err)
		}
	}
}

// S11: a key stayed "in progress" for ever after a crash. There is no claim to
// get stuck: when the first try is lost, the retry simply runs.
func TestLostTryLeavesNoClaim(t *testing.T) {
	var mu sync.Mutex
	var fate embedded.Fault
	faults := &embedded.Faults{OnCommit: func() embedded.Fault {
		mu.Lock()
		defer mu.Unlock()
		f := fate
		fate = embedded.Fault{}
		return f
	}}
	w := newWorld(t, testengine.Embedded(t, vfs.NewMem(), faults), []byte("coffer"))
	once := rpc.NewClient(w.url, rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(time.Minute))
	defer once.Close()
	ctx := context.Background()
	b := w.budget("spring", 4, 1000, nil)
	never := make(chan struct{})
	mu.Lock()
	fate = embedded.Fault{Kind: embedded.FaultTimeoutLate, Release: never}
	mu.Unlock()
	if err := lastError(once.Reserve(ctx, reserve(b, "o1", 100))); !errors.Is(err, rpc.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	if o := w.ok(w.client.Reserve(ctx, reserve(b, "o1", 100))); o.GetReplayed() {
		t.Error("the retry found a first effect, which never happened")
	}
	close(never) // the lost try wakes up, and must not land
	w.expect(b, 1000, 900, 100, 0, 0)
	w.audit()
}
