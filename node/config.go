package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay"
	"github.com/coffer-ledger/coffer/node/scan"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/shard"
	"github.com/coffer-ledger/coffer/shard/intake"
)

// DefaultListen is the address of a node that was not told another one. It is
// loopback: nothing outside the machine reaches it.
const DefaultListen = "127.0.0.1:7420"

// Config is everything one node can be told. A zero Config is not valid; start
// from DefaultConfig. The yaml tags are the keys of the configuration file,
// and COFFER_ with the path in upper case names the environment variable:
// expiry.interval is COFFER_EXPIRY_INTERVAL.
type Config struct {
	// NodeID stands in every ledger block this node writes. Of two processes
	// over one store with the same id the second does not start. Default: the
	// host's name.
	NodeID string `yaml:"node_id"`
	// Listen is host:port. Anything but loopback needs TLS, or Insecure.
	Listen string `yaml:"listen"`
	// Insecure allows an address that is not loopback without TLS: for
	// networks where something else encrypts.
	Insecure bool `yaml:"insecure"`
	// Store says where the data is: embedded:DIR (or DIR), fdb:FILE.
	Store string `yaml:"store"`
	// Tokens names the file of those who may call. Empty: everybody may, and
	// names the tenant by a header. It is read again when it changes.
	Tokens string `yaml:"tokens"`

	TLS      TLS             `yaml:"tls"`
	Executor shard.Config    `yaml:"executor"`
	Expiry   scan.Config     `yaml:"expiry"`
	Queue    Queue           `yaml:"queue"`
	Facts    intake.Config   `yaml:"facts"`
	Work     scan.WorkConfig `yaml:"work"`
	Relay    relay.Config    `yaml:"relay"`
	Events   relay.Naming    `yaml:"events"`
	// Rebalance keeps budgets level over their buckets, Adapt gives them
	// another number of buckets, Integrity proves their ledgers.
	Rebalance scan.RebalanceConfig `yaml:"rebalance"`
	Adapt     shard.Adapting       `yaml:"adapt"`
	Integrity scan.IntegrityConfig `yaml:"integrity"`
	HTTP      HTTP                 `yaml:"http"`
	API       rpc.Config           `yaml:"api"`
	Log       Log                  `yaml:"log"`
	Tracing   Tracing              `yaml:"tracing"`
	Shutdown  Shutdown             `yaml:"shutdown"`
	Cluster   Cluster              `yaml:"cluster"`
	Debug     Debug                `yaml:"debug"`
}

// TLS names the certificate of the server. Both or neither.
type TLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// On reports whether the node serves over TLS.
func (t TLS) On() bool { return t.CertFile != "" || t.KeyFile != "" }

// load reads the certificate.
func (t TLS) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load tls certificate %s and key %s: %w", t.CertFile, t.KeyFile, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// HTTP bounds what one connection and one request may take.
type HTTP struct {
	// MaxConnections is the most connections open at once. One more waits
	// in the system's backlog.
	MaxConnections int `yaml:"max_connections"`
	// MaxStreams is the most calls in flight on one HTTP/2 connection.
	MaxStreams int `yaml:"max_streams"`
	// ReadHeaderTimeout bounds the reading of a request's header, IdleTimeout
	// how long an idle connection is kept.
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout"`
	IdleTimeout       time.Duration `yaml:"idle_timeout"`
}

// Queue bounds the queues of one tenant.
type Queue struct {
	// OpenJobs is the most jobs of a tenant that are ready, leased or dead
	// letters, Leases the most jobs of one queue that are leased at once.
	OpenJobs int `yaml:"open_jobs"`
	Leases   int `yaml:"leases"`
}

func (q Queue) limits() store.WorkLimits {
	return store.WorkLimits{OpenJobs: int64(q.OpenJobs), Leases: int64(q.Leases)}
}

// Log says what is logged and how.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `yaml:"level"`
	// Format is json, console, or auto: console on a terminal, else json.
	Format string `yaml:"format"`
}

// Shutdown shapes the drain.
type Shutdown struct {
	// Delay is how long the node answers "not ready" before it stops
	// accepting, so that load balancers notice.
	Delay time.Duration `yaml:"delay"`
	// Timeout bounds the rest: answering every accepted command.
	Timeout time.Duration `yaml:"timeout"`
}

// Debug switches on what production should not have by default.
type Debug struct {
	// Pprof serves /debug/pprof/ on the node's address. Only on loopback.
	Pprof bool `yaml:"pprof"`
}

