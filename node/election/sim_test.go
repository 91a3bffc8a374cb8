package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/scan"
	"github.com/coffer-ledger/coffer/shard"
)

func TestMain(m *testing.M) { testengine.Main(m) }

// gate is one node's way to the store that all share. Its commits can be held,
// as if the process were paused in the middle of them, or fail for good.
type gate struct {
	kv.Store
	mu      sync.Mutex
	held    chan struct{} // not nil: commits that write wait for its end
	dead    bool
	waiting int // commits that wait
}

var errDead = &kv.Error{Code: kv.CodeClosed, Op: "begin"}

func (g *gate) Begin(ctx context.Context) (kv.Tx, error) {
	g.mu.Lock()
	dead := g.dead
	g.mu.Unlock()
	if dead {
		return nil, errDead
	}
	tx, err := g.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &gateTx{Tx: tx, g: g}, nil
}

type gateTx struct {
	kv.Tx
	g     *gate
	wrote bool
}

func (t *gateTx) Set(k, v []byte) { t.wrote = true; t.Tx.Set(k, v) }
func (t *gateTx) Clear(k []byte)  { t.wrote = true; t.Tx.Clear(k) }
func (t *gateTx) Add(k, v []byte) { t.wrote = true; t.Tx.Add(k, v) }

func (t *gateTx) Commit(ctx context.Context) (kv.Stamp, error) {
	t.g.mu.Lock()
	held, dead := t.g.held, t.g.dead
	if held != nil && t.wrote {
		t.g.waiting++
	}
	t.g.mu.Unlock()
	if dead {
		return kv.Stamp{}, errDead
	}
	if held != nil && t.wrote {
		<-held // a paused process does not see its deadlines either
	}
	return t.Tx.Commit(ctx)
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

func (g *gate) waits() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// member is one node: a store, an executor, the expiry scanner and its elector.
type member struct {
	id     string
	gate   *gate
	store  *store.Store
	exec   *shard.Executor
	expiry *scan.Expiry
	raft   *Raft
	book   logbook
	trans  *raft.InmemTransport
	data   *raft.InmemStore
	stop   context.CancelFunc
	done   chan error
}

// reigned is a time in which a node's scanners ran.
type reigned struct {
	node     string
	term     uint64
	from, to time.Time // to is zero while it lasts
}

// sim is a cluster of nodes over one store, in fake time.
type sim struct {
	*testing.T
	engine  kv.Store
	members []*member
	timeout time.Duration

	mu     sync.Mutex
	reigns []reigned
}

// cluster runs a test over nodes whose clocks are off by the given times.
func cluster(t *testing.T, timeout time.Duration, offsets []time.Duration, test func(s *sim)) {
	faultyCluster(t, timeout, offsets, nil, test)
}

// faultyCluster is a cluster over a store with faults.
func faultyCluster(t *testing.T, timeout time.Duration, offsets []time.Duration, faults *embedded.Faults, test func(s *sim)) {
	testengine.OnlyEmbedded(t, "it runs in fake time")
	synctest.Test(t, func(t *testing.T) {
		s := &sim{T: t, engine: testengine.Embedded(t, vfs.NewMem(), faults), timeout: timeout}
		for i, off := range offsets {
			s.members = append(s.members, s.member(fmt.Sprint("n", i+1), len(offsets), off))
		}
		s.heal()
		for _, m := range s.members {
			s.start(m)
		}
		defer s.end()
		test(s)
	})
}

func (s *sim) member(id string, n int, off time.Duration) *member {
	m := &member{id: id, gate: &gate{Store: s.engine}, data: raft.NewInmemStore()}
	_, m.trans = raft.NewInmemTransportWithTimeout(raft.ServerAddress(id+":1"), 100*time.Millisecond)
	var err error
	m.store, err = store.Open(s.Context(), m.gate, store.Options{
		Writer: id, Now: func() time.Time { return time.Now().Add(off) }, Tx: kv.Options{Timeout: time.Minute},
	})
	if err != nil {
		s.Fatal(err)
	}
	cfg := shard.DefaultConfig()
	cfg.CommitTimeout = time.Minute // longer than a pause: the batch shall meet the fence, not its own deadline
	if m.exec, err = shard.New(cfg, m.store); err != nil {
		s.Fatal(err)
	}
	if m.expiry, err = scan.New(scan.DefaultConfig(), m.store, m.exec, zerolog.Nop()); err != nil {
		s.Fatal(err)
	}
	rc := Config{Node: id, ElectionTimeout: s.timeout, WarnAfter: warnAfter}
	for i := range n {
		p := fmt.Sprint("n", i+1)
		rc.Peers = append(rc.Peers, Peer{p, p + ":1"})
	}
	open := func() (Parts, error) { return Parts{Transport: m.trans, Logs: m.data, Stable: m.data}, nil }
	if m.raft, err = NewRaft(rc, open, m.store, m.book.logger()); err != nil {
		s.Fatal(err)
	}
	return m
}

func (s *sim) start(m *member) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.done = cancel, make(chan error, 1)
	go func() {
		m.done <- m.raft.Run(ctx, func(ctx context.Context) error {
			i := s.begin(m, store.TermOf(ctx))
			defer s.over(i)
			return m.expiry.Run(ctx)
		})
	}()
}

func (s *sim) begin(m *member, term uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reigns = append(s.reigns, reigned{node: m.id, term: term, from: time.Now()})
	return len(s.reigns) - 1
}

