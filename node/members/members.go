package members

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// Config shapes the membership.
type Config struct {
	// Interval is the time between two signs of life.
	Interval time.Duration
	// DeadAfter is how long a node may give none before it gets no more
	// commands.
	DeadAfter time.Duration
	// ForwardTimeout bounds a call that takes commands to another node.
	ForwardTimeout time.Duration
}

// forgetAfter is how long a node gives no sign of life, at the least, before
// others remove the one that it left.
const forgetAfter = 10 * time.Minute

// DefaultConfig notices a node that is lost within seconds.
func DefaultConfig() Config {
	return Config{Interval: time.Second, DeadAfter: 4 * time.Second, ForwardTimeout: time.Second}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	duration := func(field string, v, low, high time.Duration) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %s (allowed: %s to %s)", field, v, low, high))
		}
	}
	duration("heartbeat", c.Interval, 10*time.Millisecond, time.Minute)
	duration("dead_after", c.DeadAfter, 2*c.Interval, time.Hour)
	duration("forward_timeout", c.ForwardTimeout, 10*time.Millisecond, time.Minute)
	return errors.Join(errs...)
}

// Table is where signs of life are; *store.Store is one.
type Table interface {
	// Heartbeat writes a sign of life over one of the same run, none, or dead,
	// and returns the one that stands then.
	Heartbeat(ctx context.Context, m, dead store.Member) (store.Member, error)
	Leave(ctx context.Context, node string, run uint64) error
	MarkDrain(ctx context.Context, node string, drain bool) error
	Members(ctx context.Context) ([]store.Member, map[string]bool, error)
	// Forget removes all of a node that has given no sign of life since m.
	Forget(ctx context.Context, m store.Member) error
}

// Caller makes a call to the node that gave a sign of life, and to no other that
// may be at its address: it runs the commands there and gives one reply each.
type Caller func(ctx context.Context, to store.Member, cmds []ledger.Command) ([]ledger.Reply, error)

// Seen is a node as this one sees it.
type Seen struct {
	store.Member
	// Since is the time since its sign of life changed; Live: that is recent.
	Since time.Duration
	Live  bool
}

// Members is one node's view of all. It is safe for concurrent use.
type Members struct {
	cfg   Config
	self  string
	table Table
	call  Caller
	log   zerolog.Logger
	// about tells of this node what its sign of life says: buckets and term.
	about func() (buckets int, term uint64)

	run      uint64
	draining atomic.Bool // because it ends
	asked    atomic.Bool // because an operator said so
	poke     chan struct{}
	claimed  atomic.Bool // the id is this process's, as far as can be said
	began    atomic.Bool
	ended    chan struct{} // closed when Run has ended
	view     atomic.Pointer[view]

	mu      sync.Mutex
	address string
	beat    uint64
	seen    map[string]*sighting
}

// sighting is when the newest sign of life of a node was first seen.
type sighting struct {
	member  store.Member
	changed time.Time
	// alive: it changed while this node looked.
	alive bool
}

// view is who takes commands.
type view struct {
	nodes []string
	at    map[string]store.Member
}

// New makes a view that knows this node alone. Without call the node shares no
// buckets, and only has its id to itself.
func New(cfg Config, self string, table Table, call Caller, about func() (int, uint64), log zerolog.Logger) (*Members, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("members config: %w", err)
	}
	m := &Members{
		cfg: cfg, self: self, table: table, call: call, about: about, log: log,
		run: rand.Uint64()>>1 | 1, poke: make(chan struct{}, 1), ended: make(chan struct{}), seen: map[string]*sighting{},
	}
	m.view.Store(&view{nodes: []string{self}})
	return m, nil
}

// Run gives signs of life under an address and watches those of others until
// ctx ends, and then returns nil. It claims the node's id where Claim was not called, and ends with an *InUseError
// when another process has it. It may be called once.
func (m *Members) Run(ctx context.Context, address string) error {
	m.began.Store(true)
	defer close(m.ended)
	m.mu.Lock()
	m.address = address
	m.mu.Unlock()
	if !m.claimed.Load() {
		if err := m.Claim(ctx, address); err != nil {
			return err
		}
	}
	// A mark of an earlier run of this node has served its purpose.
	if err := m.table.MarkDrain(ctx, m.self, false); err != nil && ctx.Err() == nil {
		m.log.Warn().Err(err).Msg("mark to drain could not be removed")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-m.poke:
		}
		err := m.turn(ctx)
		if taken := (*InUseError)(nil); errors.As(err, &taken) {
			return taken
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn().Err(err).Msg("sign of life failed")
		}
		timer.Reset(m.cfg.Interval)
	}
}

// turn writes this node's sign of life and reads those of all. What it does not
// learn leaves the view as it ages.
func (m *Members) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.DeadAfter)
	defer cancel()
	buckets, term := m.about()
	m.mu.Lock()
	m.beat++
	own := store.Member{
		Node: m.self, Address: m.address, Run: m.run, Beat: m.beat, Draining: m.Draining(), Buckets: uint64(buckets), Term: term,
	}
	if m.call != nil {
		own.Sees = m.view.Load().nodes
	}
	m.mu.Unlock()
	stands, werr := m.table.Heartbeat(ctx, own, store.Member{})
	if werr == nil && stands.Run != m.run {
		return &InUseError{Node: m.self, Address: stands.Address, Lost: true}
	}
	rows, drain, err := m.table.Members(ctx)
	m.mu.Lock()
	var dead []store.Member
	if err == nil {
		m.asked.Store(drain[m.self])
		m.note(rows)
		dead = m.dead()
	}
	m.look()
	m.mu.Unlock()
	errs := []error{werr, err}
	for _, d := range dead {
		errs = append(errs, m.table.Forget(ctx, d))
	}
	return errors.Join(errs...)
}

