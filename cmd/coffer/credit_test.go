package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readmeCommands are the commands of a section of README.md, after the words
// "./coffer", in order.
func readmeCommands(t *testing.T, section string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("README.md has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^    \$ \./coffer (.*)$`).FindAllStringSubmatch(rest, -1) {
		out = append(out, m[1])
	}
	return out
}

// The file that the README shows is the one that its command imports, and what
// it prints is what comes of it.
func TestReadmeImport(t *testing.T) {
	lines := readmeCommands(t, "Five minutes")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "import ") })
	if at < 0 {
		t.Fatal("the README imports nothing")
	}
	args := strings.Fields(lines[at])
	args[1] = filepath.Join("..", "..", args[1])
	page := readFile(t, filepath.Join("..", "..", "README.md"))
	for _, l := range strings.Split(strings.TrimSpace(readFile(t, args[1])), "\n") {
		contains(t, page, "\n    "+l+"\n")
	}
	s := serve(t, t.TempDir())
	for _, line := range lines {
		if strings.HasPrefix(line, "budget ") {
			s.cli(t, strings.Fields(line)...)
		}
	}
	const sums = "4         2          2         0        0         2  22.40 BRL "
	contains(t, page, sums)
	fails(t, exitFailed, sums, append(args, "--server", s.url)...)
	fails(t, exitFailed, "4         0          0         2        0         2  22.40 BRL ", append(args, "--server", s.url)...)
}

// The story of the README works as it stands there: charge, failure, success
// after all, and every signal again.
func TestReadmeCredits(t *testing.T) {
	s := serve(t, t.TempDir())
	want := map[string][]string{
		"wallet create acme":    {"wallet acme created"},
		"wallet grant acme":     {"granted 100 CREDIT"},
		"job charge j-1":        {"30"},
		"job refund j-1":        {"30"},
		"job reclaim j-1":       {"30"},
		"wallet statement acme": {"opening balance", "CHARGE", "REFUND", "RECLAIM", "closing balance", "-30", "+30", "70"},
		"job explain j-1":       {"DELIVERED", "charged 30 CREDIT to wallet acme", "failed: refunded 30 CREDIT", "delivered after all: took the refund of 30 CREDIT back"},
		"job charge j-2":        {"10"},
		"job reclaim j-2":       {"delivered: nothing had been refunded, so nothing moved"},
		"job hold j-3":          {"50"},
		"job settle j-3":        {"42"},
		"wallet get acme":       {"balance"},
		"job resolve j-4":       {"void: the charge did not happen and never will"},
	}
	seen := map[string]int{}
	for _, line := range readmeCommands(t, "Usage billing with credits") {
		args := strings.Fields(line)
		key := strings.Join(args[:3], " ")
		seen[key]++
		args = append(args, "--server", s.url)
		if strings.HasPrefix(line, "job refund j-2") { // the failure came too late
			fails(t, exitFailed, "JOB_DELIVERED", args...)
			continue
		}
		out := must(t, args...)
		if seen[key] > 1 && args[0] == "job" && args[1] != "explain" {
			contains(t, out, "done before; this is the first answer")
		}
		contains(t, out, want[key]...)
		if want[key] == nil {
			t.Errorf("nothing is known of %q", line)
		}
	}
	if seen["job refund j-1"] < 2 || seen["job reclaim j-1"] < 2 || seen["job refund j-2"] < 1 {
		t.Errorf("the story lacks its duplicates: %v", seen)
	}
	checkAudit(t, s.cli(t, "audit"))
}

