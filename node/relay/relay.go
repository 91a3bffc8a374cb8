package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

// Store keeps events, sinks and leases; *store.Store is one.
type Store interface {
	Waiter
	WaitSinks(ctx context.Context, since uint64, limit time.Duration, watch bool) (uint64, error)
	Sinks(ctx context.Context, tenant string) ([]store.Sink, error)
	RelayView(ctx context.Context) (store.RelayView, error)
	BeatRelay(ctx context.Context, b store.RelayBeat) ([]store.RelayLease, error)
	ReadEvents(ctx context.Context, after event.Position, f *event.Filter, blocks int) (store.EventPage, error)
	Cursor(ctx context.Context, id store.SinkID, partition uint64) (store.Cursor, bool, error)
	AdvanceSink(ctx context.Context, f store.Fence, id store.SinkID, a store.Advance) (store.Cursor, error)
	ParkedNames(ctx context.Context, id store.SinkID, partition uint64) (map[string]bool, error)
	ParkedRetries(ctx context.Context, id store.SinkID, partition uint64, limit int) ([]store.Retry, error)
	ParkedEvents(ctx context.Context, id store.SinkID, partition uint64, name string, limit int) (store.ParkedKey, []*event.Event, error)
	ReleaseParked(ctx context.Context, f store.Fence, id store.SinkID, rel store.Released) error
	TrimOutbox(ctx context.Context, f store.Fence, before time.Time) (int, error)
	Lag(ctx context.Context, after event.Position, limit int) (store.SinkLag, error)
}

// Opener makes the driver of a sink.
type Opener func(ctx context.Context, s *store.Sink) (sink.Sink, error)

// Relay is the relay of one node. Make it with New, run it once with Run; the
// other methods are safe at any time.
type Relay struct {
	cfg     Config
	st      Store
	open    Opener
	signals *Signals
	log     zerolog.Logger
	node    string
	token   string
	now     func() time.Time

	// Of the keeper alone.
	sinks map[store.SinkID]*active
	pumps map[pumpID]*pump
	watch observer
	held  []store.RelayLease
	beat  time.Time // of the last one that the store took

	mu      sync.Mutex // guards what others read: changes of pumps, and the rest
	fences  []store.Fence
	totals  map[store.SinkID]*totals
	trimmed uint64
}

// active is a running sink with its driver.
type active struct {
	store.Sink
	driver sink.Sink
	totals *totals
}

type pumpID struct {
	sink      store.SinkID
	partition uint64
}

// New makes a relay. signals may be shared with others that wait for events; who
// made them runs them.
func New(cfg Config, st Store, signals *Signals, open Opener, node string, log zerolog.Logger) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("relay config: %w", err)
	}
	r := &Relay{
		cfg: cfg, st: st, open: open, signals: signals, log: log, node: node, token: rand.Text(), now: time.Now,
		sinks: map[store.SinkID]*active{}, pumps: map[pumpID]*pump{}, totals: map[store.SinkID]*totals{},
	}
	r.watch = observer{token: r.token, lease: cfg.Lease}
	return r, nil
}

// Run delivers until ctx ends, gives its leases back, and returns nil. What goes
// wrong is logged and tried again.
func (r *Relay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	tctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { r.trimmer(tctx) })
	defer r.leave(ctx)
	var changes uint64
	known := false
	for ctx.Err() == nil {
		if !known {
			if err := r.readSinks(ctx); err != nil {
				r.fault(ctx, err, "reading the sinks failed")
				sleep(ctx, r.cfg.Poll)
				continue
			}
			known = true
		}
		if err := r.tend(ctx); err != nil {
			r.fault(ctx, err, "relay beat failed")
			sleep(ctx, r.cfg.Lease/8)
		}
		n, err := r.st.WaitSinks(ctx, changes, r.pause(), r.cfg.Watch)
		if err != nil {
			r.fault(ctx, err, "waiting for changes of sinks failed")
			sleep(ctx, min(r.cfg.Poll, r.cfg.Lease/4))
			continue
		}
		known, changes = known && n == changes, n
	}
	return nil
}

// pause is the time to the next beat, or to the next look for sinks.
func (r *Relay) pause() time.Duration {
	if len(r.sinks) == 0 {
		return r.cfg.Poll
	}
	return min(r.cfg.Poll, max(0, r.cfg.Lease/4-r.now().Sub(r.beat)))
}

func (r *Relay) fault(ctx context.Context, err error, msg string) {
	if ctx.Err() == nil {
		r.log.Warn().Err(err).Msg(msg)
	}
}

// readSinks takes in the sinks as they are now: pumps of those that changed are
// stopped, and drivers opened and closed.
func (r *Relay) readSinks(ctx context.Context) error {
	all, err := r.st.Sinks(ctx, "")
	if err != nil {
		return err
	}
	now, exists := map[store.SinkID]*store.Sink{}, map[store.SinkID]bool{}
	for i := range all {
		exists[all[i].SinkID] = true
		if all[i].State == store.SinkRunning {
			now[all[i].SinkID] = &all[i]
		}
	}
	for id, a := range r.sinks {
		if s := now[id]; s == nil || s.Version != a.Version || !s.Created.Equal(a.Created) {
			r.stop(func(p *pump) bool { return p.sink.SinkID == id })
			r.close(a)
			delete(r.sinks, id)
		}
	}
	for id, s := range now {
		if r.sinks[id] != nil {
			continue
		}
		octx, cancel := context.WithTimeout(ctx, r.cfg.Lease/2)
		driver, err := r.open(octx, s)
		cancel()
		if err != nil {
			r.log.Error().Err(err).Str("tenant", id.Tenant).Str("sink", id.Name).Msg("sink cannot be opened")
			driver = broken{err}
		}
		r.sinks[id] = &active{Sink: *s, driver: driver, totals: r.totalsOf(id)}
	}
	r.forget(exists)
	for _, p := range r.pumps {
		p.wake() // a cursor may have been moved, a parked key released
	}
	return nil
}

