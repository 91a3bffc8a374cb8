//go:build fdb

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// privateCluster is a FoundationDB cluster of the test's own, whose processes
// it may kill.
type privateCluster struct {
	*testing.T
	dir string
}

func (c *privateCluster) run(args ...string) string {
	c.Helper()
	cmd := exec.Command("../.ci/fdb", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf(".ci/fdb %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func startCluster(t *testing.T, processes int) (c *privateCluster, file string) {
	t.Helper()
	c = &privateCluster{t, filepath.Join(t.TempDir(), "fdb")}
	if why := c.run("why"); why != "" {
		t.Skip(why)
	}
	t.Cleanup(func() { c.run("stop", c.dir) })
	file = c.run("start", c.dir, fmt.Sprint(processes))
	c.run("ready", c.dir)
	return c, file
}

func (c *privateCluster) ports() []string {
	c.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "pids"))
	if err != nil {
		c.Fatal(err)
	}
	var ports []string
	for line := range strings.Lines(string(raw)) {
		ports = append(ports, strings.Fields(line)[0])
	}
	return ports
}

// traffic is what callers were told while processes died.
type traffic struct {
	w     *world
	acked atomic.Int64

	mu sync.Mutex
	// state is what each order was told in the end: true means that its
	// reserve took effect, false that it did not and never will.
	state            map[string]bool
	unknown, refused int
	odd              []error
}

// order reserves once, and where the answer is no answer, settles it.
func (f *traffic) order(ctx context.Context, once *rpc.Client, id string) {
	_, err := once.Reserve(ctx, reserve("hot", id, 10))
	done := err == nil
	if err != nil {
		done = f.settle(id, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state[id] = done
	if done {
		f.acked.Add(1)
	}
}

// settle resolves a reserve that was refused or whose outcome is unknown.
func (f *traffic) settle(id string, err error) (done bool) {
	var e *rpc.Error
	f.mu.Lock()
	switch {
	case errors.Is(err, rpc.ErrOutcomeUnknown):
		f.unknown++
	case errors.As(err, &e) && (e.Code == connect.CodeUnavailable || e.Reason() == ledger.InsufficientBudget):
		f.refused++
	default:
		f.odd = append(f.odd, err)
	}
	f.mu.Unlock()
	refused := !errors.Is(err, rpc.ErrOutcomeUnknown)
	for { // the client repeats by itself, but a recovery may take longer than it waits
		res, rerr := f.w.client.Resolve(context.Background(), &cofferv1.ResolveRequest{
			OrderId: id, BenefitKey: "coupon:A", Budget: "hot", Operation: cofferv1.Operation_OPERATION_RESERVE,
		})
		if rerr != nil {
			if !errors.As(rerr, &e) || !e.Unknown && e.Code != connect.CodeUnavailable {
				f.mu.Lock()
				f.odd = append(f.odd, fmt.Errorf("resolve: %w", rerr))
				f.mu.Unlock()
				return false
			}
			continue
		}
		done = res.GetResolution() == cofferv1.Resolution_RESOLUTION_APPLIED
		if done && refused {
			f.mu.Lock()
			f.odd = append(f.odd, fmt.Errorf("order %s took effect, its caller was told that it had not: %w", id, err))
			f.mu.Unlock()
		}
		return done
	}
}

// Every FoundationDB process is killed in turn under load, and started again.
// No acknowledged command is lost, none takes effect twice; what callers see
// is a refusal that is true, or an unknown outcome that Resolve settles.
func TestClusterProcessesDie(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a cluster of its own")
	}
	cluster, file := startCluster(t, 3)
	engine, err := fdbkv.Open(t.Context(), fdbkv.Options{ClusterFile: file})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, engine, []byte("coffer"))
	w.budget("hot", 4, 1_000_000_000, nil)
	f := &traffic{w: w, state: map[string]bool{}}
	once := rpc.NewClient(w.url, rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(time.Minute))
	defer once.Close()
	ctx, stop := context.WithCancel(context.Background())
	turns := make(chan struct{}, 10_000)
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-turns:
				case <-ctx.Done():
					return
				}
				f.order(context.Background(), once, fmt.Sprintf("o-%d-%d", c, i))
			}
		})
	}
	// Half of what a step may send is still to come when the next one begins.
	more := func(what string) {
		t.Helper()
		for range 600 {
			turns <- struct{}{}
		}
		from, end := f.acked.Load(), time.Now().Add(2*time.Minute)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for f.acked.Load() < from+300 {
			if time.Now().After(end) {
				stop()
				t.Fatalf("%s: commands no longer succeed", what)
			}
			<-tick.C
		}
	}
	more("at first")
	for _, port := range cluster.ports() {
		cluster.run("kill", cluster.dir, port)
		more("without " + port)
		cluster.run("again", cluster.dir, port)
		cluster.run("ready", cluster.dir)
		more("with " + port + " again")
	}
	stop()
	wg.Wait()
	f.check()
	w.audit()
}

// check compares what callers were told with what is stored.
func (f *traffic) check() {
	w := f.w
	for _, err := range f.odd {
		w.Errorf("a caller got %v", err)
	}
	acked := int64(0)
	for id, done := range f.state {
		got, err := w.client.GetReservation(context.Background(), id, "coupon:A")
		switch {
		case done:
			acked++
			if err != nil || len(got) != 1 || got[0].GetState() != cofferv1.ReservationState_RESERVATION_STATE_RESERVED || got[0].GetHeldMinor() != 10 {
				w.Errorf("acknowledged order %s: %v, %v", id, got, err)
			}
		case err == nil && len(got) > 0 && got[0].GetHeldMinor() != 0:
			w.Errorf("order %s holds money although it was settled as not done: %v", id, got)
		}
	}
	w.expect("hot", 1_000_000_000, 1_000_000_000-10*acked, 10*acked, 0, 0)
	if n := w.entries("hot")[cofferv1.EntryType_ENTRY_TYPE_RESERVE]; int64(n) != acked {
		w.Errorf("%d RESERVE entries, want %d", n, acked)
	}
	w.Logf("%d orders, %d acknowledged or found applied, %d unknown, %d refused", len(f.state), acked, f.unknown, f.refused)
}
