package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type cliEvent struct {
	ID, Type, Key, Sequence string
	Entry                   struct{ OrderID string }
}

// The life of a sink and of a parked event, by commands.
func TestEventCommands(t *testing.T) {
	var refuse atomic.Bool
	refuse.Store(true)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if refuse.Load() && strings.Contains(string(b), `"o-1"`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer hook.Close()
	s := serveEnv(t, t.TempDir(), []string{"COFFER_RELAY_PRIVATE_WEBHOOKS=true", "COFFER_RELAY_TRIES=1"})
	contains(t, s.cli(t, "events", "sinks", "list"), "no sinks")
	fails(t, exitUsage, "no configuration; give --webhook URL or --config FILE", "events", "sinks", "create", "shop", "--server", s.url)
	contains(t, s.cli(t, "events", "sinks", "create", "shop", "--webhook", hook.URL, "--beginning", "--type", "coffer.reservation.*"), "shop", "webhook", "RUNNING", "coffer.reservation.*")
	contains(t, s.cli(t, "events", "sinks", "ping", "shop"), "the receiver of sink shop answers")
	s.cli(t, "budget", "create", "A", "--currency", "BRL")
	s.cli(t, "budget", "fund", "A", "--amount", "10", "--key", "f")
	s.cli(t, "order", "reserve", "o-1", "coupon", "--budget", "A", "--amount", "1.50")
	s.cli(t, "order", "commit", "o-1", "coupon")

	out := s.cli(t, "events", "tail", "--beginning", "--limit", "2", "--type", "coffer.reservation.*")
	contains(t, out, "reservation.reserved  o-1 coupon (1)  available -1.50  reserved +1.50  BRL", "reservation.committed  o-1 coupon (2)")
	lines := strings.Split(strings.TrimSpace(s.cli(t, "events", "tail", "--beginning", "--limit", "2", "--type", "coffer.reservation.*", "--json")), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	first, second := decode[cliEvent](t, lines[0]), decode[cliEvent](t, lines[1])
	if first.Sequence != "1" || second.Type != "coffer.reservation.committed.v1" || first.Entry.OrderID != "o-1" {
		t.Errorf("events are %+v, %+v", first, second)
	}
	after := decode[cliEvent](t, s.cli(t, "events", "tail", "--after", first.ID, "--limit", "1", "--json"))
	if after != second {
		t.Errorf("after the first comes %+v", after)
	}

	const key = "default/reservations/o-1/coupon"
	waitFor(t, func() bool { return strings.Contains(s.cli(t, "events", "parked", "list", "shop"), key) })
	contains(t, s.cli(t, "events", "parked", "get", "shop", key), "status 422", "reservation.reserved  o-1 coupon (1)")
	contains(t, s.cli(t, "events", "parked", "skip", "shop", key, "--event", first.ID, "--reason", "a test"), "skipped "+first.ID)
	contains(t, s.cli(t, "events", "parked", "skipped", "shop"), first.ID, "a test")
	refuse.Store(false)
	if code, _, errs := coffer(t, "events", "parked", "retry", "shop", key, "--server", s.url); code != exitOK && !strings.Contains(errs, "PARKED_NOT_FOUND") {
		t.Errorf("retry: %s", errs)
	}
	waitFor(t, func() bool {
		return strings.Contains(s.cli(t, "events", "parked", "list", "shop"), "nothing is parked")
	})

	contains(t, s.cli(t, "events", "sinks", "get", "shop"), "delivered", "1-0")
	shown := s.cli(t, "events", "sinks", "get", "shop", "--json")
	contains(t, shown, `"secret":"***"`)
	contains(t, s.cli(t, "events", "sinks", "pause", "shop", "--reason", "maintenance"), "PAUSED", "maintenance")
	contains(t, s.cli(t, "events", "sinks", "resume", "shop"), "RUNNING")
	fails(t, exitUsage, "give one of --beginning, --since, --after and --now", "events", "sinks", "rewind", "shop", "--server", s.url)
	contains(t, s.cli(t, "events", "sinks", "rewind", "shop", "--since", "1h"), "sink shop was moved")
	file := filepath.Join(t.TempDir(), "config.json")
	config := `{"kind":"webhook","webhook":{"url":"` + hook.URL + `","insecure":true,"keys":[{"id":"1","secret":"***"}],"timeout":"3s"}}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, s.cli(t, "events", "sinks", "update", "shop", "--config", file), "shop", "webhook")
	fails(t, exitFailed, "SINK_CHANGED: version 1", "events", "sinks", "update", "shop", "--webhook", hook.URL, "--version", "1", "--server", s.url)
	hook.Close()
	fails(t, exitFailed, "the receiver of sink shop cannot be reached", "events", "sinks", "ping", "shop", "--server", s.url)
	contains(t, s.cli(t, "events", "sinks", "delete", "shop"), "sink shop is deleted")
	fails(t, exitFailed, "SINK_NOT_FOUND", "events", "sinks", "get", "shop", "--server", s.url)
}

// The secret of a webhook is shown once, with the id of its key. A sink that
// exists is updated, since no one can send its secret again.
func TestWebhookSecret(t *testing.T) {
	s := serve(t, t.TempDir())
	shown := regexp.MustCompile(`key id 1, secret (whsec_[A-Za-z0-9+/=]+): the receiver needs both`)
	secret := func(private bool, args ...string) string {
		t.Helper()
		code, _, errs := coffer(t, append(args, "--server", s.url)...)
		m := shown.FindStringSubmatch(errs)
		if code != exitOK || m == nil || strings.Contains(errs, "relay.private_webhooks") != private {
			t.Fatalf("%v: exit code %d\n%s", args, code, errs)
		}
		return m[1]
	}
	const hook = "http://127.0.0.1:1/hook"
	first := secret(true, "events", "sinks", "create", "shop", "--webhook", hook)
	again := []string{"events", "sinks", "create", "shop", "--webhook", hook, "--server", s.url}
	fails(t, exitFailed, `IDEMPOTENCY_CONFLICT: sink shop exists; "coffer events sinks update shop --webhook `+hook+`" gives it this URL and a new secret`, again...)
	fails(t, exitFailed, `sink shop exists, with other values of types, which an update leaves; "coffer events sinks update`, append(again, "--type", "coffer.job.*")...)
	_, out, _ := coffer(t, append(again, "--json")...)
	if e := decode[cliError](t, out).Error; e.Detail.Reason != "IDEMPOTENCY_CONFLICT" || !slices.Equal(e.Detail.DifferingFields, []string{"config"}) {
		t.Errorf("%s", out)
	}
	if second := secret(true, "events", "sinks", "update", "shop", "--webhook", hook); second == first {
		t.Errorf("the update gave the secret %s again", first)
	}
	// With --json the secret is in the answer: programs read that alone.
	for _, verb := range []string{"create", "update"} {
		_, out, errs := coffer(t, "events", "sinks", verb, "json", "--webhook", hook, "--json", "--server", s.url)
		var made struct {
			Name       string
			Sink       struct{ Name string }
			WebhookKey struct{ ID, Secret string }
		}
		if err := json.Unmarshal([]byte(out), &made); err != nil || made.Name+made.Sink.Name != "json" || made.WebhookKey.ID != "1" {
			t.Errorf("%s: %v, %s", verb, err, out)
		}
		if m := shown.FindStringSubmatch(errs); m == nil || m[1] != made.WebhookKey.Secret {
			t.Errorf("%s: the answer has the secret %q, and %s", verb, made.WebhookKey.Secret, errs)
		}
	}
	secret(false, "events", "sinks", "create", "far", "--webhook", "https://coffer.example/hook")
	for url, want := range map[string]bool{
		"http://localhost:80/": true, "http://10.1.2.3/": true, "http://[::1]:7/": true, "http://169.254.1.1/": true, "https://192.0.2.1/": false, "https://example.com": false,
	} {
		if notPublic(url) != want {
			t.Errorf("%s is not public: %v, want %v", url, !want, want)
		}
	}
}

// What a receiver refused until it was mended is delivered by one command.
func TestRetryAllThatIsParked(t *testing.T) {
	var refuse atomic.Bool
	refuse.Store(true)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if refuse.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer hook.Close()
	s := serveEnv(t, t.TempDir(), []string{"COFFER_RELAY_PRIVATE_WEBHOOKS=true", "COFFER_RELAY_TRIES=1"})
	s.cli(t, "events", "sinks", "create", "shop", "--webhook", hook.URL, "--type", "coffer.reservation.*")
	contains(t, s.cli(t, "events", "parked", "retry", "shop", "--all"), "the events of 0 keys are delivered again")
	fails(t, exitUsage, "give one of KEY and --all", "events", "parked", "retry", "shop", "--server", s.url)
	fails(t, exitUsage, "give one of KEY and --all", "events", "parked", "retry", "shop", "a/key", "--all", "--server", s.url)
	fails(t, exitFailed, "SINK_NOT_FOUND", "events", "parked", "retry", "nobody", "--all", "--server", s.url)
	s.cli(t, "budget", "create", "A", "--currency", "BRL")
	s.cli(t, "budget", "fund", "A", "--amount", "10", "--key", "f")
	for _, order := range []string{"o-1", "o-2", "o-3"} {
		s.cli(t, "order", "reserve", order, "coupon", "--budget", "A", "--amount", "1.50")
	}
	parked := func() int {
		return strings.Count(s.cli(t, "events", "parked", "list", "shop"), "default/reservations/o-")
	}
	waitFor(t, func() bool { return parked() == 3 })
	refuse.Store(false)
	if got, want := s.cli(t, "events", "parked", "retry", "shop", "--all", "--json"), `{"keys":3}`; strings.TrimSpace(got) != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	waitFor(t, func() bool { return parked() == 0 })
}

// A tail goes on over a restart of the node, and ends without an error when it
// is interrupted.
func TestEventsTailGoesOn(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	var target atomic.Pointer[url.URL] // of the node, which gets another port
	point := func(s *served) {
		u, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		target.Store(u)
	}
	point(s)
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) }})
	defer proxy.Close()
	s.cli(t, "budget", "create", "A", "--currency", "BRL")
	s.cli(t, "budget", "fund", "A", "--amount", "10", "--key", "f")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := newAnnounced()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"events", "tail", "--beginning", "--server", proxy.URL}, out, io.Discard, nil)
	}()
	waitFor(t, func() bool { return strings.Contains(out.String(), "budget.funded") })
	s.end(t)
	s = serve(t, dir)
	point(s)
	s.cli(t, "order", "reserve", "o-1", "coupon", "--budget", "A", "--amount", "1.50")
	waitFor(t, func() bool { return strings.Contains(out.String(), "o-1 coupon (1)") })
	cancel()
	select {
	case c := <-code:
		if c != exitOK {
			t.Errorf("exit code %d", c)
		}
	case <-time.After(patience):
		t.Fatal("the tail did not end")
	}
	if n := strings.Count(out.String(), "budget.created"); n != 1 {
		t.Errorf("the first event was printed %d times:\n%s", n, out)
	}
}

