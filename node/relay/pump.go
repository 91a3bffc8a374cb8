package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

// retryKeys is how many parked keys are tried again before new events go on.
const retryKeys = 16

// errGone says that the sink has no cursor: it was deleted.
var errGone = errors.New("the sink is gone")

// pump delivers the events of one partition to one sink.
type pump struct {
	r         *Relay
	sink      *active
	partition uint64
	fence     store.Fence
	cancel    context.CancelFunc
	done      chan struct{}
	kick      chan struct{}

	// Of the pump's goroutine alone.
	loaded   bool
	cursor   store.Cursor // as it is in the store
	at       event.Position
	saved    time.Time // when the cursor was last written
	page     store.EventPage
	parked   map[string]bool
	failures int // of the sink, in a row
	faults   int // of steps, in a row

	// where is at, for Status.
	where atomic.Pointer[event.Position]
}

func newPump(r *Relay, a *active, f store.Fence) *pump {
	return &pump{r: r, sink: a, partition: f.Partition, fence: f, done: make(chan struct{}), kick: make(chan struct{}, 1)}
}

func (p *pump) launch(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		defer p.cancel()
		p.run(ctx)
	}()
}

func (p *pump) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wake makes the pump look again.
func (p *pump) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// run makes steps until ctx ends or the partition or the sink is no longer the
// relay's.
func (p *pump) run(ctx context.Context) {
	for ctx.Err() == nil {
		bell := p.r.signals.Wait(p.partition) // before looking: nothing is missed
		more, err := p.safeStep(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, store.ErrLeaseLost), errors.Is(err, errGone):
			return
		case errors.Is(err, store.ErrCursorMoved):
			p.loaded = false
		case err != nil:
			p.loaded = false
			p.log().Warn().Err(err).Msg("relay step failed")
			p.pause(ctx, &p.faults, 0)
		default:
			p.failures, p.faults = 0, 0
			if !more {
				p.idle(ctx, bell)
			}
		}
	}
}

// idle waits for something to do, also for the time to write where it is.
func (p *pump) idle(ctx context.Context, bell <-chan struct{}) {
	var save <-chan time.Time
	if p.at != p.cursor.At {
		t := time.NewTimer(saveEvery)
		defer t.Stop()
		save = t.C
	}
	select {
	case <-ctx.Done():
	case <-bell:
	case <-save:
	case <-p.kick:
		p.loaded = false
	}
}

// safeStep makes one step; a panic of a driver fails the step and not the node.
func (p *pump) safeStep(ctx context.Context) (more bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.step(ctx)
}

// step delivers what is to be tried again, and then one batch.
func (p *pump) step(ctx context.Context) (more bool, err error) {
	if !p.loaded {
		if err := p.load(ctx); err != nil {
			return false, err
		}
	}
	if p.cursor.Parked > 0 {
		if err := p.retry(ctx); err != nil {
			return false, err
		}
	}
	if len(p.page.Events) == 0 {
		if p.page, err = p.r.st.ReadEvents(ctx, p.at, &p.sink.Filter, store.MaxEventBlocks); err != nil {
			return false, err
		}
	}
	batch, to := p.batch()
	if len(batch) == 0 {
		return p.page.More, p.pass(ctx, to)
	}
	return true, p.deliver(ctx, batch, to)
}

// load reads where the sink is and what it has parked.
func (p *pump) load(ctx context.Context) error {
	c, ok, err := p.r.st.Cursor(ctx, p.sink.SinkID, p.partition)
	if err != nil {
		return err
	}
	if !ok {
		return errGone
	}
	if p.parked, err = p.r.st.ParkedNames(ctx, p.sink.SinkID, p.partition); err != nil {
		return err
	}
	p.cursor, p.page, p.loaded = c, store.EventPage{}, true
	p.moveTo(c.At)
	return nil
}

func (p *pump) moveTo(at event.Position) {
	p.at = at
	p.where.Store(&at)
}

// batch takes the next events of the page, and where the cursor is after them.
func (p *pump) batch() ([]*event.Event, event.Position) {
	n := min(len(p.page.Events), p.r.cfg.Batch)
	batch := p.page.Events[:n]
	if n == len(p.page.Events) {
		return batch, p.page.Next
	}
	return batch, batch[n-1].At
}

// pass moves past events of others. That is written every saveEvery at most: what
// is read again after a restart is not delivered again.
func (p *pump) pass(ctx context.Context, to event.Position) error {
	p.moveTo(to)
	if p.cursor.Trouble == "" && (to == p.cursor.At || time.Since(p.saved) < saveEvery) {
		return nil
	}
	return p.advance(ctx, store.Advance{To: to})
}

// advance writes the cursor.
func (p *pump) advance(ctx context.Context, a store.Advance) error {
	a.From = p.cursor
	c, err := p.r.st.AdvanceSink(ctx, p.fence, p.sink.SinkID, a)
	if err != nil {
		return err
	}
	p.cursor, p.saved = c, time.Now()
	return nil
}

// deliver hands over a batch until each event of it is delivered or parked, and
// moves the cursor past it.
func (p *pump) deliver(ctx context.Context, batch []*event.Event, to event.Position) error {
	d := delivery{pump: p, todo: batch, tries: map[event.Position]int{}}
	for {
		if err := d.run(ctx); err != nil {
			return err
		}
		err := p.advance(ctx, store.Advance{To: to, Delivered: d.delivered, Park: d.parks, Room: uint64(p.r.cfg.MaxParked)})
		switch {
		case err == nil:
			p.sink.totals.parked.Add(uint64(len(d.parks)))
			for k := range d.newly {
				p.parked[k] = true
			}
			p.page.Events = p.page.Events[len(batch):]
			p.moveTo(to)
			return nil
		case errors.Is(err, store.ErrParkedFull):
			full := fmt.Sprintf("%d events of partition %d are parked, and more are refused (allowed: %d): retry or skip them", p.cursor.Parked, p.partition, p.r.cfg.MaxParked)
			if err := p.trouble(ctx, full, 0); err != nil {
				return err
			}
		case errors.Is(err, store.ErrParkedChanged):
			if p.parked, err = p.r.st.ParkedNames(ctx, p.sink.SinkID, p.partition); err != nil {
				return err
			}
			d.unpark()
		default:
			return err
		}
	}
}

