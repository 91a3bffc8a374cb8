package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Duration is a time.Duration that is text in JSON, such as "10s".
type Duration time.Duration

// MarshalText writes 1m30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 1m30s.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Hidden stands in for a secret that is not shown.
const Hidden = "***"

// Secret prints as Hidden. Only Config.Encode writes it out.
type Secret string

// String is Hidden, or empty where there is none.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Hidden
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String: what is encoded for people has no secrets.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// secrets lists all places of secrets, each with a name that stays the same when
// keys are reordered.
func (c *Config) secrets() map[string]*Secret {
	m := map[string]*Secret{}
	if w := c.Webhook; w != nil {
		for i := range w.Keys {
			m["webhook.keys."+w.Keys[i].ID] = &w.Keys[i].Secret
		}
		m["webhook.tls.key"] = &w.TLS.Key
	}
	if n := c.NATS; n != nil {
		m["nats.password"], m["nats.token"], m["nats.nkey_seed"], m["nats.tls.key"] = &n.Password, &n.Token, &n.NKeySeed, &n.TLS.Key
	}
	if k := c.Kafka; k != nil {
		m["kafka.password"], m["kafka.tls.key"] = &k.Password, &k.TLS.Key
	}
	return m
}

// stored is a Config and the secrets that its JSON hides.
type stored struct {
	Config  *Config           `json:"config"`
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Encode is the stored form, with the secrets. json.Marshal of a Config is the
// form to show, without them.
func (c *Config) Encode() ([]byte, error) {
	s := stored{Config: c, Secrets: map[string]string{}}
	for name, secret := range c.secrets() {
		if *secret != "" {
			s.Secrets[name] = string(*secret)
		}
	}
	return json.Marshal(s)
}

// Decode reads what Encode wrote.
func Decode(b []byte) (Config, error) {
	s := stored{Config: &Config{}}
	if err := strict(b, &s); err != nil {
		return Config{}, fmt.Errorf("decode sink configuration: %w", err)
	}
	for name, secret := range s.Config.secrets() {
		*secret = Secret(s.Secrets[name])
	}
	return *s.Config, nil
}

// ParseConfig reads a Config as a person writes it: unknown members are errors.
// It does not validate.
func ParseConfig(b []byte) (Config, error) {
	var c Config
	if err := strict(b, &c); err != nil {
		return Config{}, fmt.Errorf("read sink configuration: %w", err)
	}
	return c, nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more after the end")
	}
	return nil
}

// KeepSecrets gives c the secrets of old where it has Hidden: so that a
// configuration that was shown can be changed and sent back. What is told to the
// receiver itself must be given again when the receiver changes, or the way to it:
// whoever may change a sink does not learn its password so.
func (c *Config) KeepSecrets(old *Config) {
	had := old.secrets()
	if c.NATS != nil && old.NATS != nil && !(slices.Equal(c.NATS.Servers, old.NATS.Servers) && c.NATS.TLS.same(&old.NATS.TLS)) {
		delete(had, "nats.password")
		delete(had, "nats.token")
	}
	if k, o := c.Kafka, old.Kafka; k != nil && o != nil &&
		!(slices.Equal(k.Brokers, o.Brokers) && k.Plaintext == o.Plaintext && k.Mechanism == o.Mechanism && k.TLS.same(&o.TLS)) {
		delete(had, "kafka.password")
	}
	for name, secret := range c.secrets() {
		if o := had[name]; *secret == Hidden && o != nil {
			*secret = *o
		}
	}
}

// same reports whether both trust the same receivers.
func (t *TLS) same(o *TLS) bool { return t.CA == o.CA && t.ServerName == o.ServerName }