func (s *sim) over(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reigns[i].to = time.Now()
}

func (s *sim) end() {
	for _, m := range s.members {
		m.gate.release()
		m.stop()
	}
	for _, m := range s.members {
		if err := <-m.done; err != nil {
			s.Errorf("node %s ended with %v", m.id, err)
		}
		if err := m.trans.Close(); err != nil {
			s.Error(err)
		}
	}
	time.Sleep(time.Minute) // what Raft still waited for has timed out
}

// cut takes a member off the network of the others; the store it still reaches.
func (s *sim) cut(m *member) {
	for _, o := range s.members {
		if o != m {
			o.trans.Disconnect(m.trans.LocalAddr())
			m.trans.Disconnect(o.trans.LocalAddr())
		}
	}
}

func (s *sim) heal() {
	for _, m := range s.members {
		for _, o := range s.members {
			if o != m {
				m.trans.Connect(o.trans.LocalAddr(), o.trans)
			}
		}
	}
}

// kill ends a member without a word: nothing that it still does gets out.
func (s *sim) kill(m *member) {
	s.cut(m)
	m.gate.mu.Lock()
	m.gate.dead = true
	m.gate.mu.Unlock()
	m.gate.release()
}

// leader waits until a member other than not leads.
func (s *sim) leader(not *member) *member {
	s.Helper()
	for range 600 {
		for _, m := range s.members {
			if m != not && m.raft.Status().Leading {
				return m
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.Fatal("no leader for a minute")
	return nil
}

func (s *sim) other(than ...*member) *member {
	for _, m := range s.members {
		free := true
		for _, o := range than {
			free = free && m != o
		}
		if free {
			return m
		}
	}
	return nil
}

// gap is the longest time in which nobody's scanners ran, from since on.
func (s *sim) gap(since time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := since
	for _, r := range s.reigns { // in the order of their begin
		to := r.to
		if to.IsZero() {
			to = time.Now()
		}
		if to.Before(since) {
			continue
		}
		longest = max(longest, r.from.Sub(at))
		if to.After(at) {
			at = to
		}
	}
	return longest
}

var pot = ledger.BudgetID{Tenant: "t", Key: "pot"}

const funded = 1_000_000

func (s *sim) fund(m *member) {
	s.Helper()
	s.do(m, ledger.Command{Op: ledger.OpCreate, Budget: pot, Currency: "BRL", Buckets: 4})
	s.do(m, ledger.Command{Op: ledger.OpFund, Budget: pot, Amount: funded, Currency: "BRL", ID: "f"})
}

func (s *sim) do(m *member, c ledger.Command) {
	s.Helper()
	if _, err := m.exec.Do(context.Background(), c); err != nil {
		s.Fatalf("%s by %s: %v", c.Op, m.id, err)
	}
}

func orderOf(i int) ledger.OrderKey {
	return ledger.OrderKey{Tenant: "t", Order: fmt.Sprint("o", i), Benefit: "b"}
}

// hold reserves for orders from..to-1. What the store does not take is sent
// again.
func (s *sim) hold(m *member, from, to int, ttl time.Duration) {
	s.Helper()
	var cmds []ledger.Command
	for i := from; i < to; i++ {
		cmds = append(cmds, ledger.Command{Op: ledger.OpReserve, Key: orderOf(i), Budget: pot, Amount: 10, Currency: "BRL", TTL: ttl})
	}
	for try := 0; len(cmds) > 0; try++ {
		var again []ledger.Command
		for i, r := range m.exec.DoAll(context.Background(), cmds) {
			var rej *ledger.Rejection
			switch {
			case r.Err == nil:
			case errors.As(r.Err, &rej) && (rej.Code == ledger.Unavailable || rej.Code == ledger.OutcomeUnknown) && try < 100:
				again = append(again, cmds[i])
			default:
				s.Fatalf("reserve %s by %s: %v", cmds[i].Key, m.id, r.Err)
			}
		}
		cmds = again
	}
}

// expired waits until n holds have expired, and checks that each did so once
// and that nothing else happened.
func (s *sim) expired(m *member, n int) {
	s.Helper()
	var times map[string]int
	for range 600 {
		times = s.expiries(m)
		if len(times) >= n {
			break
		}
		time.Sleep(time.Second)
	}
	if len(times) != n {
		s.Errorf("%d holds expired, want %d", len(times), n)
	}
	for order, k := range times {
		if k != 1 {
			s.Errorf("order %s expired %d times", order, k)
		}
	}
	v, err := m.store.Budget(context.Background(), pot)
	if err != nil || v.Total != (ledger.Balances{Funded: funded, Available: funded}) {
		s.Errorf("totals %+v, %v", v.Total, err)
	}
	r, err := m.store.Audit(context.Background(), nil)
	if err != nil || !r.OK() {
		s.Errorf("audit %+v, %v", r, err)
	}
}

// expiries counts the EXPIRE entries of each order.
func (s *sim) expiries(m *member) map[string]int {
	s.Helper()
	times := map[string]int{}
	p := store.Page{Size: store.MaxPageSize}
	for {
		es, next, err := m.store.Entries(context.Background(), pot, nil, p)
		if err != nil {
			s.Fatal(err)
		}
		for i := range es {
			if es[i].Type == ledger.EntryExpire {
				times[es[i].Order]++
			}
		}
		if p.Token = next; next == "" {
			return times
		}
	}
}

func isFenced(err error) bool { return errors.Is(err, &ledger.Rejection{Code: ledger.Fenced}) }
