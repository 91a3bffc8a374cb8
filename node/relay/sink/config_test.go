package sink

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/rpc/receiver"
)

func fullConfigs() []Config {
	return []Config{
		{Kind: KindWebhook, Webhook: &Webhook{
			URL:     "https://shop.example/hooks?x=1",
			Keys:    []Key{{ID: "k2", Secret: Secret(receiver.NewSecret())}, {ID: "k1", Secret: Secret(receiver.NewSecret())}},
			Timeout: Duration(5 * time.Second), Concurrency: 4, Circuit: Circuit{Failures: 3, Open: Duration(time.Minute)}, TLS: TLS{ServerName: "hooks"},
		}},
		{Kind: KindNATS, NATS: &NATS{Servers: []string{"tls://nats.example:4222"}, Subject: "ledger.{tenant}.{type}", User: "coffer", Password: "hunter-2"}},
		{Kind: KindNATS, NATS: &NATS{Servers: []string{"nats://127.0.0.1:4222"}, Token: "hunter-3"}},
		{Kind: KindKafka, Kafka: &Kafka{Brokers: []string{"a:9092", "b:9092"}, Topic: "coffer.events", Mechanism: "SCRAM-SHA-512", User: "u", Password: "hunter-4"}},
	}
}

func TestConfigCodec(t *testing.T) {
	for _, c := range fullConfigs() {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", c.Kind, err)
		}
		b, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(b)
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Errorf("%s came back as %+v, %v", b, back, err)
		}

		// What is shown has no secret in it, and can be sent back.
		shown, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range c.secrets() {
			for _, text := range []string{string(shown), fmt.Sprintf("%v %+v %#v %s", c.Webhook, c.NATS, c.Kafka, *s)} {
				if *s != "" && strings.Contains(text, string(*s)) {
					t.Errorf("%s is in %s", name, text)
				}
			}
		}
		again, err := ParseConfig(shown)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Validate(); err == nil {
			t.Errorf("%s: the placeholder passed for a secret", shown)
		}
		again.KeepSecrets(&c)
		if !reflect.DeepEqual(again, c) {
			t.Errorf("with the old secrets: %+v, want %+v", again, c)
		}
	}
	for _, s := range []string{`{"kind":"webhook","colour":"red"}`, `{"kind":"webhook"} {}`, `{"kind":"webhook","webhook":{"timeout":"ten"}}`, ``} {
		if _, err := ParseConfig([]byte(s)); err == nil {
			t.Errorf("%s was read", s)
		}
	}
}

