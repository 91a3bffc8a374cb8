package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger/event"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type eventsCmd struct {
	remote `embed:""`

	Tail   eventsTail   `cmd:"" help:"Print events as they are committed."`
	Sinks  eventsSinks  `cmd:"" help:"Where events are delivered: webhooks, NATS JetStream, Kafka."`
	Parked eventsParked `cmd:"" help:"Events that a receiver refused, and what waits behind them."`
}

// filtered are the flags that say which events are wanted.
type filtered struct {
	Budget   []string `help:"Only events of this budget; may be repeated." placeholder:"BUDGET"`
	Type     []string `help:"Only events of this type, or of types that begin so, such as 'coffer.reservation.*'; may be repeated." placeholder:"TYPE"`
	Internal bool     `help:"Events of the control plane, such as moves between buckets, too."`
}

func (f *filtered) filter() *cofferv1.EventFilter {
	return &cofferv1.EventFilter{Budgets: f.Budget, Types: f.Type, Internal: f.Internal}
}

// started are the flags that say where reading begins.
type started struct {
	Beginning bool          `help:"Begin with the oldest event that is kept." xor:"start"`
	Since     time.Duration `help:"Begin with what was written so long ago." xor:"start" placeholder:"1h" range:"more than 0s"`
	After     []string      `help:"Begin after this event, or cursor; one for each partition." placeholder:"ID"`
}

func (s *started) given() bool { return s.Beginning || s.Since > 0 || len(s.After) > 0 }

func (s *started) start() (*cofferv1.EventStart, error) {
	out := &cofferv1.EventStart{Cursors: s.After}
	switch {
	case s.Beginning:
		out.At = &cofferv1.EventStart_Beginning{Beginning: true}
	case s.Since > 0:
		out.At = &cofferv1.EventStart_Time{Time: timestamppb.New(time.Now().Add(-s.Since))}
	}
	return out, nil
}

type eventsTail struct {
	filtered `embed:""`
	started  `embed:""`
	Limit    uint64 `help:"End after so many events; 0 is never." default:"0" range:"0 or more"`
}

// Help is the long help.
func (eventsTail) Help() string {
	return `Begins with what comes from now on, unless a flag says otherwise. It goes on after
a node has restarted, with the event after the last it printed. With --json each
event is one line, and its id is what --after takes. --timeout does not bound it.

Examples:
  coffer events tail
  coffer events tail --beginning --type 'coffer.reservation.*' --budget SPRING
  coffer events tail --since 1h --json`
}

// errEnough ends a stream whose limit is reached.
var errEnough = errors.New("enough")

// Run prints events until it is interrupted. It takes as long as it takes, so
// --timeout does not bound it.
func (e *eventsTail) Run(c *cli) error {
	start, err := e.start()
	if err != nil {
		return err
	}
	s, err := c.dial()
	if err != nil {
		return err
	}
	defer s.Close()
	t := tail{cmd: e, c: c, s: s, req: &cofferv1.SubscribeRequest{Filter: e.filter(), Start: start}, at: map[uint64]string{}}
	for {
		err := t.stream()
		switch {
		case errors.Is(err, errEnough), c.ctx.Err() != nil:
			return nil
		case !t.again(err):
			return s.explain(err)
		}
		c.notef("the stream broke (%v); going on\n", err)
		select {
		case <-c.ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// tail is one run of events tail.
type tail struct {
	cmd    *eventsTail
	c      *cli
	s      *server
	req    *cofferv1.SubscribeRequest
	at     map[uint64]string // cursor of each partition
	n      uint64
	failed bool // the last stream brought nothing
}

// stream prints what one stream brings, and keeps where it is.
func (t *tail) stream() error {
	if len(t.at) > 0 {
		t.req.Start = &cofferv1.EventStart{}
		for _, at := range t.at {
			t.req.Start.Cursors = append(t.req.Start.Cursors, at)
		}
		slices.Sort(t.req.Start.Cursors)
	}
	t.failed = true
	return t.s.Subscribe(t.c.ctx, t.req, func(e *cofferv1.Event) error {
		if err := t.c.event(e); err != nil {
			return err
		}
		t.keep(e.GetId())
		if t.n++; t.n == t.cmd.Limit {
			return errEnough
		}
		return nil
	}, func(h *cofferv1.Heartbeat) {
		for _, at := range h.GetCursors() {
			t.keep(at)
		}
	})
}

func (t *tail) keep(at string) {
	t.failed = false
	if p, err := event.ParsePosition(at); err == nil {
		t.at[p.Partition] = at
	}
}

// again says whether the stream shall be begun again: the server goes or has
// gone, and there was one.
func (t *tail) again(err error) bool {
	var e *rpc.Error
	gone := errors.Is(err, io.ErrUnexpectedEOF) || // in the midst of a message
		errors.As(err, &e) && (e.Code == connect.CodeUnavailable || e.Code == connect.CodeUnknown || e.Code == connect.CodeCanceled)
	return gone && len(t.at) > 0
}

// event prints one event.
func (c *cli) event(e *cofferv1.Event) error {
	if c.JSON {
		return c.printMessage(e)
	}
	en := e.GetEntry()
	words := []string{clock(en.GetTime()), strings.TrimSuffix(strings.TrimPrefix(e.GetType(), "coffer."), ".v1"), about(e)}
	d := en.GetDelta()
	for _, part := range []struct {
		name string
		v    int64
	}{
		{"funded", d.GetFundedMinor()},
		{"available", d.GetAvailableMinor()},
		{"reserved", d.GetReservedMinor()},
		{"committed", d.GetCommittedMinor()},
		{"reversed", d.GetReversedMinor()},
	} {
		if part.v != 0 {
			sign := ""
			if part.v > 0 {
				sign = "+"
			}
			words = append(words, part.name+" "+sign+formatMajor(part.v, e.GetCurrency()))
		}
	}
	words = append(words, e.GetCurrency(), e.GetId())
	c.printf("%s\n", strings.Join(words, "  "))
	return nil
}

// about says whose event it is, and which one of it.
func about(e *cofferv1.Event) string {
	en := e.GetEntry()
	if en.GetOrderId() == "" {
		return fmt.Sprintf("%s#%d", en.GetBudget(), en.GetBucket())
	}
	return fmt.Sprintf("%s %s (%d)", en.GetOrderId(), en.GetBenefitKey(), e.GetSequence())
}

// onSink makes one call that gives a sink, and prints it.
func onSink(c *cli, call func(context.Context, *server) (*cofferv1.Sink, error)) error {
	k, err := onServer(c, call)
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(k)
	}
	c.sinkTable([]*cofferv1.Sink{k})
	return nil
}
