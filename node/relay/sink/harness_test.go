package sink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog is one
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// story makes the events of some reservations, n of each, one of each in turn.
func story(keys, n int) []*event.Event {
	var out []*event.Event
	for seq := 1; seq <= n; seq++ {
		for k := range keys {
			var at event.Position
			at.Incarnation, at.Partition, at.Index = 1, 3, uint32(k)
			binary.BigEndian.PutUint64(at.Stamp[:], uint64(seq))
			t := ledger.EntryCommit
			if seq == 1 {
				t = ledger.EntryReserve
			}
			out = append(out, &event.Event{
				At: at, Bucket: ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t.1 ä", Key: "B"}, Index: 2}, Currency: "BRL",
				Time: time.Date(2026, 11, 29, 16, 33, 40, 0, time.UTC),
				Entry: ledger.Entry{
					Seq: uint64(seq*keys + k), Type: t, Order: fmt.Sprintf("o-%d", k), Benefit: "c", Attempt: 1, EventSeq: uint32(seq),
					Delta: ledger.Balances{Available: -1, Reserved: 1}, Correlation: "cart ü 7",
				},
			})
		}
	}
	return out
}

// inbox is what a receiver has seen, by key.
type inbox struct {
	mu    sync.Mutex
	seen  map[string][]uint64 // sequences in the order of arrival, without repeats
	ids   map[string]int
	total int
}

func newInbox() *inbox { return &inbox{seen: map[string][]uint64{}, ids: map[string]int{}} }

func (in *inbox) add(e *event.Event) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.total++
	in.ids[e.ID()]++
	if in.ids[e.ID()] == 1 {
		in.seen[e.Key()] = append(in.seen[e.Key()], e.Sequence())
	}
}

// check wants every event, those of each key in order.
func (in *inbox) check(t *testing.T, events []*event.Event) {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	want := map[string][]uint64{}
	for _, e := range events {
		want[e.Key()] = append(want[e.Key()], e.Sequence())
	}
	if len(in.seen) != len(want) || len(in.ids) != len(events) {
		t.Errorf("%d keys and %d events arrived, want %d and %d", len(in.seen), len(in.ids), len(want), len(events))
	}
	for k, w := range want {
		if !slices.Equal(in.seen[k], w) {
			t.Errorf("key %s: sequences %v arrived, want %v", k, in.seen[k], w)
		}
	}
}

// relay delivers until every event was taken or refused, and checks what Deliver
// promises of each call. It gives the refused ones, whose keys are done with.
func relay(t *testing.T, s Sink, events []*event.Event, again func(round int)) (refused []*event.Event) {
	t.Helper()
	parked := map[string]bool{}
	for round := 0; len(events) > 0; round++ {
		if round > 200 {
			t.Fatalf("%d events are left after %d rounds", len(events), round)
		}
		var left []*event.Event
		failed := map[string]bool{}
		errs := s.Deliver(t.Context(), events)
		if len(errs) != len(events) {
			t.Fatalf("%d errors for %d events", len(errs), len(events))
		}
		for i, err := range errs {
			e := events[i]
			if errors.Is(err, ErrHeld) != failed[e.Key()] {
				t.Errorf("event %s of key %s: %v, though an earlier one of it failed: %v", e.ID(), e.Key(), err, failed[e.Key()])
			}
			if err == nil {
				continue
			}
			failed[e.Key()] = true
			var r *Refused
			if errors.As(err, &r) {
				refused = append(refused, e)
				parked[e.Key()] = true
			}
			left = append(left, e)
		}
		events = slices.DeleteFunc(left, func(e *event.Event) bool { return parked[e.Key()] })
		if len(events) > 0 && again != nil {
			again(round)
		}
	}
	return refused
}

func errorsOf(errs []error) string {
	out := make([]string, len(errs))
	for i, err := range errs {
		var r *Refused
		var tr *Trouble
		switch {
		case err == nil:
			out[i] = "ok"
		case errors.Is(err, ErrHeld):
			out[i] = "held"
		case errors.As(err, &r):
			out[i] = "refused"
		case errors.As(err, &tr):
			out[i] = "trouble"
		default:
			out[i] = err.Error()
		}
	}
	return strings.Join(out, " ")
}

// pipes is a network without sockets, for use inside synctest.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

// hook opens a webhook to a handler on pipes. What it gives ends both.
func hook(t *testing.T, h http.Handler, change func(*Webhook)) (Sink, func()) {
	t.Helper()
	net := newPipes()
	srv := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { _ = srv.Serve(net); close(served) }()
	w := &Webhook{URL: "http://shop.example/hook", Insecure: true, Keys: []Key{{ID: "k2", Secret: secretTwo}, {ID: "k1", Secret: secretOne}}}
	if change != nil {
		change(w)
	}
	s, err := Open(Config{Kind: KindWebhook, Webhook: w}, Deps{Dial: net.dial})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		_ = s.Close()
		_ = srv.Close()
		<-served
	}
}

var secretOne, secretTwo = Secret(receiver.NewSecret()), Secret(receiver.NewSecret())

func verifier(t *testing.T) *receiver.Verifier {
	t.Helper()
	one, err1 := receiver.ParseKey("k1", string(secretOne))
	two, err2 := receiver.ParseKey("k2", string(secretTwo))
	v, err3 := receiver.NewVerifier(0, one, two)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return v
}

// quiet keeps what a server says of failed handshakes out of the output.
var quiet = log.New(io.Discard, "", 0)
