package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The rejects have all columns, so that they can be corrected and imported.
func TestImportRejectsAgain(t *testing.T) {
	s := importServer(t)
	file := csvFile(t, "note,Order_ID,benefit_key,amount_minor,currency\n"+
		"\"one, 1\",o1,b,500,BRL\n"+
		"two,o2,b,x,BRL\n"+
		"three,o3,b,500,BRL,extra\n"+
		"four,o4,b,500,USD\n")
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	fails(t, exitFailed, "BROKEN_ROW", "import", file, "--budget", "B", "--rejects", rejects, "--batch", "1", "--server", s.url)
	const want = "note,Order_ID,benefit_key,amount_minor,currency,line,code,reason\n" +
		"two,o2,b,x,BRL,3,INVALID_ARGUMENT,\"amount_minor \"\"x\"\" is not a whole number of minor units (allowed: 1 to 9223372036854775807)\"\n" +
		",,,,,4,BROKEN_ROW,\"row has 6 fields (allowed: 5, as the header): three,o3,b,500,BRL,extra\"\n" +
		"four,o4,b,500,USD,5,CURRENCY_MISMATCH,currency USD is not the currency of budget B (allowed: BRL)\n"
	got := readFile(t, rejects)
	if got != want {
		t.Errorf("rejects:\n%s\nwant\n%s", got, want)
	}
	fixed := csvFile(t, strings.ReplaceAll(got, "o2,b,x,BRL", "o2,b,700,BRL"))
	fails(t, exitUsage, "--rejects is the file to import", "import", fixed, "--budget", "B", "--rejects", fixed, "--server", s.url)
	fails(t, exitFailed, "CURRENCY_MISMATCH", "import", fixed, "--budget", "B", "--rejects", rejects, "--server", s.url)
	if got := readFile(t, rejects); strings.Count(got, "line,code,reason") != 1 || !strings.Contains(got, "four,o4,b,500,USD,4,CURRENCY_MISMATCH,") {
		t.Errorf("rejects of rejects:\n%s", got)
	}
	contains(t, s.cli(t, "order", "get", "o2", "b"), "RESERVED", "7.00")
}

// Rows that were refused for lack of money are sent again as the next attempt.
func TestImportNextAttempt(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "10.00")
	file := csvFile(t, "order_id,benefit_key,amount_minor,currency\no1,b,600,BRL\no2,b,600,BRL\n")
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	args := []string{"import", file, "--budget", "B", "--commit", "--batch", "1", "--concurrency", "1", "--server", s.url}
	code, out, _ := coffer(t, append(args, "--rejects", rejects)...)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	contains(t, out, "1 row refused for lack of money", "final for attempt 1", "coffer import "+rejects+" --budget B --commit --attempt 2")
	s.cli(t, "budget", "fund", "B", "--amount", "10.00")
	fails(t, exitFailed, "INSUFFICIENT_BUDGET", args...) // refused once, refused for ever
	sum := decode[summary](t, s.cli(t, "import", rejects, "--budget", "B", "--commit", "--attempt", "2", "--json"))
	if sum.Rows != 1 || sum.Committed != 1 || sum.Rejected != 0 {
		t.Errorf("second attempt: %+v", sum)
	}
	fails(t, exitUsage, "--attempt is 17 (allowed: 1 to 16)", "import", file, "--budget", "B", "--attempt", "17")
}

func TestRejectLogKeepsFirstLines(t *testing.T) {
	l, err := newRejectLog("", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := 1000; line > 0; line-- {
		l.add(reject{Line: line})
	}
	if got := l.first(); len(got) != rejectsShown || got[0].Line != 1 || got[rejectsShown-1].Line != rejectsShown || l.n != 1000 {
		t.Errorf("%d rejects, %d shown: %v", l.n, len(got), got)
	}
}
