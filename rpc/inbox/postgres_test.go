package inbox

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"
)

// The same on a real PostgreSQL, where COFFER_TEST_POSTGRES names one that the
// test may make a table in.
func TestPostgres(t *testing.T) {
	dsn := os.Getenv("COFFER_TEST_POSTGRES")
	if dsn == "" {
		t.Skip("COFFER_TEST_POSTGRES names no server")
	}
	ctx := t.Context()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	in, err := New(Config{Consumer: "points", Table: "coffer_inbox_test", FromStart: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range append(append([]string{"DROP TABLE IF EXISTS coffer_inbox_test, coffer_inbox_test_order, coffer_inbox_sum"}, append(in.Schema(), in.Schema()...)...),
		"CREATE TABLE coffer_inbox_sum (n BIGINT)", "INSERT INTO coffer_inbox_sum VALUES (0)") {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(q, err)
		}
	}
	effect := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE coffer_inbox_sum SET n = n + 5")
		return err
	}
	var ran atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for _, id := range []string{"e1", "E1", "é"} {
				ok, err := in.Do(context.Background(), db, id, effect)
				if err != nil {
					t.Error(err)
				}
				if ok {
					ran.Add(1)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	if err := db.QueryRowContext(ctx, "SELECT n FROM coffer_inbox_sum").Scan(&sum); err != nil || sum != 15 || ran.Load() != 3 {
		t.Errorf("sum %d, ran %d, %v; want 15 and 3", sum, ran.Load(), err)
	}
	postgresOrder(t, in, db, effect)
	if n, err := in.Purge(ctx, db, time.Now().Add(time.Hour)); n != 3+5 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

// Five events of one key, each from many sides and in no order, with retries.
func postgresOrder(t *testing.T, in *Inbox, db *sql.DB, effect func(context.Context, *sql.Tx) error) {
	t.Helper()
	var mu sync.Mutex
	var order []uint64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for left := []uint64{5, 3, 1, 4, 2}; len(left) > 0; {
				seq := left[0]
				left = left[1:]
				m := Message{ID: "k/" + strconv.FormatUint(seq, 10), Key: "k", Seq: seq, Next: seq + 1}
				v, err := in.DoInOrder(context.Background(), db, m, func(ctx context.Context, tx *sql.Tx) error {
					mu.Lock()
					order = append(order, seq)
					mu.Unlock()
					return effect(ctx, tx)
				})
				var g *Gap
				switch {
				case errors.As(err, &g):
					left = append(left, seq)
				case err != nil || v == Late:
					t.Error(seq, v, err)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	err := db.QueryRowContext(t.Context(), "SELECT n FROM coffer_inbox_sum").Scan(&sum)
	if err != nil || sum != 15+25 || !slices.Equal(order, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("sum %d, order %v, %v; want 40 and 1 to 5", sum, order, err)
	}
	if moved, err := in.Skip(t.Context(), db, "k", 9); err != nil || !moved {
		t.Errorf("skip: %v, %v", moved, err)
	}
	if moved, err := in.Skip(t.Context(), db, "k", 8); err != nil || moved {
		t.Errorf("skip back: %v, %v", moved, err)
	}
}
