package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// behindTLS serves s over TLS too, with a certificate that only the file's
// readers believe.
func behindTLS(t *testing.T, s *served) (base, file string) {
	t.Helper()
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to))
	t.Cleanup(front.Close)
	return front.URL, pemFile(t, "CERTIFICATE", front.Certificate().Raw)
}

func pemFile(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// authority makes the certificate of one that has signed nothing.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// A server with a certificate of one's own authority: by flag, by variable, and
// for a bench.
func TestCA(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	base, ca := behindTLS(t, s)
	contains(t, must(t, "budget", "fund", "B", "--amount", "5", "--server", base, "--ca", ca), "5.00 BRL")
	if code, out, errs := cofferEnv(t, []string{"COFFER_CA=" + ca, "COFFER_SERVER=" + base}, "budget", "list"); code != exitOK || !strings.Contains(out, "5.00") {
		t.Errorf("with COFFER_CA: exit code %d\n%s%s", code, out, errs)
	}
	// The variable may be set beside a server without TLS; the flag would say
	// what is not so.
	if code, _, errs := cofferEnv(t, []string{"COFFER_CA=nowhere.pem", "COFFER_SERVER=" + s.url}, "budget", "list"); code != exitOK {
		t.Errorf("COFFER_CA without TLS: exit code %d\n%s", code, errs)
	}
	fails(t, exitUsage, "--ca would do nothing (allowed: with a --server of https://)", "budget", "list", "--server", s.url, "--ca", ca)

	must(t, "bench", "--target", "server", "--server", base, "--ca", ca, "--workload", "hot", "--tasks", "50", "--warmup", "0s", "--callers", "4")
	fails(t, exitUsage, "--ca would do nothing (allowed: with the target server)", "bench", "--ca", ca)
}

func TestServerNotBelieved(t *testing.T) {
	base, ca := behindTLS(t, serve(t, t.TempDir()))
	other := pemFile(t, "CERTIFICATE", authority(t))
	create := func(more ...string) []string {
		return append([]string{"budget", "create", "B", "--currency", "BRL"}, more...)
	}
	code, _, errs := coffer(t, create("--server", base)...)
	contains(t, errs, base+": nothing was sent: tls: failed to verify certificate", "name the file with its authority's certificate with --ca, or COFFER_CA")
	if code != exitFailed || strings.Contains(errs, "sent 8 times") || strings.Contains(errs, "unknown:") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	fails(t, exitFailed, "no certificate of "+other+" has signed it", create("--server", base, "--ca", other)...)
	byName := strings.Replace(base, "127.0.0.1", "localhost", 1)
	fails(t, exitFailed, "name the server by a name its certificate has", create("--server", byName, "--ca", ca)...)
	fails(t, exitFailed, "if that server speaks TLS, name it with https://", "budget", "list", "--server", strings.Replace(base, "https:", "http:", 1))
}

func TestBadCA(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		"nowhere.pem":                           "--ca: open nowhere.pem: no such file or directory; name the PEM file",
		t.TempDir():                             "is a directory",
		empty:                                   empty + " holds no certificate (allowed: PEM, which begins with -----BEGIN CERTIFICATE-----)",
		pemFile(t, "EC PRIVATE KEY", []byte{1}): `holds a block "EC PRIVATE KEY" (allowed: certificates)`,
		pemFile(t, "CERTIFICATE", []byte("broken")): "certificate 1 of ",
	} {
		fails(t, exitUsage, words, "budget", "list", "--server", "https://127.0.0.1:1", "--ca", path)
	}
	// One that is cut off, at the end or between others, is not left out silently.
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority(t)})
	half := append(append([]byte{}, good[:len(good)/2]...), '\n')
	for _, parts := range [][][]byte{{good, half}, {half, good}} {
		file := filepath.Join(t.TempDir(), "half.pem")
		if err := os.WriteFile(file, bytes.Join(parts, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		fails(t, exitUsage, "holds 2 certificates, of which 1 can be read", "budget", "list", "--server", "https://127.0.0.1:1", "--ca", file)
	}
	fails(t, exitUsage, "--ca is empty; name a file, or leave the flag out", "budget", "list", "--ca", "")
}
