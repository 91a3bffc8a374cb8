package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// csvFile writes a file of the test and returns its path.
func csvFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveStill is a server that writes nothing but what it is told to: money does
// not move between buckets by itself, so that entries can be counted.
func serveStill(t *testing.T) *served {
	t.Helper()
	return serveEnv(t, t.TempDir(), []string{"COFFER_REBALANCE_ENABLED=false"})
}

// importServer is such a server with one funded budget.
func importServer(t *testing.T) *served {
	t.Helper()
	s := serveStill(t)
	s.cli(t, "budget", "create", "B", "--currency", "BRL", "--buckets", "4")
	s.cli(t, "budget", "fund", "B", "--amount", "100000.00")
	return s
}

// entries counts the ledger's entries and events.
func (s *served) entries(t *testing.T) (entries, events string) {
	t.Helper()
	a := decode[struct {
		Report struct{ Entries, Events string }
	}](t, s.cli(t, "audit", "--json"))
	return a.Report.Entries, a.Report.Events
}

func TestImportTwice(t *testing.T) {
	s := importServer(t)
	var b strings.Builder
	b.WriteString("\ufeffnote,currency,order_id,amount_minor,benefit_key\r\n")
	total := 0
	for i := range 1234 {
		amount := 100 + i%97
		if i%400 == 399 {
			amount = 0
		}
		total += amount
		fmt.Fprintf(&b, "\"row, %d\",BRL,o%d,%d,\"voucher:%d\"\r\n", i, i/3, amount, i%3)
	}
	file := csvFile(t, b.String())
	args := []string{"import", file, "--budget", "B", "--commit", "--batch", "50", "--server", s.url}

	code, out, errs := coffer(t, args...)
	if code != exitFailed {
		t.Errorf("import with rejected rows: exit code %d\n%s%s", code, out, errs)
	}
	contains(t, out, "401  amount_minor  INVALID_ARGUMENT", "801  amount_minor", "1201  amount_minor", "must be positive", "1 to 9223372036854775807",
		" 1234      1231       1231         0        0         3", money(int64(total), "BRL"))
	entries, events := s.entries(t)

	sum := decode[summary](t, must(t, append(args, "--allow-rejects", "--json")...))
	if sum.Rows != 1234 || sum.Replayed != 1231 || sum.Reserved+sum.Committed+sum.Skipped != 0 || sum.Rejected != 3 || sum.Totals["BRL"] != int64(total) {
		t.Errorf("second import: %+v", sum)
	}
	if e, v := s.entries(t); e != entries || v != events {
		t.Errorf("second import wrote: %s entries became %s, %s events became %s", entries, e, events, v)
	}
	checkAudit(t, s.cli(t, "audit"))
}

// A key that stands in a file twice: the first row wins, an equal one is a
// replay, another is a conflict with its line, wherever the two stand.
func TestImportRepeatedKeys(t *testing.T) {
	s := importServer(t)
	file := csvFile(t, "order_id,benefit_key,amount_minor,currency\n"+
		"o1,b,500,BRL\n"+ // 2
		"o1,b,500,BRL\n"+ // 3: replay
		"o1,b,700,BRL\n"+ // 4: conflict
		"o2,b,100,BRL\n"+ // 5
		"o1,b,500,BRL\n"+ // 6: replay
		"o2,b,100,USD\n"+ // 7: conflict
		"o3,b,100,USD\n") // 8: mismatch
	for range 3 { // never in one batch, whatever the size and the concurrency
		sum := decode[summary](t, must(t, "import", file, "--budget", "B", "--commit", "--batch", "3", "--allow-rejects", "--json", "--server", s.url))
		var got []string
		for _, r := range sum.Rejects {
			got = append(got, fmt.Sprintf("%d %s", r.Line, r.Code))
		}
		if want := "[4 IDEMPOTENCY_CONFLICT 7 IDEMPOTENCY_CONFLICT 8 CURRENCY_MISMATCH]"; fmt.Sprint(got) != want {
			t.Errorf("rejects %v, want %s", got, want)
		}
		if sum.Rows != 7 || sum.Totals["BRL"] != 600 || sum.Doubles != 2 {
			t.Errorf("summary %+v", sum)
		}
	}
	contains(t, must(t, "import", file, "--budget", "B", "--commit", "--allow-rejects", "--server", s.url), "6.00 BRL",
		"2 rows are in the file a second time; total counts a benefit once")
	contains(t, s.cli(t, "budget", "get", "B"), "6.00") // 5.00 and 1.00, once each
}

