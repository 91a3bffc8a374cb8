package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// A client never sends its token to another machine in plain text by itself, nor
// where a redirect leads.
func TestTokenStaysHere(t *testing.T) {
	for url, plain := range map[string]bool{
		"http://127.0.0.1:7420": false, "http://localhost:1": false, "http://[::1]:1": false, "https://ledger.example.com": false,
		"http://10.0.0.1:7420": true, "http://ledger.example.com": true, "http://localhost.example.com": true, "http://127.0.0.1.example.com": true, "%": true,
	} {
		if got := PlainToken(url); got != plain {
			t.Errorf("%s: %v", url, got)
		}
	}
	var sent atomic.Int32
	rt := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Host != "ledger.example.com" {
			t.Errorf("sent to %s with %v", r.URL, r.Header)
		}
		sent.Add(1)
		return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"http://other.example.com/"}}, Body: http.NoBody, Request: r}, nil
	})
	opts := []Option{WithToken("secret"), WithHTTPClient(&http.Client{Transport: rt}), WithMaxAttempts(1)}
	for _, unary := range [][]Option{nil, {WithoutBatching()}} {
		c := NewClient("http://ledger.example.com", append(unary, opts...)...)
		_, err := c.Reserve(t.Context(), reserveRequest())
		if !errors.Is(err, ErrPlainToken) || errors.Is(err, ErrOutcomeUnknown) || sent.Load() != 0 || strings.Contains(err.Error(), "secret") {
			t.Errorf("over http: %v, sent %d", err, sent.Load())
		}
	}
	for i, c := range []*Client{
		NewClient("http://ledger.example.com", append(opts, WithPlainToken())...), NewClient("https://ledger.example.com", opts...).ForTenant("shop"),
	} {
		if _, err := c.Reserve(t.Context(), reserveRequest()); err == nil || sent.Load() != int32(i+1) {
			t.Errorf("%v, sent %d", err, sent.Load())
		}
	}
}

// A token is often read from a file, with the end of its line. One that no header
// can carry is never sent, and the caller knows that; so with a tenant.
func TestTokenFromAFile(t *testing.T) {
	w, r := guarded(t)
	token := r.add("checkout", "shop", access.Service, time.Time{})
	if _, err := w.client(t, WithToken(" "+token+"\r\n")).Reserve(t.Context(), reserveRequest()); err != nil {
		t.Error(err)
	}
	for _, p := range []Protocol{ProtocolConnect, ProtocolGRPC, ProtocolGRPCWeb} {
		_, err := w.client(t, WithToken("# mine\n"+token), WithProtocol(p)).Reserve(t.Context(), reserveRequest())
		var e *Error
		if !errors.As(err, &e) || e.Code != connect.CodeUnauthenticated || e.Attempts != 1 || e.Unknown || !strings.Contains(err.Error(), "the token has a line break") || strings.Contains(err.Error(), token) {
			t.Errorf("%v", err)
		}
	}
	_, err := w.client(t, WithToken(token), WithTenant("shop\n")).Reserve(t.Context(), reserveRequest())
	var e *Error
	if !errors.As(err, &e) || e.Code != connect.CodeInvalidArgument || e.Attempts != 1 || e.Unknown || !strings.Contains(err.Error(), `tenant "shop\n" has a control character`) {
		t.Errorf("%v", err)
	}
}

