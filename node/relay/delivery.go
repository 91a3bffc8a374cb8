package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

// delivery is a batch on its way.
type delivery struct {
	*pump
	todo      []*event.Event
	tries     map[event.Position]int // refusals
	failing   map[event.Position]failing
	delivered int
	parks     []store.Park
	newly     map[string]bool // keys that this batch parks
}

// failing is how often an event failed without being refused, and how.
type failing struct {
	times int
	err   error
	well  bool   // the sink answered a ping since the failure before the last
	taken uint64 // events that the sink had taken by then
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
		case bad != nil && d.condemn(ctx):
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
			if sink.Sent(err) {
				f := d.failing[e.At]
				f.times, f.err = f.times+1, err
				d.failing[e.At] = f
			}
		}
		rest = append(rest, e)
	}
	return rest, refused, bad
}

// condemn parks the events that have failed often enough while their sink is
// well, so that one of which a receiver only says that it failed does not hold
// up all others for ever. Well is a sink that answers a ping before the last try
// and after it: a sink that has just come back condemns nothing. One that took
// nothing else meanwhile may be failing behind what answers the ping, so then one
// key is parked, and the others begin anew. It reports whether any event was
// parked.
func (d *delivery) condemn(ctx context.Context) bool {
	often := func(e *event.Event) bool { return d.failing[e.At].times >= d.r.cfg.FailingTries }
	if !slices.ContainsFunc(d.todo, often) {
		return false
	}
	if !d.well(ctx) {
		clear(d.failing) // what failed so far says nothing of the events
		return false
	}
	var rest []*event.Event
	taken, parked := d.sink.totals.delivered.Load(), false
	for _, e := range d.todo {
		f := d.failing[e.At]
		switch {
		case !often(e) || d.newly[e.Key()]:
		case f.well && (!parked || f.taken < taken):
			d.parkFirst(e, failedReason(f.err), f.times)
			parked = true
			continue
		case f.well:
			delete(d.failing, e.At)
		default:
			f.well, f.taken = true, taken
			d.failing[e.At] = f
		}
		rest = append(rest, e)
	}
	d.todo = d.join(rest)
	return parked
}

// well reports whether the sink answers a ping.
func (p *pump) well(ctx context.Context) bool {
	pctx, cancel := context.WithTimeout(ctx, p.r.cfg.DeliverTimeout)
	defer cancel()
	return p.sink.driver.Ping(pctx) == nil
}

// failedReason is why an event is parked that was not refused.
func failedReason(err error) string {
	reason := "failed, while the sink answers a ping: " + err.Error()
	return strings.ToValidUTF8(reason[:min(len(reason), sink.MaxReason)], "")
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
