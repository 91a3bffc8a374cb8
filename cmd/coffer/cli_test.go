package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Every command that does something says in its help how it is used.
func TestHelpHasExamples(t *testing.T) {
	var a app
	parser, err := kong.New(&a, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	leaves := parser.Model.Leaves(true)
	if len(leaves) < 25 {
		t.Fatalf("only %d commands", len(leaves))
	}
	for _, n := range leaves {
		path := strings.TrimSpace(strings.Split(n.Path(), "<")[0])
		want := "coffer " + path
		code, out, _ := coffer(t, append(strings.Fields(path), "--help")...)
		if code != exitOK || !strings.Contains(out, "Example") || !strings.Contains(out, want) {
			t.Errorf("%s --help: exit code %d, no example with %q:\n%s", n.Path(), code, want, out)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct{ args, words string }{
		{"nonsense", `nonsense is no command of coffer`},
		{"budget", "coffer budget needs a command (allowed: create, fund, "},
		{"--server http://x budget list", "unknown flag --server; a command's flags stand after it"},
		{"order reserve o b --budget X --amount 1 --ttl 10x", `--ttl is "10x" (allowed: 1ms to 9600h, in numbers with units, such as 500ms, 15m, 24h or 7d)`},
		{"budget get", "missing arguments: <budget>"},
		{"budget create X", "missing flags: --currency"},
		{"budget create X --currency BRL --late-commit maybe", `--late-commit must be one of`},
		{"budget create X --currency BRL --buckets 0", "--buckets is 0 (allowed: 1 to 256)"},
		{"budget create X --currency BRL --buckets 257", "--buckets is 257 (allowed: 1 to 256)"},
		{"budget fund X", "no amount; give --amount 12.34 or --minor 1234"},
		{"budget fund X --amount 1 --minor 2", "can't be used together"},
		{"budget fund X --minor=-5", "--minor is -5 (allowed: 1 to"},
		{"budget fund X --minor 99999999999999999999", "--minor"},
		{"budget fund X --amount 1.234 --currency BRL", `--amount "1.234" has 3 decimals (allowed: BRL with up to 2 decimals`},
		{"budget fund X --amount 0.00 --currency BRL", "--amount is 0.00 (allowed: more than 0)"},
		{"order reserve o b --budget X --amount 1e3 --currency BRL", `--amount "1e3" is not an amount`},
		{"order reserve o b --amount 1", "missing flags: --budget"},
		{"order commit o b --partial", "no amount"},
		{"order resolve o b --op expire", "--op must be one of"},
		{"order extend o b", "missing flags: --ttl"},
		{"ledger replay X --cutoff yesterday", `--cutoff "yesterday" is not a time (allowed: RFC 3339`},
		{"import f --budget X --batch 1001", "--batch is 1001 (allowed: 1 to 1000)"},
		{"import f --budget X --concurrency 0", "--concurrency is 0 (allowed: 1 to 64)"},
		{"demo --orders 5", "--orders is 5 (allowed: 200 to 1000000)"},
		{"demo --orders 200 --callers 0", "--callers is 0 (allowed: 1 to 1024)"},
		{"audit --store redis:x", `store "redis:x" has an unknown engine "redis" (allowed: embedded:DIR, DIR, fdb:FILE or fdb:FILE?prefix=NAME)`},
		{"audit --store fdb:x?prefix=", `has the prefix "" (allowed: 1 to 64 of letters`},
		{"audit --store fdb:x?prefixes=y", `has the option "prefixes" (allowed: prefix, datacenter)`},
		{"audit --store fdb:x?prefix=y&datacenter=", `has the datacenter "" (allowed: 1 to 64 of letters`},
		{"store check --timeout 0s", "--timeout is 0s (allowed: more than 0s)"},
		{"store incarnation --set 9999999999", "--set is 9999999999 (allowed: 1 to 4294967296)"},
		{"dev --temp --store x", "can't be used together"},
		{"audit --store embedded:", `store "embedded:" names no place`},
		{"audit --server localhost:7420", `--server is "localhost:7420" (allowed: a URL such as http://127.0.0.1:7420)`},
		{"budget list --timeout 0s", "--timeout is 0s (allowed: more than 0s)"},
		{"dev --listen 0.0.0.0:7420 --temp", `--listen is "0.0.0.0:7420" (allowed: a loopback address, since dev is for this machine alone; coffer serve listens elsewhere`},
		{"dev --listen nowhere --temp", `listen is "nowhere" (allowed: host:port`},
		{"budget fund X --amount -5", "--amount is -5 (allowed: more than 0)"},
		{"budget fund X --amount -.5", "--amount is -.5 (allowed: more than 0)"},
		{"budget fund X --amount=-5 --currency BRL", "--amount is -5 (allowed: more than 0)"},
		{"budget fund X --minor -5", "--minor is -5 (allowed: 1 to 9223372036854775807)"},
		{"order reserve o b --budget X --amount 1 --ttl -5m", "--ttl is -5m0s (allowed: 1ms to 9600h)"},
		{"order reserve o b --budget X --amount --json", `expected string value but got "--json"`},
		{"help nonsense", "nonsense is no command of coffer"},
	} {
		fails(t, exitUsage, tc.words, strings.Fields(tc.args)...)
	}
}

// stamp is a time as sentences have it.
var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC`)

// help is what --help is.
func TestHelp(t *testing.T) {
	for _, command := range []string{"", "budget", "order reserve"} {
		words := strings.Fields(command)
		if must(t, append([]string{"help"}, words...)...) != must(t, append(words, "--help")...) {
			t.Errorf("help %s is not the help of %s", command, command)
		}
	}
}

func TestVersion(t *testing.T) {
	contains(t, must(t, "version"), "coffer ", "go1.")
	if v := decode[map[string]string](t, must(t, "version", "--json")); v["version"] == "" || v["go"] == "" {
		t.Errorf("version --json: %v", v)
	}
}

func TestNoServer(t *testing.T) {
	code, _, errs := cofferEnv(t, []string{"COFFER_SERVER=http://127.0.0.1:1"}, "budget", "list", "--timeout", "1m")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	contains(t, errs, "no server answers at http://127.0.0.1:1", `start one with "coffer dev"`, "--server")
	fails(t, exitFailed, "coffer: no server answers at", strings.Fields("budget fund B --amount 1 --timeout 1m --server http://127.0.0.1:1")...)
}

// A server that dies with a command in its hands: that nobody answers any more
// says nothing of the command, and the error must not hide that.
func TestServerThatDiesWithACommand(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		server := httptest.NewUnstartedServer(nil)
		server.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			_ = server.Listener.Close()
			panic(http.ErrAbortHandler)
		})
		server.Start()
		args := strings.Fields("order commit o b --minor 100 --payment p --timeout 1m --server " + server.URL)
		if asJSON {
			args = append(args, "--json")
		}
		code, out, errs := coffer(t, args...)
		server.Close()
		if code != exitFailed {
			t.Errorf("exit code %d", code)
		}
		contains(t, errs, server.URL, "connection refused", "the outcome is unknown: send the same command again, or resolve it")
		if asJSON {
			if e := decode[map[string]map[string]any](t, out)["error"]; e["outcome_unknown"] != true {
				t.Errorf("JSON is %s", out)
			}
		}
	}
	_, out, _ := coffer(t, strings.Fields("order commit o b --minor 100 --json --server http://127.0.0.1:1")...)
	if e := decode[map[string]map[string]any](t, out)["error"]; e["outcome_unknown"] != false || e["code"] != "unavailable" {
		t.Errorf("JSON of a command that never left is %s", out)
	}
}

func TestNoTLS(t *testing.T) {
	s := serve(t, t.TempDir())
	fails(t, exitFailed, "name it with http://", "budget", "list", "--server", strings.Replace(s.url, "http:", "https:", 1))
}

// A command that reads before it is sent says so when there was no answer: then
// it was not sent. One that was sent may have been done.
func TestServerThatDoesNotAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // as of a process that is stopped: the system takes connections
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := " --timeout 100ms --server http://" + ln.Addr().String()
	for _, tc := range []struct{ args, read string }{
		{"order reserve o b --budget B --amount 1", "the currency of budget B"},
		{"budget fund B --amount 1", "the currency of budget B"},
		{"budget defund B --minor 1", "the currency of budget B"},
		{"wallet grant W --amount 1", "the currency of wallet W"},
		{"job charge j --wallet W --amount 1", "the currency of wallet W"},
		{"job hold j --wallet W --amount 1", "the currency of wallet W"},
		{"job settle j --amount 1", "job j"},
		{"order commit o b --amount 1", "the reservation of benefit b of order o"},
		{"order reverse o b --refund r --amount 1", "the reservation of benefit b of order o"},
		{"order reverse o b --refund r --all", "the reservation of benefit b of order o"},
	} {
		code, _, errs := coffer(t, strings.Fields(tc.args+at)...)
		if code != exitFailed || strings.Contains(errs, "unknown") {
			t.Errorf("%s: exit code %d, %s", tc.args, code, errs)
		}
		contains(t, errs, "coffer: the command was not sent, since "+tc.read+" could not be read: http://", "no answer in 100ms; --timeout gives it longer: ", "context deadline exceeded")
	}
	for _, args := range []string{
		"order reserve o b --budget B --amount 1 --currency BRL", "budget fund B --amount 1 --currency BRL", "wallet grant W --amount 1 --currency BRL",
		"order commit o b --minor 1",
	} {
		code, _, errs := coffer(t, strings.Fields(args+at)...)
		if code != exitFailed || strings.Contains(errs, "not sent") {
			t.Errorf("%s: exit code %d, %s", args, code, errs)
		}
		contains(t, errs, "no answer in 100ms; --timeout gives it longer: ", "context deadline exceeded", "the outcome is unknown")
	}
}

// The life of a benefit, through the command line.
func TestOrderLife(t *testing.T) {
	s := serve(t, t.TempDir())
	contains(t, s.cli(t, "budget", "create", "SPRING", "--currency", "BRL", "--buckets", "4", "--late-commit", "reclaim"), "budget SPRING created")
	contains(t, s.cli(t, "budget", "create", "SPRING", "--currency", "BRL", "--buckets", "4", "--late-commit", "reclaim"), "done before")
	fails(t, exitFailed, `currency "XQZ" is not a known currency (allowed: an ISO 4217 code in use, such as BRL, or a custom unit`, "budget", "create", "X", "--currency", "XQZ", "--server", s.url)
	contains(t, s.cli(t, "budget", "fund", "SPRING", "--amount", "1000.00", "--key", "k1"), "funded with 1,000.00 BRL")
	contains(t, s.cli(t, "budget", "fund", "SPRING", "--amount", "1000.00", "--key", "k1"), "done before", "1,000.00")
	contains(t, s.cli(t, "budget", "defund", "SPRING", "--minor", "10000"), "defunded by 100.00 BRL", "900.00")
	contains(t, s.cli(t, "order", "reserve", "o-1", "coupon:SPRING", "--budget", "SPRING", "--amount", "12.50"), "RESERVED", "12.50")
	contains(t, s.cli(t, "order", "reserve", "o-1", "coupon:SPRING", "--budget", "SPRING", "--amount", "12.50"), "done before")
	contains(t, s.cli(t, "order", "extend", "o-1", "coupon:SPRING", "--ttl", "1h"), "RESERVED")
	contains(t, s.cli(t, "order", "commit", "o-1", "coupon:SPRING", "--amount", "4.00", "--partial", "--payment", "p1"), "4.00", "8.50")
	contains(t, s.cli(t, "order", "commit", "o-1", "coupon:SPRING", "--payment", "p2"), "COMMITTED", "12.50")
	contains(t, s.cli(t, "order", "reverse", "o-1", "coupon:SPRING", "--refund", "r1", "--amount", "5.00"), "PARTLY_REVERSED", "5.00")
	contains(t, s.cli(t, "order", "reinstate", "o-1", "coupon:SPRING", "--refund", "r1"), "COMMITTED")
	contains(t, s.cli(t, "order", "resolve", "o-1", "coupon:SPRING", "--op", "reserve"), "applied: the reserve took effect")
	contains(t, s.cli(t, "order", "resolve", "o-2", "coupon:SPRING", "--op", "reserve", "--budget", "SPRING"), "void: the reserve did not happen and never will")
	contains(t, s.cli(t, "order", "get", "o-1", "coupon:SPRING"), "COMMITTED", "SPRING")
	contains(t, s.cli(t, "order", "explain", "o-1"), "order o-1", "COMMITTED", "12.50")
	contains(t, s.cli(t, "order", "reserve", "o-3", "b", "--budget", "SPRING", "--minor", "100"), "1.00")
	contains(t, s.cli(t, "order", "release", "o-3", "b"), "RELEASED")
	contains(t, s.cli(t, "order", "reclaim", "o-3", "b"), "COMMITTED")
	contains(t, s.cli(t, "ledger", "entries", "SPRING"), "RESERVE", "COMMIT", "REINSTATE", "k1")
	contains(t, s.cli(t, "ledger", "replay", "SPRING"), "replay: ok", "900.00", "13.50")
	contains(t, s.cli(t, "ledger", "verify", "SPRING"), "chain: ok")
	contains(t, s.cli(t, "ledger", "cases"), "no cases")
	contains(t, s.cli(t, "budget", "freeze", "SPRING"), "FROZEN")
	fails(t, exitFailed, "BUDGET_FROZEN", "order", "reserve", "o-4", "b", "--budget", "SPRING", "--minor", "100", "--server", s.url)
	contains(t, s.cli(t, "budget", "unfreeze", "SPRING"), "OPEN")
	contains(t, s.cli(t, "budget", "get", "SPRING"), "late commit RECLAIM, exhaustion EXACT", "bucket", "900.00")
	contains(t, s.cli(t, "budget", "close", "SPRING"), "CLOSED", "stays in the budget; take it out with: coffer budget defund SPRING --minor 88650")
	fails(t, exitFailed, "RESERVATION_NOT_FOUND", "order", "get", "o-9", "b", "--server", s.url)
	// Another tenant's budget is an unknown one.
	_, _, own := coffer(t, "budget", "get", "NOPE", "--server", s.url)
	_, _, other := coffer(t, "budget", "get", "SPRING", "--server", s.url, "--tenant", "other")
	if strings.ReplaceAll(own, "NOPE", "SPRING") != other {
		t.Errorf("another tenant's budget is answered otherwise than an unknown one:\n%s%s", own, other)
	}
	checkAudit(t, s.cli(t, "audit"))
}

// An extension to an earlier time than the hold's leaves the hold as it is, and
// says so.
func TestExtendNeverShortens(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "10.00")
	s.cli(t, "order", "reserve", "o", "b", "--budget", "B", "--amount", "1.00", "--ttl", "15m")
	const words = "the hold lasts longer than 10m already, and is never shortened\n"
	contains(t, s.cli(t, "order", "extend", "o", "b", "--ttl", "10m", "--operation", "e-1"), words, "RESERVED")
	if out := s.cli(t, "order", "extend", "o", "b", "--ttl", "30m", "--operation", "e-2"); strings.Contains(out, "longer") {
		t.Errorf("a longer hold: %s", out)
	}
	contains(t, must(t, "order", "extend", "--help"), "counts from now", "stays as it is")
	out := stamp.ReplaceAllString(s.cli(t, "order", "explain", "o"), "TIME")
	contains(t, out, "extended (operation e-1) by nothing: held until TIME as before", "extended (operation e-2), now held until TIME")
}

// A budget is divided anew while an order of it is open.
func TestReshard(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "SPRING", "--currency", "BRL")
	s.cli(t, "budget", "fund", "SPRING", "--amount", "1600.00")
	s.cli(t, "order", "reserve", "o-1", "b", "--budget", "SPRING", "--amount", "16.00")
	contains(t, s.cli(t, "budget", "reshard", "SPRING", "16", "--key", "up"), "budget SPRING divided over 16 buckets", "1,584.00")
	contains(t, s.cli(t, "budget", "reshard", "SPRING", "16", "--key", "up"), "done before")
	fails(t, exitFailed, "IDEMPOTENCY_CONFLICT", "budget", "reshard", "SPRING", "8", "--key", "up", "--server", s.url)
	contains(t, s.cli(t, "budget", "reshard", "SPRING", "16", "--key", "again"), "budget SPRING has 16 buckets already; nothing was to be done", "1,584.00")
	contains(t, s.cli(t, "budget", "reshard", "SPRING", "16", "--json"), `"buckets":16`, `"routingEpoch":2`)
	fails(t, exitUsage, "<buckets> is 257 (allowed: 1 to 256)", "budget", "reshard", "SPRING", "257", "--server", s.url)
	fails(t, exitUsage, "<buckets> is 0 (allowed: 1 to 256)", "budget", "reshard", "SPRING", "0", "--server", s.url)
	contains(t, s.cli(t, "order", "commit", "o-1", "b"), "COMMITTED", "0/")
	s.cli(t, "budget", "reshard", "SPRING", "2")
	out := s.cli(t, "budget", "buckets", "SPRING")
	contains(t, out, "routing epoch 3, 2 buckets in use, skew 0.00 of an equal share", "living", "retired", "792.00", "50.0 %")
	if n := strings.Count(out, "retired"); n != 14 {
		t.Errorf("%d buckets are retired, want 14:\n%s", n, out)
	}
	type buckets struct {
		Budget  struct{ Buckets, RoutingEpoch int }
		Buckets []struct {
			Balances struct{ Retired bool }
			Share    float64
			Commands string
		}
	}
	b := decode[buckets](t, s.cli(t, "budget", "buckets", "SPRING", "--json"))
	if b.Budget.Buckets != 2 || b.Budget.RoutingEpoch != 3 || len(b.Buckets) != 16 || b.Buckets[1].Share != 0.5 || !b.Buckets[2].Balances.Retired || b.Buckets[0].Commands == "0" {
		t.Errorf("%+v", b)
	}
	contains(t, s.cli(t, "ledger", "entries", "SPRING"), "RESHARD", "reshard:up")
	contains(t, s.cli(t, "ledger", "entries", "SPRING", "--bucket", "15"), "MOVE") // retired
	fails(t, exitFailed, "bucket 99 is no bucket of SPRING, which has 2 (allowed: 0 to 1)", "ledger", "entries", "SPRING", "--bucket", "99", "--server", s.url)
	contains(t, s.cli(t, "ledger", "replay", "SPRING"), "replay: ok", "1,600.00")
	checkAudit(t, s.cli(t, "audit"))
}

// Several commits without ids of their own have one key: the answer says that
// nothing was done, and how to do more.
func TestSeveralWithoutIDs(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	s.cli(t, "budget", "fund", "B", "--amount", "100.00")
	s.cli(t, "order", "reserve", "o", "b", "--budget", "B", "--amount", "20.00")
	part := []string{"order", "commit", "o", "b", "--amount", "4.00", "--partial"}
	first := s.cli(t, part...)
	const again = "this is the same commit again, and did nothing now; for another one, give each its own --payment\ndone before"
	if strings.Contains(first, "again") {
		t.Errorf("the first commit says:\n%s", first)
	}
	contains(t, s.cli(t, part...), again, "4.00")
	contains(t, s.cli(t, "order", "get", "o", "b"), "16.00", "4.00") // held, committed
	fails(t, exitFailed, "IDEMPOTENCY_CONFLICT: COMMIT with this key was first sent with other values of amount_minor (400); that one took effect; "+
		"send the same values, or use another key, name or attempt; for another commit, give each its own --payment",
		"order", "commit", "o", "b", "--amount", "5.00", "--partial", "--server", s.url)
	s.cli(t, append(part, "--payment", "p2")...)
	if out := s.cli(t, append(part, "--payment", "p2")...); strings.Contains(out, "give each its own") || !strings.HasPrefix(out, "done before") {
		t.Errorf("a commit with an id again says:\n%s", out)
	}
	contains(t, s.cli(t, "order", "get", "o", "b"), "12.00", "8.00")
	s.cli(t, "order", "extend", "o", "b", "--ttl", "1h")
	contains(t, s.cli(t, "order", "extend", "o", "b", "--ttl", "1h"), "the same extension again", "--operation")
	fails(t, exitFailed, "for another extension, give each its own --operation", "order", "extend", "o", "b", "--ttl", "2h", "--server", s.url)

	s.cli(t, "wallet", "create", "w", "--currency", "CREDIT")
	s.cli(t, "wallet", "grant", "w", "--amount", "10")
	s.cli(t, "job", "hold", "j", "--wallet", "w", "--amount", "10")
	settle := []string{"job", "settle", "j", "--amount", "3", "--partial"}
	s.cli(t, settle...)
	contains(t, s.cli(t, settle...), "the same settlement again", "--operation")
	contains(t, s.cli(t, append(settle, "--operation", "s2")...), "4", "6") // held, charged
	checkAudit(t, s.cli(t, "audit"))
}

// checkAudit sees that an audit looked at something and ends as it must.
func checkAudit(t *testing.T, out string) {
	t.Helper()
	if !strings.HasSuffix(out, "\naudit: ok\n") || strings.Count(out, "\n") < 8 {
		t.Errorf("audit does not end with ok, or checked nothing:\n%s", out)
	}
}

func TestJSON(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "JPY", "--json")
	s.cli(t, "budget", "fund", "B", "--amount", "5000", "--json")
	type outcome struct {
		State       string `json:"state"`
		AmountMinor string `json:"amountMinor"`
		Replayed    bool   `json:"replayed"`
	}
	o := decode[outcome](t, s.cli(t, "order", "reserve", "o", "b", "--budget", "B", "--amount", "700", "--json"))
	if o != (outcome{"RESERVATION_STATE_RESERVED", "700", false}) {
		t.Errorf("reserve --json: %+v", o)
	}
	if o = decode[outcome](t, s.cli(t, "order", "reserve", "o", "b", "--budget", "B", "--amount", "700", "--json")); !o.Replayed {
		t.Errorf("reserve --json again: %+v", o)
	}
	for _, args := range []string{"budget list", "budget get B", "order get o b", "order explain o", "ledger entries B", "ledger replay B", "ledger verify B", "ledger cases", "expiry rebuild"} {
		decode[map[string]any](t, s.cli(t, append(strings.Fields(args), "--json")...))
	}
	code, out, _ := coffer(t, "order", "reserve", "o", "b", "--budget", "B", "--amount", "800", "--json", "--server", s.url)
	contains(t, out, `"reason":"IDEMPOTENCY_CONFLICT"`, `"differingFields":["amount_minor"]`, `"code":"already_exists"`)
	if decode[map[string]any](t, out); code != exitFailed {
		t.Errorf("refused --json: exit code %d", code)
	}
	if a := decode[map[string]any](t, s.cli(t, "audit", "--json")); a["audit"] != "ok" {
		t.Errorf("audit --json: %v", a)
	}
}
