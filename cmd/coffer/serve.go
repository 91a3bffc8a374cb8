package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/node"
)

type serveCmd struct {
	Config      string `help:"YAML configuration file (env COFFER_CONFIG)." placeholder:"FILE"`
	Store       string `help:"Where the data is: embedded:DIR, DIR, or fdb:FILE (default: embedded:coffer-data)." placeholder:"STORE"`
	Listen      string `help:"Address to serve on (default: 127.0.0.1:7420)." placeholder:"HOST:PORT"`
	NodeID      string `help:"Id of this node, of no other over the store, and kept in every block it writes (default: the host's name)." name:"node-id" placeholder:"ID"`
	TLSCert     string `help:"Certificate file." name:"tls-cert" placeholder:"FILE"`
	TLSKey      string `help:"Key file of the certificate." name:"tls-key" placeholder:"FILE"`
	Tokens      string `help:"File of the tokens of those who may call; without one everybody may." placeholder:"FILE"`
	Insecure    bool   `help:"Allow an address beyond loopback without TLS."`
	LogLevel    string `help:"debug, info, warn or error (default: info)." placeholder:"LEVEL"`
	LogFormat   string `help:"auto, json or console (default: auto)." placeholder:"FORMAT"`
	PrintConfig bool   `help:"Print every setting with what it is, its default and its variable as a configuration file, and exit."`
	Pprof       bool   `help:"Serve /debug/pprof/ (loopback only)."`
}

// Help is the long help.
func (serveCmd) Help() string {
	return `Settings come from the configuration file, then from COFFER_… variables
(expiry.interval is COFFER_EXPIRY_INTERVAL), then from flags; the later wins.
On SIGINT or SIGTERM the node answers every command it accepted, then ends; a
second signal ends it at once.

--print-config writes a complete, commented configuration file: the defaults,
with what file, variables and flags say in their place. It starts nothing.

Examples:
  coffer serve --store embedded:/var/lib/coffer/store
  coffer serve --print-config >coffer.yaml
  coffer serve --config coffer.yaml --listen 0.0.0.0:7420 --tls-cert c.pem --tls-key k.pem --tokens tokens.yaml`
}

// Run serves.
func (s *serveCmd) Run(c *cli) error {
	cfg, unknown, err := s.config(c)
	if err != nil {
		return usageError{err}
	}
	if s.PrintConfig {
		_, err := c.stdout.Write(cfg.YAML())
		return err
	}
	log, err := newLogger(c.stderr, cfg.Log)
	if err != nil {
		return usageError{err}
	}
	for _, name := range unknown {
		log.Warn().Str("variable", name).Msg("environment variable names no setting")
	}
	return c.serve(cfg, log, nil)
}

// config lays file, environment and flags over the defaults.
func (s *serveCmd) config(c *cli) (cfg node.Config, unknown []string, err error) {
	cfg = node.DefaultConfig()
	if s.Config != "" {
		if err := cfg.LoadFile(s.Config); err != nil {
			return cfg, nil, err
		}
	}
	if unknown, err = cfg.LoadEnv(c.env); err != nil {
		return cfg, unknown, err
	}
	for _, f := range []struct {
		to   *string
		flag string
	}{
		{&cfg.Store, s.Store},
		{&cfg.Listen, s.Listen},
		{&cfg.NodeID, s.NodeID},
		{&cfg.TLS.CertFile, s.TLSCert},
		{&cfg.TLS.KeyFile, s.TLSKey},
		{&cfg.Tokens, s.Tokens},
		{&cfg.Log.Level, s.LogLevel},
		{&cfg.Log.Format, s.LogFormat},
	} {
		if f.flag != "" {
			*f.to = f.flag
		}
	}
	cfg.Insecure = cfg.Insecure || s.Insecure
	cfg.Debug.Pprof = cfg.Debug.Pprof || s.Pprof
	if err := cfg.Validate(); err != nil {
		return cfg, unknown, fmt.Errorf("invalid configuration:\n%w", err)
	}
	return cfg, unknown, nil
}

// serve runs a node until the context ends.
func (c *cli) serve(cfg node.Config, log zerolog.Logger, onReady func(url string)) error {
	loc, err := parseStore(cfg.Store)
	if err != nil {
		return err
	}
	if cfg.Cluster.On() && loc.kind == "embedded" {
		return usagef("cluster.peers is set and the store is %s (allowed: a store that all nodes share, fdb:FILE)", loc)
	}
	n, err := node.New(cfg, node.Deps{
		OpenStore: func(ctx context.Context) (kv.Store, error) { return loc.open(ctx, false) },
		StoreKind: loc.kind, Prefix: loc.keyPrefix(), Version: buildVersion(), Log: log, OnReady: onReady, Collector: collectEngine,
	})
	if err != nil {
		return usageError{err}
	}
	err = n.Run(c.ctx)
	if errors.Is(err, kv.ErrDamaged) {
		return loc.explain(err)
	}
	return err
}