// waitFor looks until something is so.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("it never was so")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// What is wrong with a sink is shown in full, once.
func TestSinkTroubles(t *testing.T) {
	at := func(s int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(s, 0)) }
	down := "webhook: " + strings.Repeat("long ", 20) + "connection refused"
	got := troubles([]*cofferv1.SinkCursor{
		{Partition: 0, Trouble: down, TroubleTime: at(20)},
		{Partition: 1},
		{Partition: 2, Trouble: "status 500", TroubleTime: at(30)},
		{Partition: 15, Trouble: down, TroubleTime: at(10)},
	})
	want := []string{
		"\ntrouble in partitions 0, 15 since 1970-01-01T00:00:10.000Z:\n  " + down,
		"\ntrouble in partitions 2 since 1970-01-01T00:00:30.000Z:\n  status 500",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A stream that is cut in the midst of a message has broken like any other.
func TestTailOfACutStream(t *testing.T) {
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = w.Write([]byte{0, 0, 0}) // of the five bytes before a message
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	client := rpc.NewClient(cut.URL)
	defer client.Close()
	err := client.Subscribe(t.Context(), &cofferv1.SubscribeRequest{}, nil, nil)
	seen := &tail{at: map[uint64]string{1: "x"}}
	if !seen.again(err) {
		t.Errorf("the tail ends with %v", err)
	}
	if new(tail).again(err) {
		t.Error("a tail that saw nothing goes on")
	}
}
