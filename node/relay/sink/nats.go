package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/coffer-ledger/coffer/ledger/event"
)

const (
	natsClient    = "coffer"
	reconnectWait = time.Second
	// maxPending bounds the publishes that wait for their acks.
	maxPending = 4096
)

// natsSink publishes to JetStream, as CloudEvents in the binary mode of the NATS
// binding, with the event's id as Nats-Msg-Id, after its installation's source and
// a slash where that was set: within the stream's duplicate window the server
// itself drops what was sent before.
//
// A key's next event is sent once the ack of the one before it is here; events
// of different keys are under way at once.
type natsSink struct {
	servers string
	subject string
	tenant  string
	timeout time.Duration
	options []nats.Option

	// alive ends with Close.
	alive context.Context
	end   context.CancelFunc

	mu      sync.Mutex
	conn    *nats.Conn
	js      jetstream.JetStream
	attempt *attempt // to connect, while one is under way
}

func newNATS(n *NATS, d Deps) (*natsSink, error) {
	s := &natsSink{servers: strings.Join(n.Servers, ","), subject: n.Subject, tenant: cmp.Or(d.Tenant, "ping"), timeout: or(n.Timeout, DefaultTimeout)}
	if s.subject == "" {
		s.subject = DefaultSubject
	}
	s.alive, s.end = context.WithCancel(context.Background())
	s.options = []nats.Option{
		nats.Name(natsClient), nats.Timeout(min(s.timeout, dialTimeout)), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		// Nothing is kept for when the server is back: it would be sent after
		// this side had said that it was not.
		nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(natsDialer{s.alive, d.dialer()}), nats.SkipHostLookup(), // the dialer does, in time
	}
	switch {
	case n.User != "":
		s.options = append(s.options, nats.UserInfo(n.User, string(n.Password)))
	case n.Token != "":
		s.options = append(s.options, nats.Token(string(n.Token)))
	case n.NKeySeed != "":
		pair, err := nkeys.FromSeed([]byte(n.NKeySeed))
		if err != nil {
			return nil, fmt.Errorf("nats.nkey_seed: %w", err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("nats.nkey_seed: %w", err)
		}
		s.options = append(s.options, nats.Nkey(public, pair.Sign))
	}
	if n.TLS != (TLS{}) {
		c, err := n.TLS.config()
		if err != nil {
			return nil, err
		}
		s.options = append(s.options, nats.Secure(c))
	}
	return s, nil
}

// natsDialer is the node's dialer in the form that the client takes.
type natsDialer struct {
	alive context.Context
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dial connects within dialTimeout.
func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.alive, dialTimeout)
	defer cancel()
	return d.dial(ctx, network, address)
}

// attempt is one try to connect. What came of it can be read once done is closed.
type attempt struct {
	done chan struct{}
	js   jetstream.JetStream
	err  error
}

var errClosed = errors.New("nats: the sink is closed")

// stream connects where there is no connection yet, and waits for that no longer
// than ctx. Once there is one, the client connects again by itself.
func (s *natsSink) stream(ctx context.Context) (jetstream.JetStream, error) {
	s.mu.Lock()
	if s.alive.Err() != nil || s.js != nil {
		defer s.mu.Unlock()
		if s.alive.Err() != nil {
			return nil, errClosed
		}
		return s.js, nil
	}
	a := s.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		s.attempt = a
		go s.connect(a)
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.js, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("nats: connect: %w", ctx.Err())
	}
}

func (s *natsSink) connect(a *attempt) {
	defer close(a.done)
	conn, err := nats.Connect(s.servers, s.options...)
	var js jetstream.JetStream
	if err == nil {
		js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(s.timeout))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = nil
	if err == nil && s.alive.Err() != nil {
		err = errClosed
	}
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		a.err = fmt.Errorf("nats: connect: %w", err)
		return
	}
	s.conn, s.js, a.js = conn, js, js
}

func (s *natsSink) Deliver(ctx context.Context, events []*event.Event) []error {
	return inRounds(ctx, events, s.publish)
}

func (s *natsSink) publish(ctx context.Context, events []*event.Event) []error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	errs := make([]error, len(events))
	js, err := s.stream(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = &Trouble{Err: err}
		}
		return errs
	}
	acks := make([]jetstream.PubAckFuture, len(events))
	for i, e := range events {
		var msg *nats.Msg
		if msg, errs[i] = s.message(e); errs[i] == nil {
			acks[i], errs[i] = js.PublishMsgAsync(msg, jetstream.WithMsgID(msgID(e)))
			errs[i] = natsError(errs[i], msg.Subject)
		}
	}
	for i, ack := range acks {
		if errs[i] != nil {
			continue
		}
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			errs[i] = natsError(err, ack.Msg().Subject)
		case <-ctx.Done():
			errs[i] = &Trouble{Err: fmt.Errorf("nats: no ack: %w", ctx.Err())}
		}
	}
	return errs
}

func natsError(err error, subject string) error {
	var api jetstream.JetStreamError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload),
		errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return &Refused{Reason: cut(err.Error())}
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return &Trouble{Err: noStream(subject, err)}
	default:
		return &Trouble{Err: fmt.Errorf("nats: publish: %w", err)}
	}
}

// noStream is the error of a subject that no stream takes. A sink makes none:
// how long events are kept there is for their owner to say.
func noStream(subject string, err error) error {
	return fmt.Errorf("nats: no stream takes the subject %s; make one, or correct nats.subject: %w", subject, err)
}

func (s *natsSink) message(e *event.Event) (*nats.Msg, error) {
	attrs, data, err := e.Attributes()
	if err != nil {
		return nil, err
	}
	msg := nats.NewMsg(subjectOf(s.subject, e.Bucket.Budget.Tenant, e.Type()))
	msg.Data = data
	for _, a := range attrs {
		msg.Header.Set(HeaderPrefix+a.Name, escapeHeader(a.Value))
	}
	msg.Header.Set(HeaderPrefix+"datacontenttype", event.DataContentType)
	return msg, nil
}

// msgID is what the server knows an event again by. Ids are unique within one
// installation; the events of others may be in the same stream.
func msgID(e *event.Event) string {
	if e.Source == "" {
		return e.ID()
	}
	return e.Source + "/" + e.ID()
}

// HeaderPrefix begins the names of the headers that carry attributes over NATS.
// Their values are percent-encoded as in the HTTP binding.
const HeaderPrefix = "ce-"

func escapeHeader(s string) string {
	plain := func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' }
	var b strings.Builder
	for i := range len(s) {
		if plain(s[i]) {
			_ = b.WriteByte(s[i])
		} else {
			_, _ = fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// subjectOf fills a template. A tenant is one token, whatever its name.
func subjectOf(template, tenant, typ string) string {
	token := strings.NewReplacer(".", "%2E", "*", "%2A").Replace(url.PathEscape(tenant))
	return strings.NewReplacer("{tenant}", token, "{type}", strings.TrimPrefix(typ, "coffer.")).Replace(template)
}

// Ping connects and looks for a stream that has the tenant's subjects, by that
// of a ping. It publishes nothing: a stream would keep it for its consumers.
func (s *natsSink) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	js, err := s.stream(ctx)
	if err != nil {
		return &Trouble{Err: err}
	}
	subject := subjectOf(s.subject, s.tenant, PingType)
	_, err = js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &Trouble{Err: noStream(subject, err)}
	case err != nil:
		return &Trouble{Err: fmt.Errorf("nats: stream of subject %s: %w", subject, err)}
	}
	return nil
}

func (s *natsSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	if s.conn != nil {
		s.conn.Close()
	}
	return nil
}
