package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coffer.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serveFile := []string{"serve", "--config", file, "--store", t.TempDir()}
	for _, tc := range []struct{ text, words string }{
		{"listen: 127.0.0.1:0\nexpiry:\n  intervall: 1s\n", `line 3: unknown key "intervall"; remove it or correct its spelling`},
		{"colour: red\n", `line 1: unknown key "colour"`},
		{"expiry: {interval: soon}\n", `line 1: expiry.interval is "soon" (allowed: a duration such as 500ms, 10s or 5m)`},
		{"listen: [\n", "line "},
		{"listen: 127.0.0.1:0\n---\nlisten: 127.0.0.1:1\n", "more than one document"},
		{
			"listen: nowhere\nlog: {level: loud}\nexecutor: {batch_limit: 0}\nexpiry: {interval: 1ms}\napi: {max_message_bytes: 1}\n",
			"listen is \"nowhere\" (allowed: host:port, such as 127.0.0.1:7420)\nexecutor.batch_limit is 0 (allowed: 1 to 1024)\nexpiry.interval is 1ms (allowed: 10ms to 1h0m0s)\napi.max_message_bytes is 1 (allowed: 1024 to 67108864)\nlog.level is \"loud\" (allowed: debug, info, warn or error)",
		},
		{"listen: 0.0.0.0:7420\n", `listen is "0.0.0.0:7420" (allowed: a loopback address; for any other set tls.cert_file and tls.key_file, or insecure: true`},
		{"listen: 127.0.0.1:0\ntls: {cert_file: a.pem}\n", `tls.cert_file is "a.pem" and tls.key_file is "" (allowed: both or neither)`},
		{"listen: 127.0.0.1:0\ntls: {cert_file: a.pem, key_file: b.pem}\n", "load tls certificate a.pem and key b.pem"},
		{"listen: 0.0.0.0:0\ninsecure: true\ndebug: {pprof: true}\n", `debug.pprof is "true" (allowed: false unless listen is a loopback address)`},
	} {
		write(tc.text)
		code, out, errs := coffer(t, serveFile...)
		if code == exitOK || !strings.Contains(errs, tc.words) {
			t.Errorf("config %q: exit code %d, must say %q, says:\n%s%s", tc.text, code, tc.words, out, errs)
		}
	}
	fails(t, exitUsage, "no such file", "serve", "--config", filepath.Join(t.TempDir(), "none.yaml"))
	code, _, errs := cofferEnv(t, []string{"COFFER_EXPIRY_INTERVAL=soon"}, "serve")
	if code != exitUsage || !strings.Contains(errs, `environment COFFER_EXPIRY_INTERVAL is "soon" (allowed: a duration such as 500ms, 10s or 5m)`) {
		t.Errorf("bad variable: exit code %d: %s", code, errs)
	}
}

// Later sources win: file, then environment, then flags.
func TestServeSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coffer.yaml")
	if err := os.WriteFile(file, []byte("node_id: from-file\nlisten: 127.0.0.1:1\nstore: from-file\nexpiry: {interval: 7s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &cli{env: []string{"COFFER_STORE=from-env", "COFFER_LISTEN=127.0.0.1:2", "COFFER_SERVICE_HOST=10.0.0.1", "COFFER_SERVER=http://x"}}
	cfg, unknown, err := (&serveCmd{Config: file, Listen: "127.0.0.1:3"}).config(c)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.NodeID != "from-file" || cfg.Store != "from-env" || cfg.Listen != "127.0.0.1:3" || cfg.Expiry.Interval.String() != "7s" {
		t.Errorf("config: %+v", cfg)
	}
	if len(unknown) != 1 || unknown[0] != "COFFER_SERVICE_HOST" {
		t.Errorf("unknown variables: %v", unknown)
	}
}

func TestServeFaults(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	addr := strings.TrimPrefix(s.url, "http://")
	fails(t, exitFailed, "listen "+addr+": address is in use; stop the process that has it, or choose another address with --listen",
		"serve", "--listen", addr, "--store", t.TempDir(), "--log-format", "json")
	locked := "open in another process"
	fails(t, exitFailed, locked, "serve", "--listen", "127.0.0.1:0", "--store", dir, "--log-format", "json")
	fails(t, exitFailed, locked, "audit", "--store", dir)
	fails(t, exitFailed, "a node that runs takes coffer audit and coffer expiry rebuild without --store", "audit", "--store", dir)
	fails(t, exitFailed, locked, "expiry", "rebuild", "--store", dir)
	fails(t, exitFailed, noEngine, "serve", "--listen", "127.0.0.1:0", "--store", "fdb:x")

	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, exitFailed, "not a store", "serve", "--listen", "127.0.0.1:0", "--store", other, "--log-format", "json")
	fails(t, exitFailed, "not a store", "audit", "--store", other)
	fails(t, exitFailed, "not a store", "audit", "--store", filepath.Join(other, "absent"))
	if left, err := os.ReadDir(other); err != nil || len(left) != 1 {
		t.Errorf("a directory that is not a store was changed: %v, %v", left, err)
	}
}

// A store that a newer version wrote is refused and not touched.
func TestServeNewerStore(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir).end(t)
	if err := os.WriteFile(filepath.Join(dir, "STORE"), []byte("coffer store\nformat 99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, exitFailed, "newer version", "serve", "--listen", "127.0.0.1:0", "--store", dir, "--log-format", "json")
	fails(t, exitFailed, "newer version", "audit", "--store", dir)
}

func TestServeReadOnlyStore(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere; the engine's own tests cover it")
	}
	dir := t.TempDir()
	serve(t, dir).end(t)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	fails(t, exitFailed, "make the directory writable", "serve", "--listen", "127.0.0.1:0", "--store", dir, "--log-format", "json")
}

// dev says what to try, and what it says works: JSON over plain HTTP.
func TestDevWelcome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, done := newAnnounced(), make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"dev", "--dir", t.TempDir(), "--listen", "127.0.0.1:0"}, io.Discard, log, nil)
	}()
	until(t, "the welcome", func() bool { return strings.Contains(log.String(), "coffer audit --server") })
	text := log.String()
	contains(t, text, "coffer serves on http://127.0.0.1:", "Ctrl-C ends it", "budget create SPRING --currency BRL", "curl -s -H 'Content-Type: application/json'")
	_, rest, _ := strings.Cut(text, "coffer serves on ")
	url, _, _ := strings.Cut(rest, ",")
	_, rest, _ = strings.Cut(text, "-d '")
	body, _, _ := strings.Cut(rest, "'")
	must(t, "budget", "create", "SPRING", "--currency", "BRL", "--server", url)
	must(t, "budget", "fund", "SPRING", "--amount", "500000.00", "--server", url)
	res, err := http.Post(url+"/coffer.v1.ReservationService/Reserve", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	contains(t, string(raw), "RESERVATION_STATE_RESERVED", `"1250"`)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-done; code != exitOK {
		t.Errorf("dev ended with %d:\n%s", code, log)
	}
}

func TestDevPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fails(t, exitFailed, "address is in use", "dev", "--temp", "--listen", ln.Addr().String())
}
