package node

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	otlpcollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/rpc"
)

// spans is a collector that keeps what it gets.
type spans struct {
	*httptest.Server
	mu  sync.Mutex
	all []*otlp.Span
}

func collect(t *testing.T) *spans {
	s := &spans{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req otlpcollector.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, res := range req.ResourceSpans {
			for _, scope := range res.ScopeSpans {
				s.all = append(s.all, scope.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(s.Close)
	return s
}

// traced sends each request as part of one trace.
type traced struct{ parent string }

func (c traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", c.parent)
	return http.DefaultTransport.RoundTrip(r)
}

// attributes are a span's, as text.
func attributes(s *otlp.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		if out[a.Key] = a.Value.GetStringValue(); out[a.Key] == "" {
			out[a.Key] = a.Value.String()
		}
	}
	return out
}

// A call's span stands below its caller's and has one of the transaction that
// the call was part of; a refusal says why, and is no error. A caller that does
// not record its trace is not recorded here.
func TestTracing(t *testing.T) {
	sink := collect(t)
	cfg := testConfig()
	cfg.Tracing = Tracing{Endpoint: sink.URL, OneIn: maxOneIn}
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	client := func(flags string) *rpc.Client {
		return rpc.NewClient(r.url, rpc.WithoutBatching(), rpc.WithHTTPClient(&http.Client{Transport: traced{"00-" + trace + "-" + span + "-" + flags}}))
	}
	silent, c := client("00"), client("01")
	fund(t, silent, 1)
	if err := reserve(context.Background(), c, "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := reserve(context.Background(), c, "a", time.Minute); err == nil {
		t.Fatal("another request with the same key was accepted")
	}
	r.stop()
	if err := r.ended(t); err != nil {
		t.Fatal(err)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	var calls, batches []*otlp.Span
	for _, s := range sink.all {
		if got := hex.EncodeToString(s.TraceId); got != trace {
			t.Errorf("span %s is in trace %s", s.Name, got)
		}
		switch s.Name {
		case "coffer.v1.ReservationService/Reserve":
			calls = append(calls, s)
		case "batch":
			batches = append(batches, s)
		default:
			t.Errorf("there is a span %s", s.Name)
		}
	}
	if len(calls) != 2 || len(batches) != 2 {
		t.Fatalf("%d calls and %d batches, want 2 and 2: %v", len(calls), len(batches), sink.all)
	}
	for i, s := range calls {
		a := attributes(s)
		if hex.EncodeToString(s.ParentSpanId) != span || s.Kind != otlp.Span_SPAN_KIND_SERVER || s.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET ||
			a["rpc.method"] != "Reserve" || a["coffer.tenant"] != "default" {
			t.Errorf("call %d is %v", i, s)
		}
		if want := []string{"", string(ledger.IdempotencyConflict)}[i]; a["coffer.reason"] != want {
			t.Errorf("call %d has reason %q, want %q", i, a["coffer.reason"], want)
		}
		b := batches[i]
		if ba := attributes(b); string(b.ParentSpanId) != string(s.SpanId) || !strings.HasSuffix(ba["coffer.bucket"], "#0") || ba["coffer.batch_commands"] != "int_value:1" {
			t.Errorf("batch %d is %v", i, b)
		}
		if b.StartTimeUnixNano < s.StartTimeUnixNano || b.EndTimeUnixNano > s.EndTimeUnixNano {
			t.Errorf("batch %d is not within its call", i)
		}
	}
}

// A collector that is not there keeps nobody waiting.
func TestTracingWithoutCollector(t *testing.T) {
	cfg := testConfig()
	cfg.Tracing = Tracing{Endpoint: "http://127.0.0.1:1", OneIn: 1}
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	c := rpc.NewClient(r.url)
	fund(t, c, 1)
	if err := reserve(context.Background(), c, "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := r.ended(t); err != nil {
		t.Fatal(err)
	}
}

// A collector that fails on and on, and what it says, fill no log.
func TestSpanErrorsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := &spanErrors{log: zerolog.New(&log)}
		for range 100 {
			h.Handle(errors.New("collector says " + strings.Repeat("x", 1<<20)))
		}
		h.Handle(context.Canceled)
		time.Sleep(spanErrorsPause)
		h.Handle(errors.New("again"))
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || len(lines[0]) > 1000 || !strings.Contains(lines[0], "collector says xxx") || !strings.Contains(lines[1], `"more":99,"error":"again"`) {
			t.Errorf("the log has %d lines: %.2000s", len(lines), &log)
		}
	})
}

func TestTracingConfig(t *testing.T) {
	for _, tc := range []struct {
		t    Tracing
		want string
	}{
		{Tracing{OneIn: 1}, ""},
		{Tracing{Endpoint: "https://collector.example", OneIn: maxOneIn}, ""},
		{Tracing{Endpoint: "collector:4318", OneIn: 1}, `tracing.endpoint is "collector:4318"`},
		{Tracing{Endpoint: "http://c", OneIn: 0}, "tracing.one_in is 0"},
		{Tracing{Endpoint: "http://me:secret@c", OneIn: 1}, `tracing.endpoint is "http://me:xxxxx@c" (allowed: an http:// or https:// URL without a name and a query`},
		{Tracing{Endpoint: "http://c/?key=1", OneIn: 1}, "without a name and a query"},
	} {
		cfg := testConfig()
		cfg.Tracing = tc.t
		err := cfg.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc.t, err, tc.want)
		}
	}
}
