package rpc

import (
	"net/http"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// Nobody's traceparent has a call recorded before the token was accepted, with
// its role and tenant; a server without tokens trusts all. The log's line has the
// trace that was sent, also of a refusal.
func TestStrangersAreNotTraced(t *testing.T) {
	const sent, body = "4bf92f3577b34da6a3ce929d0e0e4736", `{"orderId":"o","benefitKey":"b"}`
	ring := &ring{t: t}
	shop := ring.add("shop", "shop", access.Service, time.Time{})
	reader := ring.add("reader", "shop", access.Auditor, time.Time{})
	gone := ring.add("gone", "shop", access.Service, time.Now().Add(-time.Minute))
	for name, c := range map[string]struct {
		tokens        Tokens
		token, tenant string
		flags         string
		status, spans int
	}{
		"no token":               {ring.tokens, "", "", "01", http.StatusUnauthorized, 0},
		"unknown token":          {ring.tokens, shop[:len(shop)-1] + "!", "", "01", http.StatusUnauthorized, 0},
		"expired":                {ring.tokens, gone, "", "01", http.StatusUnauthorized, 0},
		"another role":           {ring.tokens, reader, "", "01", http.StatusForbidden, 0},
		"another tenant":         {ring.tokens, shop, "other", "01", http.StatusForbidden, 0},
		"accepted":               {ring.tokens, shop, "", "01", http.StatusOK, 1},
		"accepted, not recorded": {ring.tokens, shop, "", "00", http.StatusOK, 0},
		"open":                   {nil, "", "shop", "01", http.StatusOK, 1},
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
			w := newWorldWith(t, func(d *Deps) { d.Tokens, d.Tracer = c.tokens, p.Tracer("rpc") })
			h := http.Header{"Traceparent": {"00-" + sent + "-00f067aa0ba902b7-" + c.flags}}
			if c.token != "" {
				h.Set("Authorization", "Bearer "+c.token)
			}
			if c.tenant != "" {
				h.Set(TenantHeader, c.tenant)
			}
			if status, answer := post(t, w.url+cofferv1connect.ReservationServiceReleaseProcedure, body, h); status != c.status {
				t.Fatalf("status %d, want %d: %v", status, c.status, answer)
			}
			if got := spans.Started(); len(got) != c.spans {
				t.Errorf("%d spans, want %d", len(got), c.spans)
			}
			if !strings.Contains(w.logs.String(), `"trace_id":"`+sent+`"`) {
				t.Errorf("the log has not the trace: %s", w.logs)
			}
			// What comes without a trace is recorded as the server itself samples.
			delete(h, "Traceparent")
			post(t, w.url+cofferv1connect.ReservationServiceReleaseProcedure, body, h)
			if got := spans.Started(); len(got) != c.spans+1 {
				t.Errorf("%d spans after a call of no trace, want %d", len(got), c.spans+1)
			}
		})
	}
}
