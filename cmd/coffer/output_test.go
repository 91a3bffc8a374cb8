package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	c := &cli{stdout: &out}
	wide := strings.Repeat("x", maxWidth)
	for _, tc := range []struct {
		rows [][]any
		want string
	}{
		{[][]any{{"a", "", 1}, {"bb", "", ""}}, " name  n\n─────────\n a     1\n bb\n"},
		{[][]any{{wide, "", 1}}, " name  " + wide + "\n n     1\n"},
		{nil, " name  empty  n\n────────────────\n"},
	} {
		out.Reset()
		tab := c.table([]any{"name", "empty", "n"}, "n")
		for _, r := range tc.rows {
			tab.row(r...)
		}
		tab.print()
		if out.String() != tc.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), tc.want)
		}
	}
}

// On a terminal no table is wider than it is: its columns come closer, words
// are folded, and where that is not enough each value has a line.
func TestTableOnTerminal(t *testing.T) {
	words := "refunded five of twelve to the budget"
	table := func(columns int, rows ...[]any) string {
		var out bytes.Buffer
		tab := (&cli{stdout: &out, columns: columns}).table([]any{"time", "what", "n"}, "n")
		for _, r := range rows {
			tab.row(r...)
		}
		tab.print()
		return out.String()
	}
	two := [][]any{{"2026-11-29", words, 1}, {"2026-11-30", "", 22}}
	for _, tc := range []struct {
		columns int
		rows    [][]any
		want    string
	}{
		{
			0, two, " time        what                                    n\n" + strings.Repeat("─", 55) + "\n" +
				" 2026-11-29  " + words + "   1\n 2026-11-30                                         22\n",
		},
		{
			53, two, "time       what                                   n\n" + strings.Repeat("─", 52) + "\n" +
				"2026-11-29 " + words + "  1\n2026-11-30                                       22\n",
		},
		{
			40, two, "time       what                       n\n" + strings.Repeat("─", 40) + "\n" +
				"2026-11-29 refunded five of twelve    1\n           to the budget\n2026-11-30                           22\n",
		},
		{20, two, " time  2026-11-29\n what  " + words + "\n n     1\n\n time  2026-11-30\n n     22\n"},
		{40, two[:1], " time  2026-11-29\n what  " + words + "\n n     1\n"},
	} {
		if got := table(tc.columns, tc.rows...); got != tc.want {
			t.Errorf("%d columns, %d rows: got\n%s\nwant\n%s", tc.columns, len(tc.rows), got, tc.want)
		}
	}
	const amount = "92,233,720,368,547,758.07"
	for columns := 20; columns < 70; columns++ {
		got := table(columns, []any{"2026-11-29", "committed " + amount + " BRL", 1}, []any{"2026-11-30", "", 22})
		if !strings.Contains(got, amount) {
			t.Errorf("%d columns cut an amount:\n%s", columns, got)
		}
	}
	long := strings.Repeat("x", maxWidth)
	if got := table(300, []any{long, "w", 1}); got != " time  "+long+"\n what  w\n n     1\n" {
		t.Errorf("one wide row on a wide terminal:\n%s", got)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		168 * time.Hour: "7 days", 24 * time.Hour: "1 day", 37 * time.Hour: "1 day 13 hours", time.Hour: "1h", 90 * time.Minute: "1h30m",
		25*time.Hour + time.Second: "25h0m1s", time.Second: "1s", 10 * time.Minute: "10m", 20*time.Hour + 30*time.Second: "20h0m30s",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

// tidy checks what every table must be: no spaces at line ends, and with one
// row not wider than a screen.
func tidy(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if strings.TrimRight(line, " ") != line || len([]rune(line)) > maxWidth {
			t.Errorf("line is untidy or too wide: %q", line)
		}
	}
}

func TestBudgetOutput(t *testing.T) {
	s := serve(t, t.TempDir())
	const again = "done before; this is the first answer, the budget may have changed since (coffer budget get SPRING)"
	create := []string{"budget", "create", "SPRING", "--currency", "BRL", "--over-percent", "10", "--over-amount", "5.00", "--max-lifetime", "36h", "--reversal-sink", "POOL"}
	s.cli(t, "budget", "create", "POOL", "--currency", "BRL")
	contains(t, s.cli(t, create...), "budget SPRING created\n\n", "0.00")
	s.cli(t, "budget", "fund", "SPRING", "--amount", "50.00", "--key", "k1")
	s.cli(t, "budget", "fund", "SPRING", "--amount", "20.00")
	out := s.cli(t, create...)
	if contains(t, out, "budget SPRING created\n"+again); strings.Contains(untimed(out), "0.00") {
		t.Errorf("a replayed create shows a table:\n%s", out)
	}
	contains(t, s.cli(t, "budget", "fund", "SPRING", "--amount", "50.00", "--key", "k1"), again, "50.00")
	for _, op := range []string{"defund --amount 1.00", "freeze", "unfreeze", "close"} {
		words := strings.Fields(op)
		args := append([]string{"budget", words[0], "SPRING", "--key", "k-" + words[0]}, words[1:]...)
		if out := s.cli(t, args...); strings.Contains(out, again) {
			t.Errorf("%s says that it was done before:\n%s", op, out)
		}
		contains(t, s.cli(t, args...), again)
	}
	out = s.cli(t, "budget", "get", "SPRING")
	contains(t, out, "over-commit 10 % or 5.00 BRL, the larger of both", "refunds once it is closed go to budget POOL", "longest life of a hold 1 day 12 hours")
	tidy(t, out)
	contains(t, s.cli(t, "budget", "get", "POOL"), "over-commit none", "go to this budget", "7 days")
	// In the words of people above, in minor units for programs.
	const short = "budget defund POOL --minor 12345"
	fails(t, exitFailed, "amount 123.45 BRL ", append(strings.Fields(short), "--server", s.url)...)
	fails(t, exitFailed, "(allowed: 0.00 BRL)", append(strings.Fields(short), "--server", s.url)...)
	fails(t, exitFailed, `amount_minor 12345 `, append(strings.Fields(short), "--json", "--server", s.url)...)
}

func TestReplayToCutoff(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "50.00")
	if out := s.cli(t, "ledger", "replay", "B"); !strings.HasSuffix(out, "\nreplay: ok\n") {
		t.Errorf("replay:\n%s", out)
	}
	// A time that is printed can be pasted.
	_, rest, _ := strings.Cut(s.cli(t, "ledger", "entries", "B"), " 20")
	stamp, _, _ := strings.Cut("20"+rest, " ")
	out := s.cli(t, "ledger", "replay", "B", "--cutoff", stamp)
	if !strings.HasSuffix(out, "\nreplay: ok to the cutoff (chain and sequence checked; only a replay without --cutoff is compared with stored balances)\n") {
		t.Errorf("replay --cutoff %s:\n%s", stamp, out)
	}
}

