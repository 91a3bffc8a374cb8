package sink

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/coffer-ledger/coffer/rpc/receiver"
)

const otherSource = "https://ledger.example.com/eu"

// Two installations whose events have the same ids, into the same stream: the
// server drops neither's, and their sources tell them apart.
func TestNATSOfTwoInstallations(t *testing.T) {
	srv := natsServer(t, t.TempDir(), server.RANDOM_PORT)
	defer stop(srv)
	s := openNATS(t, srv, nil)
	st := streamOf(t, s, -1)
	ours, theirs := story(1, 3), story(1, 3)
	for _, e := range theirs {
		e.Source = otherSource
	}
	relay(t, s, ours, nil)
	relay(t, s, theirs, nil)
	relay(t, s, theirs, nil) // again: dropped
	info, err := st.Info(patient(t))
	if err != nil || info.State.Msgs != 6 {
		t.Fatalf("the stream has %+v, %v", info, err)
	}
	for seq := range uint64(6) {
		m, err := st.GetMsg(patient(t), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		id, source := ours[seq%3].ID(), "/coffer/t.1%2520%25C3%25A4" // percent-encoded as all headers
		msgID := id
		if seq >= 3 {
			msgID, source = otherSource+"/"+id, otherSource+"/t.1%2520%25C3%25A4"
		}
		if m.Header.Get("ce-source") != source || m.Header.Get("ce-id") != id || m.Header.Get(nats.MsgIdHdr) != msgID {
			t.Errorf("message %d: %v", seq+1, m.Header)
		}
	}
}

func TestKafkaSource(t *testing.T) {
	c := kafkaCluster(t)
	s := openKafka(t, c, nil)
	e := story(1, 1)
	e[0].Source = otherSource
	relay(t, s, e, nil)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(testTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	f := cl.PollFetches(patient(t))
	if f.Err() != nil || f.NumRecords() != 1 {
		t.Fatalf("%d records, %v", f.NumRecords(), f.Err())
	}
	want := kgo.RecordHeader{Key: "ce_source", Value: []byte(otherSource + "/t.1%20%C3%A4")}
	if h := f.Records()[0].Headers; !slices.ContainsFunc(h, func(h kgo.RecordHeader) bool { return h.Key == want.Key && string(h.Value) == string(want.Value) }) {
		t.Errorf("headers %v", h)
	}
}

func TestWebhookSource(t *testing.T) {
	got := make(chan string, 2)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct{ Type, Source string }
		if raw, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(raw, &e) != nil {
			t.Errorf("body %s, %v", raw, err)
		}
		got <- e.Type + " " + e.Source
	}))
	defer hook.Close()
	s, err := Open(Config{Kind: KindWebhook, Webhook: &Webhook{
		URL: hook.URL, Insecure: true, Timeout: Duration(time.Minute), Keys: []Key{{ID: "k", Secret: Secret(receiver.NewSecret())}},
	}}, Deps{Private: true, Source: otherSource})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(patient(t)); err != nil {
		t.Error(err)
	}
	e := story(1, 1)
	e[0].Source = otherSource
	relay(t, s, e, nil)
	for _, want := range []string{PingType + " " + otherSource, e[0].Type() + " " + otherSource + "/t.1%20%C3%A4"} {
		if g := <-got; g != want {
			t.Errorf("got %s, want %s", g, want)
		}
	}
}