// A password that is not shown is not told to another server, nor told it in
// another way.
func TestSecretsStayWithTheirServer(t *testing.T) {
	all := fullConfigs()
	for i, c := range []struct {
		old    Config
		change func(*Config)
		kept   bool
	}{
		{all[1], func(c *Config) { c.NATS.Subject = "other" }, true},
		{all[1], func(c *Config) { c.NATS.Servers[0] = "tls://elsewhere.example:4222" }, false},
		{all[1], func(c *Config) { c.NATS.TLS.ServerName = "elsewhere.example" }, false},
		{all[2], func(c *Config) { c.NATS.Timeout = Duration(time.Second) }, true},
		{all[2], func(c *Config) { c.NATS.Servers = append(c.NATS.Servers, "nats://elsewhere.example:4222") }, false},
		{all[3], func(c *Config) { c.Kafka.Topic = "other" }, true},
		{all[3], func(c *Config) { c.Kafka.Brokers[1] = "elsewhere.example:9092" }, false},
		{all[3], func(c *Config) { c.Kafka.Plaintext = true }, false},
		{all[3], func(c *Config) { c.Kafka.Mechanism = "PLAIN" }, false},
		{all[3], func(c *Config) { c.Kafka.TLS.ServerName = "elsewhere.example" }, false},
	} {
		shown, err := json.Marshal(&c.old)
		if err != nil {
			t.Fatal(err)
		}
		now, err := ParseConfig(shown)
		if err != nil {
			t.Fatal(err)
		}
		c.change(&now)
		now.KeepSecrets(&c.old)
		if err := now.Validate(); (err == nil) != c.kept {
			t.Errorf("case %d: %v, want the secrets kept: %v", i, err, c.kept)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		change func(*Config)
		kind   int
		want   []string
	}{
		{func(c *Config) { c.Kind = "smtp" }, 0, []string{"kind is smtp", "webhook is there"}},
		{func(c *Config) { c.Kind = "" }, 0, []string{"kind is missing (allowed: webhook, nats, kafka)"}},
		{func(c *Config) { c.Webhook = nil }, 0, []string{"webhook is missing"}},
		{func(c *Config) { c.Kafka = &Kafka{} }, 0, []string{"kafka is there", "kafka.brokers is 0", "kafka.topic is"}},
		{func(c *Config) { c.Webhook.URL = "http://a.example/" }, 0, []string{"webhook.url is \"http://a.example/\" (allowed: https, or http with insecure: true)"}},
		{func(c *Config) { c.Webhook.URL = "https://u:p@a.example/" }, 0, []string{"webhook.url"}},
		{func(c *Config) { c.Webhook.URL = "file:///etc/passwd" }, 0, []string{"webhook.url"}},
		{func(c *Config) { c.Webhook.Keys = nil }, 0, []string{"webhook.keys is 0 keys (allowed: 1 to 8)"}},
		{func(c *Config) { c.Webhook.Keys[1].ID = "k2" }, 0, []string{`webhook.keys is "k2" twice`}},
		{func(c *Config) { c.Webhook.Keys[0].Secret = "short" }, 0, []string{`secret of key "k2" is not whsec_`}},
		{
			func(c *Config) {
				c.Webhook.Timeout, c.Webhook.Concurrency, c.Webhook.Circuit = Duration(time.Hour), -1, Circuit{Failures: 1e6, Open: 1}
			}, 0,
			[]string{"webhook.timeout is 1h0m0s (allowed: 100ms to 2m0s)", "webhook.concurrency is -1", "webhook.circuit.failures is 1000000", "webhook.circuit.open is 1ns"},
		},
		{func(c *Config) { c.Webhook.TLS.CA = "no PEM" }, 0, []string{"webhook.tls: ca holds no PEM certificate"}},
		{func(c *Config) { c.Webhook.TLS.Key = "no PEM" }, 0, []string{"webhook.tls: cert and key"}},
		{func(c *Config) { c.NATS.Servers = []string{"http://a"} }, 1, []string{"nats.servers"}},
		{func(c *Config) { c.NATS.Subject = "coffer.>" }, 1, []string{"nats.subject"}},
		{func(c *Config) { c.NATS.Subject = "coffer.{order}" }, 1, []string{"nats.subject"}},
		{func(c *Config) { c.NATS.Token = "t" }, 1, []string{"nats is user, token and nkey_seed at once"}},
		{func(c *Config) { c.NATS.Password = Secret(long) }, 1, []string{"nats.password is 5000 bytes"}},
		{func(c *Config) { c.Kafka.Topic = "a/b" }, 3, []string{`kafka.topic is "a/b"`}},
		{func(c *Config) { c.Kafka.Mechanism = "GSSAPI" }, 3, []string{"kafka.mechanism"}},
		{func(c *Config) { c.Kafka.User = "" }, 3, []string{"kafka.user"}},
		{func(c *Config) { c.Kafka.Brokers = make([]string, MaxServers+1) }, 3, []string{"kafka.brokers is 17 (allowed: 1 to 16)"}},
	} {
		cfg := fullConfigs()[c.kind]
		c.change(&cfg)
		err := cfg.Validate()
		if err == nil {
			t.Errorf("want %q, got no error", c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v\ndoes not say %q", err, w)
			}
		}
	}
}
