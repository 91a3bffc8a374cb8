package rpc

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

const (
	// heartbeat spaces the messages that say that a stream lives, and where it
	// is.
	heartbeat = 10 * time.Second
	// streamBlocks bounds the blocks whose events a stream holds at once.
	streamBlocks = 16
)

// Events reads the outbox; store.Store does. It must be safe for concurrent use.
type Events interface {
	ReadEvents(ctx context.Context, after event.Position, f *event.Filter, blocks int) (store.EventPage, error)
	EndOfEvents(ctx context.Context, partition uint64) (event.Position, error)
	EventsAt(ctx context.Context, partition uint64, t time.Time) (event.Position, error)
}

// EventSignals tells when there may be new events.
type EventSignals interface {
	// Wait gives a channel that is closed when something may have come in a
	// partition since the call.
	Wait(partition uint64) <-chan struct{}
}

type eventService struct {
	events  Events
	signals EventSignals
	// leaving ends the streams when the node drains.
	leaving <-chan struct{}
}

// filterOf reads a filter for the tenant of the call.
func filterOf(ctx context.Context, m *cofferv1.EventFilter) (event.Filter, *ledger.Rejection) {
	f := event.Filter{Tenant: tenantOf(ctx), Types: m.GetTypes(), Internal: m.GetInternal()}
	for _, b := range m.GetBudgets() {
		f.Budgets = append(f.Budgets, ledger.ParseBudget(f.Tenant, b))
	}
	r := f.Validate()
	if r != nil {
		inner := *r
		inner.Field = "filter." + inner.Field
		r = &inner
	}
	return f, r
}

// fromOf reads where to begin.
func fromOf(m *cofferv1.EventStart) (from store.From, r *ledger.Rejection) {
	switch at := m.GetAt().(type) {
	case *cofferv1.EventStart_Beginning:
		from.Now = !at.Beginning
	case *cofferv1.EventStart_Time:
		if err := at.Time.CheckValid(); err != nil {
			return from, &ledger.Rejection{Code: ledger.InvalidArgument, Field: "start.time", Value: "invalid", Message: "is not a legal time", Cause: err}
		}
		from.Time = at.Time.AsTime()
	case nil:
		from.Now = true
	}
	seen := map[uint64]bool{}
	for i, s := range m.GetCursors() {
		p, err := event.ParsePosition(s)
		if err != nil || p.Partition >= store.Partitions || seen[p.Partition] {
			return from, &ledger.Rejection{
				Code: ledger.BadCursor, Field: fmt.Sprintf("start.cursors[%d]", i), Value: fmt.Sprintf("%.80q", s),
				Limit: "ids of events, or cursors, one a partition", Message: "cannot be used", Cause: err,
			}
		}
		seen[p.Partition] = true
		from.Cursors = append(from.Cursors, p)
	}
	return from, nil
}

// Subscribe streams events. It keeps nothing for a subscriber but its cursors,
// and reads no further than the subscriber does.
func (s *eventService) Subscribe(ctx context.Context, m *cofferv1.SubscribeRequest, stream cofferv1connect.EventServiceSubscribeServerStream) error {
	f, r := filterOf(ctx, m.GetFilter())
	if r != nil {
		return r
	}
	from, r := fromOf(m.GetStart())
	if r != nil {
		return r
	}
	sub := subscription{service: s, filter: f, stream: stream}
	if err := sub.begin(ctx, from); err != nil {
		return err
	}
	return sub.run(ctx)
}

// subscription is one call of Subscribe.
type subscription struct {
	service *eventService
	filter  event.Filter
	stream  interface {
		Send(*cofferv1.SubscribeResponse) error
	}
	at   [store.Partitions]event.Position
	beat time.Time
}

// begin finds where to begin in each partition.
func (s *subscription) begin(ctx context.Context, from store.From) (err error) {
	for p := range uint64(store.Partitions) {
		switch {
		case !from.Time.IsZero():
			s.at[p], err = s.service.events.EventsAt(ctx, p, from.Time)
		case from.Now:
			s.at[p], err = s.service.events.EndOfEvents(ctx, p)
		default:
			s.at[p] = store.StartOfEvents(p)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range from.Cursors {
		s.at[c.Partition] = c
	}
	return nil
}

// run delivers until the subscriber or the node goes. A partition is read when
// its bell has rung, and again while it had more.
func (s *subscription) run(ctx context.Context) error {
	var bells [store.Partitions]<-chan struct{}
	look := map[uint64]bool{}
	for p := range bells {
		look[uint64(p)] = true
	}
	if err := s.alive(); err != nil {
		return err
	}
	for {
		for p := range bells {
			if p := uint64(p); look[p] {
				bells[p] = s.service.signals.Wait(p) // before looking: nothing is missed
				more, err := s.deliver(ctx, p)
				if err != nil {
					return err
				}
				look[p] = more
			}
			if err := s.alive(); err != nil {
				return err
			}
		}
		if err := s.wait(ctx, &bells, look); err != nil {
			return err
		}
	}
}

// deliver sends one page of a partition.
func (s *subscription) deliver(ctx context.Context, p uint64) (more bool, err error) {
	page, err := s.service.events.ReadEvents(ctx, s.at[p], &s.filter, streamBlocks)
	if err != nil {
		return false, err
	}
	for _, e := range page.Events {
		if err := s.stream.Send(&cofferv1.SubscribeResponse{Message: &cofferv1.SubscribeResponse_Event{Event: eventOf(e)}}); err != nil {
			return false, err
		}
	}
	s.at[p] = page.Next
	return page.More, nil
}

// alive sends a heartbeat when it is time.
func (s *subscription) alive() error {
	now := time.Now()
	if now.Sub(s.beat) < heartbeat {
		return nil
	}
	s.beat = now
	h := &cofferv1.Heartbeat{}
	for _, at := range s.at {
		h.Cursors = append(h.Cursors, at.String())
	}
	return s.stream.Send(&cofferv1.SubscribeResponse{Message: &cofferv1.SubscribeResponse_Heartbeat{Heartbeat: h}})
}

// wait returns when there is something to look at, and notes where.
func (s *subscription) wait(ctx context.Context, bells *[store.Partitions]<-chan struct{}, look map[uint64]bool) error {
	timer := time.NewTimer(time.Until(s.beat.Add(heartbeat)))
	defer timer.Stop()
	cases := make([]reflect.SelectCase, 0, len(bells)+3)
	for _, ch := range []any{ctx.Done(), s.service.leaving, timer.C} {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	for _, ch := range bells {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	for _, more := range look {
		if more {
			cases = append(cases[:2:2], reflect.SelectCase{Dir: reflect.SelectDefault})
			break
		}
	}
	switch i, _, _ := reflect.Select(cases); i {
	case 0:
		return context.Cause(ctx)
	case 1:
		return &ledger.Rejection{Code: ledger.Draining, Message: "this node is shutting down", RetryAfter: 100 * time.Millisecond}
	}
	for p, ch := range bells {
		select {
		case <-ch:
			look[uint64(p)] = true
		default:
		}
	}
	return nil
}

// eventOf is an event as it goes over the wire.
func eventOf(e *event.Event) *cofferv1.Event {
	return &cofferv1.Event{
		Id: e.ID(), Type: e.Type(), Key: e.Key(), Sequence: e.Sequence(), NextSequence: e.Next(), Currency: e.Currency,
		Entry: entryOf(&store.EntryView{Entry: e.Entry, Bucket: e.Bucket, Time: e.Time}),
	}
}
