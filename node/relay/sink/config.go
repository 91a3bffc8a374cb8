package sink

import "time"

// Kind is what a sink speaks.
type Kind string

// Kinds.
const (
	KindWebhook Kind = "webhook"
	KindNATS    Kind = "nats"
	KindKafka   Kind = "kafka"
)

// Bounds and defaults of a Config.
const (
	MaxURL             = 2048
	MaxServers         = 16
	MaxText            = 255 // topics, subjects, names of users
	MaxPEM             = 64 << 10
	MaxSecret          = 4096
	MaxConcurrency     = 64
	DefaultConcurrency = 8
	MinTimeout         = 100 * time.Millisecond
	MaxTimeout         = 2 * time.Minute
	DefaultTimeout     = 10 * time.Second
	DefaultFailures    = 5
	MaxFailures        = 1000
	DefaultOpen        = 10 * time.Second
	MaxOpen            = time.Hour
)

// Config says where a sink's receiver is and how to speak to it: Kind, and the
// one of the three that belongs to it. Encode is its stored form.
type Config struct {
	Kind    Kind     `json:"kind"`
	Webhook *Webhook `json:"webhook,omitempty"`
	NATS    *NATS    `json:"nats,omitempty"`
	Kafka   *Kafka   `json:"kafka,omitempty"`
}

// Webhook posts each event to a URL.
type Webhook struct {
	// URL is https, or with Insecure also http.
	URL      string `json:"url"`
	Insecure bool   `json:"insecure,omitempty"`
	// Keys sign the requests: the first signs, the rest are those that
	// receivers may still know. To rotate, put a new key first once the
	// receiver has it.
	Keys []Key `json:"keys"`
	// Timeout bounds one request. 0 means DefaultTimeout.
	Timeout Duration `json:"timeout,omitempty"`
	// Concurrency is how many keys are sent at once. 0 means
	// DefaultConcurrency.
	Concurrency int     `json:"concurrency,omitempty"`
	Circuit     Circuit `json:"circuit,omitzero"`
	TLS         TLS     `json:"tls,omitzero"`
}

// Key is a key of webhook signatures; receiver.ParseSecret has its form.
type Key struct {
	ID     string `json:"id"`
	Secret Secret `json:"secret"`
}

// Circuit leaves a receiver alone that keeps failing: after so many requests in
// a row that failed, none is sent for as long as Open says, then one to see.
type Circuit struct {
	// Failures is 0 for DefaultFailures.
	Failures int `json:"failures,omitempty"`
	// Open is 0 for DefaultOpen.
	Open Duration `json:"open,omitempty"`
}

// NATS publishes to JetStream; a stream must cover the subjects.
type NATS struct {
	// Servers are URLs, nats://host:port or tls://host:port.
	Servers []string `json:"servers"`
	// Subject may hold {tenant} and {type}; DefaultSubject where empty.
	Subject string `json:"subject,omitempty"`
	// User and Password, or Token, or a user's NKeySeed; or none.
	User     string   `json:"user,omitempty"`
	Password Secret   `json:"password,omitempty"`
	Token    Secret   `json:"token,omitempty"`
	NKeySeed Secret   `json:"nkey_seed,omitempty"`
	Timeout  Duration `json:"timeout,omitempty"`
	TLS      TLS      `json:"tls,omitzero"`
}

// DefaultSubject is where NATS events go: coffer.TENANT.TYPE without "coffer."
// in front of the type.
const DefaultSubject = "coffer.{tenant}.{type}"

// Kafka produces records with the event's key as theirs.
type Kafka struct {
	// Brokers are host:port, some of the cluster's.
	Brokers []string `json:"brokers"`
	Topic   string   `json:"topic"`
	// Mechanism of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or empty for
	// none.
	Mechanism string `json:"mechanism,omitempty"`
	User      string `json:"user,omitempty"`
	Password  Secret `json:"password,omitempty"`
	// Plaintext speaks without TLS.
	Plaintext bool     `json:"plaintext,omitempty"`
	Timeout   Duration `json:"timeout,omitempty"`
	TLS       TLS      `json:"tls,omitzero"`
}

// TLS is how the receiver is known, and this side to it. Empty means the
// machine's roots and no certificate of one's own.
type TLS struct {
	// CA are PEM certificates that take the place of the machine's roots.
	CA string `json:"ca,omitempty"`
	// Cert and Key are the client's, in PEM.
	Cert string `json:"cert,omitempty"`
	Key  Secret `json:"key,omitempty"`
	// ServerName is expected in place of the host that was dialled.
	ServerName string `json:"server_name,omitempty"`
}