// forget drops the figures of sinks that are gone.
func (r *Relay) forget(exists map[store.SinkID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.totals, func(id store.SinkID, _ *totals) bool { return !exists[id] })
}

func (r *Relay) close(a *active) {
	if err := a.driver.Close(); err != nil {
		r.log.Warn().Err(err).Str("tenant", a.Tenant).Str("sink", a.Name).Msg("closing a sink failed")
	}
}

// broken is the driver of a sink whose configuration cannot be used.
type broken struct{ err error }

func (b broken) Deliver(_ context.Context, events []*event.Event) []error {
	errs := make([]error, len(events))
	for i := range errs {
		errs[i] = b.err
	}
	return errs
}

func (b broken) Ping(context.Context) error { return b.err }
func (b broken) Close() error               { return nil }

// tend gives a sign of life when it is time, and makes the pumps what they
// should be.
func (r *Relay) tend(ctx context.Context) error {
	if len(r.sinks) == 0 {
		r.stop(func(*pump) bool { return true })
		if r.beat.IsZero() {
			return nil
		}
		return r.giveBack(ctx)
	}
	var err error
	if r.beat.IsZero() || r.now().Sub(r.beat) >= r.cfg.Lease/4 {
		err = r.beatOnce(ctx)
	}
	if err != nil && r.now().Sub(r.beat) >= r.cfg.Lease {
		r.stop(func(*pump) bool { return true }) // others may have taken over
		r.setHeld(nil)
	}
	r.start(ctx)
	return err
}

// beatOnce looks at the others, gives a sign of life, takes what is free and
// gives back what is too much. What is given back is no longer pumped.
func (r *Relay) beatOnce(ctx context.Context) error {
	view, err := r.st.RelayView(ctx)
	if err != nil {
		return err
	}
	at := r.now()
	b := r.watch.plan(at, view)
	b.Node = r.node
	drop := map[uint64]bool{}
	for _, p := range b.Drop {
		drop[p] = true
	}
	r.stop(func(p *pump) bool { return drop[p.partition] })
	held, err := r.st.BeatRelay(ctx, b)
	if err != nil {
		return err
	}
	r.beat = at
	r.setHeld(held)
	return nil
}

func (r *Relay) setHeld(held []store.RelayLease) {
	epochs := map[uint64]uint64{}
	fences := make([]store.Fence, 0, len(held))
	for _, l := range held {
		epochs[l.Partition] = l.Epoch
		fences = append(fences, store.Fence{Partition: l.Partition, Token: r.token, Epoch: l.Epoch})
	}
	r.stop(func(p *pump) bool { return epochs[p.partition] != p.fence.Epoch })
	r.held = held
	r.mu.Lock()
	r.fences = fences
	r.mu.Unlock()
}

// start makes the pumps that are missing, also those that ended by themselves.
func (r *Relay) start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fences {
		for id, a := range r.sinks {
			key := pumpID{id, f.Partition}
			if p := r.pumps[key]; p != nil && !p.ended() {
				continue
			}
			p := newPump(r, a, f)
			r.pumps[key] = p
			p.launch(ctx)
		}
	}
}

// stop ends pumps, and returns when they have ended.
func (r *Relay) stop(which func(*pump) bool) {
	var ending []*pump
	r.mu.Lock()
	for key, p := range r.pumps {
		if which(p) {
			p.cancel()
			ending = append(ending, p)
			delete(r.pumps, key)
		}
	}
	r.mu.Unlock()
	for _, p := range ending {
		<-p.done
	}
}

// leave ends everything and gives the leases back, so that others need not wait
// for them to run out.
func (r *Relay) leave(ctx context.Context) {
	r.stop(func(*pump) bool { return true })
	for _, a := range r.sinks {
		r.close(a)
	}
	if r.beat.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := r.giveBack(ctx); err != nil {
		r.log.Warn().Err(err).Msg("leases were not given back and run out")
	}
}

func (r *Relay) giveBack(ctx context.Context) error {
	b := store.RelayBeat{Token: r.token, Node: r.node, Gone: true}
	for _, l := range r.held {
		b.Drop = append(b.Drop, l.Partition)
	}
	r.setHeld(nil)
	_, err := r.st.BeatRelay(ctx, b)
	if err == nil {
		r.beat = time.Time{}
	} else {
		for _, p := range b.Drop {
			r.held = append(r.held, store.RelayLease{Partition: p})
		}
	}
	return err
}

// trimmer removes pointers that nobody needs any more.
func (r *Relay) trimmer(ctx context.Context) {
	for sleep(ctx, trimEvery) {
		r.mu.Lock()
		fences := append([]store.Fence(nil), r.fences...)
		r.mu.Unlock()
		for _, f := range fences {
			if err := r.trim(ctx, f); err != nil && !errors.Is(err, store.ErrLeaseLost) {
				r.fault(ctx, err, "trimming the outbox failed")
			}
		}
	}
}

func (r *Relay) trim(ctx context.Context, f store.Fence) error {
	for range trimPages {
		n, err := r.st.TrimOutbox(ctx, f, r.now().Add(-r.cfg.Retention))
		if err != nil || n == 0 {
			return err
		}
		r.mu.Lock()
		r.trimmed += uint64(n)
		r.mu.Unlock()
	}
	return nil
}
