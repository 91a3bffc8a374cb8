package sink

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Each delivers a batch of 512 events, of as many keys, to a receiver in this
// process that does nothing with them.

func benchmark(b *testing.B, s Sink) {
	events := story(512, 1)
	n := 0
	for b.Loop() {
		for _, e := range events {
			binary.BigEndian.PutUint64(e.At.Stamp[:], uint64(n)) // new ids
		}
		for _, err := range s.Deliver(b.Context(), events) {
			if err != nil {
				b.Fatal(err)
			}
		}
		n += len(events)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkWebhook(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer srv.Close()
	s, err := Open(Config{Kind: KindWebhook, Webhook: &Webhook{URL: srv.URL, Insecure: true, Keys: []Key{{ID: "k", Secret: secretOne}}}}, Deps{Private: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	benchmark(b, s)
}

func BenchmarkNATS(b *testing.B) {
	srv := natsServer(b, b.TempDir(), server.RANDOM_PORT)
	defer stop(srv)
	s := openNATS(b, srv, nil)
	streamOf(b, s, -1)
	benchmark(b, s)
}

func BenchmarkKafka(b *testing.B) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, testTopic))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	benchmark(b, openKafka(b, c, nil))
}
