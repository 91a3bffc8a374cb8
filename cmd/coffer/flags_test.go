package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/coffer-ledger/coffer/node"
)

// An empty value, such as of a variable that is not set, never means the
// default.
func TestEmptyFlags(t *testing.T) {
	for _, tc := range []struct {
		words string
		args  []string
	}{
		{"--store is empty; name a directory, or leave the flag out to use the server", []string{"audit", "--store", ""}},
		{"--store is empty; name a directory, or leave the flag out to use the server", []string{"audit", "--store="}},
		{"--store is empty; name a directory, or leave the flag out to use the server", []string{"expiry", "rebuild", "--store", ""}},
		{"--store is empty", []string{"serve", "--store", ""}},
		{"--store is empty", []string{"demo", "--store", ""}},
		{"--listen is empty", []string{"serve", "--listen", ""}},
		{"--config is empty", []string{"serve", "--config", ""}},
		{"--dir is empty", []string{"dev", "--dir", ""}},
		{"--server is empty", []string{"audit", "--server", ""}},
		{"--server is empty", []string{"budget", "--server", "", "list"}},
		{"--tenant is empty", []string{"budget", "list", "--tenant", ""}},
		{"--budget is empty", []string{"order", "reserve", "o", "b", "--amount", "1", "--budget", ""}},
		{"--budget is empty", []string{"import", "f", "--budget", ""}},
		{"--key is empty", []string{"budget", "freeze", "B", "--key", ""}},
		{"--amount is empty", []string{"order", "commit", "o", "b", "--amount", ""}},
		{"--payment is empty", []string{"order", "commit", "o", "b", "--payment", ""}},
		{"--minor is 0", []string{"order", "commit", "o", "b", "--minor", "0"}},
		{"--cutoff is empty", []string{"ledger", "replay", "B", "--cutoff", ""}},
		{"--rejects is empty", []string{"import", "f", "--budget", "B", "--rejects", ""}},
	} {
		fails(t, exitUsage, tc.words, tc.args...)
	}
	// A variable that is empty is one that is not set.
	code, _, errs := cofferEnv(t, []string{"COFFER_SERVER=", "COFFER_TENANT="}, "budget", "list", "--timeout", "100ms")
	if code == exitUsage {
		t.Errorf("empty variables: %s", errs)
	}
}

