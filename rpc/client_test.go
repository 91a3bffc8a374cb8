package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// losing drops the answers of the first n calls, after they ran.
func losing(n int32) func(http.Handler) http.Handler {
	var calls atomic.Int32
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) <= n {
				next.ServeHTTP(nowhere{header: http.Header{}}, r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestLostAnswerIsSentAgainWithTheSameKey(t *testing.T) {
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, losing(2))
			w.exec.do = replaying(w.exec)
			o, err := w.client(t, WithProtocol(p)).Reserve(t.Context(), reserveRequest())
			if err != nil {
				t.Fatal(err)
			}
			ran := w.exec.commands()
			if len(ran) != 3 || !o.GetReplayed() {
				t.Errorf("%d ran, outcome %v", len(ran), o)
			}
			for _, c := range ran[1:] {
				if keyOf(&c) != keyOf(&ran[0]) || c.Amount != ran[0].Amount {
					t.Errorf("sent %+v, then %+v", ran[0], c)
				}
			}
		})
	}
}

// replaying answers all but the first command as replayed.
func replaying(f *fakeExec) func(ledger.Command) (ledger.Result, error) {
	return func(c ledger.Command) (ledger.Result, error) {
		r := accepted(c)
		r.Replayed = len(f.commands()) > 1
		return r, nil
	}
}

func TestGivingUpSaysThatTheOutcomeIsUnknown(t *testing.T) {
	w := newWorld(t, losing(100))
	c := w.client(t, WithMaxAttempts(3))
	_, err := c.Commit(t.Context(), &cofferv1.CommitRequest{OrderId: "o", BenefitKey: "b"})
	var e *Error
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.As(err, &e) || e.Attempts != 3 || e.Detail != nil {
		t.Errorf("error is %+v", err)
	}
	if n := len(w.exec.commands()); n != 3 {
		t.Errorf("%d ran, want 3", n)
	}
	if _, err := c.GetBudget(t.Context(), "spring"); err == nil || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a read's error is %v", err)
	}
}

func TestNoConnectionIsNoUnknownOutcome(t *testing.T) {
	c := NewClient("http://127.0.0.1:1", WithMaxAttempts(2)) // a port that nothing serves
	c.opt.firstDelay = time.Millisecond
	defer c.Close()
	_, err := c.Reserve(t.Context(), reserveRequest())
	var e *Error
	if !errors.As(err, &e) || e.Unknown || e.Code != connect.CodeUnavailable || e.Attempts != 2 {
		t.Errorf("error is %+v", err)
	}
}

func TestBadBaseURLSendsNothing(t *testing.T) {
	for _, base := range []string{"", "127.0.0.1:7420", "localhost:7420", "/coffer", "ftp://127.0.0.1:7420", "http://", "http://a b"} {
		for _, opts := range [][]Option{nil, {WithoutBatching()}, {WithProtocol(ProtocolGRPC)}, {WithToken("coffer_a_b"), WithPlainToken()}} {
			c := NewClient(base, opts...)
			_, err := c.Reserve(t.Context(), reserveRequest())
			var e *Error
			if !errors.As(err, &e) || e.Unknown || e.Code != connect.CodeInvalidArgument || e.Attempts != 1 {
				t.Errorf("error of %q is %+v", base, err)
				continue
			}
			want := fmt.Sprintf("the server's base URL is %q (allowed: http:// or https:// with a host, such as http://127.0.0.1:7420)", base)
			if err.Error() != want {
				t.Errorf("error of %q is %q, not %q", base, err, want)
			}
			_, err = c.Execute(t.Context(), []*cofferv1.Command{reserveCommand(reserveRequest())})
			if !errors.As(err, &e) || e.Unknown || e.Attempts != 1 {
				t.Errorf("error of a batch to %q is %+v", base, err)
			}
			c.Close()
		}
	}
}

func TestNoTLSIsNoUnknownOutcome(t *testing.T) {
	w := newWorld(t)
	c := NewClient(strings.Replace(w.url, "http:", "https:", 1))
	defer c.Close()
	_, err := c.Reserve(t.Context(), reserveRequest())
	var e *Error
	if !errors.As(err, &e) || e.Unknown || e.Attempts != 1 || !errors.Is(err, http.ErrSchemeMismatch) {
		t.Errorf("error is %+v", err)
	}
}

