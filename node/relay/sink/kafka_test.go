package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/coffer-ledger/coffer/ledger/event"
)

const testTopic = "coffer.events"

func kafkaCluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(3, testTopic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openKafka(t testing.TB, c *kfake.Cluster, change func(*Kafka)) Sink {
	t.Helper()
	k := &Kafka{Brokers: c.ListenAddrs(), Topic: testTopic, Plaintext: true, Timeout: Duration(time.Minute)}
	if change != nil {
		change(k)
	}
	s, err := Open(Config{Kind: KindKafka, Kafka: k}, Deps{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// consume reads n records, of all partitions, and checks each.
func consume(t *testing.T, c *kfake.Cluster, n int) *inbox {
	t.Helper()
	total := 0
	for _, p := range c.PartitionInfos(testTopic) {
		total += int(p.HighWatermark)
	}
	if total != n {
		t.Fatalf("the topic has %d records, want %d", total, n)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(testTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	in := newInbox()
	for in.total < n {
		f := cl.PollFetches(t.Context())
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			e, err := event.FromAttributes(func(name string) string { return headers[KafkaHeaderPrefix+name] }, r.Value)
			if err != nil {
				t.Fatalf("%v: %v", headers, err)
			}
			if string(r.Key) != e.Key() || headers["content-type"] != "application/json" || e.Entry.Correlation != "cart ü 7" {
				t.Errorf("record %q: %v", r.Key, headers)
			}
			in.add(e)
		})
	}
	return in
}

func TestKafka(t *testing.T) {
	c := kafkaCluster(t)
	s := openKafka(t, c, nil)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	events := story(20, 10)
	// Answers that are lost after the record was taken: the client sends it
	// again, and the broker knows it.
	lost := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 5})
	relay(t, s, events, nil)
	if lost.Hits() != 5 {
		t.Errorf("%d answers were lost, want 5", lost.Hits())
	}
	in := consume(t, c, 200)
	in.check(t, events)
	if in.total != 200 {
		t.Errorf("%d records of 200 events", in.total)
	}
}

func TestKafkaRefuses(t *testing.T) {
	c := kafkaCluster(t)
	s := openKafka(t, c, nil)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge})
	errs := s.Deliver(t.Context(), story(1, 3))
	if got := errorsOf(errs); got != "refused held held" || !strings.Contains(errs[0].Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("%v", errs)
	}
	events := story(1, 3)
	relay(t, s, events, nil)
	consume(t, c, 3).check(t, events)
}

// The brokers take nothing for a while: the key's later events are held, and all
// arrives once, in order, when they do.
func TestKafkaDown(t *testing.T) {
	c := kafkaCluster(t)
	// Long enough that what comes after the outage is answered in time on a slow
	// machine: what is not comes twice.
	s := openKafka(t, c, func(k *Kafka) { k.Timeout = Duration(5 * time.Second) })
	down := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	events := story(4, 3)
	errs := s.Deliver(t.Context(), events)
	if got := errorsOf(errs); strings.Count(got, "trouble") != 4 || strings.Count(got, "held") != 8 {
		t.Errorf("%v", errs)
	}
	down.Remove()
	relay(t, s, events, nil)
	consume(t, c, 12).check(t, events)
}

func TestKafkaTopicAndLogin(t *testing.T) {
	c := kafkaCluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "coffer", "pass"))
	login := func(k *Kafka) { k.Mechanism, k.User, k.Password = "SCRAM-SHA-256", "coffer", "pass" }
	if err := openKafka(t, c, login).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	patient := openKafka(t, c, func(k *Kafka) { login(k); k.Topic = "another" })
	if err := patient.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "topic another: UNKNOWN_TOPIC_OR_PARTITION") {
		t.Error(err)
	}
	other := openKafka(t, c, func(k *Kafka) { login(k); k.Topic = "another"; k.Timeout = Duration(time.Second) })
	if got := errorsOf(other.Deliver(t.Context(), story(1, 2))); got != "trouble held" {
		t.Error(got)
	}
	wrong := openKafka(t, c, func(k *Kafka) { login(k); k.Password = "wrong"; k.Timeout = Duration(time.Second) })
	if err := wrong.Ping(t.Context()); err == nil {
		t.Error("let in with a wrong password")
	}
	if got := errorsOf(wrong.Deliver(t.Context(), story(1, 2))); got != "trouble held" {
		t.Error(got)
	}
}
