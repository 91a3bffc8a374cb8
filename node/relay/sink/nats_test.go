package sink

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/coffer-ledger/coffer/ledger/event"
)

// natsServer runs a real server with JetStream in this process, at a port of its
// own or the one it had.
func natsServer(t testing.TB, dir string, port int) *server.Server {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: loopback(), Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true, Username: "coffer", Password: "pass",
		MaxPayload: 16 << 10, JetStreamMaxMemory: 32 << 20, JetStreamMaxStore: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server did not start")
	}
	return srv
}

// loopback is an address of this machine whose ports nobody else uses: one that
// a server gives up is free when it comes back.
func loopback() string {
	const own = "127.83.71.6"
	ln, err := net.Listen("tcp", own+":0")
	if err != nil {
		return "127.0.0.1" // not every system has all of 127.0.0.0/8
	}
	_ = ln.Close()
	return own
}

// patient is a context for calls to a server on a slow machine: those without a
// deadline get five seconds from the NATS client.
func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func stop(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

func portOf(t testing.TB, srv *server.Server) int {
	t.Helper()
	u, err := url.Parse(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openNATS(t testing.TB, srv *server.Server, change func(*NATS)) *natsSink {
	t.Helper()
	n := &NATS{Servers: []string{fmt.Sprintf("nats://%s:%d", loopback(), portOf(t, srv))}, User: "coffer", Password: "pass", Timeout: Duration(time.Minute)}
	if change != nil {
		change(n)
	}
	s, err := Open(Config{Kind: KindNATS, NATS: n}, Deps{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*natsSink)
}

func streamOf(t testing.TB, s *natsSink, maxSize int32) jetstream.Stream {
	t.Helper()
	js, err := s.stream(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.CreateStream(patient(t), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"coffer.>"}, MaxMsgSize: maxSize})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// read takes all that a stream has, as a consumer would.
func read(t *testing.T, st jetstream.Stream, n uint64) *inbox {
	t.Helper()
	ctx := patient(t)
	info, err := st.Info(ctx)
	if err != nil || info.State.Msgs != n {
		t.Fatalf("the stream has %d messages, want %d (%v)", info.State.Msgs, n, err)
	}
	in := newInbox()
	for seq := uint64(1); seq <= n; seq++ {
		m, err := st.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		e, err := event.FromAttributes(func(name string) string {
			v, err := url.PathUnescape(m.Header.Get(HeaderPrefix + name))
			if err != nil {
				t.Error(err)
			}
			return v
		}, m.Data)
		if err != nil {
			t.Fatalf("%v: %v", m.Header, err)
		}
		if m.Header.Get(nats.MsgIdHdr) != e.ID() || m.Header.Get("ce-datacontenttype") != "application/json" || e.Entry.Correlation != "cart ü 7" ||
			m.Subject != "coffer.t%2E1%20%C3%A4."+strings.TrimPrefix(e.Type(), "coffer.") {
			t.Errorf("event %s on %s: %v", e.ID(), m.Subject, m.Header)
		}
		in.add(e)
	}
	return in
}

func TestNATS(t *testing.T) {
	dir := t.TempDir()
	srv := natsServer(t, dir, server.RANDOM_PORT)
	defer func() { stop(srv) }()
	s := openNATS(t, srv, nil)
	events := story(20, 10)
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "nats: no stream takes the subject coffer.ping.sink.ping.v1; make one, or correct nats.subject: ") {
		t.Errorf("ping without a stream: %v", err)
	}
	if errs := s.Deliver(t.Context(), events[:40]); !strings.HasPrefix(errorsOf(errs), "trouble") || strings.Count(errorsOf(errs), "held") != 20 ||
		!strings.Contains(errs[0].Error(), "no stream takes the subject coffer.t%2E1%20%C3%A4."+strings.TrimPrefix(events[0].Type(), "coffer.")+"; make one") {
		t.Errorf("without a stream: %v", errs)
	}
	st := streamOf(t, s, -1)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	relay(t, s, events, nil)
	read(t, st, 200).check(t, events)

	// All of it once more: the server knows each.
	relay(t, s, events, nil)
	read(t, st, 200).check(t, events)

	// The server goes away and comes back; what it had taken is not there twice.
	back := s.conn.StatusChanged(nats.CONNECTED)
	gone := s.conn.StatusChanged(nats.RECONNECTING)
	port := portOf(t, srv)
	stop(srv)
	<-gone
	more := story(20, 12)
	if errs := s.Deliver(t.Context(), more[200:]); strings.Count(errorsOf(errs), "trouble") != 20 || strings.Count(errorsOf(errs), "held") != 20 {
		t.Errorf("with the server gone: %v", errs)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ping with the server gone")
	}
	srv = natsServer(t, dir, port)
	<-back
	relay(t, s, more[180:], nil)
	read(t, st, 240).check(t, more)
}

// An event that is too large for the server, and one too large for the stream.
func TestNATSRefuses(t *testing.T) {
	srv := natsServer(t, t.TempDir(), server.RANDOM_PORT)
	defer stop(srv)
	s := openNATS(t, srv, nil)
	st := streamOf(t, s, 8<<10)
	for _, size := range []int{9 << 10, 20 << 10} {
		events := story(3, 3)
		events[1].Entry.Cause = strings.Repeat("x", size)
		errs := s.Deliver(t.Context(), events)
		if got := errorsOf(errs); got != "ok refused ok ok held ok ok held ok" {
			t.Errorf("%d bytes: %s: %v", size, got, errs[1])
		}
	}
	in := read(t, st, 6)
	if len(in.seen) != 2 || in.total != 6 {
		t.Errorf("arrived: %v", in.seen)
	}
}

func TestNATSNotLetIn(t *testing.T) {
	srv := natsServer(t, t.TempDir(), server.RANDOM_PORT)
	defer stop(srv)
	s := openNATS(t, srv, func(n *NATS) { n.Password = "wrong" })
	if errs := s.Deliver(t.Context(), story(1, 2)); errorsOf(errs) != "trouble held" || !strings.Contains(errs[0].Error(), "Authorization Violation") {
		t.Error(errs)
	}
	_ = s.Close()
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

func TestSubject(t *testing.T) {
	for _, c := range []struct{ template, tenant, want string }{
		{DefaultSubject, "t1", "coffer.t1.reservation.reserved.v1"},
		{"x.{type}", "t1", "x.reservation.reserved.v1"},
		{DefaultSubject, "a.b *>/{type}", "coffer.a%2Eb%20%2A%3E%2F%7Btype%7D.reservation.reserved.v1"},
	} {
		if got := subjectOf(c.template, c.tenant, "coffer.reservation.reserved.v1"); got != c.want {
			t.Errorf("%s: %s, want %s", c.template, got, c.want)
		}
	}
}
