package sink

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// A server that never answers the call: Deliver keeps to its time all the same,
// and Close ends the attempt.
func TestNATSConnectsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		s, err := Open(Config{Kind: KindNATS, NATS: &NATS{Servers: []string{"nats://a.example:4222", "nats://b.example:4222"}}}, Deps{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { dials++; <-ctx.Done(); return nil, ctx.Err() },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		errs := s.Deliver(ctx, story(1, 2))
		if errorsOf(errs) != "trouble held" || time.Since(start) != time.Second || !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("%v after %s", errs, time.Since(start))
		}
		// Two more calls wait for the same attempt, up to its end.
		done := make(chan error, 2)
		for range cap(done) {
			go func() { done <- s.Ping(t.Context()) }()
		}
		for range cap(done) {
			if err := <-done; err == nil || !strings.Contains(err.Error(), "nats: connect") {
				t.Error(err)
			}
		}
		if dials != 2 || time.Since(start) != 2*dialTimeout {
			t.Errorf("%d dials in %s", dials, time.Since(start))
		}
		go func() { done <- s.Ping(t.Context()) }()
		synctest.Wait()
		_ = s.Close()
		if err := <-done; err == nil || time.Since(start) != 2*dialTimeout {
			t.Errorf("after Close: %v, %s", err, time.Since(start))
		}
	})
}