func TestReasonsAndRetries(t *testing.T) {
	cases := []struct {
		code    ledger.Code
		sent    int
		unknown bool
	}{
		{ledger.Overloaded, 3, false},
		{ledger.Draining, 3, false},
		{ledger.Unavailable, 3, false},
		{ledger.OutcomeUnknown, 3, true},
		{ledger.Internal, 1, true},
		{ledger.Corrupt, 1, false},
		{ledger.InsufficientBudget, 1, false},
		{ledger.IllegalState, 1, false},
		{ledger.IdempotencyConflict, 1, false},
		{ledger.BudgetNotFound, 1, false},
	}
	for _, tc := range cases {
		t.Run(string(tc.code), func(t *testing.T) {
			w := newWorld(t)
			w.exec.do = func(ledger.Command) (ledger.Result, error) {
				return ledger.Result{}, &ledger.Rejection{Code: tc.code, Message: "no"}
			}
			_, err := w.client(t, WithMaxAttempts(3)).Reserve(t.Context(), reserveRequest())
			e := refusal(t, err)
			if e.Attempts != tc.sent || e.Unknown != tc.unknown || errors.Is(err, ErrOutcomeUnknown) != tc.unknown || ReasonOf(err) != tc.code {
				t.Errorf("sent %d times, error %+v", e.Attempts, e)
			}
			if !errors.Is(err, &ledger.Rejection{Code: tc.code}) || errors.Is(err, &ledger.Rejection{Code: "OTHER"}) {
				t.Errorf("error %v does not match its reason alone", err)
			}
		})
	}
}

func TestUnknownStaysUnknownUntilTheServerJudges(t *testing.T) {
	for name, tc := range map[string]struct {
		last    ledger.Code
		unknown bool
	}{"then refused": {ledger.IllegalState, false}, "then busy": {ledger.Overloaded, true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var n atomic.Int32
			w.exec.do = func(ledger.Command) (ledger.Result, error) {
				if n.Add(1) == 1 {
					return ledger.Result{}, &ledger.Rejection{Code: ledger.OutcomeUnknown, Message: "lost"}
				}
				return ledger.Result{}, &ledger.Rejection{Code: tc.last, Message: "no"}
			}
			_, err := w.client(t, WithMaxAttempts(3)).Reserve(t.Context(), reserveRequest())
			if e := refusal(t, err); e.Unknown != tc.unknown || e.Reason() != tc.last {
				t.Errorf("error is %+v", e)
			}
		})
	}
}

func TestRetryDelayIsHonoured(t *testing.T) {
	w := newWorld(t)
	var n atomic.Int32
	w.exec.do = func(c ledger.Command) (ledger.Result, error) {
		if n.Add(1) == 1 {
			return ledger.Result{}, &ledger.Rejection{Code: ledger.Overloaded, Message: "busy", RetryAfter: 60 * time.Millisecond}
		}
		return accepted(c), nil
	}
	start := time.Now()
	if _, err := w.client(t).Reserve(t.Context(), reserveRequest()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 60*time.Millisecond {
		t.Errorf("came back after %s", took)
	}
}

func TestSlowAttemptIsAbandonedAndSentAgain(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var n atomic.Int32
	w.exec.do = func(c ledger.Command) (ledger.Result, error) {
		if n.Add(1) == 1 {
			<-release
		}
		return accepted(c), nil
	}
	defer close(release)
	// On a slow machine an attempt that is answered may be too slow as well.
	if _, err := w.client(t, WithAttemptTimeout(50*time.Millisecond), WithMaxAttempts(1000)).Reserve(t.Context(), reserveRequest()); err != nil {
		t.Fatal(err)
	}
	if n.Load() < 2 {
		t.Error("the first attempt was answered, which nobody did")
	}
}

func TestContextBoundsAllAttempts(t *testing.T) {
	w := newWorld(t)
	w.exec.do = func(ledger.Command) (ledger.Result, error) {
		return ledger.Result{}, &ledger.Rejection{Code: ledger.Overloaded, Message: "busy", RetryAfter: time.Hour}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := w.client(t).Reserve(ctx, reserveRequest())
	if e := refusal(t, err); e.Attempts != 1 || e.Reason() != ledger.Overloaded || ctx.Err() != nil {
		t.Errorf("error is %+v, context %v", e, ctx.Err())
	}
	cancel()
	_, err = w.client(t).Reserve(ctx, reserveRequest())
	var e *Error
	if !errors.As(err, &e) || e.Code != connect.CodeCanceled || e.Unknown || e.Attempts != 0 {
		t.Errorf("a call after its end: %+v", err)
	}
}

func TestDelayGrowsAndIsCapped(t *testing.T) {
	c := NewClient("http://localhost:1")
	for attempt, most := range map[int]time.Duration{1: firstDelay, 2: 2 * firstDelay, 8: maxDelay, 60: maxDelay} {
		for range 50 {
			if d := c.delay(attempt, &Error{}); d < most/2 || d > most {
				t.Errorf("attempt %d waits %s, want %s to %s", attempt, d, most/2, most)
			}
		}
	}
}

func TestForTenant(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	for _, tenant := range []string{"", "a", "b"} {
		cc := c
		if tenant != "" {
			cc = c.ForTenant(tenant)
		}
		if _, err := cc.Reserve(t.Context(), reserveRequest()); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"default", "a", "b"} {
		if got := w.exec.commands()[i].Key.Tenant; got != want {
			t.Errorf("call %d had tenant %q, want %q", i, got, want)
		}
	}
}

func TestAuditStream(t *testing.T) {
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var phases []string
			report, err := w.client(t, WithProtocol(p)).Audit(t.Context(), func(p *cofferv1.AuditProgress) { phases = append(phases, p.GetPhase()) })
			if err != nil {
				t.Fatal(err)
			}
			// On a machine that stands still for a while a phase is told again.
			if got := slices.Compact(phases); !slices.Equal(got, []string{"entries", "events"}) {
				t.Errorf("phases are %v", got)
			}
			if !report.GetOk() || report.GetEntries() != 20 || report.GetChecks()[0].GetName() != "balances" || report.GetTotals()[0].GetCurrency() != "AUD" {
				t.Errorf("report is %v", report)
			}
		})
	}
}