func TestOrderOutput(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "SPRING", "--currency", "BRL")
	s.cli(t, "budget", "fund", "SPRING", "--amount", "100.00")
	// The ids of the README, and time, make a row wider than a screen.
	out := s.cli(t, "order", "reserve", "o-1001", "coupon:SPRING", "--budget", "SPRING", "--amount", "12.50")
	contains(t, out, "expires", "Z\n", " entry      0/3\n")
	tidy(t, out)
	out = s.cli(t, "order", "resolve", "o-1001", "coupon:SPRING", "--op", "reserve")
	if contains(t, out, "applied: the reserve took effect"); strings.Contains(out, "done before") {
		t.Errorf("resolve speaks with two voices:\n%s", out)
	}
	for _, out := range []string{
		s.cli(t, "order", "release", "o-2", "coupon:SPRING"), s.cli(t, "order", "get", "o-2", "coupon:SPRING"),
	} {
		if contains(t, out, "CANCELLED"); strings.Contains(untimed(out), "0.00") || strings.Contains(out, "bucket") {
			t.Errorf("a cancelled attempt has amounts:\n%s", out)
		}
		tidy(t, out)
	}
	s.cli(t, "order", "resolve", "o-3", "b", "--op", "reserve", "--budget", "SPRING")
	if out := s.cli(t, "order", "get", "o-3", "b"); strings.Contains(untimed(out), "0.00") || !strings.Contains(out, "VOID") {
		t.Errorf("a void attempt has amounts:\n%s", out)
	}
	tidy(t, s.cli(t, "order", "get", "o-1001", "coupon:SPRING"))
	fails(t, exitUsage, "--op reverse needs --id", "order", "resolve", "o-1001", "coupon:SPRING", "--op", "reverse", "--server", s.url)
	fails(t, exitUsage, "--op reinstate needs --id", "order", "resolve", "o-1001", "coupon:SPRING", "--op", "reinstate", "--server", s.url)
}

