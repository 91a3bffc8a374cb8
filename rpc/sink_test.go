package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type otherSinks Sinks

// oneSink is a sink with three cursors, and an error of each one's lag.
type oneSink struct {
	otherSinks
	SinkDrivers
	lag map[uint64]error
}

func (oneSink) Sink(context.Context, store.SinkID) (store.Sink, error) {
	return store.Sink{SinkID: store.SinkID{Tenant: "t", Name: "shop"}}, nil
}

func (oneSink) Cursors(context.Context, store.SinkID) ([]store.Cursor, error) {
	return []store.Cursor{
		{At: event.Position{Partition: 0}, Delivered: 5},
		{At: event.Position{Partition: 1}, Delivered: 6},
		{At: event.Position{Partition: 2}, Trouble: "status 500"},
	}, nil
}

func (o oneSink) Lag(_ context.Context, at event.Position, _ int) (store.SinkLag, error) {
	return store.SinkLag{Blocks: 3}, o.lag[at.Partition]
}

func (oneSink) Show([]byte) ([]byte, error) { return []byte("{}"), nil }

// A sink is shown although one of its cursors is none of this store's.
func TestGetSinkWithABadCursor(t *testing.T) {
	bad := &ledger.Rejection{Code: ledger.BadCursor, Field: "cursor", Value: "1-01-…", Message: "was never given"}
	o := oneSink{lag: map[uint64]error{1: bad, 2: bad}}
	s := &sinkService{sinks: o, drivers: o}
	res, err := s.GetSink(t.Context(), &cofferv1.GetSinkRequest{Name: "shop"})
	if err != nil || len(res.GetCursors()) != 3 {
		t.Fatalf("%v, %v", res, err)
	}
	well, lost, troubled := res.GetCursors()[0], res.GetCursors()[1], res.GetCursors()[2]
	if well.GetDelivered() != 5 || well.GetBehindBlocks() != 3 || well.GetTrouble() != "" {
		t.Errorf("a good cursor is %v", well)
	}
	if lost.GetDelivered() != 6 || !strings.HasPrefix(lost.GetTrouble(), "BAD_CURSOR: cursor 1-01-… was never given") {
		t.Errorf("a bad cursor is %v", lost)
	}
	if troubled.GetTrouble() != "status 500" {
		t.Errorf("what the relay met is not shown: %v", troubled)
	}
	for _, other := range []error{
		errors.New("disk"), &ledger.Rejection{Code: ledger.Unavailable}, &ledger.Rejection{Code: ledger.Corrupt},
	} {
		o.lag[0] = other // no word of the cursor, which may be well
		if _, err := s.GetSink(t.Context(), &cofferv1.GetSinkRequest{Name: "shop"}); !errors.Is(err, other) {
			t.Errorf("got %v, want %v", err, other)
		}
	}
}
