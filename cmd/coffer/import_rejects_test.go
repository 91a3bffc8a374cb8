package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	contains(t, s.cli(t, "order", "resolve", "o2", "b", "--op", "reserve"),
		"refused: the reserve was answered with INSUFFICIENT_BUDGET: amount_minor 600 exceeded what B had available, and attempt 1 stays refused (allowed: 400)")
	sum := decode[summary](t, s.cli(t, "import", rejects, "--budget", "B", "--commit", "--attempt", "2", "--json"))
	if sum.Rows != 1 || sum.Committed != 1 || sum.Rejected != 0 {
		t.Errorf("second attempt: %+v", sum)
	}
	fails(t, exitUsage, "--rejects is - (allowed: the name of a file)", "import", file, "--budget", "B", "--rejects", "-")
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

// All rejected rows are counted, though only the first ones are shown: each
// reason with the first of its rows, whatever the order of the answers.
func TestImportCountsReasons(t *testing.T) {
	s := importServer(t)
	var b strings.Builder
	b.WriteString("order_id,benefit_key,amount_minor,currency\n")
	for i := range 60 { // lines 2 to 61
		cur := "BRL"
		if i%2 == 1 {
			cur = "USD"
		}
		fmt.Fprintf(&b, "o%d,b,500,%s\n", i, cur)
	}
	b.WriteString("o60,b,5.00,BRL\no61,b\no62,b,-1,BRL\no63,b,99999999,BRL\n") // lines 62 to 65
	args := []string{"import", csvFile(t, b.String()), "--budget", "B", "--batch", "3", "--concurrency", "4", "--allow-rejects", "--server", s.url}
	contains(t, must(t, args...), "rejected, by reason:\n rows  code ",
		"   30  CURRENCY_MISMATCH    line 3: currency USD is not the currency of budget B (allowed: BRL)\n",
		"    2  INVALID_ARGUMENT     line 62: amount_minor \"5.00\" is not a whole number",
		"    1  BROKEN_ROW           line 63: row has 2 fields",
		"    1  INSUFFICIENT_BUDGET  line 65: amount_minor 99999999 ",
		"1 row refused for lack of money")
	sum := decode[summary](t, must(t, append(args, "--json")...))
	var got []string
	rows := 0
	for _, r := range sum.Reasons {
		got = append(got, fmt.Sprintf("%d %s %s from %d %s", r.Rows, r.Code, r.Field, r.Example.Line, r.Example.Order))
		rows += r.Rows
	}
	want := []string{
		"30 CURRENCY_MISMATCH currency from 3 o1", "2 INVALID_ARGUMENT amount_minor from 62 o60",
		"1 BROKEN_ROW  from 63 ", "1 INSUFFICIENT_BUDGET amount_minor from 65 o63",
	}
	if !slices.Equal(got, want) || rows != sum.Rejected || len(sum.Rejects) != rejectsShown || !sum.Truncated {
		t.Errorf("reasons %q, want %q; %d of %d rejected, %d shown", got, want, rows, sum.Rejected, len(sum.Rejects))
	}
}