// The first message of a phase goes at once, others of it not more often than
// progressEvery.
func TestProgressIsSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		for i, step := range []struct {
			after time.Duration
			phase string
			due   bool
		}{
			{0, "entries", true},
			{0, "entries", false},
			{progressEvery - 1, "entries", false},
			{1, "entries", true},
			{progressEvery - 1, "entries", false},
			{0, "events", true},
			{progressEvery, "events", true},
		} {
			time.Sleep(step.after)
			if due := p.due(step.phase); due != step.due {
				t.Errorf("message %d, of %s: due %v, want %v", i, step.phase, due, step.due)
			}
		}
	})
}

func TestAuditStopsWithItsCaller(t *testing.T) {
	w := newWorld(t)
	stopped := make(chan error, 1)
	w.store.audit = func(ctx context.Context, progress func(string, uint64)) (*store.AuditReport, error) {
		progress("entries", 1)
		<-ctx.Done()
		stopped <- ctx.Err()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := w.client(t).Audit(ctx, func(*cofferv1.AuditProgress) { cancel() })
	if err == nil {
		t.Error("a cancelled audit gave a report")
	}
	<-stopped // or the audit goes on without its caller
}

func TestRebuildExpiryStream(t *testing.T) {
	w := newWorld(t)
	scanned, written, err := w.client(t).RebuildExpiry(t.Context(), nil)
	if err != nil || scanned != 500 || written != 20 {
		t.Errorf("scanned %d, written %d, error %v", scanned, written, err)
	}
	w.store.err = &ledger.Rejection{Code: ledger.Unavailable, Message: "not now"}
	_, _, err = w.client(t).RebuildExpiry(t.Context(), nil)
	if ReasonOf(err) != ledger.Unavailable {
		t.Errorf("error is %v", err)
	}
}

// When the time runs out in the middle of the last attempt, the error still
// says what the attempt before it met.
func TestErrorKeepsWhatWentBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{opt: clientOptions{maxAttempts: 9, firstDelay: time.Second}}
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		sent := 0
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := call(ctx, c, kindRead, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
			if sent++; sent == 1 {
				return nil, refused
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, &struct{}{})
		var e *Error
		var op *net.OpError
		if !errors.As(err, &e) || e.Code != connect.CodeDeadlineExceeded || e.Attempts != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error is %#v", err)
		}
		if !errors.As(err, &op) || op != refused {
			t.Errorf("the refused connection is lost: %v", err)
		}
		if want := "context deadline exceeded; before that: dial tcp: connection refused (sent 2 times)"; err.Error() != want {
			t.Errorf("error reads %q, want %q", err, want)
		}
	})
}
