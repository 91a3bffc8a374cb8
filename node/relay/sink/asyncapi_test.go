package sink

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"go.yaml.in/yaml/v3"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// The published description of events has the headers that are sent.
func TestAsyncAPIHeaders(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "proto", "events.asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Channels   map[string]struct{ Address string }
		Components struct {
			Messages map[string]struct {
				ContentType string `yaml:"contentType"`
				Headers     struct {
					Required   []string
					Properties map[string]any
				}
			}
		}
	}
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if got := doc.Channels["nats"].Address; got != DefaultSubject {
		t.Errorf("subject %s, want %s", got, DefaultSubject)
	}
	all := story(1, 1)[0]
	all.Entry.Correlation = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	bare := story(1, 1)[0]
	bare.Entry.Correlation = ""
	sent := map[string][2][]string{}
	for i, e := range []*event.Event{all, bare} {
		msg, err := new(natsSink).message(e)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := record(e)
		if err != nil {
			t.Fatal(err)
		}
		n, k := sent["NATS"], sent["Kafka"]
		n[i] = []string{nats.MsgIdHdr}
		for name := range msg.Header {
			n[i] = append(n[i], name)
		}
		for _, h := range rec.Headers {
			k[i] = append(k[i], h.Key)
		}
		sent["NATS"], sent["Kafka"] = n, k
	}
	hooked := webhookHeaders(t)
	sent["Webhook"] = [2][]string{hooked, hooked}
	if len(doc.Components.Messages) != len(sent) {
		t.Errorf("the file has %d messages, want %d", len(doc.Components.Messages), len(sent))
	}
	for name, want := range sent {
		h := doc.Components.Messages[name].Headers
		var has []string
		for p := range h.Properties {
			has = append(has, p)
		}
		for _, l := range [][]string{has, h.Required, want[0], want[1]} {
			slices.Sort(l)
		}
		if !slices.Equal(has, want[0]) || !slices.Equal(h.Required, want[1]) {
			t.Errorf("%s: the file has the headers %v and requires %v; sent are %v and at least %v", name, has, h.Required, want[0], want[1])
		}
	}
}

// webhookHeaders are those of a request that begin with webhook-.
func webhookHeaders(t *testing.T) (names []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, end := hook(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for _, n := range []string{receiver.HeaderID, receiver.HeaderTimestamp, receiver.HeaderSignature, receiver.HeaderKeyID} {
				if r.Header.Get(n) != "" {
					names = append(names, n)
				}
			}
		}), nil)
		defer end()
		if errs := s.Deliver(t.Context(), story(1, 1)); errs[0] != nil {
			t.Error(errs)
		}
	})
	return names
}
