package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxAuthorityBytes bounds a file of certificates.
const maxAuthorityBytes = 1 << 20

// trust is whom a client of a server with TLS believes.
type trust struct {
	CA string `help:"PEM file with the certificate of the authority that signed the server's, in place of the system's list (env COFFER_CA)." name:"ca" placeholder:"FILE" empty:"name a file, or leave the flag out to use COFFER_CA or the system's list"`
}

// config is what a client demands of the server at url, nil for what Go
// demands by itself. COFFER_CA may be set beside a server without TLS; a flag
// there would do nothing.
func (t *trust) config(c *cli, url string) (*tls.Config, error) {
	if t.CA == "" {
		return nil, nil
	}
	if !strings.HasPrefix(strings.ToLower(url), "https://") {
		if env, _ := c.getenv(flagEnv["ca"]); env != t.CA {
			return nil, idleFlag("ca", "with a --server of https://")
		}
		return nil, nil
	}
	pool, err := authorities(t.CA)
	if err != nil {
		return nil, usagef("--ca: %w; name the PEM file of the authority that signed the server's certificate", err)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// authorities reads a file of certificates. One that cannot be read is an
// error, as are a file without any and one that holds something else.
func authorities(path string) (*x509.CertPool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	rest, err := io.ReadAll(io.LimitReader(f, maxAuthorityBytes+1))
	if err != nil {
		return nil, err
	}
	if len(rest) > maxAuthorityBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxAuthorityBytes)
	}
	pool, begun := x509.NewCertPool(), bytes.Count(rest, []byte("-----BEGIN "))
	for n := 0; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			switch {
			case n == 0:
				return nil, fmt.Errorf("%s holds no certificate (allowed: PEM, which begins with -----BEGIN CERTIFICATE-----)", path)
			case n < begun: // the decoder leaves out what it cannot read
				return nil, fmt.Errorf("%s holds %d certificates, of which %d can be read", path, begun, n)
			}
			return pool, nil
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s holds a block %.40q (allowed: certificates)", path, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of %s cannot be read: %w", n+1, path, err)
		}
		pool.AddCert(cert)
	}
}

// untrusted says in an error what to do about a certificate that the client
// does not believe; nil for any other error.
func (s *server) untrusted(err error) error {
	var cert *tls.CertificateVerificationError
	if !errors.As(err, &cert) {
		return nil
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	next := "see the server's certificate (tls.cert_file)"
	switch {
	case errors.As(err, &unknown) && s.ca == "":
		next = "name the file with its authority's certificate with --ca, or COFFER_CA"
	case errors.As(err, &unknown):
		next = "no certificate of " + s.ca + " has signed it"
	case errors.As(err, &name):
		next = "name the server by a name its certificate has"
	}
	return fmt.Errorf("%s: nothing was sent: %w; %s", s.url, cert, next)
}
