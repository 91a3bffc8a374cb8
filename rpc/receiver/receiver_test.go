package receiver_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/node/relay/sink"
	"github.com/coffer-ledger/coffer/rpc/inbox"
	"github.com/coffer-ledger/coffer/rpc/inbox/inboxtest"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

// committed is event seq of an order.
func committed(order, seq int) *event.Event {
	var at event.Position
	at.Incarnation, at.Index = 1, uint32(order)
	binary.BigEndian.PutUint64(at.Stamp[:], uint64(seq))
	return &event.Event{
		At: at, Bucket: ledger.BucketID{Budget: ledger.BudgetID{Tenant: "shop", Key: "SPRING"}}, Currency: "BRL", Time: time.Unix(1_800_000_000, 0).UTC(),
		Entry: ledger.Entry{
			Seq: uint64(order*100 + seq), Type: ledger.EntryCommit, Order: fmt.Sprintf("o-%d", order), Benefit: "c", Attempt: 1, EventSeq: uint32(seq),
			Delta: ledger.Balances{Reserved: -5, Committed: 5},
		},
	}
}

func keyOf(t testing.TB, id, secret string) receiver.Key {
	t.Helper()
	k, err := receiver.ParseKey(id, secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// request is a signed one for an event, made at a time.
func request(t testing.TB, k receiver.Key, e *event.Event, at time.Time) *http.Request {
	t.Helper()
	body, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hook", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", event.ContentType)
	k.Sign(r.Header, e.ID(), at, body)
	return r
}

func TestAnswers(t *testing.T) {
	k := keyOf(t, "k1", receiver.NewSecret())
	var handled []*event.Event
	var answer, told error
	r, err := receiver.New(receiver.Config{
		Keys:   []receiver.Key{k},
		Handle: func(_ context.Context, e *event.Event) error { handled = append(handled, e); return answer },
		Failed: func(_ context.Context, _ string, err error) { told = err },
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signed := func(body string) *http.Request {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hook", strings.NewReader(body))
		q.Header.Set("Content-Type", event.ContentType)
		k.Sign(q.Header, "e1", now, []byte(body))
		return q
	}
	good := func() *http.Request { return request(t, k, committed(1, 1), now) }
	for _, c := range []struct {
		name   string
		req    *http.Request
		answer error
		status int
		body   string
	}{
		{"an event", good(), nil, 204, ""},
		{"a gap", good(), fmt.Errorf("effect: %w", &inbox.Gap{Key: "k", Want: 1, Got: 3}), 425, "an earlier event of this key is missing\n"},
		{"refused", good(), fmt.Errorf("%w: no such order", receiver.ErrRefused), 422, "refused: no such order\n"},
		{"a failure", good(), errors.New("password of db is hunter2"), 500, "not taken\n"},
		{"a type to come", signed(`{"specversion":"1.0","type":"coffer.sink.ping.v1"}`), errors.New("not called"), 204, ""},
		{"no event", signed(`{}`), nil, 400, "malformed event: specversion is \"\" (allowed: 1.0)\n"},
		{"another's id", func() *http.Request {
			q := good()
			body, _ := committed(1, 1).MarshalJSON()
			k.Sign(q.Header, "e1", now, body)
			return q
		}(), nil, 400, "webhook-id is not the event's id 1-00-000000000000000100000000-1\n"},
		{"a copy made an hour ago", request(t, k, committed(1, 1), now.Add(-time.Hour)), nil, 401, ""},
		{"another's signature", request(t, keyOf(t, "k1", receiver.NewSecret()), committed(1, 1), now), nil, 401, "the signature does not verify with key \"k1\"\n"},
		{"too large", signed(strings.Repeat("x", receiver.MaxBody+1)), nil, 413, ""},
		{"GET", httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/hook", nil), nil, 405, ""},
		{"a form", httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hook", nil), nil, 415, ""},
	} {
		handled, told, answer = nil, nil, c.answer
		w := httptest.NewRecorder()
		r.ServeHTTP(w, c.req)
		if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.name, w.Code, w.Body, c.status, c.body)
		}
		if (w.Code == 425) != (w.Header().Get("Retry-After") == "1") || (w.Code >= 300) != (told != nil) {
			t.Errorf("%s: headers %v, told %v", c.name, w.Header(), told)
		}
		reaches := map[string]bool{"an event": true, "a gap": true, "refused": true, "a failure": true}[c.name]
		if (len(handled) == 1) != reaches || reaches && handled[0].ID() != committed(1, 1).ID() {
			t.Errorf("%s: handled %v", c.name, handled)
		}
	}
	if _, err := receiver.New(receiver.Config{Keys: []receiver.Key{k}}); err == nil {
		t.Error("a receiver that handles nothing")
	}
	if _, err := receiver.New(receiver.Config{Handle: func(context.Context, *event.Event) error { return nil }}); err == nil {
		t.Error("a receiver without keys")
	}
}

// faulty stands between sender and receiver. By a hash of the request and its
// number it fails before, loses the answer, or passes the request on twice.
type faulty struct {
	to    http.Handler
	mu    sync.Mutex
	tries map[string]uint32
	all   atomic.Int64
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(receiver.HeaderID)
	f.mu.Lock()
	f.tries[id]++
	n := f.tries[id]
	f.mu.Unlock()
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, id, "/", n)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender went away
	}
	pass := func(w http.ResponseWriter) {
		f.all.Add(1)
		c := r.Clone(r.Context())
		c.Body = io.NopCloser(strings.NewReader(string(body)))
		f.to.ServeHTTP(w, c)
	}
	switch h.Sum32() >> 8 % 5 {
	case 0:
		http.Error(w, "not now", http.StatusBadGateway)
	case 1:
		pass(httptest.NewRecorder())
		panic(http.ErrAbortHandler)
	case 2:
		pass(httptest.NewRecorder())
		pass(w)
	default:
		pass(w)
	}
}

// Two relays that both think they own the events, a network that loses answers
// and repeats requests, a database that loses commits: every effect is there
// once, and in order per key.
func TestExactlyOnce(t *testing.T) {
	const orders, each = 25, 8
	secret := receiver.NewSecret()
	f, db := inboxtest.New()
	defer db.Close()
	go func() { // nobody looks at who waits
		for range f.Waits {
		}
	}()
	defer close(f.Waits)
	var commits atomic.Int64
	f.OnCommit = func() (bool, bool) { n := commits.Add(1); return n%7 == 0, n%2 == 0 }
	in, err := inbox.New(inbox.Config{Consumer: "points", FromStart: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := receiver.New(receiver.Config{
		Keys: []receiver.Key{keyOf(t, "k1", secret)},
		Handle: receiver.InOrder(in, db, func(ctx context.Context, tx *sql.Tx, e *event.Event) error {
			_, err := tx.ExecContext(ctx, inboxtest.Log, fmt.Sprintf("%s %d", e.Key(), e.Sequence()))
			return err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	network := &faulty{to: r, tries: map[string]uint32{}}
	srv := httptest.NewServer(network)
	defer srv.Close()
	var wg sync.WaitGroup
	for relay := range 2 {
		wg.Go(func() {
			s, err := sink.Open(sink.Config{Kind: sink.KindWebhook, Webhook: &sink.Webhook{
				URL: srv.URL, Insecure: true, Keys: []sink.Key{{ID: "k1", Secret: sink.Secret(secret)}}, Circuit: sink.Circuit{Failures: sink.MaxFailures},
			}}, sink.Deps{Private: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			var left []*event.Event
			for seq := each; seq >= 1; seq-- { // relay 0 begins backwards: gaps, too
				for o := range orders {
					if relay == 0 {
						left = append(left, committed(o, seq))
					} else {
						left = append([]*event.Event{committed(orders-1-o, seq)}, left...)
					}
				}
			}
			for round := 0; len(left) > 0; round++ {
				if round == 1000 {
					t.Errorf("%d events are left", len(left))
					return
				}
				var again []*event.Event
				for i, err := range s.Deliver(context.Background(), left) {
					var refused *sink.Refused
					if errors.As(err, &refused) {
						t.Error(err)
					}
					if err != nil {
						again = append(again, left[i])
					}
				}
				if relay == 0 {
					slices.Reverse(again)
				}
				left = again
			}
		})
	}
	wg.Wait()
	next := map[string]int{}
	for _, line := range f.Logged() {
		key, seq, _ := strings.Cut(line, " ")
		next[key]++
		if seq != fmt.Sprint(next[key]) {
			t.Errorf("key %s: effect of event %s, want %d", key, seq, next[key])
		}
	}
	if n := len(f.Logged()); n != orders*each || len(next) != orders || f.Events() != n {
		t.Errorf("%d effects of %d keys, %d events recorded; want %d of %d", n, len(next), f.Events(), orders*each, orders)
	}
	if n := network.all.Load(); n < 2*orders*each {
		t.Errorf("only %d requests came through", n)
	}
}

func TestMessage(t *testing.T) {
	e := committed(1, 3)
	if got, want := fmt.Sprintf("%+v", receiver.Message(e)), "{ID:1-00-000000000000000300000000-1 Key:1/shop/reservations/o-1/c Seq:3 Next:4 Midway:false}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A reservation goes on in a store that was restored from a copy: what the copy
// had of it came under the incarnation before, so there it begins in the middle.
func TestInOrderAfterARestore(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in, err := inbox.New(inbox.Config{Consumer: "points", FromStart: true})
	if err != nil {
		t.Fatal(err)
	}
	handle := receiver.InOrder(in, db, func(ctx context.Context, tx *sql.Tx, e *event.Event) error {
		_, err := tx.ExecContext(ctx, inboxtest.Log, fmt.Sprintf("%d-%d", e.At.Incarnation, e.Sequence()))
		return err
	})
	var gap *inbox.Gap
	for _, c := range []struct {
		incarnation uint64
		seq         int
		early       bool
	}{{1, 2, true}, {1, 1, false}, {1, 2, false}, {1, 3, false}, {2, 3, false}, {2, 5, true}, {2, 4, false}} {
		e := committed(1, c.seq)
		e.At.Incarnation = c.incarnation
		if err := handle(context.Background(), e); errors.As(err, &gap) != c.early || err != nil && !c.early {
			t.Errorf("event %d of incarnation %d: %v", c.seq, c.incarnation, err)
		}
	}
	if got, want := strings.Join(f.Logged(), " "), "1-1 1-2 1-3 2-3 2-4"; got != want {
		t.Errorf("effects of %s, want %s", got, want)
	}
}