// init makes log times precise enough to order what happens within a second.
// The logging library keeps their form in one place for the whole process.
func init() { zerolog.TimeFieldFormat = time.RFC3339Nano }

// newLogger writes JSON, or readable lines on a terminal.
func newLogger(w io.Writer, cfg node.Log) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		return zerolog.Nop(), fmt.Errorf("log.level: %w", err)
	}
	if cfg.Format == "console" || (cfg.Format == "auto" && terminal(w)) {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000", NoColor: !terminal(w)}
	} else {
		w = zerolog.SyncWriter(w)
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

type devCmd struct {
	Dir    string `help:"Directory of the store (default: ${default})." default:"coffer-dev-data" placeholder:"DIR"`
	Store  string `help:"Where the data is, instead of a directory of dev's own: embedded:DIR, DIR, or fdb:FILE." placeholder:"STORE" xor:"place" empty:"name a store, or leave the flag out to use --dir"`
	Temp   bool   `xor:"place" help:"Keep the store in a new temporary directory, removed at the end."`
	Listen string `help:"Loopback address to serve on (default: ${default})." default:"127.0.0.1:7420" placeholder:"HOST:PORT"`
	Debug  bool   `help:"Log every call."`
}

// Help is the long help.
func (devCmd) Help() string {
	return `Examples:
  coffer dev
  coffer dev --temp --listen 127.0.0.1:7500
  coffer dev --store fdb:/etc/foundationdb/fdb.cluster`
}

// idle names --dir beside what says otherwise where the store is.
func (d *devCmd) idle(given map[string]bool) error {
	if given["dir"] && (d.Temp || d.Store != "") {
		return idleFlag("dir", "without --temp and --store")
	}
	return nil
}

// Run serves with settings for trying things out. It is as durable as serve.
func (d *devCmd) Run(c *cli) (err error) {
	dir := d.Dir
	if d.Temp {
		if dir, err = os.MkdirTemp("", "coffer-dev-"); err != nil {
			return fmt.Errorf("make temporary store: %w", err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	}
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.Store, cfg.NodeID = d.Listen, "embedded:"+dir, "dev"
	if d.Store != "" { // others may run one over it, too
		cfg.Store, cfg.NodeID = d.Store, "dev-"+rand.Text()
	}
	cfg.Log = node.Log{Level: "info", Format: "console"}
	cfg.Expiry.Interval = 500 * time.Millisecond
	cfg.Relay.PrivateWebhooks = true // a receiver on this machine
	cfg.Shutdown.Timeout = 10 * time.Second
	if d.Debug {
		cfg.Log.Level = "debug"
	}
	if err := cfg.Validate(); err != nil {
		open := cfg
		if open.Insecure = true; open.Validate() == nil { // the address is all that is wrong
			return usagef("--listen is %q (allowed: a loopback address, since dev is for this machine alone; coffer serve listens elsewhere)", cfg.Listen)
		}
		return usageError{err}
	}
	log, err := newLogger(c.stderr, cfg.Log)
	if err != nil {
		return err
	}
	return c.serve(cfg, log, func(url string) { c.welcome(url, cfg.Store) })
}

// welcome says what to try.
func (c *cli) welcome(url, place string) {
	at := ""
	if url != "http://"+node.DefaultListen {
		at = " --server " + url
	}
	if dir, ok := strings.CutPrefix(place, "embedded:"); ok {
		if abs, err := filepath.Abs(dir); err == nil {
			place = abs
		}
	}
	c.notef("%s", strings.NewReplacer("$URL", url, "$AT", at, "$DIR", place).Replace(`
coffer serves on $URL, its store is $DIR (Ctrl-C ends it)

try, in another terminal:
  coffer budget create SPRING --currency BRL --buckets 16$AT
  coffer budget fund SPRING --amount 500000.00$AT
  curl -s -H 'Content-Type: application/json' $URL/coffer.v1.ReservationService/Reserve \
    -d '{"orderId":"o-1","benefitKey":"coupon:SPRING","budget":"SPRING","amountMinor":"1250","currency":"BRL","ttl":"900s"}'
  coffer order explain o-1$AT
  coffer audit$AT

`))
}
