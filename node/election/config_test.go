package election

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

func TestParsePeers(t *testing.T) {
	got, err := ParsePeers("n1=10.0.0.1:7421, n2=host.example:7421")
	if err != nil || len(got) != 2 || got[0] != (Peer{"n1", "10.0.0.1:7421"}) || got[1] != (Peer{"n2", "host.example:7421"}) {
		t.Errorf("peers %v, %v", got, err)
	}
	for _, bad := range []string{"n1", "n1=host", "=host:1", "n1=:1", "n1=h:1,n1=g:1", "n1=h:1,n2=h:1", "n1=h:99999", "n1=h:1,", strings.Repeat("x", 129) + "=h:1"} {
		if got, err := ParsePeers(bad); err == nil || !strings.Contains(err.Error(), "peer") {
			t.Errorf("%.40q gave %v, %v", bad, got, err)
		}
	}
	err = Config{Node: "n3", Peers: got, ElectionTimeout: time.Hour}.Validate()
	if err == nil || !strings.Contains(err.Error(), `do not name this node, "n3"`) || !strings.Contains(err.Error(), "election_timeout is 1h0m0s (allowed: 50ms to 1m)") {
		t.Errorf("got %v", err)
	}
}

// Raft on disk and on the network: what was voted is kept over a restart, so
// each start leads in a later term.
func TestRaftOnDisk(t *testing.T) {
	engine, prefix := testengine.Open(t)
	st, err := store.Open(t.Context(), engine, store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Node: "n1", Peers: []Peer{{"n1", "127.0.0.1:0"}}, Dir: t.TempDir(), ElectionTimeout: 50 * time.Millisecond}
	last := uint64(0)
	for range 2 {
		r, err := NewRaft(cfg, nil, st, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		term := make(chan uint64, 1)
		done := make(chan error, 1)
		go func() {
			done <- r.Run(ctx, func(ctx context.Context) error {
				term <- store.TermOf(ctx)
				<-ctx.Done()
				return nil
			})
		}()
		select {
		case got := <-term:
			if l, err := st.Leader(t.Context()); got <= last || err != nil || l.Term != got || l.Node != "n1" {
				t.Errorf("term %d after %d; leader %+v, %v", got, last, l, err)
			}
			last = got
		case err := <-done:
			t.Fatalf("ended with %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	held, err := cfg.open()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := cfg.open(); err == nil || !strings.Contains(err.Error(), "is another process using it?") {
		t.Errorf("a directory that is in use: %v", err)
	}
}

// authority signs certificates for 127.0.0.1.
func authority(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// Peers talk to each other over mutual TLS, and to nobody else.
func TestLayerTLS(t *testing.T) {
	ours := authority(t)
	c := Config{Node: "n1", Peers: []Peer{{"n1", "127.0.0.1:0"}}, TLS: ours}
	l, err := c.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Addr().String(); got != "127.0.0.1:0" {
		t.Errorf("address %q", got)
	}
	heard := make(chan string, 8)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 5)
			n, err := conn.Read(b)
			if err != nil {
				b, n = []byte("no"), 2
			}
			heard <- string(b[:n])
			_ = conn.Close()
		}
	}()
	at := raft.ServerAddress(l.Listener.Addr().String())
	for name, cfg := range map[string]*tls.Config{"hello": ours, "no": authority(t)} {
		from := &layer{tls: cfg}
		conn, err := from.Dial(at, time.Minute)
		if err == nil {
			_, _ = conn.Write([]byte("hello"))
		}
		if got := <-heard; got != name {
			t.Errorf("the listener heard %q, want %q (dial: %v)", got, name, err)
		}
		if conn != nil && err == nil {
			_ = conn.Close()
		}
	}
	plain, err := net.Dial("tcp", string(at))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = plain.Write([]byte("hello"))
	if got := <-heard; got != "no" {
		t.Errorf("plain text was heard as %q", got)
	}
	_ = plain.Close()
	_ = l.Close()
	<-done
}