// trouble notes what keeps the sink from going on, and waits. It is an error
// when the cursor was moved meanwhile, or the partition lost.
func (p *pump) trouble(ctx context.Context, what string, after time.Duration) error {
	if what != p.cursor.Trouble && (p.cursor.Trouble == "" || time.Since(p.saved) >= 10*time.Second) {
		if err := p.advance(ctx, store.Advance{To: p.cursor.At, Trouble: what}); err != nil {
			return err
		}
		p.log().Warn().Str("trouble", what).Msg("sink is in trouble")
	}
	p.pause(ctx, &p.failures, after)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c, ok, err := p.r.st.Cursor(ctx, p.sink.SinkID, p.partition)
	switch {
	case err != nil:
		return err
	case !ok:
		return errGone
	case c.Moves != p.cursor.Moves || c.At != p.cursor.At:
		return store.ErrCursorMoved
	}
	p.cursor = c
	return nil
}

// pause waits before the next try: from firstBackoff on, doubled with each
// failure in a row up to the limit, the upper half of it random; and at least as
// long as the receiver asked for.
func (p *pump) pause(ctx context.Context, failures *int, after time.Duration) {
	d := min(firstBackoff<<min(*failures, 20), p.r.cfg.MaxBackoff)
	d = d/2 + rand.N(d/2+1)
	*failures++
	t := time.NewTimer(max(d, min(after, p.r.cfg.MaxBackoff)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-p.kick:
	case <-t.C:
	}
}

// delivery is a batch on its way.
type delivery struct {
	*pump
	todo      []*event.Event
	tries     map[event.Position]int
	delivered int
	parks     []store.Park
	newly     map[string]bool // keys that this batch parks
}

// run delivers what is to do. At its end each event is delivered or among those
// to park.
func (d *delivery) run(ctx context.Context) error {
	d.todo = d.join(d.todo)
	for len(d.todo) > 0 {
		errs := d.send(ctx, d.todo)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		before := d.delivered
		rest, refused, bad := d.judge(errs)
		d.todo = d.join(rest)
		if d.delivered > before {
			d.failures = 0
		}
		switch {
		case bad != nil:
			if err := d.trouble(ctx, bad.Error(), sink.RetryAfter(bad)); err != nil {
				return err
			}
		case refused:
			d.pause(ctx, &d.failures, 0)
		case len(d.todo) == len(errs):
			return errors.New("the sink's driver neither delivered nor said why")
		}
	}
	return nil
}

// send is one call of the driver.
func (p *pump) send(ctx context.Context, events []*event.Event) []error {
	dctx, cancel := context.WithTimeout(ctx, p.r.cfg.DeliverTimeout)
	defer cancel()
	errs := p.sink.driver.Deliver(dctx, events)
	if len(errs) != len(events) {
		return broken{fmt.Errorf("the driver gave %d answers to %d events", len(errs), len(events))}.Deliver(ctx, events)
	}
	return errs
}

// judge sorts the answers: what is to be sent again, whether an event was refused
// that may be tried again, and what troubles the sink.
func (d *delivery) judge(errs []error) (rest []*event.Event, refused bool, bad error) {
	for i, err := range errs {
		e := d.todo[i]
		var no *sink.Refused
		switch {
		case err == nil:
			d.delivered++
			d.sink.totals.delivered.Add(1)
			continue
		case errors.As(err, &no):
			d.sink.totals.failed.Add(1)
			d.tries[e.At]++
			if n := d.tries[e.At]; n >= d.r.cfg.Tries {
				d.parkFirst(e, no.Reason, n)
				continue
			}
			refused = true
		case errors.Is(err, sink.ErrHeld):
		default:
			d.sink.totals.failed.Add(1)
			bad = err
		}
		rest = append(rest, e)
	}
	return rest, refused, bad
}

func (d *delivery) parkFirst(e *event.Event, reason string, tries int) {
	if d.newly == nil {
		d.newly = map[string]bool{}
	}
	d.newly[e.Key()] = true
	d.parks = append(d.parks, store.Park{Event: e, First: true, Reason: reason, Tries: tries})
	d.log().Warn().Str("event_type", e.Type()).Str("event_id", e.ID()).Msg("event parked")
}

// join puts the events of parked keys with those that wait, and gives the rest.
func (d *delivery) join(events []*event.Event) (rest []*event.Event) {
	if len(d.parked) == 0 && len(d.newly) == 0 {
		return events
	}
	for _, e := range events {
		if k := e.Key(); d.newly[k] || d.parked[k] {
			d.parks = append(d.parks, store.Park{Event: e})
		} else {
			rest = append(rest, e)
		}
	}
	return rest
}

// unpark takes back what was to join keys that are no longer parked.
func (d *delivery) unpark() {
	parks := d.parks
	d.parks = nil
	for _, p := range parks {
		if k := p.Event.Key(); p.First || d.newly[k] || d.parked[k] {
			d.parks = append(d.parks, p)
		} else {
			d.todo = append(d.todo, p.Event)
		}
	}
}
