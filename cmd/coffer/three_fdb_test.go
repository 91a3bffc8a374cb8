//go:build fdb

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// process is one node of three, in a process of its own.
type process struct {
	id     string
	url    string
	env    []string
	cmd    *exec.Cmd
	client atomic.Pointer[rpc.Client]
	gone   bool
}

// three are nodes that elect a leader and share buckets, over one cluster.
type three struct {
	*testing.T
	place string
	nodes [3]*process

	next, done atomic.Int64
	stop       atomic.Bool
	wg         sync.WaitGroup
	mu         sync.Mutex
	paid, held []string
}

// freePort finds a port below those that the system gives away.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		at := fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000))
		if ln, err := net.Listen("tcp", at); err == nil {
			_ = ln.Close()
			return at
		}
	}
	t.Fatal("no port is free")
	return ""
}

func startThree(t *testing.T, place, advertise string) *three {
	t.Helper()
	w := &three{T: t, place: place}
	dir := t.TempDir()
	var peers []string
	for i := range w.nodes {
		w.nodes[i] = &process{id: fmt.Sprint("n", i+1)}
		peers = append(peers, w.nodes[i].id+"="+freePort(t))
	}
	for _, n := range w.nodes {
		n.env = []string{
			"COFFER_NODE_ID=" + n.id, "COFFER_CLUSTER_PEERS=" + strings.Join(peers, ","), "COFFER_CLUSTER_DATA_DIR=" + filepath.Join(dir, n.id),
			"COFFER_CLUSTER_ADVERTISE=" + advertise, "COFFER_CLUSTER_HEARTBEAT=200ms", "COFFER_CLUSTER_DEAD_AFTER=2s",
		}
		w.run(n)
	}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			if !n.gone {
				_ = n.cmd.Process.Kill()
				_ = n.cmd.Wait()
			}
		}
	})
	w.whole()
	return w
}

// run starts a node, for the first time or again.
func (w *three) run(n *process) {
	w.Helper()
	n.cmd, n.url = child(w.T, w.place, n.env...)
	n.gone = false
	n.client.Store(rpc.NewClient(n.url, rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(2*time.Second)))
}

// whole waits until all see each other.
func (w *three) whole() {
	w.Helper()
	for _, n := range w.nodes {
		until(w.T, n.id+" to see three live nodes", func() bool {
			st, err := n.client.Load().GetCluster(context.Background())
			live := 0
			for _, o := range st.GetNodes() {
				if o.GetLive() {
					live++
				}
			}
			return err == nil && live == 3
		})
	}
}

// leader waits for a leader above a term, by what a node says.
func (w *three) leader(by *process, above uint64) (*process, uint64) {
	w.Helper()
	var st *cofferv1.GetClusterResponse
	until(w.T, "a leader", func() bool {
		var err error
		st, err = by.client.Load().GetCluster(context.Background())
		return err == nil && st.GetTerm() > above
	})
	for _, n := range w.nodes {
		if n.id == st.GetLeader() {
			return n, st.GetTerm()
		}
	}
	w.Fatalf("the leader is %q", st.GetLeader())
	return nil, 0
}

// other is a node that is none of these.
func (w *three) other(than ...*process) *process {
	for _, n := range w.nodes {
		free := true
		for _, o := range than {
			free = free && n != o
		}
		if free {
			return n
		}
	}
	return nil
}

// kill ends a node as kill -9 does.
func (w *three) kill(n *process) {
	w.Helper()
	if err := n.cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	_ = n.cmd.Wait()
	n.gone = true
}

// load sends orders until end; each is tried on one node after the other until
// it is acknowledged. One in eight is left to expire.
func (w *three) load(callers int) {
	for range callers {
		w.wg.Go(func() {
			for !w.stop.Load() {
				w.order(int(w.next.Add(1)))
			}
		})
	}
}