// DefaultConfig is a node on loopback with its store in ./coffer-data.
func DefaultConfig() Config {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	return Config{
		NodeID:   host,
		Listen:   DefaultListen,
		Store:    "embedded:coffer-data",
		Executor: shard.DefaultConfig(),
		Expiry:   scan.DefaultConfig(),
		Queue:    Queue{OpenJobs: int(store.DefaultWorkLimits().OpenJobs), Leases: int(store.DefaultWorkLimits().Leases)},
		Facts:    intake.DefaultConfig(),
		Work:     scan.DefaultWorkConfig(),
		Relay:    relay.DefaultConfig(),
		Events:   relay.DefaultNaming(),

		Rebalance: scan.DefaultRebalanceConfig(),
		Adapt:     shard.DefaultAdapting(),
		Integrity: scan.DefaultIntegrityConfig(),
		HTTP: HTTP{
			MaxConnections: 4096, MaxStreams: 1024,
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		},
		API:      rpc.DefaultConfig(),
		Log:      Log{Level: "info", Format: "auto"},
		Tracing:  Tracing{OneIn: 100},
		Shutdown: Shutdown{Timeout: 20 * time.Second},
		Cluster:  defaultCluster(),
	}
}

// Validate returns every fault of the configuration, each naming the field,
// its value and what is allowed. It looks at nothing but the configuration.
func (c Config) Validate() error {
	f := &faults{}
	if n := len(c.NodeID); n == 0 || n > ledger.MaxIDBytes {
		f.add("node_id", c.NodeID, fmt.Sprintf("1 to %d bytes", ledger.MaxIDBytes))
	}
	if c.Store == "" {
		f.add("store", "", "embedded:DIR or fdb:FILE")
	}
	c.validateAddress(f)
	f.within("executor", c.Executor.Validate())
	f.within("expiry", c.Expiry.Validate())
	f.within("facts", c.Facts.Validate())
	f.within("work", c.Work.Validate())
	f.within("relay", c.Relay.Validate())
	f.within("events", c.Events.Validate())
	f.within("rebalance", c.Rebalance.Validate())
	f.within("adapt", c.Adapt.Validate())
	f.within("integrity", c.Integrity.Validate())
	f.number("queue.open_jobs", c.Queue.OpenJobs, 1, 1<<30)
	f.number("queue.leases", c.Queue.Leases, 1, 1<<20)
	f.within("api", c.API.Validate())
	f.number("http.max_connections", c.HTTP.MaxConnections, 1, 1<<20)
	f.number("http.max_streams", c.HTTP.MaxStreams, 1, 1<<16)
	f.duration("http.read_header_timeout", c.HTTP.ReadHeaderTimeout, 100*time.Millisecond, 5*time.Minute)
	f.duration("http.idle_timeout", c.HTTP.IdleTimeout, time.Second, time.Hour)
	if l, err := zerolog.ParseLevel(c.Log.Level); err != nil || l < zerolog.DebugLevel || l > zerolog.ErrorLevel {
		f.add("log.level", c.Log.Level, "debug, info, warn or error")
	}
	switch c.Log.Format {
	case "auto", "json", "console":
	default:
		f.add("log.format", c.Log.Format, "auto, json or console")
	}
	c.Tracing.validate(f)
	f.duration("shutdown.delay", c.Shutdown.Delay, 0, 5*time.Minute)
	f.duration("shutdown.timeout", c.Shutdown.Timeout, 100*time.Millisecond, 10*time.Minute)
	c.validateCluster(f)
	c.validateTokens(f)
	return errors.Join(f.all...)
}

// validateAddress refuses an open door: plain text or pprof beyond loopback.
func (c Config) validateAddress(f *faults) {
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		f.all = append(f.all, fmt.Errorf("tls.cert_file is %q and tls.key_file is %q (allowed: both or neither)", c.TLS.CertFile, c.TLS.KeyFile))
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		f.add("listen", c.Listen, "host:port, such as "+DefaultListen)
		return
	}
	if !c.beyondLoopback() {
		return
	}
	if !c.TLS.On() && !c.Insecure {
		f.add("listen", c.Listen, "a loopback address; for any other set tls.cert_file and tls.key_file, or insecure: true where something else encrypts")
	}
	if c.Debug.Pprof {
		f.add("debug.pprof", "true", "false unless listen is a loopback address")
	}
}

// beyondLoopback reports whether other machines may reach the address.
func (c Config) beyondLoopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && !loopback(host)
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// faults collects what is wrong with a configuration.
type faults struct{ all []error }

func (f *faults) add(field, value, allowed string) {
	f.all = append(f.all, fmt.Errorf("%s is %q (allowed: %s)", field, value, allowed))
}

func (f *faults) number(field string, v, low, high int) {
	if v < low || v > high {
		f.all = append(f.all, fmt.Errorf("%s is %d (allowed: %d to %d)", field, v, low, high))
	}
}

func (f *faults) duration(field string, v, low, high time.Duration) {
	if v < low || v > high {
		f.all = append(f.all, fmt.Errorf("%s is %s (allowed: %s to %s)", field, v, low, high))
	}
}

// within takes over the faults of a part, with the part's name before each.
func (f *faults) within(part string, err error) {
	if err == nil {
		return
	}
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		f.all = append(f.all, fmt.Errorf("%s.%w", part, err))
		return
	}
	for _, e := range many.Unwrap() {
		f.all = append(f.all, fmt.Errorf("%s.%w", part, e))
	}
}
