package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

// checked is what "store check --json" prints.
type checked struct {
	Store, Engine, Version, Problem, Error string
	OK                                     bool
	Format, Incarnation                    uint64
	VerifiedBytes                          *int64  `json:"verified_bytes"`
	WriteMS                                float64 `json:"write_ms"`
	ReadMS                                 float64 `json:"read_ms"`
}

// newLedger makes a store with a little in it.
func newLedger(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	s := serve(t, dir)
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "100.00")
	s.cli(t, "order", "reserve", "o1", "b", "--budget", "B", "--amount", "1.00")
	s.end(t)
	return dir
}

// firstTable is the path of a store's first table.
func firstTable(t *testing.T, dir string) string {
	t.Helper()
	put(t, dir, map[string]string{"other": "data"}) // opening writes the log's rows into tables
	tables, err := filepath.Glob(filepath.Join(dir, "data", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no table: %v", err)
	}
	return tables[0]
}

// damage overwrites four bytes of the store's first table, at a share of its
// length, and returns the table's path.
func damage(t *testing.T, dir string, num, den int64) string {
	t.Helper()
	table := firstTable(t, dir)
	f, err := os.OpenFile(table, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("\xde\xad\xbe\xef"), st.Size()*num/den); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return table
}

// A damaged file is named by every command that reads it, and what to do.
func TestDamagedStore(t *testing.T) {
	dir := newLedger(t)
	table := damage(t, dir, 1, 10)
	for _, args := range [][]string{
		{"store", "check"},
		{"audit"},
		{"expiry", "rebuild"},
		{"store", "incarnation"},
		{"store", "incarnation", "--set", "2"},
		{"serve", "--listen", "127.0.0.1:0", "--log-level", "error"},
	} {
		code, out, errs := coffer(t, append(args, "--store", dir)...)
		if code != exitFailed || out != "" {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
		contains(t, errs, "coffer: DAMAGED: ", ": store is damaged: "+table+": ", "; restore "+dir+" from a backup\n")
		if strings.Contains(errs, "transaction") || strings.Contains(errs, "send the same") || strings.Count(errs, "restore") != 1 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %s", args, errs)
		}
	}
	_, out, _ := coffer(t, "store", "check", "--store", dir, "--json")
	if got := decode[checked](t, out); got.OK || got.Problem != "DAMAGED" || !strings.Contains(got.Error, table) {
		t.Errorf("check --json: %+v", got)
	}
	_, out, _ = coffer(t, "audit", "--store", dir, "--json")
	type failure struct {
		Error struct{ Message, Problem string }
	}
	if got := decode[failure](t, out).Error; got.Problem != "DAMAGED" || !strings.Contains(got.Message, table) {
		t.Errorf("audit --json: %+v", got)
	}
}

// A check finds what is damaged also where no row is.
func TestStoreCheckReadsAll(t *testing.T) {
	for _, at := range []int64{0, 30, 50, 70, 90, 99} {
		dir := newLedger(t)
		table := damage(t, dir, at, 100)
		fails(t, exitFailed, "store is damaged: "+table+": ", "store", "check", "--store", dir)
	}
}

func TestStoreCheck(t *testing.T) {
	dir := newLedger(t)
	contains(t, must(t, "store", "check", "--store", dir, "--timeout", patience.String()), "embedded", "format       1\n", "incarnation  1\n", "checksums    right, in all ", " ms\n", "\nstore: ok\n")
	got := decode[checked](t, must(t, "store", "check", "--store", "embedded:"+dir, "--json", "--timeout", patience.String()))
	if !got.OK || got.Engine != "embedded" || got.Format != 1 || got.Incarnation != 1 || got.VerifiedBytes == nil || *got.VerifiedBytes <= 0 || got.WriteMS <= 0 || got.ReadMS < 0 || got.Problem != "" {
		t.Errorf("check --json: %+v", got)
	}
	checkAudit(t, must(t, "audit", "--store", dir))
}

// put writes rows into an engine that no ledger has open.
func put(t *testing.T, dir string, rows map[string]string) {
	t.Helper()
	st, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = kv.Transact(t.Context(), st, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		for k, v := range rows {
			tx.Set([]byte(k), []byte(v))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// Each thing that can be wrong with a store is told apart, in words and for
// programs, and at once.
func TestStoreCheckExplains(t *testing.T) {
	for _, tc := range []struct {
		problem string
		words   string
		next    string
		place   func(t *testing.T) string
	}{
		{"NOT_A_STORE", "there is no store to read", "name the directory of a store", func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }},
		{"NOT_A_STORE", `it holds "letter"`, "choose an empty or absent directory", func(t *testing.T) string {
			dir := t.TempDir()
			return dir + with(t, filepath.Join(dir, "letter"), "hello")
		}},
		{"OTHER", "is a file; name the directory of a store", "name the directory", func(t *testing.T) string {
			file := filepath.Join(t.TempDir(), "f")
			return file + with(t, file, "")
		}},
		{"IN_USE", "stop that process, or choose another directory", "stop that process", func(t *testing.T) string {
			dir := t.TempDir()
			serve(t, dir)
			return dir
		}},
		{"NO_LEDGER", "there is no ledger in the store", "start a node with --store embedded:", func(t *testing.T) string {
			dir := t.TempDir()
			put(t, dir, map[string]string{"other": "data"})
			return dir
		}},
		{"FORMAT", "format 9, this version reads 1", "use the version of coffer that wrote it", func(t *testing.T) string {
			dir := t.TempDir()
			put(t, dir, map[string]string{"coffer\x02M\x00\x02format\x00": "\x00\x00\x00\x00\x00\x00\x00\x09"})
			return dir
		}},
		{"FORMAT", "format 7, this build knows up to 1", "use the version that wrote it", func(t *testing.T) string {
			dir := newLedger(t)
			return dir + with(t, filepath.Join(dir, "STORE"), "coffer store\nformat 7\n")
		}},
		{"DAMAGED", "the store's data is missing: L0: ", "/data from a backup", func(t *testing.T) string {
			dir := newLedger(t)
			if err := os.Remove(firstTable(t, dir)); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{"DAMAGED", "restore", " from a backup", func(t *testing.T) string {
			dir := newLedger(t)
			if err := os.Truncate(firstTable(t, dir), 100); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{"DAMAGED", "restore", " from a backup", func(t *testing.T) string {
			dir := newLedger(t)
			if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{"DAMAGED", "restore", " from a backup", func(t *testing.T) string {
			dir := newLedger(t)
			names, err := filepath.Glob(filepath.Join(dir, "data", "MANIFEST-*"))
			if err != nil || len(names) == 0 {
				t.Fatalf("no manifest: %v", err)
			}
			for _, n := range names {
				with(t, n, strings.Repeat("scratched", 100))
			}
			return dir
		}},
	} {
		t.Run(tc.problem+" "+tc.words, func(t *testing.T) {
			place := tc.place(t)
			_, _, text := coffer(t, "store", "check", "--store", place, "--timeout", patience.String())
			contains(t, text, "coffer: "+strings.TrimPrefix(tc.problem+": ", "OTHER: "), tc.words, tc.next)
			code, out, errs := coffer(t, "store", "check", "--store", place, "--json", "--timeout", patience.String())
			if got := decode[checked](t, out); code != exitFailed || got.OK || got.Problem != tc.problem || !strings.Contains(got.Error, tc.words) || !strings.Contains(errs, tc.words) {
				t.Errorf("exit code %d, %+v; want the problem %s and %q\n%s", code, got, tc.problem, tc.words, errs)
			}
		})
	}
}

// What a test cannot do to a disk is told apart, too.
func TestStoreProblemsOfTheDisk(t *testing.T) {
	l := location{kind: "embedded", path: "/s"}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{
			&kv.Error{Code: kv.CodeIO, Op: "commit", Cause: &fs.PathError{Op: "write", Path: "/s/data/1.log", Err: syscall.ENOSPC}},
			"DISK_FULL: commit: i/o error (1510): write /s/data/1.log: no space left on device; make room on the disk of /s; nothing is lost",
		},
		{
			&kv.Error{Code: kv.CodeIO, Op: "get", Cause: &fs.PathError{Op: "read", Path: "/s/data/5.sst", Err: syscall.EIO}},
			"DISK: get: i/o error (1510): read /s/data/5.sst: input/output error; see that the disk of /s is well, then try again",
		},
		{
			&kv.Error{Code: kv.CodeIO, Op: "get", Cause: &fs.PathError{Op: "open", Path: "/s/data/5.sst", Err: syscall.EACCES}},
			"PERMISSION: get: i/o error (1510): open /s/data/5.sst: permission denied; run as a user who may read all files in /s",
		},
		{
			&embedded.OpenError{Dir: "/s", Cause: &fs.PathError{Op: "open", Path: "/s/STORE", Err: syscall.EACCES}, Advice: "run as a user who may read all files in /s"},
			"PERMISSION: open store /s: open /s/STORE: permission denied: run as a user who may read all files in /s",
		},
	} {
		if err := l.explain(tc.err); err.Error() != tc.want || storeProblem(err)+": " != tc.want[:len(storeProblem(err))+2] {
			t.Errorf("got  %s %v\nwant %s", storeProblem(err), err, tc.want)
		}
	}
}

// with writes a file and returns nothing to add to a path.
func with(t *testing.T, file, content string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return ""
}

// A check never makes a store or a ledger.
func TestStoreCheckMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{{"check"}, {"incarnation"}, {"incarnation", "--set", "2"}} {
		fails(t, exitFailed, "not a store", append(append([]string{"store"}, args...), "--store", dir)...)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
}

// A step that hangs is left behind, and named.
func TestStoreCheckNeverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, left := make(chan struct{}), make(chan struct{})
		s := atStore{Store: "embedded:x", Timeout: time.Second}
		start := time.Now()
		err := s.bounded(&cli{ctx: t.Context()}, func(_ *cli, step func(string)) error {
			defer close(left)
			step("wait for a disk")
			<-stuck
			return nil
		})
		if err == nil || storeProblem(err) != "TIMEOUT" || !strings.Contains(err.Error(), "it hangs at: wait for a disk") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != s.Timeout+hangGrace {
			t.Errorf("it took %s, want %s", took, s.Timeout+hangGrace)
		}
		close(stuck)
		<-left
	})
}

// After a restore the incarnation is raised, offline; nothing else changes.
func TestStoreIncarnation(t *testing.T) {
	dir := newLedger(t)
	at := []string{"store", "incarnation", "--store", dir}
	contains(t, must(t, at...), "incarnation is 1\n")
	contains(t, must(t, append(at, "--set", "3")...), "incarnation raised from 1 to 3\n")
	contains(t, must(t, append(at, "--set", "3")...), "incarnation is 3\n")
	fails(t, exitFailed, "allowed: more than 3, which the store has", append(at, "--set", "2")...)
	if got := decode[map[string]any](t, must(t, append(at, "--json")...)); got["incarnation"] != 3.0 || got["was"] != 3.0 {
		t.Errorf("incarnation --json: %v", got)
	}
	s := serve(t, dir)
	s.cli(t, "order", "reserve", "o2", "b", "--budget", "B", "--amount", "1.00")
	checkAudit(t, s.cli(t, "audit"))
	s.end(t)
	checkAudit(t, must(t, "audit", "--store", dir))
}