// A conflict must not commit what another file reserved under the key.
func TestImportConflictCommitsNothing(t *testing.T) {
	s := importServer(t)
	s.cli(t, "order", "reserve", "o1", "b", "--budget", "B", "--amount", "9.00", "--ttl", "15m")
	file := csvFile(t, "order_id,benefit_key,amount_minor,currency\no1,b,500,BRL\n")
	fails(t, exitFailed, "IDEMPOTENCY_CONFLICT", "import", file, "--budget", "B", "--commit", "--server", s.url)
	fails(t, exitFailed, "1 row was sent before with other values", "import", file, "--budget", "B", "--commit", "--server", s.url)
	contains(t, s.cli(t, "order", "get", "o1", "b"), "RESERVED", "9.00")
}

func TestImportFaults(t *testing.T) {
	s := importServer(t)
	before, _ := s.entries(t)
	const header = "order_id,benefit_key,amount_minor,currency\n"
	good := csvFile(t, header+"o1,b,500,BRL\n")
	for _, tc := range []struct{ text, words string }{
		{"", "file is empty; its first line must name the columns"},
		{"order_id,benefit_key,currency\no1,b,BRL\n", "line 1: column amount_minor is missing"},
		{"order_id,\"benefit_key,amount_minor,currency\n", "line 1: header cannot be read"},
	} {
		fails(t, exitFailed, tc.words, "import", csvFile(t, tc.text), "--budget", "B", "--server", s.url)
	}
	fails(t, exitFailed, "BUDGET_NOT_FOUND", "import", good, "--budget", "NOPE", "--server", s.url)
	fails(t, exitFailed, "BUDGET_NOT_FOUND", "import", good, "--budget", "B", "--tenant", "other", "--server", s.url)
	fails(t, exitFailed, "no such file", "import", "nowhere.csv", "--budget", "B", "--server", s.url)
	fails(t, exitFailed, "is a directory", "import", t.TempDir(), "--budget", "B", "--server", s.url)
	fails(t, exitFailed, "no server answers", "import", good, "--budget", "B", "--server", "http://127.0.0.1:1", "--timeout", "1m")
	if after, _ := s.entries(t); after != before {
		t.Errorf("a refused file was written: %s entries became %s", before, after)
	}
}

// Broken rows are reported and do not stop the rest.
func TestImportBrokenRows(t *testing.T) {
	s := importServer(t)
	long := strings.Repeat("x", 129)
	file := csvFile(t, "order_id,benefit_key,amount_minor,currency\n"+
		"o1,b,500,BRL\n"+
		"o2,b,500\n"+
		"\"o3,b,500,BRL\n"+
		",b,500,BRL\n"+
		long+",b,500,BRL\n"+
		"o\x00,b,500,BRL\n"+
		"o\xff,b,500,BRL\n"+
		"o4,b,-5,BRL\n"+
		"o5,b,5.00,BRL\n"+
		"o6,b,500,XXQ\n"+
		"o7,b,500,BRL\n")
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	code, out, _ := coffer(t, "import", file, "--budget", "B", "--rejects", rejects, "--server", s.url)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	contains(t, out,
		"BROKEN_ROW", "row has 3 fields (allowed: 4, as the header)", "a quoted field does not end",
		`order_id "" must not be empty (allowed: 1 to 128 bytes)`, "(129 bytes) is too long (allowed: 128 bytes)",
		"holds a control character", "is not valid UTF-8", "amount_minor -5 must be positive", `amount_minor "5.00" is not a whole number of minor units`,
		"currency", "XXQ", " 11         2          0         0        0         9  10.00 BRL")
	raw, err := os.ReadFile(rejects)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), "\n"); n != 10 {
		t.Errorf("rejects file has %d lines, want 10:\n%s", n, raw)
	}
}