func TestWalletsAndJobs(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "wallet", "create", "w", "--currency", "BRL", "--overdraft", "1.00", "--debt-cap", "5.00", "--over-percent", "10")
	contains(t, s.cli(t, "wallet", "create", "w", "--currency", "BRL", "--overdraft", "1.00", "--debt-cap", "5.00", "--over-percent", "10"), "done before")
	fails(t, exitFailed, "values of policy.debt_cap_minor", "wallet", "create", "w", "--currency", "BRL", "--overdraft", "1.00", "--debt-cap", "6.00", "--over-percent", "10", "--server", s.url)
	contains(t, s.cli(t, "wallet", "grant", "w", "--amount", "10.00", "--key", "k"), "10.00")
	contains(t, s.cli(t, "wallet", "grant", "w", "--amount", "10.00", "--key", "k"), "done before")
	fails(t, exitFailed, "(allowed: 11.00 BRL)", "job", "charge", "big", "--wallet", "w", "--amount", "11.01", "--server", s.url)
	s.cli(t, "job", "charge", "j", "--wallet", "w", "--amount", "11.00")
	contains(t, s.cli(t, "wallet", "get", "w"), "-1.00", "overdraft 1.00 BRL, debt cap 5.00 BRL, late settle RECLAIM, longest life of a hold 7 days")
	s.cli(t, "job", "refund", "j")
	s.cli(t, "job", "hold", "h", "--wallet", "w", "--amount", "10.00", "--ttl", "1h")
	fails(t, exitFailed, "DEBT_CAP", "job", "reclaim", "j", "--server", s.url)
	contains(t, s.cli(t, "job", "release", "h"), "0.00")
	contains(t, s.cli(t, "job", "release", "never"), "cancelled before it was charged: a charge or a hold of this attempt that comes late is refused")
	fails(t, exitFailed, "CANCELLED_BEFORE_RESERVE", "job", "charge", "never", "--wallet", "w", "--amount", "1.00", "--server", s.url)
	s.cli(t, "job", "reclaim", "j")
	contains(t, s.cli(t, "job", "get", "j"), "DELIVERED", "11.00")
	contains(t, s.cli(t, "job", "explain", "h"), "RELEASED", "held 10.00 BRL of wallet w", "released 10.00 BRL")
	contains(t, s.cli(t, "wallet", "list"), "w", "-1.00")
	if out := s.cli(t, "budget", "list"); strings.Contains(out, "-1.00") {
		t.Errorf("a wallet is among the budgets:\n%s", out)
	}
	contains(t, s.cli(t, "wallet", "statement", "w", "--cutoff", "2020-01-01T00:00:00Z"), "opening balance", "closing balance", "0.00")
	fails(t, exitUsage, "--cutoff", "wallet", "statement", "w", "--cutoff", "yesterday", "--server", s.url)
	fails(t, exitFailed, "BUDGET_KIND", "order", "reserve", "o", "b", "--budget", "w", "--minor", "1", "--server", s.url)
	fails(t, exitFailed, "benefit_key", "order", "reserve", "o", "$job", "--budget", "w", "--minor", "1", "--server", s.url)
	fails(t, exitFailed, "RESERVATION_NOT_FOUND: job_id", "job", "refund", "nobody", "--server", s.url)
	for _, args := range []string{"wallet list", "wallet get w", "wallet statement w", "job get j", "job explain j", "job refund j", "job resolve x --op charge"} {
		decode[map[string]any](t, s.cli(t, append(strings.Fields(args), "--json")...))
	}
	checkAudit(t, s.cli(t, "audit"))
}

func TestRefundByLine(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "100.00")
	file := filepath.Join(t.TempDir(), "quote.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reserve := []string{"order", "reserve", "o", "b", "--budget", "B", "--amount", "12.50", "--quote", file}
	write("{")
	fails(t, exitUsage, "is no quote", append(reserve, "--server", s.url)...)
	write(`{"lines": [{"lineId": "A", "quantity": 3, "amountMinor": 1000}]}`)
	fails(t, exitFailed, "quote.lines", append(reserve, "--server", s.url)...)
	write(`{"quoteId": "q-7", "lines": [{"lineId": "A", "quantity": 3, "amountMinor": 1000}, {"lineId": "B", "quantity": 1, "amountMinor": 250}],
	  "funders": [{"funderId": "brand", "weight": 60}, {"funderId": "shop", "weight": 40}]}`)
	s.cli(t, reserve...)
	contains(t, s.cli(t, reserve...), "done before")
	fails(t, exitFailed, "quote.id, quote.rounding, quote.funders, quote.lines", "order", "reserve", "o", "b", "--budget", "B", "--amount", "12.50", "--server", s.url)
	s.cli(t, "order", "commit", "o", "b")
	contains(t, s.cli(t, "order", "reverse", "o", "b", "--refund", "r1", "--line", "A", "--quantity", "2"), "6.67")
	contains(t, s.cli(t, "order", "reverse", "o", "b", "--refund", "r2", "--line", "A", "--line", "B"), "5.83", "REVERSED")
	contains(t, s.cli(t, "order", "reinstate", "o", "b", "--refund", "r1"), "PARTLY_REVERSED")
	contains(t, s.cli(t, "order", "explain", "o"), "quote q-7 of b, attempt 1", "line A ×2 6.67 BRL (brand 4.00, shop 2.67)", "undone: 6.67 BRL taken from available again; 5.83 BRL of 12.50 BRL refunded; line A ×2 6.67 BRL", "brand", "60")
	fails(t, exitFailed, "REFUND_EXCEEDS_COMMITTED: lines[0].quantity 3", "order", "reverse", "o", "b", "--refund", "r3", "--line", "A", "--quantity", "3", "--server", s.url)
	fails(t, exitFailed, "QUOTE_LINE_NOT_FOUND", "order", "reverse", "o", "b", "--refund", "r3", "--line", "Z", "--server", s.url)
	fails(t, exitUsage, "--line and an amount", "order", "reverse", "o", "b", "--refund", "r3", "--line", "A", "--amount", "1", "--server", s.url)
	fails(t, exitUsage, "--quantity is given 2 times for 1 lines", "order", "reverse", "o", "b", "--refund", "r3", "--line", "A", "--quantity", "1", "--quantity", "1", "--server", s.url)
	checkAudit(t, s.cli(t, "audit"))
}