// dead are the nodes that have been silent for so long that nobody waits for
// them: were they kept, new ones would not find room. The caller holds mu.
func (m *Members) dead() []store.Member {
	var out []store.Member
	for n, s := range m.seen {
		if n != m.self && time.Since(s.changed) > max(forgetAfter, 2*m.cfg.DeadAfter) {
			out = append(out, s.member)
		}
	}
	return out
}

// note compares signs of life with those seen before. The caller holds mu.
func (m *Members) note(rows []store.Member) {
	there := map[string]bool{}
	for _, row := range rows {
		there[row.Node] = true
		s := m.seen[row.Node]
		switch {
		case s == nil: // it may be old: the next change tells
			m.seen[row.Node] = &sighting{member: row, changed: time.Now()}
		case s.member.Run != row.Run || s.member.Beat != row.Beat:
			s.changed, s.alive = time.Now(), true
			s.member = row
		}
	}
	for n := range m.seen {
		if !there[n] {
			delete(m.seen, n)
		}
	}
}

// look makes the view anew. The caller holds mu.
func (m *Members) look() {
	v := &view{at: map[string]store.Member{}}
	for n, s := range m.seen {
		if n != m.self && m.live(s) && !s.member.Draining && len(s.member.Sees) > 0 && m.call != nil {
			v.nodes = append(v.nodes, n)
			v.at[n] = s.member
		}
	}
	if !m.Draining() || len(v.nodes) == 0 {
		v.nodes = append(v.nodes, m.self)
	}
	slices.Sort(v.nodes)
	if old := m.view.Swap(v); !slices.Equal(old.nodes, v.nodes) {
		m.log.Info().Strs("nodes", v.nodes).Msg("nodes that take commands")
		m.wake() // let the others know
	}
}

func (m *Members) live(s *sighting) bool {
	return s.alive && time.Since(s.changed) < m.cfg.DeadAfter
}

// wake makes the next turn come at once.
func (m *Members) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Prefer names the node for a bucket, "" for this one.
func (m *Members) Prefer(b ledger.BucketID) string {
	v := m.view.Load()
	if len(v.nodes) == 1 && v.nodes[0] == m.self {
		return ""
	}
	if n := shard.Prefer(b, v.nodes); n != m.self {
		return n
	}
	return ""
}

// Forward runs commands on a node.
func (m *Members) Forward(ctx context.Context, node string, cmds []ledger.Command) ([]ledger.Reply, error) {
	to, there := m.view.Load().at[node]
	if !there {
		return nil, fmt.Errorf("node %s takes no commands any more", node)
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.ForwardTimeout)
	defer cancel()
	replies, err := m.call(ctx, to, cmds)
	if err != nil {
		m.log.Debug().Err(err).Str("peer", node).Int("commands", len(cmds)).Msg("node did not take commands; they run here")
	}
	return replies, err
}

// Start tells this start of the node from all others, as its sign of life does.
func (m *Members) Start() uint64 { return m.run }

// Draining reports whether this node gives its buckets to the others.
func (m *Members) Draining() bool { return m.draining.Load() || m.asked.Load() }

// Nodes are all nodes that have a sign of life, in the order of their ids.
func (m *Members) Nodes() []Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Seen, 0, len(m.seen))
	for _, s := range m.seen {
		out = append(out, Seen{Member: s.member, Since: time.Since(s.changed), Live: m.live(s)})
	}
	slices.SortFunc(out, func(a, b Seen) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return out
}

// Live is the number of nodes that take commands.
func (m *Members) Live() int { return len(m.view.Load().nodes) }

// Drain gives this node's buckets to the others: it says that it drains, and
// returns when no other live node sends it commands any more, or with an error
// when ctx ends. Run must be running.
func (m *Members) Drain(ctx context.Context) error {
	m.draining.Store(true)
	tick := time.NewTicker(max(m.cfg.Interval/4, time.Millisecond))
	defer tick.Stop()
	for {
		m.wake()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("hand buckets over: %w", ctx.Err())
		}
		if m.handedOver() {
			return nil
		}
	}
}

// handedOver says that no other live node names this one, by what they wrote
// after they could read that it drains.
func (m *Members) handedOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.seen[m.self]
	if own == nil || !own.member.Draining {
		return false // not written yet
	}
	for n, s := range m.seen {
		if n != m.self && m.live(s) && slices.Contains(s.member.Sees, m.self) {
			return false
		}
	}
	return true
}

// Leave takes this node's sign of life away, once Run has ended: a sign that was
// still on its way would stay for good. That of another process stays.
func (m *Members) Leave(ctx context.Context) error {
	if m.began.Load() {
		select {
		case <-m.ended:
		case <-ctx.Done():
			return fmt.Errorf("leave: %w", ctx.Err())
		}
	}
	return m.table.Leave(ctx, m.self, m.run)
}
