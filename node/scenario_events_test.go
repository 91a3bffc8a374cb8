package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/node/relay"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// endpoint is a webhook's receiver with an inbox.
type endpoint struct {
	*httptest.Server
	mu     sync.Mutex
	down   bool
	refuse string // key that it will not take
	seen   map[string]int
	events []*event.Event // first deliveries
	got    chan struct{}
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{seen: map[string]int{}, got: make(chan struct{}, 1)}
	e.Server = httptest.NewServer(http.HandlerFunc(e.take))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	ev, err := event.Parse(body)
	if err != nil { // a ping
		w.WriteHeader(http.StatusAccepted)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.down:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case e.refuse == ev.Key():
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, "no such order")
		return
	}
	if e.seen[ev.ID()]++; e.seen[ev.ID()] == 1 {
		e.events = append(e.events, ev)
	}
	select {
	case e.got <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *endpoint) set(change func(e *endpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// keys gives the types that a key's events had, in the order of their arrival.
func (e *endpoint) types(key string) (types []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.events {
		if ev.Key() == key {
			types = append(types, ev.Type())
		}
	}
	return types
}

// until waits for a condition on what the endpoint has.
func (e *endpoint) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-e.got:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// relay runs a relay on the world's store.
func (w *world) relay() (stop func()) {
	w.Helper()
	cfg := relay.DefaultConfig()
	cfg.Lease, cfg.MaxBackoff = time.Second, time.Second
	r, err := relay.New(cfg, w.store, w.signals, w.drivers.Open, "n1", zerolog.Nop())
	if err != nil {
		w.Fatal(err)
	}
	return w.background(r.Run)
}

func (w *world) webhook(name string, e *endpoint) *cofferv1.Sink {
	w.Helper()
	config, err := structpb.NewStruct(map[string]any{
		"kind": "webhook",
		"webhook": map[string]any{
			"url": e.URL, "insecure": true, "circuit": map[string]any{"failures": 1000},
			"keys": []any{map[string]any{"id": "k1", "secret": receiver.NewSecret()}},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	res, err := w.client.CreateSink(context.Background(), &cofferv1.CreateSinkRequest{
		Name: name, Config: config, Start: &cofferv1.EventStart{At: &cofferv1.EventStart_Beginning{Beginning: true}},
	})
	if err != nil {
		w.Fatal(err)
	}
	return res.GetSink()
}

const orderOne = "default/reservations/o-1/coupon:A"

// S9: the command committed, the receiver was down, then the node stopped; the
// event arrives after the restart, and has its effect once. Replays of the
// commands emit nothing.
func TestEventAfterRestart(t *testing.T) {
	onEngine(t, func(w *world) {
		e := newEndpoint(w.T)
		e.down = true
		b := w.budget("A", 4, 1000, nil)
		w.webhook("hook", e)
		stop := w.relay()
		ctx := context.Background()
		w.ok(w.client.Reserve(ctx, reserve(b, "o-1", 100)))
		w.ok(w.client.Commit(ctx, commit("o-1")))
		e.until(w.T, "trouble", func() bool {
			res, err := w.client.GetSink(ctx, "hook")
			return err == nil && slices.ContainsFunc(res.GetCursors(), func(c *cofferv1.SinkCursor) bool { return c.GetTrouble() != "" && c.GetBehindBlocks() > 0 })
		})
		stop()
		e.set(func(e *endpoint) { e.down = false })
		for range 20 {
			if o := w.ok(w.client.Commit(ctx, commit("o-1"))); !o.GetReplayed() {
				t.Fatal("not a replay")
			}
		}
		w.relay()
		want := []string{"coffer.reservation.reserved.v1", "coffer.reservation.committed.v1"}
		e.until(w.T, "the events", func() bool { return len(e.types(orderOne)) >= 2 })
		w.ok(w.client.Reserve(ctx, reserve(b, "o-2", 1))) // a later event shows that no other came before
		e.until(w.T, "a later event", func() bool { return len(e.types("default/reservations/o-2/coupon:A")) == 1 })
		if got := e.types(orderOne); !slices.Equal(got, want) {
			t.Errorf("events are %v, want %v", got, want)
		}
	})
}

// S13: a hundred callers with one key at once make one event.
func TestOneEventForManyCallers(t *testing.T) {
	onEngine(t, func(w *world) {
		e := newEndpoint(w.T)
		b := w.budget("A", 1, 1000, nil)
		w.webhook("hook", e)
		w.relay()
		_, errs := together(100, func(int) (*cofferv1.Outcome, error) {
			return w.client.Reserve(context.Background(), reserve(b, "o-1", 100))
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		w.ok(w.client.Reserve(context.Background(), reserve(b, "o-2", 1)))
		e.until(w.T, "a later event", func() bool { return len(e.types("default/reservations/o-2/coupon:A")) == 1 })
		if got := e.types(orderOne); len(got) != 1 || w.entries(b)[cofferv1.EntryType_ENTRY_TYPE_RESERVE] != 2 {
			t.Errorf("events are %v", got)
		}
	})
}

// A sink over the public API: made, shown without its secrets, changed with them,
// parked, retried, skipped, paused, rewound, deleted; and another tenant sees
// nothing of it.
func TestSinkService(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		e := newEndpoint(w.T)
		e.refuse = orderOne
		b := w.budget("A", 1, 1000, nil)
		k := w.webhook("hook", e)
		key := k.GetConfig().GetFields()["webhook"].GetStructValue().GetFields()["keys"].GetListValue().GetValues()[0].GetStructValue().GetFields()
		if key["secret"].GetStringValue() != "***" || key["id"].GetStringValue() != "k1" || k.GetState() != cofferv1.SinkState_SINK_STATE_RUNNING {
			t.Errorf("the sink is %v", k)
		}
		w.relay()
		other := w.client.ForTenant("other")
		if _, err := other.GetSink(ctx, "hook"); rpc.ReasonOf(err) != ledger.SinkNotFound {
			t.Errorf("another tenant reads the sink: %v", err)
		}
		if _, err := other.ListParked(ctx, &cofferv1.ListParkedRequest{Sink: "hook"}); rpc.ReasonOf(err) != ledger.SinkNotFound {
			t.Errorf("another tenant reads what is parked: %v", err)
		}
		if all, err := other.ListSinks(ctx); err != nil || len(all) != 0 {
			t.Errorf("another tenant has %v (%v)", all, err)
		}
		if p, err := w.client.PingSink(ctx, "hook"); err != nil || !p.GetOk() {
			t.Errorf("ping says %v (%v)", p, err)
		}
		w.ok(w.client.Reserve(ctx, reserve(b, "o-1", 100)))
		w.ok(w.client.Reserve(ctx, reserve(b, "o-2", 1)))
		w.ok(w.client.Commit(ctx, commit("o-1")))
		parked := func() *cofferv1.ListParkedResponse {
			res, err := w.client.ListParked(ctx, &cofferv1.ListParkedRequest{Sink: "hook"})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		e.until(w.T, "the key to park", func() bool { p := parked().GetKeys(); return len(p) == 1 && p[0].GetEvents() == 2 })
		show, err := w.client.GetParked(ctx, "hook", orderOne)
		if err != nil || len(show.GetEvents()) != 2 || show.GetEvents()[0].GetSequence() != 1 || show.GetKeys()[0].GetReason() != `status 422: "no such order"` {
			t.Errorf("parked: %v (%v)", show, err)
		}
		if len(e.types("default/reservations/o-2/coupon:A")) != 1 {
			t.Error("another key did not pass")
		}
		skip := &cofferv1.SkipParkedRequest{Sink: "hook", Key: orderOne, Reason: "a test", EventId: show.GetEvents()[1].GetId()}
		if _, err := w.client.SkipParked(ctx, skip); rpc.ReasonOf(err) != ledger.ParkedNotFound {
			t.Errorf("skipping an event that is not the first: %v", err)
		}
		skip.EventId = "x"
		if _, err := w.client.SkipParked(ctx, skip); rpc.ReasonOf(err) != ledger.InvalidArgument {
			t.Errorf("skipping what is no event: %v", err)
		}
		skip.EventId = show.GetEvents()[0].GetId()
		for range 2 { // the second time it finds it skipped
			ids, err := w.client.SkipParked(ctx, skip)
			if err != nil || len(ids) != 1 || ids[0] != skip.GetEventId() {
				t.Errorf("skipped %v (%v)", ids, err)
			}
		}
		e.set(func(e *endpoint) { e.refuse = "" })
		if err := w.client.RetryParked(ctx, "hook", orderOne); err != nil && rpc.ReasonOf(err) != ledger.ParkedNotFound {
			t.Error(err)
		}
		e.until(w.T, "the commit", func() bool { return slices.Equal(e.types(orderOne), []string{"coffer.reservation.committed.v1"}) })
		if rec, err := w.client.ListSkipped(ctx, &cofferv1.ListSkippedRequest{Sink: "hook"}); err != nil || len(rec.GetEvents()) != 1 || rec.GetEvents()[0].GetReason() != "a test" {
			t.Errorf("the record is %v (%v)", rec, err)
		}
		changed := k.GetConfig()
		changed.GetFields()["webhook"].GetStructValue().GetFields()["timeout"] = structpb.NewStringValue("2s")
		if got, err := w.client.UpdateSink(ctx, &cofferv1.UpdateSinkRequest{Name: "hook", Config: changed}); err != nil || got.GetVersion() != 2 {
			t.Errorf("updated: %v (%v)", got, err)
		}
		w.ok(w.client.Release(ctx, &cofferv1.ReleaseRequest{OrderId: "o-2", BenefitKey: "coupon:A"}))
		e.until(w.T, "an event under the new configuration", func() bool { return len(e.types("default/reservations/o-2/coupon:A")) == 2 })
		e.until(w.T, "the cursors to be written", func() bool {
			res, err := w.client.GetSink(ctx, "hook")
			return err == nil && !slices.ContainsFunc(res.GetCursors(), func(c *cofferv1.SinkCursor) bool { return c.GetBehindBlocks() > 0 })
		})
		if got, err := w.client.PauseSink(ctx, "hook", "enough"); err != nil || got.GetState() != cofferv1.SinkState_SINK_STATE_PAUSED || got.GetReason() != "enough" {
			t.Errorf("paused: %v (%v)", got, err)
		}
		delivered := func() (n uint64) {
			res, err := w.client.GetSink(ctx, "hook")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range res.GetCursors() {
				n += c.GetDelivered()
			}
			return n
		}
		before := delivered()
		if err := w.client.RewindSink(ctx, "hook", &cofferv1.EventStart{Cursors: []string{show.GetEvents()[1].GetId()}}); err != nil {
			t.Error(err)
		}
		if _, err := w.client.ResumeSink(ctx, "hook"); err != nil {
			t.Error(err)
		}
		e.until(w.T, "the last event once more", func() bool { return delivered() == before+1 })
		if err := w.client.DeleteSink(ctx, "hook"); err != nil {
			t.Error(err)
		}
		if _, err := w.client.GetSink(ctx, "hook"); rpc.ReasonOf(err) != ledger.SinkNotFound {
			t.Errorf("after deletion: %v", err)
		}
	})
}

// subscribe collects events until there are n, and gives them with where to go
// on.
func subscribe(t *testing.T, c *rpc.Client, req *cofferv1.SubscribeRequest, n int) (events []*cofferv1.Event, first *cofferv1.Heartbeat) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	done := errors.New("enough")
	err := c.Subscribe(ctx, req, func(e *cofferv1.Event) error {
		if events = append(events, e); len(events) == n {
			return done
		}
		return nil
	}, func(h *cofferv1.Heartbeat) {
		if first == nil {
			first = h
		}
		if n == 0 {
			cancel()
		}
	})
	if n > 0 && !errors.Is(err, done) {
		t.Fatalf("after %d events: %v", len(events), err)
	}
	return events, first
}

func fromBeginning() *cofferv1.EventStart {
	return &cofferv1.EventStart{At: &cofferv1.EventStart_Beginning{Beginning: true}}
}

func TestSubscribe(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("A", 1, 1000, nil)
		w.budget("B", 1, 1000, nil)
		for i := range 10 {
			w.ok(w.client.Reserve(ctx, reserve(b, fmt.Sprint("o-", i), 10)))
		}
		all, _ := subscribe(t, w.client, &cofferv1.SubscribeRequest{Start: fromBeginning()}, 14)
		ids := map[string]bool{}
		for _, e := range all {
			ids[e.GetId()] = true
		}
		if len(ids) != 14 || all[0].GetCurrency() != "BRL" {
			t.Errorf("%d ids; the first event is %v", len(ids), all[0])
		}
		of := &cofferv1.EventFilter{Budgets: []string{"A"}, Types: []string{"coffer.reservation.*"}}
		some, _ := subscribe(t, w.client, &cofferv1.SubscribeRequest{Filter: of, Start: fromBeginning()}, 10)
		if some[9].GetEntry().GetBudget() != "A" || some[9].GetType() != "coffer.reservation.reserved.v1" {
			t.Errorf("the last is %v", some[9])
		}
		rest, _ := subscribe(t, w.client, &cofferv1.SubscribeRequest{Filter: of, Start: &cofferv1.EventStart{Cursors: []string{some[3].GetId()}}}, 6)
		if rest[0].GetId() != some[4].GetId() || rest[5].GetId() != some[9].GetId() {
			t.Errorf("after %s came %v", some[3].GetId(), rest)
		}
		_, now := subscribe(t, w.client, &cofferv1.SubscribeRequest{}, 0) // from now on: nothing but where that is
		w.ok(w.client.Commit(ctx, commit("o-1")))
		later, _ := subscribe(t, w.client, &cofferv1.SubscribeRequest{Start: &cofferv1.EventStart{Cursors: now.GetCursors()}}, 1)
		if later[0].GetType() != "coffer.reservation.committed.v1" || later[0].GetSequence() != 2 {
			t.Errorf("after the cursors of a heartbeat came %v", later[0])
		}
		other := w.client.ForTenant("other") // its own events alone, whatever the cursor
		if _, err := other.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: "A", Currency: "EUR", Buckets: 1}); err != nil {
			t.Fatal(err)
		}
		theirs, _ := subscribe(t, other, &cofferv1.SubscribeRequest{Start: &cofferv1.EventStart{
			At: &cofferv1.EventStart_Beginning{Beginning: true}, Cursors: []string{some[0].GetId()},
		}}, 1)
		if theirs[0].GetCurrency() != "EUR" || theirs[0].GetType() != "coffer.budget.created.v1" {
			t.Errorf("another tenant got %v", theirs[0])
		}
	})
}

// Events that are written while a subscriber listens arrive; one that does not
// read holds nothing up; the stream ends when the node drains.
func TestSubscribeLive(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b := w.budget("A", 4, 1<<40, nil)
		sleepy, err := w.client.Events().Subscribe(ctx, &cofferv1.SubscribeRequest{Start: fromBeginning()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sleepy.Close() }()
		const n = 300
		got := make(chan string, 4*n)
		end := make(chan error, 1)
		go func() {
			end <- w.client.Subscribe(ctx, &cofferv1.SubscribeRequest{Start: fromBeginning()}, func(e *cofferv1.Event) error {
				got <- e.GetKey()
				return nil
			}, nil)
		}()
		_, errs := together(n, func(i int) (*cofferv1.Outcome, error) {
			return w.client.Reserve(ctx, reserve(b, fmt.Sprint("o-", i), 10))
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		keys := map[string]int{}
		for range 1 + 4 + n {
			select {
			case k := <-got:
				keys[k]++
			case <-time.After(time.Minute):
				t.Fatalf("only %d events came", len(keys))
			}
		}
		if len(keys) != 4+n || keys["default/reservations/o-7/coupon:A"] != 1 {
			t.Errorf("events of %d keys", len(keys))
		}
		w.leave()
		if err := <-end; rpc.ReasonOf(err) != ledger.Draining {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

func TestSubscribeRefusals(t *testing.T) {
	onEngine(t, func(w *world) {
		w.budget("A", 1, 1000, nil)
		for _, tc := range []struct {
			req   *cofferv1.SubscribeRequest
			want  ledger.Code
			field string
		}{
			{&cofferv1.SubscribeRequest{Filter: &cofferv1.EventFilter{Types: []string{"x"}}}, ledger.InvalidArgument, "filter.types[0]"},
			{&cofferv1.SubscribeRequest{Filter: &cofferv1.EventFilter{Budgets: []string{""}}}, ledger.InvalidArgument, "filter.budgets[0]"},
			{&cofferv1.SubscribeRequest{Filter: &cofferv1.EventFilter{Types: make([]string, 65)}}, ledger.InvalidArgument, "filter.types"},
			{&cofferv1.SubscribeRequest{Start: &cofferv1.EventStart{Cursors: []string{"nonsense"}}}, ledger.BadCursor, "start.cursors[0]"},
			{&cofferv1.SubscribeRequest{Start: &cofferv1.EventStart{Cursors: []string{"9-03-000000000000000700000000-2"}}}, ledger.BadCursor, "cursor"},
			{&cofferv1.SubscribeRequest{Start: &cofferv1.EventStart{Cursors: []string{"1-99-000000000000000700000000-2"}}}, ledger.BadCursor, "start.cursors[0]"},
		} {
			err := w.client.Subscribe(context.Background(), tc.req, func(*cofferv1.Event) error { return nil }, nil)
			if d := w.refused(err, tc.want); d.GetField() != tc.field {
				t.Errorf("refused for field %q, want %q", d.GetField(), tc.field)
			}
		}
	})
}
