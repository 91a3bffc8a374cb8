package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect/v2"
)

// ErrPlainToken is matched by the error of a call that was not sent, since its
// token would have left the machine in plain text.
var ErrPlainToken = errors.New("the token is not sent in plain text to another machine: use https://, or allow it where something else encrypts")

// WithToken shows the token with every call; spaces and line breaks around it, as
// files have them, are none of it. Redirects are not followed then. Over http:// it
// is sent to this machine alone, unless [WithPlainToken] is given, too.
func WithToken(token string) Option {
	return func(o *clientOptions) { o.token = strings.TrimSpace(token) }
}

// WithPlainToken lets the token be sent over http:// to other machines: for
// networks where something else encrypts.
func WithPlainToken() Option { return func(o *clientOptions) { o.plainToken = true } }

// PlainToken reports whether a token would leave this machine in plain text on
// its way to the server at baseURL.
func PlainToken(baseURL string) bool {
	u, err := url.Parse(baseURL)
	if err != nil {
		return true
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme != "https" && !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback())
}

// errRedirected is of a call that somebody else was to take.
var errRedirected = errors.New("a token is not taken there: name that one as the server")

// withoutRedirects is the client, but that a redirect is an error: one from
// https:// to http:// would take the token along.
func withoutRedirects(c *http.Client) *http.Client {
	own := *c
	own.CheckRedirect = func(to *http.Request, _ []*http.Request) error {
		return fmt.Errorf("the server redirects to %s://%s, and %w", to.URL.Scheme, to.URL.Host, errRedirected)
	}
	return &own
}

// sendToken puts the token into each call's headers, or refuses to send it to
// the server at baseURL.
func sendToken(o *clientOptions, baseURL string) connect.ClientInterceptor {
	value := bearer + o.token
	var refused error
	switch {
	case !o.plainToken && PlainToken(baseURL):
		refused = ErrPlainToken
	case !fitsHeader(o.token):
		refused = errors.New("the token has a line break or another control character: no call can carry it")
	}
	return func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			if refused != nil {
				return nil, notSent(connect.CodeUnauthenticated, refused)
			}
			if info, ok := connect.CallInfoForClientContext(ctx); ok {
				info.RequestHeader().Set(authorization, value)
			}
			return next(ctx, spec)
		}
	}
}

// notSent is the error of a call that its client refuses.
func notSent(code connect.Code, why error) error {
	return connect.NewError(code, why.Error()).WithCause(fmt.Errorf("%w: %w", errNotSent, why))
}

// fitsHeader reports whether a header can have the value.
func fitsHeader(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
