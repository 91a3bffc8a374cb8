package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/rpc"
)

// certificate makes a self-signed one for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "coffer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pool
}

func TestTLS(t *testing.T) {
	cfg := testConfig()
	var pool *x509.CertPool
	cfg.TLS.CertFile, cfg.TLS.KeyFile, pool = certificate(t)
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	if !strings.HasPrefix(r.url, "https://127.0.0.1:") {
		t.Fatalf("url %s", r.url)
	}
	for _, p := range []rpc.Protocol{rpc.ProtocolConnect, rpc.ProtocolGRPC} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP2(true)
		c := rpc.NewClient(r.url, rpc.WithProtocol(p), rpc.WithHTTPClient(&http.Client{Transport: tr}))
		fund(t, c, 1)
		c.Close()
	}
	plain := rpc.NewClient("http://"+strings.TrimPrefix(r.url, "https://"), rpc.WithMaxAttempts(1))
	defer plain.Close()
	if _, err := plain.GetBudget(t.Context(), "B"); err == nil {
		t.Error("plain text is served beside TLS")
	}
}

// failing is an engine that can say that it failed for good.
type failing struct {
	kv.Store
	failed chan struct{}
}

func (f failing) Failed() <-chan struct{} { return f.failed }
func (failing) Failure() error            { return errors.New("disk is gone") }

// A node whose store has failed ends, so that what started it starts it again.
func TestStoreFails(t *testing.T) {
	deps := testDeps(t, nil)
	open := deps.OpenStore
	f := failing{failed: make(chan struct{})}
	deps.OpenStore = func(ctx context.Context) (kv.Store, error) {
		var err error
		f.Store, err = open(ctx)
		return f, err
	}
	n, err := New(testConfig(), deps)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	close(f.failed)
	if err := r.ended(t); err == nil || !strings.Contains(err.Error(), "store failed: disk is gone") {
		t.Errorf("ended with %v", err)
	}
}

// slowMaintainer works until it is told to stop.
type slowMaintainer struct {
	rpc.Maintainer
	began chan struct{}
}

func (m slowMaintainer) Audit(ctx context.Context, _ func(string, uint64)) (*store.AuditReport, error) {
	close(m.began)
	<-ctx.Done()
	return nil, ctx.Err()
}

// An audit does not hold up the drain.
func TestDrainEndsAudit(t *testing.T) {
	leaving := make(chan struct{})
	m := interruptible{slowMaintainer{began: make(chan struct{})}, leaving}
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { _, err = m.Audit(t.Context(), nil) })
	<-m.Maintainer.(slowMaintainer).began
	close(leaving)
	wg.Wait()
	if err == nil || !strings.HasPrefix(err.Error(), "DRAINING") {
		t.Errorf("audit ended with %v", err)
	}
}
