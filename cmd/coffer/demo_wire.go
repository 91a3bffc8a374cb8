package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// caller is a client that counts the commands its callers send.
type caller struct {
	*rpc.Client
	commands *atomic.Int64
}

// Reserve counts and sends a command, as do the methods after it.
func (c caller) Reserve(ctx context.Context, m *cofferv1.ReserveRequest) (*cofferv1.Outcome, error) {
	c.commands.Add(1)
	return c.Client.Reserve(ctx, m)
}

// Commit counts and sends.
func (c caller) Commit(ctx context.Context, m *cofferv1.CommitRequest) (*cofferv1.Outcome, error) {
	c.commands.Add(1)
	return c.Client.Commit(ctx, m)
}

// Release counts and sends.
func (c caller) Release(ctx context.Context, m *cofferv1.ReleaseRequest) (*cofferv1.Outcome, error) {
	c.commands.Add(1)
	return c.Client.Release(ctx, m)
}

// Reverse counts and sends.
func (c caller) Reverse(ctx context.Context, m *cofferv1.ReverseRequest) (*cofferv1.Outcome, error) {
	c.commands.Add(1)
	return c.Client.Reverse(ctx, m)
}

// Reinstate counts and sends.
func (c caller) Reinstate(ctx context.Context, m *cofferv1.ReinstateRequest) (*cofferv1.Outcome, error) {
	c.commands.Add(1)
	return c.Client.Reinstate(ctx, m)
}

// Resolve counts and sends.
func (c caller) Resolve(ctx context.Context, m *cofferv1.ResolveRequest) (*cofferv1.ResolveResponse, error) {
	c.commands.Add(1)
	return c.Client.Resolve(ctx, m)
}

// lossy is a transport that loses what it is told to lose, once.
type lossy struct {
	next  http.RoundTripper
	calls atomic.Int64
}

// loss is what becomes of the first attempt of a call.
type loss struct {
	request bool // lost on the way there, else on the way back
	done    atomic.Bool
}

type lossKey struct{}

// losing makes the first attempt of a call under ctx lose its request or its
// answer.
func losing(ctx context.Context, request bool) context.Context {
	return context.WithValue(ctx, lossKey{}, &loss{request: request})
}

var errLost = errors.New("connection lost (the demo cut it)")

// RoundTrip sends the request, or loses it.
func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	lost, _ := r.Context().Value(lossKey{}).(*loss)
	lose := lost != nil && lost.done.CompareAndSwap(false, true)
	if lose && lost.request {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errLost
	}
	l.calls.Add(1)
	res, err := l.next.RoundTrip(r)
	if err == nil && lose {
		_ = res.Body.Close()
		return nil, errLost
	}
	return res, err
}

// CloseIdleConnections closes what the transport keeps open.
func (l *lossy) CloseIdleConnections() {
	if t, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
