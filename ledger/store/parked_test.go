package store

import (
	"context"
	"errors"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

// A skip whose commit was not heard of skips no second event.
func TestSkipWithUnknownOutcome(t *testing.T) {
	for _, fate := range []embedded.FaultKind{embedded.FaultUnknownLanded, embedded.FaultUnknownLost} {
		b := newBench(t)
		b.spring("a", 8)
		b.newSink()
		f := b.take("r1")
		name, events := b.parkAll(f)
		if len(events) != 2 {
			t.Fatalf("%d events are parked, want 2", len(events))
		}
		p := events[0].At.Partition
		b.nextFates(fate)
		got, err := b.SkipParked(context.Background(), hook, p, name, "not for us", false)
		if err != nil || len(got) != 1 || got[0] != events[0].At {
			t.Errorf("%v: skipped %v, want %s (%v)", fate, got, events[0].At, causes(err))
		}
		k, left, err := b.ParkedEvents(context.Background(), hook, p, name, 10)
		if err != nil || len(left) != 1 || left[0].At != events[1].At || k.Events != 1 || b.cursor(p).Parked != 1 {
			t.Errorf("%v: %+v is left with %d events (%v)", fate, k, len(left), causes(err))
		}
	}
}

// A skip that names its event skips that one or none, and once however often
// it is sent and whatever was heard of it.
func TestSkipOfANamedEvent(t *testing.T) {
	for _, fate := range []embedded.FaultKind{embedded.FaultNone, embedded.FaultUnknownLanded, embedded.FaultUnknownLost} {
		b := newBench(t)
		b.spring("a", 8)
		b.newSink()
		name, events := b.parkAll(b.take("r1"))
		first, second := events[0].At, events[1].At
		refused := func(err error) {
			t.Helper()
			var r *ledger.Rejection
			if !errors.As(err, &r) || r.Code != ledger.ParkedNotFound || r.Field != "event_id" || r.Value != second.String() || r.Limit != first.String() {
				t.Errorf("%v: the second event: %v", fate, causes(err))
			}
		}
		refused(b.SkipEvent(t.Context(), hook, name, "not for us", second))
		for range 2 {
			b.nextFates(fate)
			if err := b.SkipEvent(t.Context(), hook, name, "not for us", first); err != nil {
				t.Fatalf("%v: %v", fate, causes(err))
			}
		}
		k, left, err := b.ParkedEvents(t.Context(), hook, first.Partition, name, 10)
		if err != nil || len(left) != 1 || left[0].At != second || k.Events != 1 {
			t.Errorf("%v: %+v is left with %d events (%v)", fate, k, len(left), causes(err))
		}
		if err := b.SkipEvent(t.Context(), hook, name, "not for us", second); err != nil {
			t.Errorf("%v: once it is the first: %v", fate, causes(err))
		}
		wantCode(t, ledger.ParkedNotFound, b.SkipEvent(t.Context(), hook, name+"x", "not for us", first))
	}
}
