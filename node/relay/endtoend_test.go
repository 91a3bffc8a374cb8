package relay

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
	signed "github.com/coffer-ledger/coffer/rpc/receiver"
)

// natsServer runs a NATS server with JetStream in this process.
func natsServer(t *testing.T, dir string, port int) (srv *server.Server, at int) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: loopback(), Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true, JetStreamMaxMemory: 32 << 20, JetStreamMaxStore: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server did not start")
	}
	u, err := url.Parse(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	if at, err = strconv.Atoi(text); err != nil {
		t.Fatal(err)
	}
	return srv, at
}

// loopback is an address of this machine whose ports nobody else uses: one that
// a server gives up is free when it comes back.
func loopback() string {
	const own = "127.83.71.7"
	ln, err := net.Listen("tcp", own+":0")
	if err != nil {
		return "127.0.0.1" // not every system has all of 127.0.0.0/8
	}
	_ = ln.Close()
	return own
}

// patient is a context for calls to a server on a slow machine: those without a
// deadline get five seconds from the NATS client.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// webhook is a receiver whose consumer is w.to; it verifies, loses answers and is
// down at times.
func (w *world) webhook(secret string, rnd *rand.Rand, down func() bool) *httptest.Server {
	w.t.Helper()
	key, err := signed.ParseKey("1", secret)
	if err != nil {
		w.t.Fatal(err)
	}
	verifier, err := signed.NewVerifier(0, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the relay was killed
		}
		if _, err := verifier.Verify(r.Header, body, time.Now()); err != nil {
			w.t.Error(err)
		}
		e, err := event.Parse(body)
		if err != nil {
			w.t.Error(err)
			return
		}
		w.to.mu.Lock()
		defer w.to.mu.Unlock()
		if down() {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.to.take(store.SinkID{Tenant: "t1", Name: "webhook"}, e)
		if rnd.IntN(200) == 0 { // the consumer has it, and its answer is lost
			rw.WriteHeader(http.StatusBadGateway)
		}
	}))
}

// readNATS hands what a stream has to the consumer, in the stream's order.
func (w *world) readNATS(ctx context.Context, js jetstream.JetStream) (total int) {
	w.t.Helper()
	st, err := js.Stream(ctx, "EVENTS")
	if err != nil {
		w.t.Fatal(err)
	}
	for seq := st.CachedInfo().State.FirstSeq; seq <= st.CachedInfo().State.LastSeq && seq > 0; seq++ {
		m, err := st.GetMsg(ctx, seq)
		if err != nil {
			w.t.Fatal(err)
		}
		e, err := event.FromAttributes(func(name string) string {
			v, _ := url.PathUnescape(m.Header.Get(sink.HeaderPrefix + name))
			return v
		}, m.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		w.to.mu.Lock()
		w.to.take(store.SinkID{Tenant: "t1", Name: "nats"}, e)
		w.to.mu.Unlock()
		total++
	}
	return total
}

// readKafka hands what a topic has to the consumer, in the order of each
// partition.
func (w *world) readKafka(c *kfake.Cluster) (total int) {
	w.t.Helper()
	want := 0
	for _, p := range c.PartitionInfos("events") {
		want += int(p.HighWatermark)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	for total < want {
		f := cl.PollFetches(w.t.Context())
		if err := f.Err(); err != nil {
			w.t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			e, err := event.FromAttributes(func(name string) string { return headers[sink.KafkaHeaderPrefix+name] }, r.Value)
			if err != nil {
				w.t.Error(err)
				return
			}
			w.to.mu.Lock()
			w.to.take(store.SinkID{Tenant: "t1", Name: "kafka"}, e)
			w.to.mu.Unlock()
			total++
		})
	}
	return total
}

// create adds a sink of a real driver.
func (w *world) create(c sink.Config) store.SinkID {
	w.t.Helper()
	raw, err := c.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	id := store.SinkID{Tenant: "t1", Name: string(c.Kind)}
	if _, _, err := w.st.CreateSink(context.Background(), store.Sink{SinkID: id, Config: raw}, store.From{}); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// A webhook, a NATS server with JetStream and a Kafka cluster get every event,
// with one effect by the consumer's inbox and in order, while orders run, the
// relay is killed twenty times, receivers are down for a while and answers are
// lost.
func TestEndToEnd(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.open = NewDrivers(sink.Deps{Private: true}).Open
	var mu sync.Mutex
	down := false
	setDown := func(v bool) { mu.Lock(); defer mu.Unlock(); down = v }
	secret := signed.NewSecret()
	hook := w.webhook(secret, rand.New(rand.NewPCG(seed, 2)), func() bool { mu.Lock(); defer mu.Unlock(); return down })
	defer hook.Close()
	dir := t.TempDir()
	srv, port := natsServer(t, dir, -1)
	nc, err := nats.Connect(srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(patient(t), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"coffer.>"}}); err != nil {
		t.Fatal(err)
	}
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	ids := []store.SinkID{
		w.create(sink.Config{Kind: sink.KindWebhook, Webhook: &sink.Webhook{
			URL: hook.URL, Insecure: true, Keys: []sink.Key{{ID: "1", Secret: sink.Secret(secret)}}, Circuit: sink.Circuit{Open: sink.Duration(200 * time.Millisecond)},
		}}),
		w.create(sink.Config{Kind: sink.KindNATS, NATS: &sink.NATS{Servers: []string{fmt.Sprintf("nats://%s:%d", loopback(), port)}}}),
		w.create(sink.Config{Kind: sink.KindKafka, Kafka: &sink.Kafka{Brokers: kafka.ListenAddrs(), Topic: "events", Plaintext: true}}),
	}
	cfg := DefaultConfig()
	cfg.Lease, cfg.MaxBackoff = 200*time.Millisecond, time.Second
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			w.orders(fmt.Sprint("o", i), transitions(2000)/2/50)
			time.Sleep(50 * time.Millisecond)
		}
	}()
	for i := range 20 {
		st := &mortal{Store: w.st}
		st.left.Store(1 + rnd.Int64N(60))
		_, end := w.run(cfg, st, "n")
		time.Sleep(200*time.Millisecond + time.Duration(rnd.Int64N(int64(200*time.Millisecond))))
		switch i {
		case 6:
			setDown(true)
			srv.Shutdown()
			srv.WaitForShutdown()
		case 10:
			srv, _ = natsServer(t, dir, port)
			setDown(false)
		}
		st.dead.Store(true)
		end()
		w.relays.Wait()
	}
	<-done
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	cfg.Lease = 2 * time.Second // now it must come to an end, also where time is short
	_, end := w.run(cfg, w.st, "n")
	w.caughtUp(ids)
	end()
	w.relays.Wait()
	inNATS, inKafka := w.readNATS(patient(t), js), w.readKafka(kafka)
	w.check(ids...)
	t.Logf("%d events; %d webhook deliveries, %d messages in the stream, %d records", len(w.ledgerEvents()), w.to.delivered-inNATS-inKafka, inNATS, inKafka)
}

// caughtUp waits until sinks have nothing before them.
func (w *world) caughtUp(ids []store.SinkID) {
	w.t.Helper()
	ctx := context.Background()
	w.wait("all sinks to catch up", func() bool {
		for _, id := range ids {
			cursors, err := w.st.Cursors(ctx, id)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, c := range cursors {
				if lag, err := w.st.Lag(ctx, c.At, 2); err != nil || lag.Blocks > 0 || c.Parked > 0 {
					return false
				}
			}
		}
		return true
	})
}
