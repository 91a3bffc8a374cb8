package sink

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// A receiver that fails in every way it can, over real connections: every event
// arrives, each key's in order, and what it refuses stops its key alone.
func TestWebhookFaults(t *testing.T) {
	in, v := newInbox(), verifier(t)
	var mu sync.Mutex
	tries := map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender went away
		}
		id, err := v.Verify(r.Header, body, time.Now())
		e, err2 := event.Parse(body)
		if err != nil || err2 != nil || e.ID() != id || r.Header.Get("Content-Type") != event.ContentType || r.Header.Get(receiver.HeaderKeyID) != "k2" {
			t.Errorf("id %q, %v, %v, headers %v", id, err, err2, r.Header)
			return
		}
		mu.Lock()
		tries[id]++
		n := tries[id]
		mu.Unlock()
		order, seq := e.Entry.Order, e.Sequence()
		switch {
		case order == "o-7" && seq == 3:
			http.Error(w, "no such order", http.StatusUnprocessableEntity)
			return
		case n == 1 && seq%5 == 1:
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		case n == 1 && seq%5 == 2: // cut off before it was taken
			panic(http.ErrAbortHandler)
		case n == 1 && seq%5 == 3: // taken, and the answer is lost
			in.add(e)
			panic(http.ErrAbortHandler)
		}
		in.add(e)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	s, err := Open(Config{Kind: KindWebhook, Webhook: &Webhook{
		URL: srv.URL, Insecure: true, Keys: []Key{{ID: "k2", Secret: secretTwo}, {ID: "k1", Secret: secretOne}}, Concurrency: 4, Circuit: Circuit{Failures: MaxFailures},
		Timeout: Duration(MaxTimeout), // what times out comes twice, too
	}}, Deps{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	events := story(20, 10)
	refused := relay(t, s, events, nil)
	if len(refused) != 1 || refused[0].Entry.Order != "o-7" || refused[0].Sequence() != 3 {
		t.Errorf("refused: %v", refused)
	}
	var want []*event.Event
	for _, e := range events {
		if e.Entry.Order != "o-7" || e.Sequence() < 3 {
			want = append(want, e)
		}
	}
	in.check(t, want)
	// Sequences 3 and 8 of each key but o-7 came twice.
	if in.total != len(want)+2*19 {
		t.Errorf("%d deliveries of %d events, want %d repeats", in.total, len(want), 2*19)
	}
}

func TestWebhookAnswers(t *testing.T) {
	for _, c := range []struct {
		status  int
		after   string
		want    string
		wait    time.Duration
		message string
	}{
		{status: 200, want: "ok ok"},
		{status: 204, want: "ok ok"},
		{status: 302, want: "trouble held", message: "redirects (status 302), which is not followed"},
		{status: 400, want: "refused held", message: "refused by the receiver: status 400: \"because\""},
		{status: 401, want: "trouble held", message: "status 401"},
		{status: 403, want: "trouble held"},
		{status: 404, want: "trouble held"},
		{status: 405, want: "trouble held"},
		{status: 408, want: "trouble held"},
		{status: 409, want: "refused held"},
		{status: 410, want: "refused held"},
		{status: 422, want: "refused held"},
		{status: 425, after: "3", want: "trouble held", wait: 3 * time.Second},
		{status: 429, after: "30", want: "trouble held", wait: 30 * time.Second},
		{status: 429, after: "999999999", want: "trouble held", wait: MaxRetryAfter},
		{status: 429, after: "soon", want: "trouble held"},
		{status: 500, want: "trouble held"},
		{status: 503, after: "Sat, 01 Jan 2000 00:01:00 GMT", want: "trouble held", wait: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			s, end := hook(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				if c.status != http.StatusNoContent {
					_, _ = io.WriteString(w, "because\n")
				}
			}), nil)
			defer end()
			errs := s.Deliver(t.Context(), story(1, 2))
			if got := errorsOf(errs); got != c.want {
				t.Errorf("status %d: %s, want %s (%v)", c.status, got, c.want, errs)
			}
			if got := RetryAfter(errs[0]); got != c.wait {
				t.Errorf("status %d, Retry-After %s: wait %s, want %s", c.status, c.after, got, c.wait)
			}
			if errs[0] != nil && !strings.Contains(errs[0].Error(), c.message) {
				t.Errorf("%v does not say %q", errs[0], c.message)
			}
			if want := 1 + strings.Count(c.want, "ok")/2; calls != want {
				t.Errorf("status %d: %d calls, want %d", c.status, calls, want)
			}
		})
	}
}

