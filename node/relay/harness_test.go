package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

func TestMain(m *testing.M) { testengine.Main(m) }

var hook = store.SinkID{Tenant: "t1", Name: "hook"}

// world is a store with a budget, and a receiver of its events.
type world struct {
	t      testing.TB
	engine kv.Store
	st     *store.Store
	to     *receiver
	open   Opener // nil: the receiver's
	relays sync.WaitGroup
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, to: newReceiver()}
	var prefix []byte
	w.engine, prefix = testengine.Open(t)
	w.st = openStore(t, w.engine, prefix)
	w.apply(nil, ledger.Command{Op: ledger.OpCreate, Budget: budget, Currency: "BRL", Buckets: 8})
	w.apply(nil, ledger.Command{Op: ledger.OpFund, Budget: budget, ID: "f", Amount: 1 << 40, Currency: "BRL"})
	return w
}

func openStore(t testing.TB, engine kv.Store, prefix []byte) *store.Store {
	t.Helper()
	st, err := store.Open(context.Background(), engine, store.Options{Writer: "n1", Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

var budget = ledger.BudgetID{Tenant: "t1", Key: "spring"}

// apply runs commands, all of one bucket.
func (w *world) apply(at *ledger.BucketID, cmds ...ledger.Command) {
	w.t.Helper()
	for i := range cmds {
		cmds[i] = cmds[i].Normalize()
	}
	for range 4 {
		got, err := w.st.Apply(context.Background(), at, cmds)
		if err != nil {
			w.t.Error(err)
			return
		}
		if at = got[0].Reroute; at != nil {
			continue
		}
		for i := range got {
			if got[i].Err != nil {
				w.t.Errorf("%s of %s: %v", cmds[i].Op, cmds[i].Key, got[i].Err)
			}
		}
		return
	}
}

// orders reserves and commits n orders, many in one batch.
func (w *world) orders(prefix string, n int) {
	w.t.Helper()
	def, err := w.st.Definition(context.Background(), budget)
	if err != nil {
		w.t.Fatal(err)
	}
	batches := map[ledger.BucketID][]ledger.Command{}
	for i := range n {
		k := ledger.OrderKey{Tenant: "t1", Order: fmt.Sprintf("%s-%d", prefix, i), Benefit: "coupon"}
		b := def.Route(k)
		batches[b] = append(
			batches[b],
			ledger.Command{Op: ledger.OpReserve, Key: k, Budget: budget, Amount: 5, Currency: "BRL", TTL: time.Hour},
			ledger.Command{Op: ledger.OpCommit, Key: k},
		)
	}
	for b, cmds := range batches {
		for batch := range slices.Chunk(cmds, 128) {
			w.apply(&b, batch...)
		}
	}
}

// add makes a sink that gets everything.
func (w *world) add(id store.SinkID) {
	w.t.Helper()
	if _, _, err := w.st.CreateSink(context.Background(), store.Sink{SinkID: id, Config: []byte("{}")}, store.From{}); err != nil {
		w.t.Fatal(err)
	}
}

// testConfig is quick where a test would wait.
func testConfig() Config {
	c := DefaultConfig()
	c.Lease = 2 * time.Second
	return c
}

// run starts a relay, with the signals it needs, and gives what ends it.
func (w *world) run(cfg Config, st Store, name string) (r *Relay, stop func()) {
	w.t.Helper()
	signals := NewSignals(st, cfg.Poll, cfg.Watch)
	open := w.open
	if open == nil {
		open = func(_ context.Context, s *store.Sink) (sink.Sink, error) { return w.to.open(s) }
	}
	r, err := New(cfg, st, signals, open, name, zerolog.New(io.Discard))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.relays.Go(func() {
		if err := errors.Join(r.Run(ctx), nil); err != nil {
			w.t.Error(err)
		}
	})
	w.relays.Go(func() { _ = signals.Run(ctx) })
	return r, cancel
}

// ledgerEvents counts the entries of the budget that are no moves.
func (w *world) ledgerEvents() map[string]bool {
	w.t.Helper()
	all := map[string]bool{}
	p := store.Page{Size: store.MaxPageSize}
	for {
		es, next, err := w.st.Entries(context.Background(), budget, nil, p)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, en := range es {
			e := event.Event{Bucket: en.Bucket, Entry: en.Entry}
			if !e.Internal() {
				all[fmt.Sprintf("%v/%d", en.Bucket, en.Seq)] = true
			}
		}
		if p.Token = next; next == "" {
			return all
		}
	}
}

// wait returns when the condition holds; it looks again when the receiver got
// something or a while has passed.
func (w *world) wait(what string, ok func() bool) {
	w.t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		select {
		case <-w.to.got:
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.t.Fatalf("%s: never so; the receiver has %d events", what, w.to.count())
}

// receiver is what all sinks of a test deliver to: an inbox by event id.
type receiver struct {
	got chan struct{}

	mu        sync.Mutex
	seen      map[string]int            // deliveries by sink and event
	ledger    map[string]bool           // what each first delivery was of
	order     map[string][]*event.Event // first deliveries by sink and key
	late      []string                  // first deliveries that overtook
	answer    func(e *event.Event) error
	gate      chan struct{} // non-nil: Deliver waits
	waiting   atomic.Int64
	down      atomic.Bool
	opened    int
	closed    int
	delivered int
}

func newReceiver() *receiver {
	return &receiver{
		got: make(chan struct{}, 1), seen: map[string]int{}, ledger: map[string]bool{}, order: map[string][]*event.Event{},
	}
}

func (r *receiver) open(s *store.Sink) (sink.Sink, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	return &driver{to: r, id: s.SinkID}, nil
}

// answers sets what the receiver says to an event; nil for yes.
func (r *receiver) answers(f func(e *event.Event) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// of gives the first deliveries of one sink's key.
func (r *receiver) of(id store.SinkID, key string) []*event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order[id.String()+" "+key])
}

// take is the consumer: it does its effect once per event, and in order.
func (r *receiver) take(id store.SinkID, e *event.Event) {
	at := id.String() + " " + e.ID()
	r.delivered++
	if r.seen[at]++; r.seen[at] > 1 {
		return
	}
	r.ledger[fmt.Sprintf("%s %v/%d", id, e.Bucket, e.Entry.Seq)] = true
	k := id.String() + " " + e.Key()
	if had := r.order[k]; len(had) > 0 && had[len(had)-1].Sequence() >= e.Sequence() {
		r.late = append(r.late, fmt.Sprintf("%s: %d after %d", k, e.Sequence(), had[len(had)-1].Sequence()))
	}
	r.order[k] = append(r.order[k], e)
}

// check compares what a sink got with the ledger: every event, once by its inbox,
// in order and without a gap.
func (w *world) check(ids ...store.SinkID) {
	w.t.Helper()
	want := w.ledgerEvents()
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	if len(w.to.late) > 0 {
		w.t.Errorf("%d events overtook others: %v", len(w.to.late), w.to.late[0])
	}
	if len(w.to.ledger) != len(want)*len(ids) {
		w.t.Errorf("effects of %d events, the ledger has %d for %d sinks", len(w.to.ledger), len(want), len(ids))
	}
	for _, id := range ids {
		for e := range want {
			if !w.to.ledger[id.String()+" "+e] {
				w.t.Fatalf("sink %s did not get %s", id, e)
			}
		}
	}
	for k, es := range w.to.order {
		for i := 1; i < len(es); i++ {
			if n := es[i-1].Next(); n != 0 && es[i].Sequence() != n {
				w.t.Errorf("%s: event %d follows event %d", k, es[i].Sequence(), es[i-1].Sequence())
			}
		}
	}
}

// driver is a sink.Sink.
type driver struct {
	to *receiver
	id store.SinkID
}

func (d *driver) Deliver(ctx context.Context, events []*event.Event) []error {
	d.to.mu.Lock()
	gate := d.to.gate
	d.to.mu.Unlock()
	if gate != nil {
		d.to.waiting.Add(1)
		<-gate // also when ctx has ended: a process that hangs
		d.to.waiting.Add(-1)
	}
	d.to.mu.Lock()
	defer d.to.mu.Unlock()
	errs := make([]error, len(events))
	held := map[string]bool{}
	for i, e := range events {
		switch {
		case held[e.Key()]:
			errs[i] = sink.ErrHeld
			continue
		case d.to.answer != nil:
			errs[i] = d.to.answer(e)
		}
		if errs[i] != nil {
			held[e.Key()] = true
			continue
		}
		d.to.take(d.id, e)
	}
	select {
	case d.to.got <- struct{}{}:
	default:
	}
	return errs
}

// Ping succeeds unless the receiver is down.
func (d *driver) Ping(context.Context) error {
	if d.to.down.Load() {
		return errors.New("connection refused")
	}
	return nil
}

func (d *driver) Close() error {
	d.to.mu.Lock()
	defer d.to.mu.Unlock()
	d.to.closed++
	return nil
}

// mortal is a store whose calls fail once its process was killed.
type mortal struct {
	Store
	dead atomic.Bool
	// left, if not 0, is how many more cursors move before the process dies.
	left atomic.Int64
}

var errKilled = errors.New("the process was killed")

func (m *mortal) WaitEvents(ctx context.Context, p, since uint64, limit time.Duration, watch bool) (uint64, error) {
	if m.dead.Load() {
		return 0, errKilled
	}
	return m.Store.WaitEvents(ctx, p, since, limit, watch)
}

func (m *mortal) BeatRelay(ctx context.Context, b store.RelayBeat) ([]store.RelayLease, error) {
	if m.dead.Load() {
		return nil, errKilled
	}
	return m.Store.BeatRelay(ctx, b)
}

func (m *mortal) AdvanceSink(ctx context.Context, f store.Fence, id store.SinkID, a store.Advance) (store.Cursor, error) {
	if len(a.Trouble) == 0 && m.left.Add(-1) == 0 {
		m.dead.Store(true)
	}
	if m.dead.Load() {
		return store.Cursor{}, errKilled
	}
	return m.Store.AdvanceSink(ctx, f, id, a)
}
