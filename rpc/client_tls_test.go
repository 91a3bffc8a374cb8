package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
)

// tlsFront serves w over TLS.
func tlsFront(t *testing.T, w *world) *httptest.Server {
	t.Helper()
	to, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	front := httptest.NewUnstartedServer(proxy)
	front.EnableHTTP2 = true
	front.StartTLS()
	t.Cleanup(front.Close)
	return front
}

func TestClientBelievesItsAuthority(t *testing.T) {
	w := newWorld(t)
	front := tlsFront(t, w)
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	w.url = front.URL
	for name, p := range map[string]Protocol{"connect": ProtocolConnect, "grpc-web": ProtocolGRPCWeb} {
		o, err := w.client(t, WithProtocol(p), WithTLS(&tls.Config{RootCAs: roots})).Reserve(t.Context(), reserveRequest())
		if err != nil || o.GetHeldMinor() != 1250 {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
}

// A certificate that the client does not believe ends the call at once, and
// nothing was sent: the command certainly did not happen.
func TestUnknownAuthorityIsSentNothing(t *testing.T) {
	w := newWorld(t)
	w.url = tlsFront(t, w).URL
	_, err := w.client(t).Reserve(t.Context(), reserveRequest())
	var e *Error
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &e) || !errors.As(err, &unknown) {
		t.Fatalf("error is %v", err)
	}
	if e.Unknown || e.Attempts != 1 || e.Code != connect.CodeUnavailable || ReasonOf(err) != ledger.Code("") || len(w.exec.commands()) != 0 {
		t.Errorf("error is %+v; %d commands ran", e, len(w.exec.commands()))
	}
}
