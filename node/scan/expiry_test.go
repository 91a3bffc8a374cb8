package scan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

func TestMain(m *testing.M) { testengine.Main(m) }

// world is an index and an executor over the same few reservations.
type world struct {
	mu     sync.Mutex
	rows   map[uint64][]store.DueBlock
	states map[string]*ledger.Attempt
	// refuse overrides the answer for an order.
	refuse map[string]ledger.Code
	sent   map[string]int
	most   int // largest DoAll
	calls  int
	broken error
	order  map[rowID]int // of all rows that there ever were, from 1
	stuck  chan struct{} // blocks DueBlocks while not nil
	panics []string      // orders whose command panics
}

func newWorld() *world {
	return &world{order: map[rowID]int{}, rows: map[uint64][]store.DueBlock{}, states: map[string]*ledger.Attempt{}, refuse: map[string]ledger.Code{}, sent: map[string]int{}}
}

// hold adds reservations in one index row.
func (w *world) hold(slot uint64, due time.Time, orders ...string) {
	b := store.DueBlock{Due: due, Bucket: ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t", Key: "B"}}}
	for _, o := range orders {
		b.Keys = append(b.Keys, store.DueKey{OrderKey: ledger.OrderKey{Tenant: "t", Order: o, Benefit: "b"}, Attempt: 1})
		w.states[o] = &ledger.Attempt{Number: 1, State: ledger.StateReserved, Expires: due}
	}
	w.rows[slot] = append(w.rows[slot], b)
	w.order[idOf(b)] = len(w.order) + 1
}

// rowID tells rows apart.
type rowID struct {
	due    int64
	budget ledger.BudgetID
	first  store.DueKey
}

func idOf(b store.DueBlock) rowID {
	id := rowID{due: b.Due.Unix(), budget: b.Bucket.Budget}
	if len(b.Keys) > 0 {
		id.first = b.Keys[0]
	}
	return id
}

func (w *world) DueBlocks(ctx context.Context, slot uint64, behind store.DueBlock, limit int) ([]store.DueBlock, error) {
	w.mu.Lock()
	stuck := w.stuck
	w.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []store.DueBlock
	for _, b := range w.rows[slot] {
		if !b.Due.After(time.Now()) && len(out) < limit && w.order[idOf(b)] > w.order[idOf(behind)] {
			out = append(out, b)
		}
	}
	return out, w.broken
}

func (w *world) DropDue(_ context.Context, blocks []store.DueBlock) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range blocks {
		for slot, rows := range w.rows {
			for i := range rows {
				if idOf(rows[i]) == idOf(b) {
					w.rows[slot] = append(append([]store.DueBlock(nil), rows[:i]...), rows[i+1:]...)
					break
				}
			}
		}
	}
	return nil
}

func (w *world) OldestDue(context.Context) (oldest time.Time, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rows := range w.rows {
		for _, b := range rows {
			if !ok || b.Due.Before(oldest) {
				oldest, ok = b.Due, true
			}
		}
	}
	return oldest, ok, nil
}

func (w *world) Locate(_ context.Context, keys []ledger.OrderKey) ([]*ledger.Reservation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*ledger.Reservation, len(keys))
	for i, k := range keys {
		if a := w.states[k.Order]; a != nil {
			out[i] = &ledger.Reservation{Key: k, Attempts: []ledger.Attempt{*a}}
		}
	}
	return out, nil
}

func (w *world) DoAll(_ context.Context, cmds []ledger.Command) []ledger.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(w.most, len(cmds))
	w.calls++
	out := make([]ledger.Reply, len(cmds))
	for i, c := range cmds {
		w.sent[c.Key.Order]++
		if slices.Contains(w.panics, c.Key.Order) {
			panic("a fault")
		}
		a := w.states[c.Key.Order]
		code := w.refuse[c.Key.Order]
		switch {
		case code != "":
		case c.Op != ledger.OpExpire || c.Budget.Key != "B":
			code = ledger.Internal
		case a == nil:
			code = ledger.ReservationNotFound
		case a.State != ledger.StateReserved:
			code = ledger.IllegalState
		case a.Expires.After(time.Now()):
			code = ledger.NotDue
		default:
			a.State = ledger.StateExpired
			continue
		}
		out[i].Err = &ledger.Rejection{Code: code}
	}
	return out
}

func (w *world) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, rows := range w.rows {
		n += len(rows)
	}
	return n
}