// The server goes away in the middle: the import says how to go on, and the
// same command finishes the work.
func TestImportInterrupted(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	s.cli(t, "budget", "create", "B", "--currency", "BRL", "--buckets", "4")
	s.cli(t, "budget", "fund", "B", "--amount", "100000.00")
	const rows = 30_000
	var b strings.Builder
	b.WriteString("order_id,benefit_key,amount_minor,currency\n")
	for i := range rows {
		fmt.Fprintf(&b, "o%d,b,100,BRL\n", i)
	}
	file := csvFile(t, b.String())
	type ended struct {
		code      int
		out, errs string
	}
	done := make(chan ended, 1)
	go func() { // in so many calls that it is far from its end when it is interrupted
		code, out, errs := coffer(t, "import", file, "--budget", "B", "--batch", "5", "--timeout", "5s", "--json", "--server", s.url)
		done <- ended{code, out, errs}
	}()
	until(t, "the first rows", func() bool { return !strings.Contains(s.cli(t, "budget", "get", "B"), "100,000.00  100,000.00") })
	s.end(t)
	first := <-done
	if first.code != exitFailed {
		t.Errorf("exit code %d", first.code)
	}
	stopped := decode[summary](t, first.out) // one document, with the error in it
	if msg, _ := stopped.Error["message"].(string); !strings.HasPrefix(msg, "import stopped early: rows from line ") {
		t.Errorf("the summary's error is %v", stopped.Error)
	}
	if stopped.Rows != rows || stopped.Unsent == 0 || stopped.Reserved+stopped.Rejected+stopped.Unanswered+stopped.Unsent != rows {
		t.Errorf("import that stopped early: %+v", stopped)
	}
	contains(t, first.errs, "import stopped early: rows from line ", "run the same command again to go on, what was taken is replayed")

	s = serve(t, dir)
	sum := decode[summary](t, must(t, "import", file, "--budget", "B", "--batch", "1000", "--json", "--server", s.url))
	if sum.Rows != rows || sum.Replayed == 0 || sum.Reserved == 0 || sum.Replayed+sum.Reserved != rows || sum.Totals["BRL"] != rows*100 {
		t.Errorf("second import: %+v", sum)
	}
	checkAudit(t, s.cli(t, "audit"))
}

// The real file of vouchers, where it is at hand: its totals are known.
func TestImportVouchers(t *testing.T) {
	const file = "../../../shared/data/voucher_orders.csv"
	if _, err := os.Stat(file); err != nil {
		t.Skip("the voucher file is not part of the repository")
	}
	s := serveStill(t)
	s.cli(t, "budget", "create", "VOUCHERS", "--currency", "BRL", "--buckets", "8")
	s.cli(t, "budget", "fund", "VOUCHERS", "--amount", "400000.00")
	code, out, _ := coffer(t, "import", file, "--budget", "VOUCHERS", "--commit", "--server", s.url)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	contains(t, out, " 5775      5769       5769         0        0         6  379,436.87 BRL", "1068  amount_minor  INVALID_ARGUMENT", "5596  amount_minor")
	entries, events := s.entries(t)
	sum := decode[summary](t, must(t, "import", file, "--budget", "VOUCHERS", "--commit", "--allow-rejects", "--json", "--server", s.url))
	if sum.Replayed != 5769 || sum.Reserved != 0 || sum.Committed != 0 || sum.Totals["BRL"] != 37943687 {
		t.Errorf("second import: %+v", sum)
	}
	if e, v := s.entries(t); e != entries || v != events {
		t.Errorf("second import wrote: %s entries became %s, %s events became %s", entries, e, events, v)
	}
	checkAudit(t, s.cli(t, "audit"))
}
