package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/coffer-ledger/coffer/ledger/event"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// consumer is a webhook's receiver with an inbox by event id.
type consumer struct {
	*httptest.Server
	mu      sync.Mutex
	ids     map[string]bool
	entries map[string]bool   // what the events were of
	last    map[string]uint64 // sequence by key, of first deliveries
	late    []string
	total   int
}

func newConsumer(t *testing.T) *consumer {
	c := &consumer{ids: map[string]bool{}, entries: map[string]bool{}, last: map[string]uint64{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the process was killed
		}
		e, err := event.Parse(body)
		if err != nil {
			t.Error(err)
			return
		}
		c.take(e)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *consumer) take(e *event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total++; c.ids[e.ID()] {
		return
	}
	c.ids[e.ID()] = true
	c.entries[fmt.Sprintf("%d/%d", e.Bucket.Index, e.Entry.Seq)] = true
	if e.Sequence() <= c.last[e.Key()] {
		c.late = append(c.late, e.ID())
	}
	c.last[e.Key()] = e.Sequence()
}

// env is what a node needs to deliver here, and so long after a kill.
func (c *consumer) env(lease string) []string {
	return []string{"COFFER_RELAY_PRIVATE_WEBHOOKS=true", "COFFER_RELAY_LEASE=" + lease}
}

// attach makes the sink, in the first round.
func (c *consumer) attach(t *testing.T, client *rpc.Client) {
	t.Helper()
	config, err := structpb.NewStruct(map[string]any{"kind": "webhook", "webhook": map[string]any{
		"url": c.URL, "insecure": true, "keys": []any{map[string]any{"id": "1", "secret": receiver.NewSecret()}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateSink(t.Context(), &cofferv1.CreateSinkRequest{
		Name: "consumer", Config: config, Start: &cofferv1.EventStart{At: &cofferv1.EventStart_Beginning{Beginning: true}},
	}); err != nil {
		t.Fatal(err)
	}
}

// complete starts the store once more, and waits until the consumer has every
// event of the ledger: each once by its inbox, and no other.
func (c *consumer) complete(t *testing.T, dir string) {
	t.Helper()
	s := serveEnv(t, dir, c.env("3s")) // a slow machine keeps it, too
	client := rpc.NewClient(s.url)
	defer client.Close()
	want := map[string]bool{}
	req := &cofferv1.ListEntriesRequest{Budget: "B", PageSize: 1000}
	for {
		page, err := client.ListEntries(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.GetEntries() {
			if e.GetType() != cofferv1.EntryType_ENTRY_TYPE_MOVE_IN && e.GetType() != cofferv1.EntryType_ENTRY_TYPE_MOVE_OUT {
				want[fmt.Sprintf("%d/%d", e.GetBucket(), e.GetSeq())] = true
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	waitFor(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.entries) >= len(want) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range want {
		if !c.entries[e] {
			t.Errorf("entry %s was never delivered", e)
		}
	}
	if len(c.entries) != len(want) || len(c.ids) != len(want) || len(c.late) > 0 {
		t.Errorf("%d entries and %d ids were delivered, the ledger has %d; %d came late", len(c.entries), len(c.ids), len(want), len(c.late))
	}
	t.Logf("%d events, %d deliveries", len(want), c.total)
	s.end(t)
}
