package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/rpc/inbox/inboxtest"
)

func logged(s string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, inboxtest.Log, s)
		return err
	}
}

// orderRun sends messages one after the other and writes down what became of
// each: "seq/next verdict".
func orderRun(t *testing.T, in *Inbox, db *sql.DB, key string, messages ...[2]uint64) []string {
	t.Helper()
	var out []string
	for _, m := range messages {
		id := fmt.Sprintf("%s-%d", key, m[0])
		v, err := in.DoInOrder(t.Context(), db, Message{ID: id, Key: key, Seq: m[0], Next: m[1]}, logged(id))
		var g *Gap
		switch {
		case errors.As(err, &g):
			out = append(out, fmt.Sprintf("%d gap, want %d", g.Got, g.Want))
		case err != nil:
			t.Fatal(err)
		default:
			out = append(out, fmt.Sprintf("%d %s", m[0], v))
		}
	}
	return out
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name      string
		fromStart bool
		send      [][2]uint64
		want      []string
		logged    string
	}{
		{
			"a gap closes", true,
			[][2]uint64{{1, 2}, {3, 4}, {1, 2}, {2, 3}, {3, 4}, {3, 4}},
			[]string{"1 in order", "3 gap, want 2", "1 repeated", "2 in order", "3 in order", "3 repeated"},
			"k-1 k-2 k-3",
		},
		{
			"an entry elsewhere takes a number", true,
			[][2]uint64{{1, 2}, {2, 4}, {3, 4}, {4, 5}},
			[]string{"1 in order", "2 in order", "3 late", "4 in order"},
			"k-1 k-2 k-3 k-4",
		},
		{
			"from the start", true,
			[][2]uint64{{2, 3}, {1, 2}, {2, 3}},
			[]string{"2 gap, want 1", "1 in order", "2 in order"},
			"k-1 k-2",
		},
		{
			"from anywhere", false,
			[][2]uint64{{5, 6}, {7, 8}, {6, 7}, {4, 5}, {7, 8}},
			[]string{"5 in order", "7 gap, want 6", "6 in order", "4 late", "7 in order"},
			"k-5 k-6 k-4 k-7",
		},
		{
			"numbers are left out", true,
			[][2]uint64{{5, 0}, {9, 0}, {7, 0}, {9, 0}, {10, 0}},
			[]string{"5 in order", "9 in order", "7 late", "9 repeated", "10 in order"},
			"k-5 k-9 k-7 k-10",
		},
	} {
		f, db := inboxtest.New()
		in, err := New(Config{Consumer: "points", FromStart: c.fromStart})
		if err != nil {
			t.Fatal(err)
		}
		if got := orderRun(t, in, db, "k", c.send...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := strings.Join(f.Logged(), " "); got != c.logged {
			t.Errorf("%s: effects %s, want %s", c.name, got, c.logged)
		}
		_ = db.Close()
	}
}

// What never comes is skipped, by a person.
func TestSkip(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in := inboxOf(t, "points")
	orderRun(t, in, db, "k", [2]uint64{1, 2}, [2]uint64{5, 6})
	for _, c := range []struct {
		seq   uint64
		moved bool
	}{{5, true}, {5, false}, {3, false}} {
		if moved, err := in.Skip(t.Context(), db, "k", c.seq); err != nil || moved != c.moved {
			t.Errorf("skip to %d: %v, %v", c.seq, moved, err)
		}
	}
	got := orderRun(t, in, db, "k", [2]uint64{5, 6}, [2]uint64{3, 4}, [2]uint64{3, 4})
	if want := []string{"5 in order", "3 late", "3 repeated"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := []string{"k-1", "k-5", "k-3"}; !slices.Equal(f.Logged(), want) {
		t.Errorf("effects %q, want %q", f.Logged(), want)
	}
	// A key that was never seen may be skipped ahead, too.
	if moved, err := in.Skip(t.Context(), db, "new", 7); err != nil || !moved {
		t.Errorf("%v, %v", moved, err)
	}
	if got := orderRun(t, in, db, "new", [2]uint64{8, 9}, [2]uint64{7, 8}); got[0] != "8 gap, want 7" || got[1] != "7 in order" {
		t.Errorf("%q", got)
	}
}

// An effect that fails moves nothing, and a commit whose answer is lost is sorted
// out when the event comes again.
func TestOrderAfterFailure(t *testing.T) {
	f, db := inboxtest.New()
	defer db.Close()
	in := inboxOf(t, "points")
	boom := errors.New("boom")
	m := Message{ID: "e1", Key: "k", Seq: 1, Next: 2}
	if v, err := in.DoInOrder(t.Context(), db, m, func(context.Context, *sql.Tx) error { return boom }); v != 0 || !errors.Is(err, boom) {
		t.Errorf("%v, %v", v, err)
	}
	for landed, want := range map[bool]Verdict{true: Repeated, false: InOrder} {
		m.Key = fmt.Sprint("key", landed)
		m.ID = m.Key
		f.OnCommit = func() (bool, bool) { f.OnCommit = nil; return true, landed }
		if v, err := in.DoInOrder(t.Context(), db, m, add(5)); v != 0 || err == nil {
			t.Errorf("landed %v: %v, %v", landed, v, err)
		}
		if v, err := in.DoInOrder(t.Context(), db, m, add(5)); err != nil || v != want {
			t.Errorf("landed %v: %v, %v", landed, v, err)
		}
	}
	if f.Sum() != 10 {
		t.Errorf("sum %d, want 10", f.Sum())
	}
	for _, bad := range []Message{{ID: "e", Seq: 1}, {ID: "e", Key: "k"}, {ID: "e", Key: "k", Seq: 2, Next: 2}, {Key: "k", Seq: 1}, {ID: "e", Key: strings.Repeat("k", MaxKey+1), Seq: 1}} {
		if v, err := in.DoInOrder(t.Context(), db, bad, add(1)); v != 0 || err == nil {
			t.Errorf("%.40v: %v, %v", bad, v, err)
		}
	}
}
