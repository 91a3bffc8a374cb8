//go:build fdb

package fdbkv

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is far above what Open may take; a test that needs it has failed.
const patience = time.Minute

// clusterFile names coordinators that the test made.
func clusterFile(t *testing.T, addresses ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fdb.cluster")
	if err := os.WriteFile(path, []byte("test:test@"+strings.Join(addresses, ",")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// listen takes connections and hands each to serve.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return ln.Addr().String()
}

// closedPort is an address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() //nolint:errcheck // only its number is wanted
	return ln.Addr().String()
}

// oldServer greets like a FoundationDB process of release 7.1.
func oldServer(c net.Conn) {
	defer c.Close() //nolint:errcheck // the test is over
	var b []byte
	b = binary.LittleEndian.AppendUint32(b, 40) // bytes that follow
	b = binary.LittleEndian.AppendUint64(b, 0x1FDB00B071010000)
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	n, _ := net.LookupPort("tcp", port)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	b = binary.LittleEndian.AppendUint64(b, 0) // connection
	b = binary.LittleEndian.AppendUint32(b, 0x7f000001)
	b = append(b, make([]byte, 2+16)...) // flags, no IPv6 address
	if _, err := c.Write(b); err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
}

// Each fault of a cluster is told apart, within the caller's time.
func TestOpenExplains(t *testing.T) {
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for name, tc := range map[string]struct {
		file string
		want error
		text string
	}{
		"nobody listens":      {clusterFile(t, closedPort(t)), ErrUnreachable, "refuses connections"},
		"one of three":        {clusterFile(t, listen(t, silent), closedPort(t), closedPort(t)), ErrUnreachable, "more than half must answer"},
		"not foundationdb":    {clusterFile(t, listen(t, silent)), ErrUnavailable, "gives no read version"},
		"another release":     {clusterFile(t, listen(t, oldServer)), ErrProtocol, "the cluster speaks 7.1"},
		"unreadable file":     {t.TempDir(), ErrClusterFile, "cannot be read"},
		"malformed file":      {malformed(t), ErrClusterFile, "not description:id@host:port"},
		"no such file at all": {filepath.Join(t.TempDir(), "none"), ErrClusterFile, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second) // a third of it is for the diagnosis
			defer cancel()
			done := make(chan error, 1)
			go func() {
				s, err := Open(ctx, Options{ClusterFile: tc.file})
				if err == nil {
					_ = s.Close()
				}
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), tc.file) && tc.want != ErrProtocol { //nolint:errorlint // a table's own value
					t.Errorf("got %v; want %v with %q", err, tc.want, tc.text)
				}
			case <-time.After(patience):
				t.Fatal("Open hangs")
			}
		})
	}
}

func malformed(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fdb.cluster")
	if err := os.WriteFile(path, []byte("not a cluster\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