func (w *three) order(i int) {
	id := fmt.Sprint("o", i)
	ttl, commit := time.Hour, true
	if i%8 == 0 {
		ttl, commit = time.Second, false
	}
	for try := i; ; try++ {
		c := w.nodes[try%3].client.Load()
		_, err := c.Reserve(context.Background(), &cofferv1.ReserveRequest{OrderId: id, BenefitKey: "b", Budget: "B", AmountMinor: 100, Currency: "BRL", Ttl: durationpb.New(ttl)})
		if err == nil && commit {
			_, err = c.Commit(context.Background(), &cofferv1.CommitRequest{OrderId: id, BenefitKey: "b", Budget: "B"})
		}
		if err == nil {
			break
		}
		if c := rpc.ReasonOf(err).Info().Class; rpc.ReasonOf(err) != "" && c != ledger.ClassRetry && c != ledger.ClassUnknown {
			w.Errorf("order %s: %v", id, err)
			return
		}
		if try > i+1000 {
			w.Errorf("order %s: no node takes it: %v", id, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if commit {
		w.paid = append(w.paid, id)
	} else {
		w.held = append(w.held, id)
	}
	w.done.Add(1)
}

// more waits until so many more orders are acknowledged.
func (w *three) more(n int64) {
	w.Helper()
	want := w.done.Load() + n
	until(w.T, fmt.Sprint(n, " more orders"), func() bool { return w.done.Load() >= want })
}

func (w *three) fund(buckets uint32) {
	w.Helper()
	c := w.nodes[0].client.Load()
	if _, err := c.CreateBudget(w.Context(), &cofferv1.CreateBudgetRequest{Budget: "B", Currency: "BRL", Buckets: buckets}); err != nil {
		w.Fatal(err)
	}
	if _, err := c.FundBudget(w.Context(), &cofferv1.FundBudgetRequest{Budget: "B", AmountMinor: 1e9, Currency: "BRL", IdempotencyKey: "k"}); err != nil {
		w.Fatal(err)
	}
}

// Three processes that live and cannot call each other: each runs by itself what
// comes to it, also on one hot bucket, and the store keeps them right.
func TestThreeProcessesApartOnOneCluster(t *testing.T) {
	place := onCluster(t)
	w := startThree(t, place, "http://127.0.0.1:1") // nothing listens there
	w.fund(1)
	start := time.Now()
	w.load(12)
	w.more(400)
	took := time.Since(start)
	var ran, forwarded, conflicts, commits float64
	for _, n := range w.nodes {
		ran += figure(t, n.url, "coffer_forwarded_ran_here_total")
		forwarded += figure(t, n.url, "coffer_forwarded_commands_total")
		conflicts += figure(t, n.url, "coffer_kv_conflicts_total")
		commits += figure(t, n.url, "coffer_kv_commits_total")
	}
	t.Logf("apart: %.0f orders a second, %.1f %% of transactions in conflict", 400/took.Seconds(), 100*conflicts/(conflicts+commits))
	if ran == 0 || forwarded != 0 {
		t.Errorf("%.0f commands ran on the node that they came to, %.0f were answered by another one", ran, forwarded)
	}
	w.end()
}

// Three processes over one cluster, under load: the leader is stopped for some
// seconds and goes on, then the leader is killed, then another node. Nothing
// that was acknowledged is lost, every hold expires once, and the audit is ok.
func TestThreeProcessesOneCluster(t *testing.T) {
	place := onCluster(t)
	w := startThree(t, place, "auto")
	w.fund(4)
	w.load(12)
	w.more(200)

	first, term := w.leader(w.nodes[0], 0)
	start := time.Now()
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second, next := w.leader(w.other(first), term)
	t.Logf("%s led in term %d and was stopped; %s led in term %d %.1fs later", first.id, term, second.id, next, time.Since(start).Seconds())
	w.more(200)
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.more(200)

	second, term = w.leader(first, 0)
	start = time.Now()
	w.kill(second)
	third, next := w.leader(w.other(second), term)
	t.Logf("%s led in term %d and was killed; %s led in term %d %.1fs later", second.id, term, third.id, next, time.Since(start).Seconds())
	w.more(200)
	w.run(second)
	w.whole()
	w.more(100)
	w.kill(w.other(third))
	w.more(200)
	w.end()
}

// end stops the load and checks what is left of it.
func (w *three) end() {
	w.Helper()
	w.stop.Store(true)
	w.wg.Wait()
	var alive *process
	for _, n := range w.nodes {
		if !n.gone {
			alive = n
		}
	}
	reader := alive.client.Load()
	state := func(id string) string {
		got, err := reader.GetReservation(context.Background(), id, "b")
		if err != nil {
			return err.Error()
		}
		return stateName(got[0].GetState())
	}
	for _, id := range w.paid {
		if s := state(id); s != "COMMITTED" {
			w.Errorf("order %s was acknowledged and is %s", id, s)
		}
	}
	for _, id := range w.held {
		until(w.T, "order "+id+" to expire", func() bool { return state(id) == "EXPIRED" })
	}
	b, err := reader.GetBudget(context.Background(), "B")
	paid := int64(len(w.paid)) * 100
	if m := b.GetBudget().GetBalances(); err != nil || m.GetCommittedMinor() != paid || m.GetReservedMinor() != 0 || m.GetAvailableMinor() != 1e9-paid {
		w.Errorf("balances %v, %v, want %d committed and none reserved", m, err, paid)
	}
	w.Logf("%d orders paid, %d holds expired", len(w.paid), len(w.held))
	for _, n := range w.nodes {
		if n.gone {
			continue
		}
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		if err := n.cmd.Wait(); err != nil {
			w.Errorf("%s: %v:\n%s", n.id, err, n.cmd.Stderr)
		}
		n.gone = true
		n.client.Load().Close()
	}
	checkAudit(w.T, must(w.T, "audit", "--store", w.place))
}
