package sink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// Validate returns all that is wrong with the configuration, joined, or nil.
func (c *Config) Validate() error {
	var f faults
	parts := map[Kind]bool{KindWebhook: c.Webhook != nil, KindNATS: c.NATS != nil, KindKafka: c.Kafka != nil}
	if has, known := parts[c.Kind]; !known {
		kind := string(c.Kind)
		if kind == "" {
			kind = "missing"
		}
		f.add("kind", kind, "webhook, nats, kafka")
	} else if !has {
		f.add(string(c.Kind), "missing", "the settings of kind "+string(c.Kind))
	}
	for _, k := range []Kind{KindWebhook, KindNATS, KindKafka} {
		if parts[k] && k != c.Kind && c.Kind != "" {
			f.add(string(k), "there", "only the settings of kind "+string(c.Kind))
		}
	}
	if c.Webhook != nil {
		c.Webhook.check(&f)
	}
	if c.NATS != nil {
		c.NATS.check(&f)
	}
	if c.Kafka != nil {
		c.Kafka.check(&f)
	}
	for name, s := range c.secrets() {
		if *s == Hidden || len(*s) > MaxSecret {
			f.add(name, fmt.Sprintf("%d bytes", len(*s)), fmt.Sprintf("a secret of up to %d bytes, not the placeholder %s", MaxSecret, Hidden))
		}
	}
	slices.SortFunc(f, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(f...)
}

// faults collects what is wrong, field by field.
type faults []error

func (f *faults) add(field string, value any, allowed string) {
	*f = append(*f, fmt.Errorf("%s is %.80s (allowed: %s)", field, fmt.Sprint(value), allowed))
}

func (f *faults) text(field, s string, limit int, required bool) {
	if required && s == "" || len(s) > limit || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.add(field, fmt.Sprintf("%.40q, %d bytes", s, len(s)), fmt.Sprintf("up to %d bytes without control characters", limit))
	}
}

func (f *faults) between(field string, d Duration, least, most time.Duration) {
	if v := time.Duration(d); v != 0 && (v < least || v > most) {
		f.add(field, v, fmt.Sprintf("%s to %s", least, most))
	}
}

func (f *faults) count(field string, n, most int) {
	if n < 0 || n > most {
		f.add(field, n, fmt.Sprintf("1 to %d, 0 for the default", most))
	}
}

func (w *Webhook) check(f *faults) {
	u, err := url.Parse(w.URL)
	switch {
	case err != nil || len(w.URL) > MaxURL || u.Host == "" || u.User != nil || u.Fragment != "":
		f.add("webhook.url", fmt.Sprintf("%q", w.URL), fmt.Sprintf("https://host/path of up to %d bytes, without user and fragment", MaxURL))
	case u.Scheme != "https" && (u.Scheme != "http" || !w.Insecure):
		f.add("webhook.url", fmt.Sprintf("%q", w.URL), "https, or http with insecure: true")
	}
	if len(w.Keys) == 0 || len(w.Keys) > receiver.MaxKeys {
		f.add("webhook.keys", fmt.Sprintf("%d keys", len(w.Keys)), fmt.Sprintf("1 to %d", receiver.MaxKeys))
	}
	seen := map[string]bool{}
	for _, k := range w.Keys {
		if _, err := receiver.ParseKey(k.ID, string(k.Secret)); err != nil {
			*f = append(*f, fmt.Errorf("webhook.keys: %w", err))
		}
		if seen[k.ID] {
			f.add("webhook.keys", fmt.Sprintf("%q twice", k.ID), "each id once")
		}
		seen[k.ID] = true
	}
	f.between("webhook.timeout", w.Timeout, MinTimeout, MaxTimeout)
	f.count("webhook.concurrency", w.Concurrency, MaxConcurrency)
	f.count("webhook.circuit.failures", w.Circuit.Failures, MaxFailures)
	f.between("webhook.circuit.open", w.Circuit.Open, MinTimeout, MaxOpen)
	w.TLS.check("webhook.tls", f)
}

func (n *NATS) check(f *faults) {
	f.servers("nats.servers", n.Servers, func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "nats" || u.Scheme == "tls") && u.Host != "" && u.User == nil
	}, "nats://host:port or tls://host:port, without user")
	f.text("nats.subject", n.Subject, MaxText, false)
	if s := strings.NewReplacer("{tenant}", "x", "{type}", "x").Replace(n.Subject); strings.ContainsAny(s, "{}*> ") || strings.HasPrefix(s, ".") ||
		strings.HasSuffix(s, ".") || strings.Contains(s, "..") || strings.HasPrefix(s, "$") {
		f.add("nats.subject", fmt.Sprintf("%q", n.Subject), "parts joined by dots, with {tenant} and {type} alone in braces")
	}
	f.text("nats.user", n.User, MaxText, n.Password != "")
	ways := 0
	for _, there := range []bool{n.User != "", n.Token != "", n.NKeySeed != ""} {
		if there {
			ways++
		}
	}
	if ways > 1 {
		f.add("nats", "user, token and nkey_seed at once", "one of the three, or none")
	}
	f.between("nats.timeout", n.Timeout, MinTimeout, MaxTimeout)
	n.TLS.check("nats.tls", f)
}

func (k *Kafka) check(f *faults) {
	f.servers("kafka.brokers", k.Brokers, func(s string) bool { return strings.Contains(s, ":") && !strings.Contains(s, "/") }, "host:port")
	f.text("kafka.topic", k.Topic, 249, true)
	if strings.Trim(k.Topic, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || k.Topic == "." || k.Topic == ".." {
		f.add("kafka.topic", fmt.Sprintf("%q", k.Topic), "letters, digits, dot, underscore, dash")
	}
	if !slices.Contains([]string{"", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, k.Mechanism) {
		f.add("kafka.mechanism", fmt.Sprintf("%q", k.Mechanism), "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or empty")
	}
	f.text("kafka.user", k.User, MaxText, k.Mechanism != "")
	f.between("kafka.timeout", k.Timeout, time.Second, MaxTimeout)
	k.TLS.check("kafka.tls", f)
}

func (f *faults) servers(field string, list []string, ok func(string) bool, allowed string) {
	if len(list) == 0 || len(list) > MaxServers {
		f.add(field, fmt.Sprintf("%d", len(list)), fmt.Sprintf("1 to %d", MaxServers))
	}
	for _, s := range list {
		if len(s) > MaxURL || !ok(s) {
			f.add(field, fmt.Sprintf("%q", s), allowed)
		}
	}
}

func (t *TLS) check(field string, f *faults) {
	if len(t.CA) > MaxPEM || len(t.Cert) > MaxPEM {
		f.add(field, fmt.Sprintf("%d and %d bytes", len(t.CA), len(t.Cert)), fmt.Sprintf("certificates of up to %d bytes", MaxPEM))
		return
	}
	f.text(field+".server_name", t.ServerName, MaxText, false)
	if t.Key == Hidden {
		return // said elsewhere
	}
	if _, err := t.config(); err != nil {
		*f = append(*f, fmt.Errorf("%s: %w", field, err))
	}
}

// config is what the standard library takes.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("ca holds no PEM certificate")
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
