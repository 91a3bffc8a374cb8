package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

// childEnv makes this test binary run as coffer itself, so that a test can
// kill a real process.
const childEnv = "COFFER_TEST_CHILD"

// patience bounds every wait of the tests. Nothing sleeps; waits end when what
// they wait for happens.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		_ = os.Unsetenv(childEnv)
		main()
	}
	testengine.Main(m)
}

// coffer runs one command line in this process.
func coffer(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return cofferEnv(t, nil, args...)
}

func cofferEnv(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs, env)
	return code, out.String(), errs.String()
}

// must runs a command line that has to work and returns its output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := coffer(t, args...)
	if code != exitOK {
		t.Fatalf("coffer %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// fails runs a command line that must end with the code and say the words.
func fails(t *testing.T, want int, words string, args ...string) {
	t.Helper()
	code, out, errs := coffer(t, args...)
	if code != want || !strings.Contains(out+errs, words) {
		t.Errorf("coffer %s:\nexit code %d, want %d\nmust say: %s\nsays: %s%s", strings.Join(args, " "), code, want, words, out, errs)
	}
}

// decode reads JSON output.
func decode[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("output is not JSON: %v\n%s", err, out)
	}
	return v
}

// contains checks that a text holds all the parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("text lacks %q:\n%s", p, text)
		}
	}
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// untimed is text without its times, whose digits may spell anything: 20.002
// seconds past a minute has a "0.00" in it.
func untimed(text string) string { return stamps.ReplaceAllString(text, "TIME") }

// announced is the stderr of a server: it keeps what is written and tells the
// URL once the server has logged it.
type announced struct {
	mu   sync.Mutex
	text bytes.Buffer
	url  chan string
	seen bool
}

func newAnnounced() *announced { return &announced{url: make(chan string, 1)} }

func (a *announced) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text.Write(p)
	for line := range bytes.Lines(a.text.Bytes()) {
		var ev struct{ Message, URL string }
		if !a.seen && json.Unmarshal(line, &ev) == nil && ev.Message == "serving" {
			a.seen = true
			a.url <- ev.URL
		}
	}
	return len(p), nil
}

func (a *announced) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

// served is a server that runs in this process.
type served struct {
	url  string
	log  *announced
	stop context.CancelFunc
	done chan int
}

// serve starts "coffer serve" on a free port. The test ends it.
func serve(t *testing.T, dir string, args ...string) *served {
	t.Helper()
	return serveEnv(t, dir, []string{"COFFER_EXPIRY_INTERVAL=50ms"}, args...)
}

func serveEnv(t *testing.T, dir string, env []string, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{log: newAnnounced(), stop: cancel, done: make(chan int, 1)}
	env = append([]string{"COFFER_SHUTDOWN_TIMEOUT=" + patience.String()}, env...)
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--store", dir, "--log-format", "json"}, args...)
	go func() { s.done <- run(ctx, args, io.Discard, s.log, env) }()
	t.Cleanup(func() { s.end(t) })
	select {
	case s.url = <-s.log.url:
	case code := <-s.done:
		s.done <- code
		t.Fatalf("serve ended with %d:\n%s", code, s.log)
	case <-time.After(patience):
		t.Fatalf("serve did not start:\n%s", s.log)
	}
	return s
}

// end drains the server and waits for it.
func (s *served) end(t *testing.T) {
	t.Helper()
	s.stop()
	select {
	case code := <-s.done:
		s.done <- code
		if code != exitOK {
			t.Errorf("serve ended with %d:\n%s", code, s.log)
		}
	case <-time.After(patience):
		t.Fatalf("serve did not end:\n%s", s.log)
	}
}

// cli runs a command against the server; it has to work.
func (s *served) cli(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, append(args, "--server", s.url)...)
}

// until waits for a condition, looking at it again and again.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
		<-tick.C
	}
}
