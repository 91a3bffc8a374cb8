package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

const (
	// pingTimeout bounds one ping of a receiver.
	pingTimeout = 15 * time.Second
	// shownParked is how many events of a parked key are shown.
	shownParked = 100
	// lagBlocks is how far the lag of a sink is counted.
	lagBlocks = 1000
)

// Sinks keeps sinks; store.Store does. It must be safe for concurrent use.
type Sinks interface {
	CreateSink(ctx context.Context, in store.Sink, from store.From) (out store.Sink, replayed bool, err error)
	Sink(ctx context.Context, id store.SinkID) (store.Sink, error)
	Sinks(ctx context.Context, tenant string) ([]store.Sink, error)
	ChangeSink(ctx context.Context, id store.SinkID, version uint64, change func(*store.Sink)) (store.Sink, error)
	DeleteSink(ctx context.Context, id store.SinkID) error
	RewindSink(ctx context.Context, id store.SinkID, from store.From) error
	Cursors(ctx context.Context, id store.SinkID) ([]store.Cursor, error)
	Lag(ctx context.Context, after event.Position, limit int) (store.SinkLag, error)
	ParkedKeys(ctx context.Context, id store.SinkID, p store.Page) (keys []store.ParkedKey, next string, err error)
	ParkedIn(ctx context.Context, id store.SinkID, name string) ([]uint64, error)
	ParkedEvents(ctx context.Context, id store.SinkID, partition uint64, name string, limit int) (store.ParkedKey, []*event.Event, error)
	RetryParked(ctx context.Context, id store.SinkID, partition uint64, name string) error
	SkipParked(ctx context.Context, id store.SinkID, partition uint64, name, reason string, all bool) ([]event.Position, error)
	SkipEvent(ctx context.Context, id store.SinkID, name, reason string, at event.Position) error
	Skipped(ctx context.Context, id store.SinkID, p store.Page) (out []store.SkippedEvent, next string, err error)
}

// SinkDrivers knows the configurations of sinks; relay.Drivers does.
type SinkDrivers interface {
	// Parse turns a configuration in JSON into its stored form; secrets that are
	// not shown come from old, a stored form, nil for none. A refusal is a
	// *ledger.Rejection.
	Parse(config, old []byte) ([]byte, error)
	// Show turns a stored form into JSON without secrets.
	Show(stored []byte) ([]byte, error)
	// Ping checks that the receiver can be reached.
	Ping(ctx context.Context, s *store.Sink) error
}

type sinkService struct {
	sinks   Sinks
	drivers SinkDrivers
}

// sinkIDOf names a sink of the caller's tenant: there is no way to name another's.
func sinkIDOf(ctx context.Context, name string) store.SinkID {
	return store.SinkID{Tenant: tenantOf(ctx), Name: name}
}

func (s *sinkService) sinkOf(k *store.Sink) (*cofferv1.Sink, error) {
	raw, err := s.drivers.Show(k.Config)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("show sink configuration: %w", err)
	}
	config, err := structpb.NewStruct(fields)
	if err != nil {
		return nil, fmt.Errorf("show sink configuration: %w", err)
	}
	f := &cofferv1.EventFilter{Types: k.Filter.Types, Internal: k.Filter.Internal}
	for _, b := range k.Filter.Budgets {
		f.Budgets = append(f.Budgets, b.String())
	}
	return &cofferv1.Sink{
		Name: k.Name, Config: config, Filter: f, State: sinkStates.to(k.State), Reason: text(k.Reason), Version: k.Version,
		CreateTime: stamp(k.Created), ChangeTime: stamp(k.Changed),
	}, nil
}

// parse reads a driver's configuration.
func (s *sinkService) parse(m *structpb.Struct, old []byte) ([]byte, error) {
	raw, err := m.MarshalJSON()
	if err != nil {
		return nil, &ledger.Rejection{Code: ledger.InvalidArgument, Field: "config", Value: "given", Message: "is not valid JSON", Cause: err}
	}
	return s.drivers.Parse(raw, old)
}

func (s *sinkService) CreateSink(ctx context.Context, m *cofferv1.CreateSinkRequest) (*cofferv1.CreateSinkResponse, error) {
	f, r := filterOf(ctx, m.GetFilter())
	if r != nil {
		return nil, r
	}
	from, r := fromOf(m.GetStart())
	if r != nil {
		return nil, r
	}
	config, err := s.parse(m.GetConfig(), nil)
	if err != nil {
		return nil, err
	}
	k, replayed, err := s.sinks.CreateSink(ctx, store.Sink{SinkID: sinkIDOf(ctx, m.GetName()), Config: config, Filter: f}, from)
	if err != nil {
		return nil, err
	}
	out, err := s.sinkOf(&k)
	return &cofferv1.CreateSinkResponse{Sink: out, Replayed: replayed}, err
}