// An endpoint that accepts and never answers, and one that never ends its answer.
func TestWebhookSlowAndEndless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := hook(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that the server watches the connection
			<-r.Context().Done()
		}), func(w *Webhook) { w.Timeout = Duration(20 * time.Second) })
		defer end()
		start := time.Now()
		errs := s.Deliver(t.Context(), story(1, 2))
		if got := errorsOf(errs); got != "trouble held" || !errors.Is(errs[0], context.DeadlineExceeded) || time.Since(start) != 20*time.Second {
			t.Errorf("%v after %s", errs, time.Since(start))
		}
		// The caller's own deadline comes first, and says nothing about the receiver.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 * DefaultFailures {
			if got := errorsOf(s.Deliver(ctx, story(1, 1))); got != "trouble" {
				t.Error(got)
			}
		}
		if n := s.(*webhook).circuit.failures; n != 1 {
			t.Errorf("%d failures counted, want 1", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, end := hook(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := io.WriteString(w, strings.Repeat("a", 1000)); err != nil {
					return
				}
			}
		}), nil)
		defer end()
		if got := errorsOf(s.Deliver(t.Context(), story(1, 1))); got != "ok" {
			t.Error(got)
		}
	})
}

func TestCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var status atomic.Int64
		status.Store(500)
		s, end := hook(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(int(status.Load()))
		}), func(w *Webhook) {
			w.Concurrency = 1
			w.Circuit = Circuit{Failures: 3, Open: Duration(time.Minute)}
		})
		defer end()
		deliver := func(want string, wantCalls int64) []error {
			t.Helper()
			calls.Store(0)
			errs := s.Deliver(t.Context(), story(5, 1))
			if got := errorsOf(errs); got != want || calls.Load() != wantCalls {
				t.Errorf("%s and %d calls, want %s and %d", got, calls.Load(), want, wantCalls)
			}
			return errs
		}
		// Three failures open it; the other two keys are not tried.
		errs := deliver("trouble trouble trouble trouble trouble", 3)
		if w := RetryAfter(errs[4]); w != time.Minute || RetryAfter(errs[0]) != 0 {
			t.Errorf("open: wait %s, want a minute", w)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		errs = deliver("trouble trouble trouble trouble trouble", 0)
		if w := RetryAfter(errs[0]); w != 1 {
			t.Errorf("still open: wait %s, want 1ns", w)
		}
		// Half-open: one request, which fails, and it is open again.
		time.Sleep(time.Nanosecond)
		errs = deliver("trouble trouble trouble trouble trouble", 1)
		if w := RetryAfter(errs[1]); w != time.Minute {
			t.Errorf("open again: wait %s", w)
		}
		// Half-open: one that succeeds lets the others through.
		time.Sleep(time.Minute)
		status.Store(200)
		deliver("ok ok ok ok ok", 5)
		// A refusal is no failure, and ends a row of them.
		for range 5 {
			status.Store(500)
			if got := errorsOf(s.Deliver(t.Context(), story(2, 1))); got != "trouble trouble" {
				t.Error(got)
			}
			status.Store(422)
			if got := errorsOf(s.Deliver(t.Context(), story(1, 1))); got != "refused" {
				t.Error(got)
			}
		}
	})
}

// While half-open, one request is under way and no more.
func TestCircuitProbesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := circuit{limit: 1, open: time.Second}
		if err := c.enter(); err != nil {
			t.Fatal(err)
		}
		down := errors.New("webhook: connection refused")
		c.leave(down, 0)
		closed := c.enter()
		time.Sleep(time.Second)
		first, second := c.enter(), c.enter()
		if first != nil || second == nil {
			t.Fatalf("half-open: %v, %v", first, second)
		}
		for _, err := range []error{closed, second} {
			if err == nil || err.Error() != down.Error() || Sent(err) {
				t.Errorf("not sent: %v, want the words of the last failure", err)
			}
		}
		c.abandon()
		if err := c.enter(); err != nil {
			t.Errorf("after a probe that was given up: %v", err)
		}
		c.leave(nil, 0)
		if err := c.enter(); err != nil || c.failures != 0 {
			t.Errorf("closed: %v, %d failures", err, c.failures)
		}
		// The receiver asks to be left alone: for all, at once, and no shorter
		// than was asked.
		c.limit = 10
		c.leave(down, time.Hour)
		c.leave(down, time.Second)
		if w := RetryAfter(c.enter()); w != time.Hour {
			t.Errorf("wait %s, want an hour", w)
		}
	})
}

func TestWebhookPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, status := verifier(t), 204
		s, end := hook(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			id, err := v.Verify(r.Header, body, time.Now())
			var ce cloudevents.Event
			if err2 := ce.UnmarshalJSON(body); err != nil || err2 != nil || ce.Validate() != nil || ce.ID() != id || ce.Type() != PingType {
				t.Errorf("%s: %v, %v, %v", body, err, err2, ce.Validate())
			}
			if _, err := event.Parse(body); !errors.Is(err, event.ErrUnknownType) {
				t.Errorf("a ping was read: %v", err)
			}
			w.WriteHeader(status)
		}), nil)
		defer end()
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		status = 404
		if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "status 404") {
			t.Error(err)
		}
	})
}

// What others who know CloudEvents make of an event.
func TestCloudEvents(t *testing.T) {
	e := story(1, 1)[0]
	b, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var ce cloudevents.Event
	if err := ce.UnmarshalJSON(b); err != nil {
		t.Fatal(err)
	}
	if err := ce.Validate(); err != nil {
		t.Error(err)
	}
	got := fmt.Sprint(ce.SpecVersion(), ce.ID(), ce.Source(), ce.Type(), ce.Subject(), ce.DataContentType(), ce.Time().Equal(e.Time), ce.Extensions())
	want := fmt.Sprint("1.0", e.ID(), "/coffer/t.1%20%C3%A4", "coffer.reservation.reserved.v1", "reservations/o-0/c", "application/json", true,
		map[string]any{"correlationid": "cart ü 7", "partitionkey": e.Key(), "sequence": "00000000000000000001"})
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var d event.Data
	if err := ce.DataAs(&d); err != nil || d != *e.Data() {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestWebhookTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = quiet
	srv.StartTLS()
	defer srv.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	for _, c := range []struct {
		tls  TLS
		want string
	}{{TLS{CA: ca}, "ok"}, {TLS{CA: ca, ServerName: "example.com"}, "ok"}, {TLS{}, "trouble"}, {TLS{CA: ca, ServerName: "other.example"}, "trouble"}} {
		s, err := Open(Config{Kind: KindWebhook, Webhook: &Webhook{URL: srv.URL, Keys: []Key{{ID: "k", Secret: secretOne}}, TLS: c.tls}}, Deps{Private: true})
		if err != nil {
			t.Fatal(err)
		}
		if errs := s.Deliver(t.Context(), story(1, 1)); errorsOf(errs) != c.want {
			t.Errorf("server name %q: %v, want %s", c.tls.ServerName, errs, c.want)
		}
		_ = s.Close()
	}
}

// What is said of a receiver that cannot be reached is kept, shown and logged; its
// URL may hold a token.
func TestWebhookErrorsHideTheURL(t *testing.T) {
	for _, err := range []error{errors.New("connection refused"), context.DeadlineExceeded} {
		s, e := Open(Config{Kind: KindWebhook, Webhook: &Webhook{URL: "https://shop.example/hook/hush?token=hush", Keys: []Key{{ID: "k", Secret: secretOne}}}}, Deps{
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, err },
		})
		if e != nil {
			t.Fatal(e)
		}
		for _, got := range append(s.Deliver(t.Context(), story(1, 1)), s.Ping(t.Context())) {
			if !errors.Is(got, err) || strings.Contains(got.Error(), "hush") {
				t.Errorf("the error is %v, want %v without the URL", got, err)
			}
		}
		_ = s.Close()
	}
}

// Whoever configures a webhook does not reach the node's own network.
func TestPrivateAddresses(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer srv.Close()
	s, err := Open(Config{Kind: KindWebhook, Webhook: &Webhook{URL: srv.URL, Insecure: true, Keys: []Key{{ID: "k", Secret: secretOne}}}}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if errs := s.Deliver(t.Context(), story(1, 1)); !errors.Is(errs[0], errPrivate) {
		t.Error(errs)
	}
	for a, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "127.0.0.1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false, "::1": false, "::": false, "fe80::1": false, "fd00::1": false,
		"::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "64:ff9b:1::a00:1": false, "2002:a00:1::1": false, "2001:0:a00:1::1": false, "::10.0.0.1": false,
		"::ffff:0:a00:1": false, "fec0::1": false, "0.1.2.3": false, "192.0.0.8": false, "198.18.0.1": false, "240.0.0.1": false, "2001:4860:4860::8888": true,
	} {
		if public(netip.MustParseAddr(a)) != want {
			t.Errorf("%s: public %v", a, !want)
		}
	}
}