func (w *world) expiry(t *testing.T, cfg Config) *Expiry {
	t.Helper()
	e, err := New(cfg, w, w, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs the loop for a while of fake time.
func run(t *testing.T, e *Expiry, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := e.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestExpiresWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		now := time.Now()
		w.hold(3, now.Add(time.Second), "a", "b")
		w.hold(63, now.Add(2*time.Second), "c")
		w.hold(0, now.Add(time.Hour), "later")
		e := w.expiry(t, DefaultConfig())
		run(t, e, 5*time.Second)
		for _, o := range []string{"a", "b", "c"} {
			if w.states[o].State != ledger.StateExpired {
				t.Errorf("%s is %s", o, w.states[o].State)
			}
		}
		if w.states["later"].State != ledger.StateReserved || w.left() != 1 {
			t.Errorf("later is %s, %d rows are left, want 1", w.states["later"].State, w.left())
		}
		if s := e.Status(t.Context()); s.Expired != 3 || s.Rows != 2 || s.Failed != 0 || s.Running || s.OldestOverdue != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// What was settled or extended in the meantime is skipped and its row goes;
// what the queue or the store did not take stays for the next pass.
func TestSettledAndDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		due := time.Now()
		w.hold(1, due, "committed", "extended", "gone")
		w.hold(1, due.Add(time.Millisecond), "busy", "fine")
		w.hold(1, due.Add(2*time.Millisecond), "clock stepped back")
		w.hold(1, due.Add(3*time.Millisecond), "still reserved")
		w.states["committed"].State = ledger.StateCommitted
		w.states["extended"].Expires = due.Add(time.Hour)
		delete(w.states, "gone")
		w.refuse["busy"] = ledger.Overloaded
		w.refuse["clock stepped back"] = ledger.NotDue
		w.refuse["still reserved"] = ledger.OperationLimit // a refusal by the state, and none that says it is settled
		e := w.expiry(t, DefaultConfig())
		time.Sleep(10 * time.Millisecond)
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := e.Status(t.Context()); s.Skipped != 3 || s.Deferred != 3 || s.Expired != 1 || s.Rows != 1 || w.left() != 3 {
			t.Errorf("status %+v, %d rows left", s, w.left())
		}
		w.refuse = map[string]ledger.Code{}
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.left() != 0 || w.states["busy"].State != ledger.StateExpired || w.states["clock stepped back"].State != ledger.StateExpired ||
			w.states["still reserved"].State != ledger.StateExpired {
			t.Errorf("%d rows left after the second pass", w.left())
		}
	})
}

func TestCatchUpRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 3000 {
			w.hold(uint64(i%64), time.Now().Add(-time.Hour), fmt.Sprint(i))
		}
		cfg := DefaultConfig()
		cfg.Rate, cfg.CatchUpRate = 100, 10_000
		e := w.expiry(t, cfg)
		run(t, e, 2*time.Second)
		if w.left() != 0 {
			t.Errorf("%d rows left: it did not hurry", w.left())
		}
	})
}

// Two loops at once expire everything once.
func TestTwoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 500 {
			w.hold(uint64(i%64), time.Now(), fmt.Sprint(i))
		}
		a, b := w.expiry(t, DefaultConfig()), w.expiry(t, DefaultConfig())
		var wg sync.WaitGroup
		for _, e := range []*Expiry{a, b} {
			wg.Go(func() { run(t, e, 3*time.Second) })
		}
		wg.Wait()
		if n := a.Status(t.Context()).Expired + b.Status(t.Context()).Expired; n != 500 || w.left() != 0 {
			t.Errorf("%d expired, %d rows left", n, w.left())
		}
	})
}

// A scanner that stops is seen: the oldest overdue rises and readiness fails.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.hold(9, time.Now().Add(2*time.Second), "a")
		e := w.expiry(t, DefaultConfig())
		if err := e.Ready(); err != nil {
			t.Errorf("not ready while another node may lead: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		if err := e.Ready(); err != nil {
			t.Errorf("not ready while it passes: %v", err)
		}
		stuck := make(chan struct{})
		w.mu.Lock()
		w.stuck = stuck
		w.mu.Unlock()
		time.Sleep(20 * time.Second)
		first := e.Status(t.Context()).OldestOverdue
		time.Sleep(20 * time.Second)
		second := e.Status(t.Context()).OldestOverdue
		if first < 15*time.Second || second < first+15*time.Second {
			t.Errorf("oldest overdue %s, then %s: does not rise", first, second)
		}
		if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "has completed no pass for") {
			t.Errorf("ready although it is stuck: %v", err)
		}
		w.mu.Lock()
		w.stuck = nil
		w.mu.Unlock()
		close(stuck)
		time.Sleep(3 * time.Second)
		if err := e.Ready(); err != nil || w.states["a"].State != ledger.StateExpired {
			t.Errorf("it did not recover: %v, %s", err, w.states["a"].State)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if s := e.Status(t.Context()); e.Ready() != nil || s.Running || s.SincePass != 0 {
			t.Errorf("long after it ended: %v, %+v", e.Ready(), s)
		}
	})
}

// A pass that fails or panics is counted, does not end the loop, and does not
// count as one that completed.
func TestFailedPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.broken = errors.New("disk on fire")
		w.hold(1, time.Now().Add(-time.Second), "a")
		e := w.expiry(t, DefaultConfig())
		during := make(chan Status, 1)
		time.AfterFunc(2200*time.Millisecond, func() { during <- e.Status(t.Context()) })
		run(t, e, 2500*time.Millisecond)
		s := <-during
		if s.Failed != 3 || s.Passes != 0 || s.SincePass < 2*time.Second {
			t.Errorf("status %+v", s)
		}
		e.exec = nil // a panic
		w.broken = nil
		if err := e.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "panic") {
			t.Errorf("pass with a panic: %v", err)
		}
	})
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{}, nil, nil, zerolog.Nop())
	for _, want := range []string{"interval is 0s (allowed: 10ms to 1h0m0s)", "page_rows is 0 (allowed: 1 to 1024)", "rate is 0", "stall_after is 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	cfg := DefaultConfig()
	cfg.StallAfter = cfg.Interval
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "stall_after is 1s (allowed: more than interval, 1s)") {
		t.Errorf("got %v", err)
	}
}