func (s *sinkService) UpdateSink(ctx context.Context, m *cofferv1.UpdateSinkRequest) (*cofferv1.UpdateSinkResponse, error) {
	id := sinkIDOf(ctx, m.GetName())
	f, r := filterOf(ctx, m.GetFilter())
	if r != nil {
		return nil, r
	}
	old, err := s.sinks.Sink(ctx, id)
	if err != nil {
		return nil, err
	}
	config, version := old.Config, m.GetVersion()
	if m.GetConfig() != nil {
		if config, err = s.parse(m.GetConfig(), old.Config); err != nil {
			return nil, err
		}
		if version == 0 {
			version = old.Version // the secrets that were kept are of this one
		}
	}
	k, err := s.sinks.ChangeSink(ctx, id, version, func(k *store.Sink) {
		k.Config = config
		if m.GetFilter() != nil {
			k.Filter = f
		}
	})
	if err != nil {
		return nil, err
	}
	out, err := s.sinkOf(&k)
	return &cofferv1.UpdateSinkResponse{Sink: out}, err
}

func (s *sinkService) GetSink(ctx context.Context, m *cofferv1.GetSinkRequest) (*cofferv1.GetSinkResponse, error) {
	id := sinkIDOf(ctx, m.GetName())
	k, err := s.sinks.Sink(ctx, id)
	if err != nil {
		return nil, err
	}
	cursors, err := s.sinks.Cursors(ctx, id)
	if err != nil {
		return nil, err
	}
	out, err := s.sinkOf(&k)
	if err != nil {
		return nil, err
	}
	res := &cofferv1.GetSinkResponse{Sink: out}
	for i := range cursors {
		c := &cursors[i]
		lag, err := s.sinks.Lag(ctx, c.At, lagBlocks)
		var r *ledger.Rejection
		if errors.As(err, &r) && (r.Code == ledger.BadCursor || r.Code == ledger.EventsTrimmed) {
			c.Trouble, err = cmp.Or(c.Trouble, r.Error()), nil // the cursor's alone: the others are shown
		}
		if err != nil {
			return nil, err
		}
		res.Cursors = append(res.Cursors, &cofferv1.SinkCursor{
			Partition: uint32(c.At.Partition), Cursor: c.At.String(), Delivered: c.Delivered, Parked: c.Parked, Trouble: text(c.Trouble), TroubleTime: stamp(c.Since),
			BehindBlocks: uint32(lag.Blocks), OldestTime: stamp(lag.Oldest),
		})
	}
	return res, nil
}

func (s *sinkService) ListSinks(ctx context.Context, _ *cofferv1.ListSinksRequest) (*cofferv1.ListSinksResponse, error) {
	all, err := s.sinks.Sinks(ctx, tenantOf(ctx))
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListSinksResponse{}
	for i := range all {
		out, err := s.sinkOf(&all[i])
		if err != nil {
			return nil, err
		}
		res.Sinks = append(res.Sinks, out)
	}
	return res, nil
}

// setState pauses or resumes.
func (s *sinkService) setState(ctx context.Context, name string, st store.SinkState, reason string) (*cofferv1.Sink, error) {
	k, err := s.sinks.ChangeSink(ctx, sinkIDOf(ctx, name), 0, func(k *store.Sink) { k.State, k.Reason = st, reason })
	if err != nil {
		return nil, err
	}
	return s.sinkOf(&k)
}

func (s *sinkService) PauseSink(ctx context.Context, m *cofferv1.PauseSinkRequest) (*cofferv1.PauseSinkResponse, error) {
	out, err := s.setState(ctx, m.GetName(), store.SinkPaused, m.GetReason())
	return &cofferv1.PauseSinkResponse{Sink: out}, err
}

func (s *sinkService) ResumeSink(ctx context.Context, m *cofferv1.ResumeSinkRequest) (*cofferv1.ResumeSinkResponse, error) {
	out, err := s.setState(ctx, m.GetName(), store.SinkRunning, "")
	return &cofferv1.ResumeSinkResponse{Sink: out}, err
}

func (s *sinkService) RewindSink(ctx context.Context, m *cofferv1.RewindSinkRequest) (*cofferv1.RewindSinkResponse, error) {
	from, r := fromOf(m.GetStart())
	if r != nil {
		return nil, r
	}
	if m.GetStart().GetAt() == nil && len(from.Cursors) > 0 {
		from.Now = false // other partitions stay where they are
	}
	return &cofferv1.RewindSinkResponse{}, s.sinks.RewindSink(ctx, sinkIDOf(ctx, m.GetName()), from)
}

