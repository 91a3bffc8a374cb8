package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/node/election"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/rpc/access"
)

func TestClusterConfig(t *testing.T) {
	certFile, keyFile, _ := certificate(t)
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // part of the error; empty: none
	}{
		"loopback":       {func(c *Config) { c.Cluster.Peers = "test=127.0.0.1:1,n2=127.0.0.1:2" }, ""},
		"not a member":   {func(c *Config) { c.Cluster.Peers = "n1=127.0.0.1:1" }, `cluster.peers do not name this node, "test"`},
		"malformed":      {func(c *Config) { c.Cluster.Peers = "test" }, `cluster.peers: peer "test" is not ID=HOST:PORT`},
		"plain text":     {func(c *Config) { c.Cluster.Peers = "test=10.0.0.1:1" }, `cluster.raft_listen is "10.0.0.1:1" (allowed: a loopback address`},
		"behind another": {func(c *Config) { c.Cluster.Peers, c.Insecure = "test=10.0.0.1:1", true }, ""},
		"tls without ca": {func(c *Config) {
			c.Cluster.Peers, c.TLS = "test=10.0.0.1:1", TLS{certFile, keyFile}
		}, "cluster.ca_file"},
		"tls": {func(c *Config) {
			c.Cluster.Peers, c.TLS, c.Cluster.CAFile = "test=10.0.0.1:1", TLS{certFile, keyFile}, certFile
		}, ""},
		"ca without tls": {func(c *Config) { c.Cluster.CAFile = certFile }, `cluster.ca_file is`},
		"advertised":     {func(c *Config) { c.Cluster.Advertise = "http://10.0.0.1:7420" }, ""},
		"everywhere": {func(c *Config) {
			c.Listen, c.Insecure, c.Cluster.Advertise = "0.0.0.0:7420", true, advertiseAuto
		}, `cluster.advertise is "auto" (allowed: http://HOST:PORT`},
		"open to all": {func(c *Config) {
			c.Listen, c.TLS, c.Cluster.Advertise = "10.0.0.1:7420", TLS{certFile, keyFile}, "https://10.0.0.1:7420"
		}, `cluster.ca_file is "" (allowed:`},
		"for nodes": {func(c *Config) {
			c.Listen, c.TLS, c.Cluster.Advertise, c.Cluster.CAFile = "10.0.0.1:7420", TLS{certFile, keyFile}, advertiseAuto, certFile
		}, ""},
		"not a url":    {func(c *Config) { c.Cluster.Advertise = "10.0.0.1:7420" }, `cluster.advertise is "10.0.0.1:7420" (allowed: http://HOST:PORT, auto, or empty)`},
		"tokens alone": {func(c *Config) { c.Tokens = "t.yaml" }, ""},
		"tokens among strangers": {func(c *Config) {
			c.Tokens, c.Cluster.Advertise = "t.yaml", advertiseAuto
		}, `cluster.ca_file is "" (allowed: the authority of the nodes, with tls.cert_file and tls.key_file, where tokens and cluster.advertise or cluster.peers are set`},
		"tokens among peers": {func(c *Config) {
			c.Tokens, c.Cluster.Peers, c.Insecure = "t.yaml", "test=10.0.0.1:1", true
		}, `cluster.ca_file is ""`},
		"tokens and certificates": {func(c *Config) {
			c.Tokens, c.Cluster.Advertise, c.TLS, c.Cluster.CAFile = "t.yaml", advertiseAuto, TLS{certFile, keyFile}, certFile
		}, ""},
		"no directory": {func(c *Config) { c.Cluster.Peers, c.Cluster.DataDir = "test=127.0.0.1:1", "" }, "cluster.data_dir"},
		"no patience":  {func(c *Config) { c.Cluster.Peers, c.Cluster.ElectionTimeout = "test=127.0.0.1:1", time.Millisecond }, "cluster.election_timeout is 1ms"},
	} {
		cfg := testConfig()
		c.change(&cfg)
		err := cfg.Validate()
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A node with peers (here itself alone) leads by election, over TLS, and a
// second start leads in a later term.
func TestElected(t *testing.T) {
	cfg := testConfig()
	cfg.TLS.CertFile, cfg.TLS.KeyFile, _ = certificate(t)
	cfg.Cluster.Peers, cfg.Cluster.DataDir = "test=127.0.0.1:0", filepath.Join(t.TempDir(), "raft")
	cfg.Cluster.ElectionTimeout, cfg.Cluster.CAFile = 50*time.Millisecond, cfg.TLS.CertFile
	engine, prefix := testengine.Open(t)
	last := uint64(0)
	for range 2 {
		n, err := New(cfg, Deps{
			OpenStore: func(context.Context) (kv.Store, error) { return open{engine}, nil },
			Prefix:    prefix, StoreKind: "embedded", Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		var p *parts
		r := start(t, n, func(ctx context.Context) error {
			ln, err := n.listen(ctx)
			if err != nil {
				return err
			}
			if p, err = n.assemble(ctx, open{engine}); err != nil {
				return err
			}
			return n.serve(ctx, ln, p)
		})
		until(t, "an election", func() bool { return p.leader.Status().Leading })
		if s := p.leader.Status(); s.Term <= last || s.Leader != "test" {
			t.Errorf("status %+v after term %d", s, last)
		}
		last = p.leader.Status().Term
		until(t, "the scanners to run", func() bool { return p.expiry.Status(t.Context()).Passes > 0 && p.work.Status(t.Context()).Passes > 0 })
		r.stop()
		if err := r.ended(t); err != nil {
			t.Error(err)
		}
		if s := p.expiry.Status(t.Context()); s.Running || p.leader.Status().Leading {
			t.Errorf("after the end: %+v, %+v", s, p.leader.Status())
		}
	}
	cfg.Cluster.CAFile = filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(cfg.Cluster.CAFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "it holds no certificate") {
		t.Errorf("without an authority: %v", err)
	}
}

// lines is a log that hands on each line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A node whose peers are not there takes commands and is ready, and warns that
// nobody leads.
func TestNobodyLeads(t *testing.T) {
	cfg := testConfig()
	cfg.Cluster.Peers, cfg.Cluster.ElectionTimeout = "test=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3", 50*time.Millisecond
	cfg.Expiry.StallAfter = 200 * time.Millisecond
	log := make(lines, 1<<10)
	deps := testDeps(t, nil)
	deps.Log = zerolog.New(log).Level(zerolog.WarnLevel)
	deps.Raft = func() (election.Parts, error) {
		_, trans := raft.NewInmemTransport("127.0.0.1:1")
		data := raft.NewInmemStore()
		return election.Parts{Transport: trans, Logs: data, Stable: data, Close: trans.Close}, nil
	}
	n, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	select {
	case l := <-log:
		if !strings.Contains(l, `"silent_peers":["n2=127.0.0.1:2","n3=127.0.0.1:3"]`) || !strings.Contains(l, "this node finds no leader") {
			t.Errorf("the node warns: %s", l)
		}
	case <-time.After(patience):
		t.Fatal("the node does not warn")
	}
	if code, body := get(t, r.url+"/readyz"); code != 200 {
		t.Errorf("readiness: %d, %s", code, body)
	}
	if _, body := get(t, r.url+"/metrics"); !strings.Contains(body, "\ncoffer_leader 0\n") {
		t.Error("coffer_leader is not 0")
	}
	c := rpc.NewClient(r.url)
	defer c.Close()
	fund(t, c, 1)
	if err := reserve(t.Context(), c, "o1", time.Hour); err != nil {
		t.Error(err)
	}
	r.stop()
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
}

// open is an engine that outlives its nodes.
type open struct{ kv.Store }

// Close leaves the engine open.
func (open) Close() error { return nil }

// pair runs two nodes of this process over one store, with certificates of one
// authority. pool is for callers.
func pair(t *testing.T, change func(*Config)) (nodes []*parts, urls []string, pool *x509.CertPool) {
	t.Helper()
	testengine.OnlyEmbedded(t, "it shares one store among nodes of this process")
	certFile, keyFile, pool := certificate(t)
	engine := testengine.Embedded(t, vfs.NewMem(), nil)
	for _, id := range []string{"n1", "n2"} {
		cfg := testConfig()
		cfg.NodeID, cfg.TLS = id, TLS{certFile, keyFile}
		cfg.Cluster.CAFile, cfg.Cluster.Advertise = certFile, advertiseAuto
		cfg.Cluster.Heartbeat, cfg.Cluster.DeadAfter, cfg.Cluster.ForwardTimeout = 20*time.Millisecond, time.Minute, time.Minute
		change(&cfg)
		n, err := New(cfg, Deps{
			OpenStore: func(context.Context) (kv.Store, error) { return open{engine}, nil }, StoreKind: "embedded", Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		var p *parts
		r := start(t, n, func(ctx context.Context) error {
			ln, err := n.listen(ctx)
			if err != nil {
				return err
			}
			if p, err = n.assemble(ctx, open{engine}); err != nil {
				return err
			}
			return n.serve(ctx, ln, p)
		})
		nodes, urls = append(nodes, p), append(urls, r.url)
	}
	until(t, "the nodes to see each other", func() bool { return nodes[0].members.Live() == 2 && nodes[1].members.Live() == 2 })
	return nodes, urls, pool
}

// Between nodes that have certificates of one authority commands are forwarded
// over mutual TLS, and nobody else can forward any. With tokens it is the same:
// the first node asks its caller, and no token makes a caller a node.
func TestForwardOverTLS(t *testing.T) {
	file, token := tokensFile(t, access.Operator)
	for name, tokens := range map[string]string{"without tokens": "", "with tokens": file} {
		t.Run(name, func(t *testing.T) {
			nodes, urls, pool := pair(t, func(c *Config) { c.Tokens = tokens })
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
			defer tr.CloseIdleConnections()
			if tokens != "" {
				nobody := rpc.NewClient(urls[0], rpc.WithHTTPClient(&http.Client{Transport: tr}))
				if err := reserve(t.Context(), nobody, "o", time.Hour); rpc.ReasonOf(err) != ledger.Unauthenticated {
					t.Errorf("a caller without a token: %v", err)
				}
			}
			c := rpc.NewClient(urls[0], rpc.WithHTTPClient(&http.Client{Transport: tr}), rpc.WithToken(token))
			fund(t, c, 16)
			for i := range 32 {
				if err := reserve(t.Context(), c, fmt.Sprint("o", i), time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			if s := nodes[0].exec.Stats(); s.Forwarded == 0 || s.ForwardFailed != 0 || s.RanHere != 0 {
				t.Errorf("first node: %+v", s)
			}
			cmds := []ledger.Command{{Op: ledger.OpRelease, Key: ledger.OrderKey{Tenant: "default", Order: "o1", Benefit: "b"}}}
			// It knows the server and has a caller's token, and shows no certificate.
			stranger := rpc.NewPeerClientOver("n2", withHeader{tr, "Authorization", "Bearer " + token})
			if got, err := stranger.Forward(t.Context(), urls[0], nodes[0].members.Start(), cmds); err == nil {
				t.Errorf("a client without a certificate forwards: %+v", got)
			}
			got, err := nodes[1].peers.Forward(t.Context(), urls[0], nodes[0].members.Start(), cmds)
			if err != nil || got[0].Err != nil {
				t.Errorf("a node: %+v, %v", got, err)
			}
		})
	}
}

// withHeader adds a header to each request.
type withHeader struct {
	http.RoundTripper
	name, value string
}

// RoundTrip sends the request with the header.
func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return h.RoundTripper.RoundTrip(r)
}
