package inbox

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/rpc/inbox/inboxtest"
)

func inboxOf(t *testing.T, consumer string) *Inbox {
	t.Helper()
	in, err := New(Config{Consumer: consumer})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func add(n int64) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, inboxtest.Add, n)
		return err
	}
}

// An event that comes again has no second effect; another consumer has its own.
func TestEffectOnce(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in := inboxOf(t, "points")
	for i := range 3 {
		ran, err := in.Do(t.Context(), db, "e1", add(5))
		if err != nil || ran != (i == 0) {
			t.Errorf("delivery %d: ran %v, %v", i, ran, err)
		}
	}
	if ran, err := inboxOf(t, "mail").Do(t.Context(), db, "e1", add(7)); err != nil || !ran {
		t.Errorf("another consumer: %v %v", ran, err)
	}
	if f.Sum() != 12 {
		t.Errorf("sum %d, want 12", f.Sum())
	}
}

// A hundred deliveries at once.
func TestEffectOnceAtOnce(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in := inboxOf(t, "points")
	var ran atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			ok, err := in.Do(context.Background(), db, "e1", add(1))
			if err != nil {
				t.Error(err)
			}
			if ok {
				ran.Add(1)
			}
		})
	}
	wg.Wait()
	if ran.Load() != 1 || f.Sum() != 1 {
		t.Errorf("ran %d times, sum %d", ran.Load(), f.Sum())
	}
}

// An effect that fails, or panics, leaves nothing behind: the next delivery, and
// one that waited for it, has the effect.
func TestFailedEffect(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in := inboxOf(t, "points")
	boom := errors.New("boom")
	inside, waited := make(chan struct{}), make(chan bool)
	go func() {
		<-inside
		ok, err := in.Do(context.Background(), db, "e1", add(5))
		waited <- ok && err == nil
	}()
	ran, err := in.Do(t.Context(), db, "e1", func(ctx context.Context, tx *sql.Tx) error {
		if err := add(5)(ctx, tx); err != nil {
			return err
		}
		close(inside)
		<-f.Waits // the second delivery waits for this one
		return boom
	})
	if ran || !errors.Is(err, boom) {
		t.Errorf("ran %v, %v", ran, err)
	}
	if !<-waited {
		t.Error("the delivery that waited did not have its effect")
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = in.Do(t.Context(), db, "e2", func(context.Context, *sql.Tx) error { panic("x") })
	}()
	if ran, err := in.Do(t.Context(), db, "e2", add(1)); err != nil || !ran {
		t.Errorf("after a panic: %v %v", ran, err)
	}
	if f.Sum() != 6 {
		t.Errorf("sum %d, want 6", f.Sum())
	}
}

// The answer of the commit is lost, whether it took effect or not: the event
// comes again, and its effect is there once.
func TestUnknownCommit(t *testing.T) {
	for _, landed := range []bool{true, false} {
		f, db := inboxtest.New()
		f.OnCommit = func() (bool, bool) { f.OnCommit = nil; return true, landed }
		in := inboxOf(t, "points")
		if ran, err := in.Do(t.Context(), db, "e1", add(5)); ran || err == nil {
			t.Errorf("landed %v: ran %v, %v", landed, ran, err)
		}
		if ran, err := in.Do(t.Context(), db, "e1", add(5)); err != nil || ran == landed {
			t.Errorf("landed %v: second delivery ran %v, %v", landed, ran, err)
		}
		if f.Sum() != 5 {
			t.Errorf("landed %v: sum %d, want 5", landed, f.Sum())
		}
		_ = db.Close()
	}
}

func TestPurge(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in := inboxOf(t, "points")
	if _, err := in.Do(t.Context(), db, "e1", add(1)); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Purge(t.Context(), db, time.Now().Add(-time.Hour)); n != 0 || err != nil || f.Events() != 1 {
		t.Errorf("%d %v", n, err)
	}
	if n, err := inboxOf(t, "mail").Purge(t.Context(), db, time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("another consumer's rows: %d %v", n, err)
	}
	if n, err := in.Purge(t.Context(), db, time.Now().Add(time.Hour)); n != 1 || err != nil || f.Events() != 0 {
		t.Errorf("%d %v", n, err)
	}
}

func TestNames(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Consumer: strings.Repeat("x", 129)},
		{Consumer: "a\x00"},
		{Consumer: "\xff"},
		{Consumer: "c", Table: "a; DROP TABLE b"},
		{Consumer: "c", Table: "a.b.c"},
		{Consumer: "c", Table: "1a"},
		{Consumer: "c", Table: "a."},
		{Consumer: "c", Table: strings.Repeat("a", 58)},
		{Consumer: "c", Dialect: 7},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "(allowed: ") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	_, db := inboxtest.New()
	defer db.Close()
	for _, id := range []string{"", "a\x00", "\xff", strings.Repeat("x", 513)} {
		if ran, err := inboxOf(t, "c").Do(t.Context(), db, id, add(1)); ran || err == nil {
			t.Errorf("event id %.10q: %v", id, err)
		}
	}
	pg, _ := New(Config{Consumer: "c", Table: "app.inbox"})
	if want := []string{
		"CREATE TABLE IF NOT EXISTS app.inbox (consumer TEXT NOT NULL, event_id TEXT NOT NULL, seen_ms BIGINT NOT NULL, PRIMARY KEY (consumer, event_id))",
		"CREATE INDEX IF NOT EXISTS inbox_seen ON app.inbox (consumer, seen_ms)",
		"CREATE TABLE IF NOT EXISTS app.inbox_order (consumer TEXT NOT NULL, event_key TEXT NOT NULL, next_seq BIGINT NOT NULL, PRIMARY KEY (consumer, event_key))",
	}; !slices.Equal(pg.Schema(), want) {
		t.Errorf("%q", pg.Schema())
	}
	lite, _ := New(Config{Consumer: "c", Table: "app.inbox", Dialect: SQLite})
	if !strings.Contains(lite.insert, "VALUES (?1, ?2, ?3)") || lite.Schema()[1] != "CREATE INDEX IF NOT EXISTS app.inbox_seen ON inbox (consumer, seen_ms)" {
		t.Errorf("%q %q", lite.insert, lite.Schema())
	}
}
