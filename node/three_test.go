package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// wire carries a node's calls to the others, until it is cut.
type wire struct {
	http.Transport
	cut atomic.Bool
}

// RoundTrip makes one call.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		return nil, errors.New("network is split")
	}
	return w.Transport.RoundTrip(r)
}

// mortal is a node's way to the store, until the node is killed.
type mortal struct {
	kv.Store
	dead atomic.Bool
}

// Begin starts a transaction.
func (m *mortal) Begin(ctx context.Context) (kv.Tx, error) {
	if m.dead.Load() {
		return nil, &kv.Error{Code: kv.CodeClosed, Op: "begin"}
	}
	return m.Store.Begin(ctx)
}

// Close leaves the engine open for the other nodes.
func (*mortal) Close() error { return nil }

// one is one of several nodes in this process.
type one struct {
	*running
	id     string
	parts  *parts
	wire   *wire
	mortal *mortal
	client *rpc.Client
}

// trio is three nodes over one embedded store.
type trio struct {
	*testing.T
	cfg    func(*Config)
	engine kv.Store
	nodes  [3]*one
	// clients of the nodes as they run now
	clients [3]atomic.Pointer[rpc.Client]
}

func startTrio(t *testing.T, cfg func(*Config)) *trio {
	t.Helper()
	testengine.OnlyEmbedded(t, "it shares one store among nodes of this process")
	w := &trio{T: t, cfg: cfg, engine: testengine.Embedded(t, vfs.NewMem(), nil)}
	for i := range w.nodes {
		w.start(i)
	}
	w.together()
	return w
}

// start brings a node up, for the first time or again.
func (w *trio) start(i int) {
	w.Helper()
	o := &one{id: fmt.Sprint("n", i+1), wire: &wire{}, mortal: &mortal{Store: w.engine}}
	cfg := testConfig()
	cfg.NodeID, cfg.Cluster.Advertise = o.id, advertiseAuto
	cfg.Cluster.Heartbeat, cfg.Cluster.DeadAfter = 25*time.Millisecond, time.Minute
	cfg.Cluster.ForwardTimeout = time.Minute
	if w.cfg != nil {
		w.cfg(&cfg)
	}
	n, err := New(cfg, Deps{
		OpenStore: func(context.Context) (kv.Store, error) { return o.mortal, nil },
		StoreKind: "embedded", Version: "v0", Log: zerolog.Nop(), PeerTransport: o.wire,
	})
	if err != nil {
		w.Fatal(err)
	}
	o.running = start(w.T, n, func(ctx context.Context) error {
		var err error
		if o.parts, err = n.assemble(ctx, o.mortal); err != nil {
			return err
		}
		ln, err := n.listen(ctx)
		if err != nil {
			return err
		}
		return n.serve(ctx, ln, o.parts)
	})
	o.client = rpc.NewClient(o.url, rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(patience))
	w.Cleanup(o.client.Close)
	w.nodes[i] = o
	w.clients[i].Store(o.client)
}

// together waits until all nodes that run see each other.
func (w *trio) together() {
	w.Helper()
	until(w.T, "the nodes to see each other", func() bool {
		for _, o := range w.nodes {
			if o.parts.members != nil && o.parts.members.Live() != len(w.nodes) {
				return false
			}
		}
		return true
	})
}

// kill ends a node without a word to anyone.
func (o *one) kill() {
	o.mortal.dead.Store(true)
	o.wire.cut.Store(true)
	_ = o.parts.http.Close()
}

// load is what callers do: each order is reserved and committed, through a node
// that changes from order to order, and through another one when that fails.
type load struct {
	w      *trio
	next   atomic.Int64
	stop   atomic.Bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	acked  []string
	errors int
}

func (w *trio) load(callers int) *load {
	l := &load{w: w}
	for range callers {
		l.wg.Go(func() {
			for !l.stop.Load() {
				l.order(int(l.next.Add(1)))
			}
		})
	}
	return l
}

func (l *load) order(i int) {
	order := fmt.Sprint("o", i)
	for try := 0; ; try++ {
		c := l.w.clients[(i+try)%3].Load()
		err := reserve(context.Background(), c, order, time.Hour)
		if err == nil {
			_, err = c.Commit(context.Background(), &cofferv1.CommitRequest{OrderId: order, BenefitKey: "b"})
		}
		if err == nil {
			l.mu.Lock()
			l.acked = append(l.acked, order)
			l.mu.Unlock()
			return
		}
		if rpc.ReasonOf(err).Info().Class == ledger.ClassState {
			l.w.Errorf("order %s: %v", order, err)
			return
		}
		l.mu.Lock()
		l.errors++
		l.mu.Unlock()
		if try > 1000 {
			l.w.Errorf("order %s: %v", order, err)
			return
		}
		time.Sleep(time.Millisecond) // no node took it; as a client would, wait
	}
}

func (l *load) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// more waits until n more orders are acknowledged.
func (l *load) more(n int) {
	l.w.Helper()
	want := l.acknowledged() + n
	until(l.w.T, fmt.Sprint(n, " more orders"), func() bool { return l.acknowledged() >= want })
}