// A redirect is an answer of somebody who did not take the command: it says where
// to, and is no reason to send it again or to ask what became of it.
func TestTokenIsNotRedirected(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "https://ledger.example.com"+r.URL.Path, http.StatusPermanentRedirect)
	}))
	defer srv.Close()
	for i, p := range []Protocol{ProtocolConnect, ProtocolGRPCWeb} {
		c := NewClient(srv.URL, WithToken("secret"), WithProtocol(p))
		defer c.Close()
		_, err := c.Reserve(t.Context(), reserveRequest())
		if err == nil || errors.Is(err, ErrOutcomeUnknown) || asked.Load() != int32(i+1) ||
			!strings.Contains(err.Error(), "the server redirects to https://ledger.example.com, and a token is not taken there: name that one") {
			t.Errorf("%v, asked %d times", err, asked.Load())
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A refusal of the caller says nothing of the command: what was open before
// stays open.
func TestRefusedCallerLeavesTheOutcomeOpen(t *testing.T) {
	m := &cofferv1.CommitRequest{OrderId: "o", BenefitKey: "b"}
	commit := func(c *Client) error {
		_, err := c.Commit(t.Context(), m)
		return err
	}
	for name, call := range map[string]func(token string, w *world) error{
		"alone":    func(token string, w *world) error { return commit(w.client(t, WithToken(token), WithoutBatching())) },
		"gathered": func(token string, w *world) error { return commit(w.client(t, WithToken(token))) },
		"batch": func(token string, w *world) error {
			results, err := w.client(t, WithToken(token)).Execute(t.Context(), []*cofferv1.Command{{Command: &cofferv1.Command_Commit{Commit: m}}})
			if got := results[0].GetError().GetDetail().GetReason(); got != string(ledger.OutcomeUnknown) {
				t.Errorf("the command's result is %s", got)
			}
			return err
		},
	} {
		r := &ring{t: t}
		w := newWorldWith(t, func(d *Deps) { d.Tokens = r.tokens }, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				h.ServeHTTP(w, req)
				r.revoke("short") // after the first call, whose answer is lost
			})
		}, losing(1))
		err := call(r.add("short", "shop", access.Service, time.Time{}), w)
		if e := refusal(t, err); e.Reason() != ledger.Unauthenticated || !errors.Is(err, ErrOutcomeUnknown) || e.Attempts != 2 {
			t.Errorf("%s: %+v", name, e)
		}
		if n := len(w.exec.commands()); n != 1 {
			t.Errorf("%s: %d commands ran", name, n)
		}
	}
}

// What is said of the caller or the server holds for each command: a batch that
// hears it is not sent again in pieces, as one is in which a command is faulty.
func TestRefusedCallerIsRefusedOnce(t *testing.T) {
	refused := func(c ledger.Code) error { return wireError(t.Context(), &ledger.Rejection{Code: c}) }
	for _, c := range []struct {
		err   error
		calls int
	}{
		{refused(ledger.InvalidArgument), 7},
		{refused(ledger.Unauthenticated), 1},
		{refused(ledger.PermissionDenied), 1},
		{notSent(connect.CodeUnauthenticated, ErrPlainToken), 1},
		{connect.NewError(connect.CodeUnauthenticated, "a proxy wants to know who calls"), 1},
		{connect.NewError(connect.CodeUnavailable, "x").WithCause(&tls.CertificateVerificationError{}), 1},
		{connect.NewError(connect.CodeUnavailable, "x").WithCause(errRedirected), 1},
	} {
		calls := 0
		g := &gatherer{execute: func(context.Context, []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
			calls++
			return nil, c.err
		}}
		batch := make([]*parcel, 4)
		for i := range batch {
			batch[i] = &parcel{msgs: []*cofferv1.Command{orderCommandNamed("o")}, done: make(chan struct{})}
		}
		g.deliver(batch)
		for _, p := range batch {
			<-p.done
			if !errors.Is(p.err, c.err) {
				t.Errorf("%v: a command got %v", c.err, p.err)
			}
		}
		if calls != c.calls {
			t.Errorf("%v: %d calls, want %d", c.err, calls, c.calls)
		}
	}
}

// An outcome that is open stays so in a batch, too, where the next one was refused
// as a whole.
func TestRefusedCallerSettlesNothing(t *testing.T) {
	result := func(c ledger.Code) *cofferv1.CommandResult {
		return &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: commandError(&ledger.Rejection{Code: c})}}
	}
	before := result(ledger.OutcomeUnknown)
	for now, stays := range map[ledger.Code]bool{ledger.Unauthenticated: true, ledger.PermissionDenied: true, ledger.Overloaded: true, ledger.IllegalState: false} {
		if got := settle(before, result(now)); (got == before) != stays {
			t.Errorf("after %s: %v", now, got)
		}
	}
}
