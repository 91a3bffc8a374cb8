package rpc

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// authorization is the header that brings a token, as "Bearer TOKEN".
const (
	authorization = "Authorization"
	bearer        = "Bearer "
)

// Tokens gives the tokens that are good now. It must be safe for concurrent use,
// and cheap: every call asks.
type Tokens func() *access.Set

// admit says whose token the values of the header Authorization are, or why they
// admit nobody to what p is for. No refusal repeats what was sent.
func (t Tokens) admit(values []string, procedure string, p permission) (*access.Entry, *ledger.Rejection) {
	refuse := func(value, message string) (*access.Entry, *ledger.Rejection) {
		return nil, &ledger.Rejection{Code: ledger.Unauthenticated, Field: authorization, Value: value, Limit: "Bearer coffer_ID_SECRET", Message: message}
	}
	switch {
	case len(values) == 0:
		return refuse(`""`, "must be sent as a header")
	case len(values) > 1:
		return refuse(fmt.Sprint(len(values), " times"), "is given more than once")
	}
	e := t().Find(tokenIn(values[0]))
	switch {
	case e == nil:
		return refuse("as sent", "has no token that this server knows")
	case e.Expired(time.Now()):
		return refuse("of token "+e.ID, "has expired at "+e.NotAfter.Format(time.RFC3339))
	case e.Roles&(p.roles|access.Operator) == 0:
		return nil, &ledger.Rejection{
			Code: ledger.PermissionDenied, Field: "role", Value: e.Roles.String(), Limit: (p.roles | access.Operator).String(),
			Message: fmt.Sprintf("of token %s may not call %s", e.ID, procedure),
		}
	case p.everywhere && !e.Everywhere():
		return nil, &ledger.Rejection{
			Code: ledger.PermissionDenied, Field: "tenant", Value: fmt.Sprintf("%q", e.Tenant), Limit: `a token for every tenant, "*"`,
			Message: fmt.Sprintf("of token %s is one of those that %s is about", e.ID, procedure),
		}
	}
	return e, nil
}

// tokenIn is the token in a header's value, as it was sent.
func tokenIn(value string) string {
	if len(value) < len(bearer) || !strings.EqualFold(value[:len(bearer)], bearer) {
		return ""
	}
	return value[len(bearer):]
}

// caller says whose token a call's headers bring and which tenant the call acts
// for, or why it is refused. No row in permissions admits nobody.
func (t Tokens) caller(h *connect.Header, procedure, fallback string) (*access.Entry, string, *ledger.Rejection) {
	p, ok := permissions[procedure]
	if !ok {
		return nil, "", &ledger.Rejection{Code: ledger.PermissionDenied, Field: "procedure", Value: procedure, Message: "may be called by nobody"}
	}
	e, r := t.admit(h.Values(authorization), procedure, p)
	if r != nil {
		return nil, "", r
	}
	tenant, r := tenantFor(e, h.Values(TenantHeader), fallback)
	return e, tenant, r
}

// tenant is the tenant that a call acts for: the token's, which the header may
// repeat, or for a token for every tenant the header's.
func tenantFor(e *access.Entry, values []string, fallback string) (string, *ledger.Rejection) {
	if e.Everywhere() {
		return tenantFrom(values, fallback)
	}
	tenant, r := tenantFrom(values, e.Tenant)
	if r == nil {
		r = mayActFor(e, tenant)
	}
	return tenant, r
}

// mayActFor refuses a tenant that is not the token's.
func mayActFor(e *access.Entry, tenant string) *ledger.Rejection {
	if e.Everywhere() || tenant == e.Tenant {
		return nil
	}
	return &ledger.Rejection{
		Code: ledger.PermissionDenied, Field: TenantHeader, Value: fmt.Sprintf("%q", tenant), Limit: fmt.Sprintf("%q, or no such header", e.Tenant),
		Message: "is not the tenant of token " + e.ID,
	}
}

// accessInterceptor lets a call pass whose token may make it, for its tenant.
// Nothing of the payload has been read by then. It does the tenant interceptor's
// work, too. What operators alone may do is logged with who does it.
func accessInterceptor(tokens Tokens, fallback string, log zerolog.Logger) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			info, ok := connect.CallInfoForServerContext(ctx)
			if !ok {
				return fmt.Errorf("%s: a call without its headers", spec.Procedure)
			}
			e, tenant, r := tokens.caller(info.RequestHeader(), spec.Procedure, fallback)
			if r != nil {
				return r
			}
			p := permissions[spec.Procedure]
			if p.roles == nobodyElse {
				log.Info().Str("procedure", spec.Procedure).Str("token", e.ID).Str("tenant", tenant).Msg("operator calls")
			}
			if spec.StreamType != connect.StreamTypeUnary {
				values := info.RequestHeader().Values(authorization)
				stream = &admittedStream{stream, func() *ledger.Rejection {
					e, r := tokens.admit(values, spec.Procedure, p)
					if r != nil {
						return r
					}
					return mayActFor(e, tenant)
				}}
			}
			return next(withTenant(ctx, tenant), spec, stream)
		}
	}
}

// admittedStream ends with the first message after its token did, or after that
// became another tenant's: an event, or a heartbeat, which comes every few
// seconds.
type admittedStream struct {
	connect.ServerStream
	still func() *ledger.Rejection
}

// Send sends a message to a caller who may still have it.
func (s *admittedStream) Send(msg any) error {
	if r := s.still(); r != nil {
		return r
	}
	return s.ServerStream.Send(msg)
}

// anyTokenInterceptor lets those pass who have a token, whatever it is for.
func anyTokenInterceptor(tokens Tokens) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			var values []string
			if info, ok := connect.CallInfoForServerContext(ctx); ok {
				values = info.RequestHeader().Values(authorization)
			}
			if _, r := tokens.admit(values, spec.Procedure, reflectionPermission); r != nil {
				return r
			}
			return next(ctx, spec, stream)
		}
	}
}

// GuardMetrics puts a handler that shows a node's figures behind the tokens; nil
// tokens leave it open.
func GuardMetrics(tokens Tokens, h http.Handler) http.Handler {
	if tokens == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rej := tokens.admit(r.Header.Values(authorization), r.URL.Path, metricsPermission)
		if rej == nil {
			h.ServeHTTP(w, r)
			return
		}
		status := http.StatusForbidden
		if rej.Code == ledger.Unauthenticated {
			w.Header().Set("WWW-Authenticate", "Bearer")
			status = http.StatusUnauthorized
		}
		http.Error(w, rej.Error(), status)
	})
}
