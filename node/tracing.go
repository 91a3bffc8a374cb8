package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Tracing sends spans of calls to a collector of OpenTelemetry.
type Tracing struct {
	// Endpoint is where the collector takes OTLP over HTTP, a URL such as
	// http://127.0.0.1:4318. Empty: nothing is traced.
	Endpoint string `yaml:"endpoint"`
	// OneIn: of so many calls that belong to no trace one begins a trace. A call
	// that comes with a trace is recorded when its caller's is and, with tokens,
	// its own admits it.
	OneIn int `yaml:"one_in"`
}

// maxOneIn bounds Tracing.OneIn.
const maxOneIn = 1_000_000

func (t Tracing) validate(f *faults) {
	f.number("tracing.one_in", t.OneIn, 1, maxOneIn)
	if t.Endpoint == "" {
		return
	}
	// A name or a query would not be sent.
	u, err := url.Parse(t.Endpoint)
	if err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.RawQuery == "" {
		return
	}
	shown := t.Endpoint
	if err == nil {
		shown = u.Redacted()
	}
	f.add("tracing.endpoint", shown, "an http:// or https:// URL without a name and a query, such as http://127.0.0.1:4318, or empty for no tracing; headers for the collector come from OTEL_EXPORTER_OTLP_HEADERS")
}

// spanFlush bounds the delivery of the last spans when the node ends.
const spanFlush = 3 * time.Second

// trace sets the node's tracer, unless there is no endpoint. It returns what
// delivers the last spans and ends it. Neither it nor any call waits for the
// collector: spans that cannot be delivered are dropped, and logged.
func (n *Node) trace(ctx context.Context) (end func(context.Context), err error) {
	t := n.cfg.Tracing
	if t.Endpoint == "" {
		return func(context.Context) {}, nil
	}
	where, err := url.JoinPath(t.Endpoint, "v1", "traces")
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	out, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(where))
	if err != nil {
		return nil, fmt.Errorf("tracing to %s: %w", t.Endpoint, err)
	}
	log := n.log.With().Str("part", "tracing").Logger()
	otel.SetErrorHandler(&spanErrors{log: log}) // of all nodes of a process; there is one
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(out),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1/float64(t.OneIn)))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "coffer"), attribute.String("service.version", n.deps.Version),
			attribute.String("service.instance.id", n.cfg.NodeID),
		)),
	)
	n.tracer = p.Tracer("github.com/coffer-ledger/coffer/rpc")
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spanFlush)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			log.Warn().Err(err).Msg("last spans not delivered")
		}
	}, nil
}

// Bounds of what is logged of a collector that fails: one line in spanErrorsPause,
// with so much of what it said.
const (
	spanErrorsPause = time.Minute
	maxSpanError    = 500
)

// spanErrors logs what the exporter reports, which may be each batch of spans and
// hold all that the collector answered. It retries by itself.
type spanErrors struct {
	log  zerolog.Logger
	mu   sync.Mutex
	last time.Time
	more int // since the last line
}

// Handle implements otel.ErrorHandler.
func (h *spanErrors) Handle(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.last.IsZero() && time.Since(h.last) < spanErrorsPause {
		h.more++
		return
	}
	h.log.Warn().Int("more", h.more).Str("error", fmt.Sprintf("%.*s", maxSpanError, err)).Msg("spans not delivered")
	h.last, h.more = time.Now(), 0
}