func TestReverseAll(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "100.00")
	s.cli(t, "order", "reserve", "o", "b", "--budget", "B", "--amount", "12.50")
	reverse := []string{"order", "reverse", "o", "b", "--refund"}
	at := func(args ...string) []string { return append(append(reverse, args...), "--server", s.url) }
	fails(t, exitFailed, "nothing to refund", at("r-1", "--all")...)
	for _, amount := range []string{"--all", "--amount=1"} {
		fails(t, exitFailed, "coffer: order o has no attempt 2 of benefit b; those that there are: coffer order get o b\n", at("r-1", "--attempt", "2", amount)...)
	}
	s.cli(t, "order", "release", "gone", "b")
	fails(t, exitFailed, "attempt 1 of benefit b of order gone is CANCELLED and has no currency; give the amount with --minor", "order", "commit", "gone", "b", "--amount", "1", "--server", s.url)
	s.cli(t, "order", "commit", "o", "b")
	fails(t, exitUsage, "a refund needs an amount; give --amount 12.34 or --minor 1234, or --all", at("r-1")...)
	fails(t, exitUsage, "can't be used together", at("r-1", "--all", "--amount", "1")...)
	for _, amount := range [][]string{{"--amount", "20.00"}, {"--minor", "2000"}} {
		fails(t, exitFailed, "amount 20.00 BRL is above what is committed and not yet refunded (allowed: 12.50 BRL)", at(append([]string{"r-1"}, amount...)...)...)
	}
	fails(t, exitFailed, "amount_minor 2000 is above", at("r-1", "--minor", "2000", "--json")...)
	must(t, at("r-1", "--amount", "2.50")...)
	contains(t, must(t, at("r-2", "--all")...), "REVERSED", "10.00", "12.50")
	contains(t, must(t, at("r-2", "--all")...), "done before", "10.00")
	fails(t, exitFailed, "committed 12.50 BRL, refunded 12.50 BRL", at("r-3", "--all")...)
}

// What a check proves is said where it failed, and everywhere if asked for.
func TestAuditTable(t *testing.T) {
	r := &cofferv1.AuditReport{Checks: []*cofferv1.AuditCheck{
		{Name: "good", Statement: "all is well", Checked: 3}, {Name: "bad", Statement: "nothing is lost", Checked: 2, Problems: 1, Examples: []string{"row 7"}},
	}}
	for _, verbose := range []bool{false, true} {
		var out bytes.Buffer
		(&cli{stdout: &out}).auditTable(r, verbose)
		contains(t, out.String(), "nothing is lost", "bad: row 7", "audit: FAILED")
		if strings.Contains(out.String(), "all is well") != verbose {
			t.Errorf("verbose %t:\n%s", verbose, out.String())
		}
	}
	dir := t.TempDir()
	serve(t, dir).end(t)
	out := must(t, "audit", "--store", dir)
	tidy(t, out)
	if verbose := must(t, "audit", "--verbose", "--store", dir); strings.Contains(out, "what must hold") || !strings.Contains(verbose, "what must hold") {
		t.Errorf("audit:\n%s\naudit --verbose:\n%s", out, verbose)
	}
}
