package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// retryKeys is how many parked keys are tried again before new events go on.
const retryKeys = 16

// errGone says that the sink has no cursor: it was deleted.
var errGone = errors.New("the sink is gone")

// errAgain says that a person wants something tried again first, which may make
// room. The batch is delivered again after it.
var errAgain = errors.New("something parked is to be tried again")

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
	unsaved  int       // events delivered since then
	page     store.EventPage
	parked   map[string]bool
	failures int // of the sink, in a row
	faults   int // of steps, in a row

	// where is at, for Status, and quiet says that nothing was after it.
	where atomic.Pointer[event.Position]
	quiet atomic.Bool
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
		p.part(ctx)
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

// part writes what was delivered and not yet written, so that nothing of it comes
// again when the sink goes on elsewhere.
func (p *pump) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := p.flush(ctx); err != nil && !errors.Is(err, store.ErrLeaseLost) {
		p.log().Warn().Err(err).Msg("some events will be delivered again")
	}
}

// flush writes the cursor where events were delivered since it was written.
func (p *pump) flush(ctx context.Context) error {
	if p.unsaved == 0 {
		return nil
	}
	err := p.advance(ctx, store.Advance{To: p.at})
	if errors.Is(err, store.ErrCursorMoved) {
		p.unsaved, err = 0, nil
	}
	return err
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
		case errors.Is(err, store.ErrCursorMoved), errors.Is(err, errAgain):
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
		t := time.NewTimer(p.saveAfter())
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
	retries := false
	if p.cursor.Parked > 0 {
		if retries, err = p.retry(ctx); err != nil {
			return false, err
		}
	}
	if len(p.page.Events) == 0 {
		if p.page, err = p.r.st.ReadEvents(ctx, p.at, &p.sink.Filter, store.MaxEventBlocks); err != nil {
			return false, err
		}
	}
	batch, to := p.batch()
	p.quiet.Store(len(batch) == 0 && !p.page.More)
	if len(batch) == 0 {
		return p.page.More || retries, p.pass(ctx, to)
	}
	return true, p.deliver(ctx, batch, to)
}

// load reads where the sink is and what it has parked.
func (p *pump) load(ctx context.Context) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
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

// pass moves past events of others, and writes the cursor when it is time.
func (p *pump) pass(ctx context.Context, to event.Position) error {
	p.moveTo(to)
	if p.cursor.Trouble == "" && (to == p.cursor.At || p.saveAfter() > 0) {
		return nil
	}
	return p.advance(ctx, store.Advance{To: to})
}

// saveAfter is how long the cursor may stay as it is written: what is delivered
// meanwhile comes again after a crash, what only passed is just read again.
func (p *pump) saveAfter() time.Duration {
	every := passEvery
	if p.unsaved > 0 {
		every = saveEvery
	}
	return max(0, every-time.Since(p.saved))
}

// advance writes the cursor.
func (p *pump) advance(ctx context.Context, a store.Advance) error {
	a.From = p.cursor
	a.Delivered += p.unsaved
	c, err := p.r.st.AdvanceSink(ctx, p.fence, p.sink.SinkID, a)
	if err != nil {
		return err
	}
	p.cursor, p.saved, p.unsaved = c, time.Now(), 0
	return nil
}

// deliver hands over a batch until each event of it is delivered or parked, and
// moves the cursor past it, at once or with what comes next.
func (p *pump) deliver(ctx context.Context, batch []*event.Event, to event.Position) error {
	d := delivery{pump: p, todo: batch, tries: map[event.Position]int{}, failing: map[event.Position]failing{}}
	for {
		if err := d.run(ctx); err != nil {
			return err
		}
		if len(d.parks) == 0 && p.cursor.Trouble == "" && p.unsaved+d.delivered < p.r.cfg.Batch && p.saveAfter() > 0 {
			p.unsaved += d.delivered
			p.past(batch, to)
			return nil
		}
		err := p.advance(ctx, store.Advance{To: to, Delivered: d.delivered, Park: d.parks, Room: uint64(p.r.cfg.MaxParked)})
		switch {
		case err == nil:
			p.sink.totals.parked.Add(uint64(len(d.parks)))
			for k := range d.newly {
				p.parked[k] = true
			}
			p.past(batch, to)
			return nil
		case errors.Is(err, store.ErrParkedFull):
			full := fmt.Sprintf("%d events of partition %d are parked, and more are refused (allowed: %d): retry or skip them", p.cursor.Parked, p.partition, p.r.cfg.MaxParked)
			if err := p.trouble(ctx, full, 0); err != nil {
				return err
			}
			if again, err := p.r.st.ParkedRetries(ctx, p.sink.SinkID, p.partition, 1); err != nil || len(again) > 0 {
				return cmp.Or(err, errAgain)
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

// past takes a batch off the page.
func (p *pump) past(batch []*event.Event, to event.Position) {
	p.page.Events = p.page.Events[len(batch):]
	p.moveTo(to)
}

// trouble notes what keeps the sink from going on, and waits. It is an error
// when the cursor was moved meanwhile, or the partition lost.
func (p *pump) trouble(ctx context.Context, what string, after time.Duration) error {
	if what != p.cursor.Trouble && (p.cursor.Trouble == "" || time.Since(p.saved) >= 10*time.Second) {
		if err := p.advance(ctx, store.Advance{To: p.at, Trouble: what}); err != nil {
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
