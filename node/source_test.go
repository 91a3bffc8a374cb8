package node

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// Pings and events of a node say which installation it belongs to.
func TestEventsSource(t *testing.T) {
	type said struct{ Type, Source string }
	got := make(chan said, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e said
		if raw, err := io.ReadAll(r.Body); err == nil && json.Unmarshal(raw, &e) == nil {
			got <- e
		}
	}))
	defer hook.Close()
	cfg := testConfig()
	cfg.Events.Source, cfg.Relay.PrivateWebhooks = "https://ledger.example.com/eu", true
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	c := rpc.NewClient(r.url, rpc.WithAttemptTimeout(patience)) // what is sent again pings again
	defer c.Close()
	config, err := structpb.NewStruct(map[string]any{"kind": "webhook", "webhook": map[string]any{
		"url": hook.URL, "insecure": true, "keys": []any{map[string]any{"id": "k1", "secret": receiver.NewSecret()}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSink(t.Context(), &cofferv1.CreateSinkRequest{Name: "hook", Config: config}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PingSink(t.Context(), "hook"); err != nil {
		t.Fatal(err)
	}
	fund(t, c, 1)
	for _, want := range []said{
		{"coffer.sink.ping.v1", "https://ledger.example.com/eu"},
		{"coffer.budget.created.v1", "https://ledger.example.com/eu/default"},
		{"coffer.budget.funded.v1", "https://ledger.example.com/eu/default"},
	} {
		select {
		case g := <-got:
			if g != want {
				t.Errorf("got %+v, want %+v", g, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s did not come", want.Type)
		}
	}
	cfg.Events.Source = "/coffer/"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), `events.source is "/coffer/" (allowed: a URI such as`) {
		t.Errorf("a source with a slash at its end: %v", err)
	}
}
