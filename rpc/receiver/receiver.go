package receiver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/rpc/inbox"
)

const (
	// MaxBody bounds a request; an event is much smaller.
	MaxBody = 256 << 10
	// gapRetry is how soon an event that came too early is asked for again.
	gapRetry = time.Second
)

// ErrRefused says, wrapped in the error of a Handle, that it will never take the
// event: there is no use in sending it again. Its text is told to the sender.
var ErrRefused = errors.New("refused")

// Config is a webhook's other end.
type Config struct {
	// Keys are the active ones, 1 to MaxKeys.
	Keys []Key
	// Tolerance is how far a request's time may be from now; 0 means
	// DefaultTolerance.
	Tolerance time.Duration
	// Handle takes an event, for good, or returns an error. It is called
	// concurrently, and may get an event it had: InOrder makes one that cares
	// for that. While an event fails, others wait behind it; an error that will
	// not pass should be ErrRefused, so that the sender parks the event's key
	// and goes on.
	Handle func(context.Context, *event.Event) error
	// Failed, if not nil, is told why a request was not taken; id is empty when
	// the signature does not verify.
	Failed func(ctx context.Context, id string, err error)
}

// Receiver is an http.Handler for the requests of one webhook. It is safe for
// concurrent use.
type Receiver struct {
	cfg      Config
	verifier *Verifier
}

// New checks the configuration.
func New(cfg Config) (*Receiver, error) {
	v, err := NewVerifier(cfg.Tolerance, cfg.Keys...)
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	if cfg.Handle == nil {
		return nil, errors.New("receiver: Handle is missing")
	}
	return &Receiver{cfg: cfg, verifier: v}, nil
}

// ServeHTTP takes one event, or says why not.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id, err := r.take(w, req)
	var a *refusal
	var gap *inbox.Gap
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case errors.As(err, &a):
		http.Error(w, a.Error(), a.status)
	case errors.As(err, &gap):
		w.Header().Set("Retry-After", strconv.Itoa(int(gapRetry.Seconds())))
		http.Error(w, "an earlier event of this key is missing", http.StatusTooEarly)
	case errors.Is(err, ErrRefused):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	default: // what it is is not the sender's business
		http.Error(w, "not taken", http.StatusInternalServerError)
	}
	if r.cfg.Failed != nil {
		r.cfg.Failed(req.Context(), id, err)
	}
}

// refusal is an error that has a status of its own.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func (r *Receiver) take(w http.ResponseWriter, req *http.Request) (id string, err error) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return "", &refusal{http.StatusMethodNotAllowed, fmt.Errorf("method is %.20q (allowed: POST)", req.Method)}
	}
	if t, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || t != event.ContentType {
		return "", &refusal{http.StatusUnsupportedMediaType, fmt.Errorf("content type is %.80q (allowed: %s)", t, event.ContentType)}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return "", &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", MaxBody)}
	case err != nil:
		return "", fmt.Errorf("read the request: %w", err)
	}
	id, err = r.verifier.Verify(req.Header, body, time.Now())
	if err != nil {
		return "", &refusal{http.StatusUnauthorized, err}
	}
	e, err := event.Parse(body)
	switch {
	case errors.Is(err, event.ErrUnknownType):
		return id, nil
	case err != nil:
		return id, &refusal{http.StatusBadRequest, err}
	case e.ID() != id:
		return id, &refusal{http.StatusBadRequest, fmt.Errorf("%s is not the event's id %s", HeaderID, e.ID())}
	}
	return id, r.cfg.Handle(req.Context(), e)
}

// Message is an event as an inbox sees it. The order begins anew with the store's
// incarnation: a store that was restored from an older copy numbers again what
// the copy had not. What the copy had came under the incarnation before, so from
// the second on a key may begin in its middle.
func Message(e *event.Event) inbox.Message {
	return inbox.Message{ID: e.ID(), Key: strconv.FormatUint(e.At.Incarnation, 10) + "/" + e.Key(), Seq: e.Sequence(), Next: e.Next(), Midway: e.At.Incarnation > 1}
}

// InOrder is a Handle whose effect runs once per event, in order per key, in a
// transaction that it must use for all it changes. Internal events are left
// alone.
func InOrder(in *inbox.Inbox, db *sql.DB, effect func(context.Context, *sql.Tx, *event.Event) error) func(context.Context, *event.Event) error {
	return func(ctx context.Context, e *event.Event) error {
		if e.Internal() {
			return nil
		}
		_, err := in.DoInOrder(ctx, db, Message(e), func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, e) })
		return err
	}
}
