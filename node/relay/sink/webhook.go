package sink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// Bounds of a receiver's answer.
const (
	maxAnswer        = 64 << 10
	maxAnswerHeaders = 16 << 10
	userAgent        = "coffer-webhook/1"
)

// PingType is the type of the event that a webhook is tested with. It has no
// data, and a receiver that acknowledges types it does not know passes.
const PingType = "coffer.sink.ping.v1"

// webhook posts each event, as a CloudEvent in the JSON format, and signs it as
// rpc/receiver describes. What an answer means:
//
//	2xx                                   the receiver has the event
//	401 403 404 405 407 408 421 425 426   trouble: they speak of the endpoint, the
//	429, 3xx, 5xx, no answer              sender or the time, and not of the event
//	other 4xx                             the event is refused
//
// Redirects are not followed. Retry-After of 429 and 503 is for all events, of
// others for the one event.
type webhook struct {
	url     string
	source  string // of pings
	key     receiver.Key
	timeout time.Duration
	width   int
	circuit circuit
	client  *http.Client
}

func newWebhook(w *Webhook, d Deps) (*webhook, error) {
	key, err := receiver.ParseKey(w.Keys[0].ID, string(w.Keys[0].Secret))
	if err != nil {
		return nil, err
	}
	tlsConfig, err := w.TLS.config()
	if err != nil {
		return nil, err
	}
	s := &webhook{url: w.URL, source: cmp.Or(d.Source, event.DefaultSource), key: key, timeout: or(w.Timeout, DefaultTimeout), width: w.Concurrency}
	if s.width == 0 {
		s.width = DefaultConcurrency
	}
	s.circuit.limit, s.circuit.open = w.Circuit.Failures, or(w.Circuit.Open, DefaultOpen)
	if s.circuit.limit == 0 {
		s.circuit.limit = DefaultFailures
	}
	s.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: d.dialer(), TLSClientConfig: tlsConfig, TLSHandshakeTimeout: dialTimeout,
			MaxIdleConns: s.width, MaxIdleConnsPerHost: s.width, IdleConnTimeout: keepAlive,
			MaxResponseHeaderBytes: maxAnswerHeaders, DisableCompression: true,
		},
	}
	return s, nil
}

// Deliver sends different keys at once, up to the configured concurrency.
func (s *webhook) Deliver(ctx context.Context, events []*event.Event) []error {
	errs := make([]error, len(events))
	work := make(chan lane)
	var wg sync.WaitGroup
	groups := lanes(events)
	for range min(s.width, len(groups)) {
		wg.Go(func() {
			for l := range work {
				for n, i := range l {
					if errs[i] = s.send(ctx, events[i]); errs[i] != nil {
						hold(errs, l[n+1:])
						break
					}
				}
			}
		})
	}
	for _, l := range groups {
		work <- l
	}
	close(work)
	wg.Wait()
	return errs
}

func (s *webhook) send(ctx context.Context, e *event.Event) error {
	body, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &Trouble{Err: err, Unsent: true}
	}
	if err := s.circuit.enter(); err != nil {
		return err
	}
	a, err := s.post(ctx, e.ID(), body)
	switch {
	case err != nil && ctx.Err() != nil:
		s.circuit.abandon()
		return &Trouble{Err: err}
	case err != nil:
		s.circuit.leave(err, 0)
		return &Trouble{Err: err}
	}
	err = a.err()
	if a.alive() {
		s.circuit.leave(nil, 0)
	} else {
		s.circuit.leave(err, a.forAll())
	}
	return err
}

// answer is what a receiver said.
type answer struct {
	status int
	after  time.Duration
	body   string
}

// alive reports whether the endpoint is well, whatever it thinks of the event.
func (a *answer) alive() bool {
	return a.refused() || a.status < 300 || a.status == http.StatusTooEarly
}

// forAll is how long all events shall wait.
func (a *answer) forAll() time.Duration {
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		return a.after
	}
	return 0
}

func (a *answer) refused() bool {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusUpgradeRequired, http.StatusTooManyRequests:
		return false
	default:
		return a.status >= 400 && a.status < 500
	}
}

func (a *answer) err() error {
	said := fmt.Sprintf("status %d", a.status)
	if a.body != "" {
		said += ": " + cut(a.body)
	}
	switch {
	case a.status >= 200 && a.status < 300:
		return nil
	case a.refused():
		return &Refused{Reason: said}
	case a.status >= 300 && a.status < 400:
		return &Trouble{Err: fmt.Errorf("the receiver redirects (status %d), which is not followed: set the new URL", a.status), After: a.after}
	default:
		return &Trouble{Err: errors.New("the receiver answered with " + said), After: a.after}
	}
}

func (s *webhook) post(ctx context.Context, id string, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	req.Header.Set("Content-Type", event.ContentType)
	req.Header.Set("User-Agent", userAgent)
	s.key.Sign(req.Header, id, time.Now(), body)
	res, err := s.client.Do(req)
	var whole *url.Error
	if errors.As(err, &whole) {
		err = whole.Err // without the URL, which may hold a token
	}
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	// The status is the answer. What follows is read as far as it may be of use
	// to a person, and so that the connection can be used again.
	said, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	return &answer{status: res.StatusCode, after: retryAfter(res.Header.Get("Retry-After"), time.Now()), body: strings.TrimSpace(string(said))}, nil
}

// retryAfter reads seconds or a date, up to MaxRetryAfter; 0 where it is neither.
func retryAfter(s string, now time.Time) time.Duration {
	d := time.Duration(0)
	if sec, err := strconv.ParseUint(s, 10, 31); err == nil {
		d = time.Duration(sec) * time.Second
	} else if at, err := http.ParseTime(s); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), MaxRetryAfter)
}

// Ping posts an event of PingType, signed like any other, circuit or not.
func (s *webhook) Ping(ctx context.Context) error {
	id := "ping-" + strings.ToLower(rand.Text())
	body, err := json.Marshal(map[string]string{
		"specversion": "1.0", "id": id, "source": s.source, "type": PingType, "time": time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return err
	}
	a, err := s.post(ctx, id, body)
	if err != nil {
		return &Trouble{Err: err}
	}
	return a.err()
}

// Close ends idle connections.
func (s *webhook) Close() error {
	s.client.CloseIdleConnections()
	return nil
}