// end stops the callers and checks that all that was acknowledged is there,
// once, and that the store is sound.
func (l *load) end() {
	l.w.Helper()
	l.stop.Store(true)
	l.wg.Wait()
	st, err := store.Open(l.w.Context(), l.w.engine, store.Options{})
	if err != nil {
		l.w.Fatal(err)
	}
	for _, o := range l.acked {
		r, err := st.Reservation(l.w.Context(), ledger.OrderKey{Tenant: "default", Order: o, Benefit: "b"})
		if err != nil || r.Attempt(1).State != ledger.StateCommitted {
			l.w.Errorf("order %s was acknowledged and is %+v, %v", o, r, err)
		}
	}
	v, err := st.Budget(l.w.Context(), ledger.BudgetID{Tenant: "default", Key: "B"})
	want := int64(len(l.acked)) * 100
	if err != nil || v.Total != (ledger.Balances{Funded: 1e9, Available: 1e9 - want, Committed: want}) {
		l.w.Errorf("totals %+v, %v, want %d committed", v.Total, err, want)
	}
	rep, err := st.Audit(l.w.Context(), nil)
	if err != nil || !rep.OK() {
		l.w.Errorf("audit %+v, %v", rep, err)
	}
}

// Commands on one hot bucket through three nodes: they meet on the node that
// the bucket prefers, and do not conflict. Without that they do.
func TestAffinity(t *testing.T) {
	rate := map[bool]float64{}
	for _, on := range []bool{false, true} {
		w := startTrio(t, func(c *Config) {
			if !on {
				c.Cluster.Advertise = ""
			}
		})
		fund(t, w.nodes[0].client, 1)
		l := w.load(24)
		l.more(800)
		l.end()
		var batches, commands, retries, forwarded uint64
		for _, o := range w.nodes {
			st := o.parts.exec.Stats()
			batches, commands, forwarded = batches+st.Batches, commands+st.Commands, forwarded+st.Forwarded
			retries += o.parts.ledger.Retries()
		}
		rate[on] = float64(retries) / float64(batches)
		t.Logf("affinity %v: %d commands in %d batches, %d conflicts (%.2f%% of batches), %d commands forwarded", on, commands, batches, retries, 100*rate[on], forwarded)
		if on && forwarded == 0 {
			t.Error("nothing was forwarded")
		}
		for _, o := range w.nodes {
			o.stop()
			if err := o.ended(t); err != nil {
				t.Error(err)
			}
		}
	}
	if rate[true] >= 0.01 {
		t.Errorf("with affinity %.2f%% of batches conflicted (allowed: below 1%%)", 100*rate[true])
	}
}

// All nodes are restarted, one after the other, under load: no order that was
// acknowledged is lost, and a draining node hands its buckets over first.
func TestRollingRestart(t *testing.T) {
	w := startTrio(t, nil)
	fund(t, w.nodes[0].client, 16)
	l := w.load(6)
	l.more(100)
	for i := range w.nodes {
		w.nodes[i].stop()
		if err := w.nodes[i].ended(t); err != nil {
			t.Errorf("node %d: %v", i+1, err)
		}
		for j, o := range w.nodes {
			if j != i {
				until(t, "the node to be gone", func() bool { return o.parts.members.Live() == 2 })
			}
		}
		l.more(100)
		w.start(i)
		w.together()
		l.more(100)
	}
	l.end()
}

// A node dies under load: the others serve on, and take its buckets over.
func TestNodeDies(t *testing.T) {
	w := startTrio(t, func(c *Config) { c.Cluster.DeadAfter, c.Cluster.ForwardTimeout = time.Second, 500*time.Millisecond })
	fund(t, w.nodes[0].client, 16)
	l := w.load(6)
	l.more(100)
	dead := w.nodes[1]
	dead.kill()
	l.more(300)
	for _, o := range []*one{w.nodes[0], w.nodes[2]} {
		until(t, "the dead node to be left out", func() bool { return o.parts.members.Live() == 2 })
	}
	l.more(100)
	dead.stop()
	_ = dead.ended(t) // it cannot end well: its store is gone
	l.end()
}

// The nodes do not reach each other: each serves alone, slower and right.
func TestNetworkSplit(t *testing.T) {
	w := startTrio(t, nil)
	// Nodes that are alone with one bucket may keep each other from it for longer
	// than one call tries; every client tries again then.
	for i, o := range w.nodes {
		c := rpc.NewClient(o.url, rpc.WithAttemptTimeout(patience))
		t.Cleanup(c.Close)
		w.clients[i].Store(c)
	}
	fund(t, w.nodes[0].client, 1)
	l := w.load(6)
	l.more(100)
	for _, o := range w.nodes {
		o.wire.cut.Store(true)
	}
	l.more(300)
	for _, o := range w.nodes {
		o.wire.cut.Store(false)
	}
	l.more(100)
	l.end()
	ran := uint64(0)
	for _, o := range w.nodes {
		ran += o.parts.exec.Stats().RanHere
	}
	if ran == 0 {
		t.Error("no command of another node's bucket ran where it was sent")
	}
	if l.errors > 0 {
		t.Errorf("%d calls failed, although every node reached the store", l.errors)
	}
}
