package rpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// metrics are the figures of the RPC layer. Labels are bounded: procedures by
// the schema, codes by the protocol, reasons by the domain's table.
type metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inFlight   prometheus.Gauge
	rejections *prometheus.CounterVec
	batch      prometheus.Histogram
	skipped    prometheus.Counter
}

// newMetrics registers with reg; nil keeps the figures to itself.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "coffer_rpc_requests_total", Help: "Calls answered, by procedure and wire code.",
		}, []string{"procedure", "code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coffer_rpc_duration_seconds", Help: "Time from request headers to answer, by procedure.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}, []string{"procedure"}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "coffer_rpc_in_flight", Help: "Calls being answered now.",
		}),
		rejections: f.NewCounterVec(prometheus.CounterOpts{
			Name: "coffer_rpc_rejections_total", Help: "Refused calls and refused commands of batches, by reason.",
		}, []string{"reason"}),
		batch: f.NewHistogram(prometheus.HistogramOpts{
			Name: "coffer_rpc_batch_commands", Help: "Commands in one Execute call.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		skipped: f.NewCounter(prometheus.CounterOpts{
			Name: "coffer_rpc_skipped_total", Help: "Reserves answered without benefit because the store was unavailable.",
		}),
	}
}

// rejected counts a refusal. Reasons that are not in the domain's table cannot
// come from it and share one label.
func (m *metrics) rejected(r *ledger.Rejection) {
	reason := r.Code
	if reason.Info().Next == "" {
		reason = ledger.Internal
	}
	m.rejections.WithLabelValues(string(reason)).Inc()
}

// observeInterceptor counts and logs every call. It is the outermost one and
// the only place where errors are logged.
func observeInterceptor(m *metrics, log zerolog.Logger) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			start := time.Now()
			m.inFlight.Inc()
			err := next(ctx, spec, stream)
			m.inFlight.Dec()
			took := time.Since(start)
			code := "ok"
			if err != nil {
				code = connect.CodeOf(err).String()
				var r *ledger.Rejection
				if errors.As(err, &r) {
					m.rejected(r)
				}
			}
			m.requests.WithLabelValues(spec.Procedure, code).Inc()
			m.duration.WithLabelValues(spec.Procedure).Observe(took.Seconds())
			logCall(ctx, log, spec.Procedure, code, took, err)
			return err
		}
	}
}

// logCall writes one line a call: at debug level when it went as the domain
// says, as an error when the ledger itself is at fault.
func logCall(ctx context.Context, log zerolog.Logger, procedure, code string, took time.Duration, err error) {
	ev := log.Debug()
	if err != nil && isDefect(err) {
		ev = log.Error()
	}
	if !ev.Enabled() {
		return
	}
	ev = ev.Str("procedure", procedure).Str("code", code).Float64("took_ms", float64(took.Microseconds())/1000)
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		ev = ev.Str("protocol", info.Protocol).Str("peer", info.PeerAddr)
		if id := access.IDOf(tokenIn(info.RequestHeader().Get(authorization))); id != "" {
			ev = ev.Str("token", id) // the id alone; where the call was refused, one that was claimed
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		ev = ev.Stringer("trace_id", span.TraceID())
	}
	if err != nil {
		ev = ev.Err(err)
		var r *ledger.Rejection
		if errors.As(err, &r) {
			ev = ev.Str("reason", string(r.Code)).AnErr("cause", r.Cause)
		} else if cause := errors.Unwrap(err); cause != nil {
			ev = ev.AnErr("cause", cause)
		}
		var p *panicError
		if errors.As(err, &p) {
			ev = ev.Bytes("stack", p.stack)
		}
	}
	ev.Msg("rpc answered")
}

func isDefect(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInternal, connect.CodeDataLoss:
		return true
	default:
		return false
	}
}
