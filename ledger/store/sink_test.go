package store

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
)

func TestSinkLifecycle(t *testing.T) {
	b := newBench(t)
	b.spring("a", 4)
	ctx := context.Background()
	in := Sink{SinkID: hook, Config: []byte(`{"url":1}`), Filter: event.Filter{Types: []string{"coffer.reservation.*"}, Budgets: []ledger.BudgetID{budgetID("a")}}}
	s, replayed, err := b.CreateSink(ctx, in, From{Now: true})
	if err != nil || replayed || s.State != SinkRunning || s.Version != 1 || !s.Created.Equal(clockStart) {
		t.Fatalf("created %+v, %v (%v)", s, replayed, err)
	}
	if again, replayed, err := b.CreateSink(ctx, in, From{}); err != nil || !replayed || !reflect.DeepEqual(again, s) {
		t.Errorf("created again: %+v, %v (%v)", again, replayed, err)
	}
	other := in
	other.Config, other.Filter.Internal = []byte("{}"), true
	_, _, err = b.CreateSink(ctx, other, From{})
	if r := wantCode(t, ledger.IdempotencyConflict, err); fmt.Sprint(r.Fields) != "[config internal]" {
		t.Errorf("differing fields are %v", r.Fields)
	}
	if got, err := b.Sink(ctx, hook); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("read %+v (%v)", got, err)
	}
	_, err = b.Sink(ctx, SinkID{"t2", "hook"})
	wantCode(t, ledger.SinkNotFound, err)
	if all, err := b.Sinks(ctx, "t2"); err != nil || len(all) != 0 {
		t.Errorf("t2 has %v (%v)", all, err)
	}
	paused, err := b.ChangeSink(ctx, hook, 1, func(s *Sink) { s.State, s.Reason = SinkPaused, "maintenance" })
	if err != nil || paused.Version != 2 || paused.State != SinkPaused || paused.Reason != "maintenance" {
		t.Errorf("paused: %+v (%v)", paused, err)
	}
	_, err = b.ChangeSink(ctx, hook, 1, func(s *Sink) { s.State = SinkRunning })
	wantCode(t, ledger.SinkChanged, err)
	cursors, err := b.Cursors(ctx, hook)
	if err != nil || len(cursors) != Partitions {
		t.Fatalf("%d cursors (%v)", len(cursors), err)
	}
	for _, c := range cursors {
		if rest, _ := b.readAll(c.At, ofT1, 64); len(rest) != 0 {
			t.Errorf("a sink from now on has %d events before it", len(rest))
		}
	}
	b.advance(time.Minute)
	b.orders("a", "later", 2)
	count := func(want int) {
		t.Helper()
		cursors, _ := b.Cursors(ctx, hook)
		n := 0
		for _, c := range cursors {
			rest, _ := b.readAll(c.At, &paused.Filter, 64)
			n += len(rest)
		}
		if n != want {
			t.Errorf("%d events are before the sink, want %d", n, want)
		}
	}
	count(3)
	if err := b.RewindSink(ctx, hook, From{}); err != nil {
		t.Fatal(err)
	}
	count(9)
	if err := b.RewindSink(ctx, hook, From{Time: clockStart.Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	count(3)
	if c := b.cursor(3); c.Moves != 2 {
		t.Errorf("moved %d times, want 2", c.Moves)
	}
	b.audit()
	if err := b.DeleteSink(ctx, hook); err != nil {
		t.Fatal(err)
	}
	wantCode(t, ledger.SinkNotFound, b.DeleteSink(ctx, hook))
	wantCode(t, ledger.SinkNotFound, b.RewindSink(ctx, hook, From{}))
	if _, ok, err := b.Cursor(ctx, hook, 0); ok || err != nil {
		t.Errorf("a cursor is left (%v)", err)
	}
}

func TestSinkBounds(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	for i := range MaxSinks {
		if _, _, err := b.CreateSink(ctx, Sink{SinkID: SinkID{"t1", fmt.Sprint("s", i)}}, From{}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := b.CreateSink(ctx, Sink{SinkID: hook}, From{})
	wantCode(t, ledger.SinkLimit, err)
	for _, bad := range []Sink{
		{SinkID: SinkID{"t2", ""}},
		{SinkID: SinkID{"t2", "s"}, Config: make([]byte, MaxSinkConfig+1)},
		{SinkID: SinkID{"t2", "s"}, Filter: event.Filter{Types: []string{"coffer.nothing.*"}}},
		{SinkID: SinkID{"t2", "s"}, Filter: event.Filter{Budgets: make([]ledger.BudgetID, event.MaxFilterBudgets+1)}},
	} {
		_, _, err := b.CreateSink(ctx, bad, From{})
		wantCode(t, ledger.InvalidArgument, err)
	}
	_, _, err = b.CreateSink(ctx, Sink{SinkID: SinkID{"t2", "s"}}, From{Cursors: []event.Position{{Incarnation: 9}}})
	wantCode(t, ledger.BadCursor, err)
}
