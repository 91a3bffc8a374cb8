package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/coffer-ledger/coffer/ledger/event"
)

// KafkaHeaderPrefix begins the names of the headers that carry attributes over
// Kafka.
const KafkaHeaderPrefix = "ce_"

// metadataMinAge is how soon after one look the client may look again for who
// leads the partitions.
const metadataMinAge = 500 * time.Millisecond

// kafka produces to one topic, idempotently, as CloudEvents in the binary mode of
// the Kafka binding. The record's key is the event's, so that a key's events are
// in one partition of the topic, in order.
//
// As with NATS, a key has one record under way.
type kafka struct {
	topic  string
	client *kgo.Client
}

func newKafka(k *Kafka, d Deps) (*kafka, error) {
	timeout := or(k.Timeout, DefaultTimeout)
	dial := d.dialer()
	if !k.Plaintext {
		c, err := k.TLS.config()
		if err != nil {
			return nil, err
		}
		dial = overTLS(dial, c)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.Brokers...), kgo.ClientID(natsClient), kgo.Dialer(dial), kgo.DefaultProduceTopic(k.Topic),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordDeliveryTimeout(timeout), kgo.ProduceRequestTimeout(timeout), kgo.RetryTimeout(timeout),
		kgo.MetadataMinAge(metadataMinAge),
		// A record whose answer is lost is given up when the time is over, and
		// sent again later: a duplicate, which has the same id.
		kgo.AllowIdempotentProduceCancellation(),
	}
	switch user, pass := k.User, string(k.Password); k.Mechanism {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: user, Pass: pass}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return &kafka{topic: k.Topic, client: client}, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func overTLS(dial dialFunc, c *tls.Config) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := c.Clone()
		if c.ServerName == "" {
			if c.ServerName, _, err = net.SplitHostPort(address); err != nil {
				c.ServerName = address
			}
		}
		t := tls.Client(conn, c)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return t, nil
	}
}

func (k *kafka) Deliver(ctx context.Context, events []*event.Event) []error {
	return inRounds(ctx, events, k.produce)
}

func (k *kafka) produce(ctx context.Context, events []*event.Event) []error {
	errs := make([]error, len(events))
	records := make([]*kgo.Record, 0, len(events))
	places := make(map[*kgo.Record]int, len(events))
	for i, e := range events {
		r, err := record(e)
		if err != nil {
			errs[i] = err
			continue
		}
		places[r] = i
		records = append(records, r)
	}
	for _, res := range k.client.ProduceSync(ctx, records...) {
		errs[places[res.Record]] = kafkaError(res.Err)
	}
	return errs
}

func kafkaError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord):
		return &Refused{Reason: cut(err.Error())}
	default:
		return &Trouble{Err: fmt.Errorf("kafka: produce: %w", err)}
	}
}

func record(e *event.Event) (*kgo.Record, error) {
	attrs, data, err := e.Attributes()
	if err != nil {
		return nil, err
	}
	r := &kgo.Record{Key: []byte(e.Key()), Value: data}
	for _, a := range attrs {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: KafkaHeaderPrefix + a.Name, Value: []byte(a.Value)})
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: "content-type", Value: []byte(event.DataContentType)})
	return r, nil
}

// Ping asks the cluster about the topic. It produces nothing: the topic would
// keep it for its consumers.
func (k *kafka) Ping(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(k.topic)
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return &Trouble{Err: fmt.Errorf("kafka: %w", err)}
	}
	for _, t := range res.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return &Trouble{Err: fmt.Errorf("kafka: topic %s: %w", k.topic, err)}
		}
	}
	return nil
}

func (k *kafka) Close() error {
	k.client.Close()
	return nil
}