// A group of commands names them where none or an unknown one is given. One
// thing is read by get everywhere, and what there is by list.
func TestUnknownCommands(t *testing.T) {
	for args, words := range map[string]string{
		"queue inspect mail j":         "inspect is no command of coffer queue (allowed: enqueue, stats, list, get, lease, complete, fail, return, dead)",
		"queue dead inspect mail j":    "inspect is no command of coffer queue dead (allowed: list, get, replay, discard)",
		"events parked show shop k":    "show is no command of coffer events parked (allowed: list, get, retry, skip, skipped)",
		"queue dead":                   "coffer queue dead needs a command (allowed: list, get, replay, discard)",
		"queue gett mail j":            `did you mean "get"?`,
		"budget --colour":              "unknown flag --colour",
		"foo":                          "foo is no command of coffer",
		"wallets list":                 "(allowed: serve, dev, demo, budget, order, wallet, job, queue, fact, events, import, ledger, audit, token, cluster, expiry, store, bench, version)",
		"budget get":                   "coffer: missing arguments: <budget>\ntry: coffer budget get --help",
		"order get":                    "missing arguments: <order> <benefit>",
		"budget get A B":               "unexpected argument B",
		"budget reshard A many":        `<buckets> is "many" (allowed: 1 to 256)`,
		"order commit o b --minor 1.5": "--minor is 1.5 (allowed: 1 to 9223372036854775807)",
		"order commit o b --minor 9223372036854775808": "--minor is 9223372036854775808 (allowed: 1 to 9223372036854775807)",
		"budget list --timeout 10":                     "coffer: --timeout is 10 (allowed: more than 0s, in numbers with units, such as 500ms, 15m, 24h or 7d)",
	} {
		fails(t, exitUsage, words, strings.Fields(args)...)
	}
	var a app
	parser, err := kong.New(&a, kong.Writers(io.Discard, io.Discard), kong.Bind(&cli{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range parser.Model.Leaves(true) {
		if n.Name == "show" || n.Name == "inspect" || n.Name == "describe" || n.Name == "view" {
			t.Errorf("coffer %s is another word for get", n.Path())
		}
	}
}

// With --json a wrong command line is told on stdout, too, whoever finds it.
func TestUsageInJSON(t *testing.T) {
	for args, words := range map[string]string{
		"budget get --json":                              "missing arguments: <budget>",
		"--json budget get":                              "missing arguments: <budget>",
		"budget list --json --nope":                      "unknown flag --nope",
		"budget fund B --amount x --currency BRL --json": `--amount "x" is not an amount`,
		"budget list --json --tenant=":                   "--tenant is empty",
		"dev --temp --dir x --json":                      "--dir would do nothing",
	} {
		code, out, errs := coffer(t, strings.Fields(args)...)
		e := decode[map[string]map[string]any](t, out)["error"]
		said, _ := e["message"].(string)
		if code != exitUsage || e["code"] != "usage" || e["outcome_unknown"] != false || !strings.Contains(said, words) || !strings.Contains(errs, "coffer: "+said) {
			t.Errorf("%s: exit code %d, JSON %s, says %s", args, code, out, errs)
		}
	}
}

// What a server says of a field names the flag to correct, and in JSON the field.
func TestRefusalsNameFlags(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	long := strings.Repeat("x", 129)
	for args, words := range map[string]string{
		"budget fund B --minor 5 --currency BRL --key " + long:        "is too long (allowed: 128 bytes); correct --key",
		"fact submit shop e refund-succeeded o":                       "correct --reference",
		"order commit o b --payment " + long:                          "correct --payment",
		"order resolve o b --op commit --id " + long:                  "correct --id",
		"order get " + long + " b":                                    "is too long (allowed: 128 bytes); correct the named field",
		"budget create C --currency BRL --reversal-sink C":            "correct --reversal-sink",
		"order get " + long + " b --json":                             "is too long (allowed: 128 bytes); correct the named field",
		"budget fund B --minor 5 --currency BRL --json --key " + long: "is too long (allowed: 128 bytes); correct the named field",
	} {
		fails(t, exitFailed, words+"\n", append(strings.Fields(args), "--server", s.url)...)
	}
}

// A number never means the server's default in place of 0.
func TestZeroInFlags(t *testing.T) {
	for args, words := range map[string]string{
		"order reserve o b --budget B --amount 1 --attempt 0": "--attempt is 0 (allowed: 1 to 16)",
		"order commit o b --attempt=0":                        "--attempt is 0 (allowed: 1 to 16)",
		"job charge j --wallet w --amount 1 --attempt 0":      "--attempt is 0 (allowed: 1 to 16)",
		"import f --budget B --attempt 0":                     "--attempt is 0 (allowed: 1 to 16)",
		"queue enqueue q j --max-attempts 0":                  "--max-attempts is 0 (allowed: 1 to 1000)",
		"queue lease q --max 0":                               "--max is 0 (allowed: 1 to 100)",
		"budget list --limit 0":                               "--limit is 0 (allowed: 1 to 1000)",
	} {
		fails(t, exitUsage, words, strings.Fields(args)...)
	}
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	contains(t, s.cli(t, "events", "tail", "--limit", "1", "--beginning"), "budget.created")
}

func TestDaysInFlags(t *testing.T) {
	s := serve(t, t.TempDir())
	contains(t, s.cli(t, "budget", "create", "B", "--currency", "BRL", "--max-lifetime", "30d"), "budget B created")
	contains(t, s.cli(t, "budget", "get", "B"), "longest life of a hold 30 days")
}

// Help shows the default of every flag that has one, and a value for the others.
func TestHelpShowsDefaults(t *testing.T) {
	var a app
	parser, err := kong.New(&a, kong.Writers(io.Discard, io.Discard), kong.Bind(&cli{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range parser.Model.Leaves(true) {
		if strings.HasPrefix(n.Path(), "bench") {
			continue
		}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				shown := f.FormatPlaceHolder()
				if f.HasDefault && strings.Trim(shown, `"`) != f.Default && !strings.Contains(f.Help, f.Default) {
					t.Errorf("%s: help of --%s does not show its default %s", n.Path(), f.Name, f.Default)
				}
				if strings.Contains(shown, "INT") || strings.Contains(shown, "-32") {
					t.Errorf("%s: --%s=%s names a type", n.Path(), f.Name, shown)
				}
			}
		}
	}
	cfg := node.DefaultConfig()
	contains(t, must(t, "serve", "--help"), "--print-config", cfg.Store, cfg.Listen)
	contains(t, must(t, "budget", "create", "--help"), "--over-percent=10")
	contains(t, must(t, "dev", "--help"), "coffer-dev-data", "127.0.0.1:7420")
	contains(t, must(t, "--help"), "Exit codes: 0 it worked, 1 it was refused or failed, 2 the command line is", "--version")
	if must(t, "--version") != must(t, "version") {
		t.Error("--version and version differ")
	}
}

// Commands have no flags that they would ignore.
func TestNoIgnoredFlags(t *testing.T) {
	for command, flags := range map[string][]string{
		"demo": {"--server", "--tenant", "--timeout"}, "version": {"--server", "--tenant", "--timeout"},
		"serve": {"--server", "--tenant", "--timeout"}, "dev": {"--server", "--tenant", "--timeout"},
		"bench list": {"--server", "--tenant", "--timeout"}, "bench run": {"--tenant", "--timeout"}, "bench compare": {"--tenant", "--timeout"},
	} {
		args := strings.Fields(command)
		out := must(t, append(args, "--help")...)
		for _, flag := range flags {
			if strings.Contains(out, flag+"=") {
				t.Errorf("%s --help lists %s", command, flag)
			}
			fails(t, exitUsage, "unknown flag "+flag, append(args, flag, "1s")...)
		}
	}
}

// A flag that means nothing beside the others is refused, and a variable in its
// place is not.
func TestFlagsThatOthersMakeIdle(t *testing.T) {
	for _, tc := range []struct{ args, words string }{
		{"bench run --duration 2s --server http://x", "--server would do nothing (allowed: with the target server)"},
		{"bench --server http://x", "--server would do nothing"},
		{"bench compare node noop --server http://x", "--server would do nothing"},
		{"bench --pg-dsn x", "--pg-dsn would do nothing (allowed: with the target postgres)"},
		{"bench --target executor --unary", "--unary would do nothing (allowed: with the targets node, server, noop)"},
		{"bench --target noop --store fdb:x", "--store would do nothing (allowed: with the targets node, executor, raw, rmw)"},
		{"bench --workload hot --batch 5", "--batch would do nothing (allowed: with the workload batch, or the target raw)"},
		{"bench --workload hot --exponent 1.5", "--exponent would do nothing (allowed: with the workload zipf)"},
		{"bench --workload spread --preload 5", "--preload would do nothing (allowed: with the workloads grown, expiry-storm)"},
		{"bench --workload hot --apart", "--apart would do nothing (allowed: with the workloads spread, grown, file)"},
		{"bench --arrivals constant", "--arrivals would do nothing (allowed: with a --rate other than max)"},
		{"dev --temp --dir foo", "--dir would do nothing (allowed: without --temp and --store)"},
		{"dev --store x --dir foo", "--dir would do nothing (allowed: without --temp and --store)"},
	} {
		fails(t, exitUsage, tc.words, strings.Fields(tc.args)...)
	}
	for _, args := range []string{
		"bench --target executor --tasks 20 --warmup 0s --callers 2", "bench compare executor raw,batch=2 --workload batch --batch 10 --rounds 1 --tasks 20 --warmup 0s --callers 2",
	} {
		if code, out, errs := cofferEnv(t, []string{"COFFER_SERVER=http://x"}, strings.Fields(args)...); code != exitOK {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, errs)
		}
	}
}

func TestPrintConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coffer.yaml")
	if err := os.WriteFile(file, []byte(must(t, "serve", "--print-config")), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := (&serveCmd{Config: file}).config(&cli{})
	if err != nil || cfg != node.DefaultConfig() {
		t.Errorf("printed configuration: %v\n%+v\nwant\n%+v", err, cfg, node.DefaultConfig())
	}
	contains(t, must(t, "serve", "--config", file, "--store", "here", "--print-config"), "\nstore: here\n", "# default embedded:coffer-data; env COFFER_STORE")
}

// A store that cannot be opened is named before the address is looked at.
func TestServeChecksStoreFirst(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--listen", ln.Addr().String(), "--store"}
	fails(t, exitFailed, noEngine, append(serve, "fdb:x")...)
	const words = "is a file; name the directory of a store"
	fails(t, exitFailed, words, append(serve, file)...)
	fails(t, exitFailed, words, "audit", "--store", file)
	fails(t, exitFailed, words, "expiry", "rebuild", "--store", file)
	fails(t, exitFailed, words, "demo", "--store", file)
}

func TestStoreNames(t *testing.T) {
	for s, want := range map[string]location{
		"dir":                              {kind: "embedded", path: "dir"},
		"embedded:a?prefix=b":              {kind: "embedded", path: "a?prefix=b"},
		"fdb:/etc/f.cluster":               {kind: "fdb", path: "/etc/f.cluster"},
		"fdb:f?prefix=stage-2":             {kind: "fdb", path: "f", prefix: "stage-2"},
		"fdb:f?prefix=stage&datacenter=w1": {kind: "fdb", path: "f", prefix: "stage", datacenter: "w1"},
		"C:\\data":                         {kind: "embedded", path: "C:\\data"},
	} {
		got, err := parseStore(s)
		if err != nil || got != want {
			t.Errorf("store %q is %+v, %v; want %+v", s, got, err, want)
		}
		if again, err := parseStore(got.String()); err != nil || again != want {
			t.Errorf("store %q as %q is %+v, %v", s, got, again, err)
		}
	}
}