func (s *sinkService) PingSink(ctx context.Context, m *cofferv1.PingSinkRequest) (*cofferv1.PingSinkResponse, error) {
	k, err := s.sinks.Sink(ctx, sinkIDOf(ctx, m.GetName()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := s.drivers.Ping(ctx, &k); err != nil {
		return &cofferv1.PingSinkResponse{Problem: text(err.Error())}, nil
	}
	return &cofferv1.PingSinkResponse{Ok: true}, nil
}

func (s *sinkService) DeleteSink(ctx context.Context, m *cofferv1.DeleteSinkRequest) (*cofferv1.DeleteSinkResponse, error) {
	return &cofferv1.DeleteSinkResponse{}, s.sinks.DeleteSink(ctx, sinkIDOf(ctx, m.GetName()))
}

func parkedKeyOf(k *store.ParkedKey) *cofferv1.ParkedKey {
	return &cofferv1.ParkedKey{
		Key: k.Key, Partition: uint32(k.Partition), SinceTime: stamp(k.Since), Reason: text(k.Reason), Tries: k.Tries, Events: k.Events, Retrying: k.Retrying,
	}
}

func (s *sinkService) ListParked(ctx context.Context, m *cofferv1.ListParkedRequest) (*cofferv1.ListParkedResponse, error) {
	keys, next, err := s.sinks.ParkedKeys(ctx, sinkIDOf(ctx, m.GetSink()), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListParkedResponse{NextPageToken: next}
	for i := range keys {
		res.Keys = append(res.Keys, parkedKeyOf(&keys[i]))
	}
	return res, nil
}

func (s *sinkService) GetParked(ctx context.Context, m *cofferv1.GetParkedRequest) (*cofferv1.GetParkedResponse, error) {
	id := sinkIDOf(ctx, m.GetSink())
	partitions, err := s.sinks.ParkedIn(ctx, id, m.GetKey())
	if err != nil {
		return nil, err
	}
	res := &cofferv1.GetParkedResponse{}
	for _, p := range partitions {
		k, events, err := s.sinks.ParkedEvents(ctx, id, p, m.GetKey(), shownParked)
		if err != nil {
			return nil, err
		}
		res.Keys = append(res.Keys, parkedKeyOf(&k))
		for _, e := range events {
			res.Events = append(res.Events, eventOf(e))
		}
	}
	return res, nil
}

func (s *sinkService) RetryParked(ctx context.Context, m *cofferv1.RetryParkedRequest) (*cofferv1.RetryParkedResponse, error) {
	id := sinkIDOf(ctx, m.GetSink())
	partitions, err := s.sinks.ParkedIn(ctx, id, m.GetKey())
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if err := s.sinks.RetryParked(ctx, id, p, m.GetKey()); err != nil {
			return nil, err
		}
	}
	return &cofferv1.RetryParkedResponse{}, nil
}

func (s *sinkService) SkipParked(ctx context.Context, m *cofferv1.SkipParkedRequest) (*cofferv1.SkipParkedResponse, error) {
	id := sinkIDOf(ctx, m.GetSink())
	if m.GetEventId() != "" {
		return s.skipEvent(ctx, id, m)
	}
	partitions, err := s.sinks.ParkedIn(ctx, id, m.GetKey())
	if err != nil {
		return nil, err
	}
	res := &cofferv1.SkipParkedResponse{}
	for _, p := range partitions {
		skipped, err := s.sinks.SkipParked(ctx, id, p, m.GetKey(), m.GetReason(), m.GetAll())
		if err != nil {
			return nil, err
		}
		for _, at := range skipped {
			res.EventIds = append(res.EventIds, at.String())
		}
	}
	return res, nil
}

// skipEvent skips the one event that the caller names.
func (s *sinkService) skipEvent(ctx context.Context, id store.SinkID, m *cofferv1.SkipParkedRequest) (*cofferv1.SkipParkedResponse, error) {
	at, err := event.ParsePosition(m.GetEventId())
	switch {
	case err != nil:
		return nil, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "event_id", Value: fmt.Sprintf("%.80q", m.GetEventId()),
			Limit: "an event's id, such as 1-03-000000000000000700000000-2", Message: "names no event",
		}
	case m.GetAll():
		return nil, &ledger.Rejection{Code: ledger.InvalidArgument, Field: "all", Value: "true", Limit: "false with event_id", Message: "means more than the event that is named"}
	}
	if err := s.sinks.SkipEvent(ctx, id, m.GetKey(), m.GetReason(), at); err != nil {
		return nil, err
	}
	return &cofferv1.SkipParkedResponse{EventIds: []string{at.String()}}, nil
}

func (s *sinkService) ListSkipped(ctx context.Context, m *cofferv1.ListSkippedRequest) (*cofferv1.ListSkippedResponse, error) {
	events, next, err := s.sinks.Skipped(ctx, sinkIDOf(ctx, m.GetSink()), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListSkippedResponse{NextPageToken: next}
	for i := range events {
		e := &events[i]
		res.Events = append(res.Events, &cofferv1.SkippedEvent{EventId: e.At.String(), Key: e.Key, Reason: text(e.Reason), Time: stamp(e.Time)})
	}
	return res, nil
}
