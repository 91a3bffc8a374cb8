package store

import (
	"context"
	"testing"

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
