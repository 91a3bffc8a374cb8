package rpc

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/coffer-ledger/coffer/ledger"
)

// traceInterceptor makes a span of every call: below the caller's, where the
// headers name one in the form of W3C Trace Context, else of a new trace. That a
// caller's trace is recorded counts only where trusts says so. Names are those of
// OpenTelemetry's conventions for RPC. Of a refusal it has the code and the reason,
// of a failure the code alone: causes stay in the log.
func traceInterceptor(t trace.Tracer, trusts func(h *connect.Header, procedure string) bool) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			name := strings.TrimPrefix(spec.Procedure, "/")
			service, method, _ := strings.Cut(name, "/")
			ctx, span := t.Start(callerSpan(ctx, spec.Procedure, trusts), name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
				attribute.String("rpc.system", "connect_rpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method),
			))
			defer span.End()
			err := next(ctx, spec, stream)
			if err != nil {
				markFailed(span, err)
			}
			return err
		}
	}
}

// callerSpan is ctx with the span that the call's headers name, if they do. Of a
// caller who is not trusted it keeps the ids, for the log, and not that the trace
// is recorded.
func callerSpan(ctx context.Context, procedure string, trusts func(h *connect.Header, procedure string) bool) context.Context {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok || info.RequestHeader().Get(traceParent) == "" {
		return ctx
	}
	h := info.RequestHeader()
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParent: h.Get(traceParent), traceState: h.Get(traceState)})
	if s := trace.SpanContextFromContext(ctx); s.IsSampled() && !trusts(h, procedure) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s.WithTraceFlags(s.TraceFlags().WithSampled(false)))
	}
	return ctx
}

// Headers of W3C Trace Context.
const traceParent, traceState = "traceparent", "tracestate"

// markFailed says in a span how its call ended. Only what the ledger itself is at
// fault for is an error: a budget that is spent is not.
func markFailed(span trace.Span, err error) {
	code := connect.CodeOf(err).String()
	span.SetAttributes(attribute.String("rpc.connect_rpc.error_code", code))
	var r *ledger.Rejection
	if errors.As(err, &r) {
		span.SetAttributes(attribute.String("coffer.reason", string(r.Code)))
	}
	if isDefect(err) {
		span.SetStatus(codes.Error, code)
	}
}

// markTenant names the tenant in the call's span, if it has one.
func markTenant(ctx context.Context, tenant string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("coffer.tenant", tenant))
	}
}
