package sink

import (
	"context"
	"errors"
	"testing"
)

// A call that is out of time sends nothing and says so, in every driver.
func TestOutOfTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []Config{
		{Kind: KindWebhook, Webhook: &Webhook{URL: "https://shop.example/hook", Keys: []Key{{ID: "k", Secret: secretOne}}}},
		{Kind: KindNATS, NATS: &NATS{Servers: []string{"nats://nats.example:4222"}}},
		{Kind: KindKafka, Kafka: &Kafka{Brokers: []string{"kafka.example:9092"}, Topic: "t"}},
	} {
		s, err := Open(c, Deps{Dial: newPipes().dial})
		if err != nil {
			t.Fatal(err)
		}
		errs := s.Deliver(ctx, story(2, 2))
		if got := errorsOf(errs); got != "trouble trouble held held" || !errors.Is(errs[0], context.Canceled) {
			t.Errorf("%s: %v", c.Kind, errs)
		}
		if errs := s.Deliver(ctx, nil); len(errs) != 0 {
			t.Errorf("%s: %v for no events", c.Kind, errs)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", c.Kind, err)
		}
	}
	if _, err := Open(Config{Kind: "smtp"}, Deps{}); err == nil {
		t.Error("a sink of an unknown kind was opened")
	}
}
