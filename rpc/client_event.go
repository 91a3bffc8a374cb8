package rpc

import (
	"context"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Subscribe hands every event to each, on the caller's goroutine, until ctx ends,
// each returns an error, or the stream breaks. heard, if not nil, gets the
// heartbeats: their cursors, or the id of the last event of each partition, are
// where to go on.
func (c *Client) Subscribe(ctx context.Context, req *cofferv1.SubscribeRequest, each func(*cofferv1.Event) error, heard func(*cofferv1.Heartbeat)) error {
	stream, err := c.events.Subscribe(ctx, req)
	if err != nil {
		return streamError(err)
	}
	defer func() { _ = stream.Close() }()
	for {
		m, err := stream.Receive()
		if err != nil {
			return streamError(err)
		}
		if h := m.GetHeartbeat(); h != nil && heard != nil {
			heard(h)
		}
		if e := m.GetEvent(); e != nil {
			if err := each(e); err != nil {
				return err
			}
		}
	}
}

// CreateSink adds a sink.
func (c *Client) CreateSink(ctx context.Context, req *cofferv1.CreateSinkRequest) (*cofferv1.CreateSinkResponse, error) {
	return call(ctx, c, kindCommand, c.sinks.CreateSink, req)
}

// UpdateSink replaces a sink's configuration and filter.
func (c *Client) UpdateSink(ctx context.Context, req *cofferv1.UpdateSinkRequest) (*cofferv1.Sink, error) {
	res, err := call(ctx, c, kindCommand, c.sinks.UpdateSink, req)
	if err != nil {
		return nil, err
	}
	return res.GetSink(), nil
}

// GetSink reads a sink, and how far it is.
func (c *Client) GetSink(ctx context.Context, name string) (*cofferv1.GetSinkResponse, error) {
	return call(ctx, c, kindRead, c.sinks.GetSink, &cofferv1.GetSinkRequest{Name: name})
}

// ListSinks reads the tenant's sinks.
func (c *Client) ListSinks(ctx context.Context) ([]*cofferv1.Sink, error) {
	res, err := call(ctx, c, kindRead, c.sinks.ListSinks, &cofferv1.ListSinksRequest{})
	if err != nil {
		return nil, err
	}
	return res.GetSinks(), nil
}

// PauseSink stops deliveries to a sink.
func (c *Client) PauseSink(ctx context.Context, name, reason string) (*cofferv1.Sink, error) {
	res, err := call(ctx, c, kindCommand, c.sinks.PauseSink, &cofferv1.PauseSinkRequest{Name: name, Reason: reason})
	if err != nil {
		return nil, err
	}
	return res.GetSink(), nil
}

// ResumeSink goes on with deliveries to a sink.
func (c *Client) ResumeSink(ctx context.Context, name string) (*cofferv1.Sink, error) {
	res, err := call(ctx, c, kindCommand, c.sinks.ResumeSink, &cofferv1.ResumeSinkRequest{Name: name})
	if err != nil {
		return nil, err
	}
	return res.GetSink(), nil
}

// RewindSink moves a sink's cursors.
func (c *Client) RewindSink(ctx context.Context, name string, start *cofferv1.EventStart) error {
	_, err := call(ctx, c, kindCommand, c.sinks.RewindSink, &cofferv1.RewindSinkRequest{Name: name, Start: start})
	return err
}

// PingSink checks that a sink's receiver can be reached from the server.
func (c *Client) PingSink(ctx context.Context, name string) (*cofferv1.PingSinkResponse, error) {
	return call(ctx, c, kindRead, c.sinks.PingSink, &cofferv1.PingSinkRequest{Name: name})
}

// DeleteSink removes a sink.
func (c *Client) DeleteSink(ctx context.Context, name string) error {
	_, err := call(ctx, c, kindCommand, c.sinks.DeleteSink, &cofferv1.DeleteSinkRequest{Name: name})
	return err
}

// ListParked reads one page of a sink's parked keys.
func (c *Client) ListParked(ctx context.Context, req *cofferv1.ListParkedRequest) (*cofferv1.ListParkedResponse, error) {
	return call(ctx, c, kindRead, c.sinks.ListParked, req)
}

// GetParked reads a parked key with the first of its events.
func (c *Client) GetParked(ctx context.Context, sink, key string) (*cofferv1.GetParkedResponse, error) {
	return call(ctx, c, kindRead, c.sinks.GetParked, &cofferv1.GetParkedRequest{Sink: sink, Key: key})
}

// RetryParked has a parked key's events delivered again.
func (c *Client) RetryParked(ctx context.Context, sink, key string) error {
	_, err := call(ctx, c, kindCommand, c.sinks.RetryParked, &cofferv1.RetryParkedRequest{Sink: sink, Key: key})
	return err
}

// SkipParked gives up events of a parked key, and gives their ids. Where no
// event is named it is sent once: a second one would skip the next event.
func (c *Client) SkipParked(ctx context.Context, req *cofferv1.SkipParkedRequest) ([]string, error) {
	if req.GetEventId() != "" {
		res, err := call(ctx, c, kindCommand, c.sinks.SkipParked, req)
		if err != nil {
			return nil, err
		}
		return res.GetEventIds(), nil
	}
	res, err := once(ctx, c.opt.attemptTimeout, c.sinks.SkipParked, req)
	if err != nil {
		return nil, streamError(err)
	}
	return res.GetEventIds(), nil
}

// ListSkipped reads one page of the events of a sink that were skipped.
func (c *Client) ListSkipped(ctx context.Context, req *cofferv1.ListSkippedRequest) (*cofferv1.ListSkippedResponse, error) {
	return call(ctx, c, kindRead, c.sinks.ListSkipped, req)
}
