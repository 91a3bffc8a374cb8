package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/ledger/work"
	"github.com/coffer-ledger/coffer/rpc"
)

// A number or a time beyond its range is refused with the flag, the value and the
// range, however it is written, and before anything is sent.
func TestRanges(t *testing.T) {
	for _, tc := range []struct{ args, words string }{
		{"ledger entries B --bucket -1", "--bucket is -1 (allowed: 0 to 256)"},
		{"ledger entries B --bucket=-1", "--bucket is -1 (allowed: 0 to 256)"},
		{"ledger entries B --bucket 257", "--bucket is 257 (allowed: 0 to 256)"},
		{"ledger entries B --bucket 99999999999999999999", "--bucket is 99999999999999999999 (allowed: 0 to 256)"},
		{"ledger entries B --bucket x", `--bucket is "x" (allowed: 0 to 256)`},
		{"wallet create W --currency CREDIT --debt-cap -1", "--debt-cap is -1 (allowed: 0 or more)"},
		{"wallet create W --currency CREDIT --overdraft=-0.5", "--overdraft is -0.5 (allowed: 0 or more)"},
		{"wallet create W --currency CREDIT --over-percent -1", "--over-percent is -1 (allowed: 0 to 1000)"},
		{"budget create B --currency BRL --over-percent=1001", "--over-percent is 1001 (allowed: 0 to 1000)"},
		{"budget create B --currency BRL --over-amount -1", "--over-amount is -1 (allowed: 0 or more)"},
		{"budget create B --currency BRL --max-lifetime 0s", "--max-lifetime is 0s (allowed: 1s to 9600h)"},
		{"budget create B --currency BRL --max-lifetime 5", `--max-lifetime is 5 (allowed: 1s to 9600h, in numbers with units, such as 500ms, 15m, 24h or 7d)`},
		{"budget reshard B 0", "<buckets> is 0 (allowed: 1 to 256)"},
		{"budget reshard B x", `<buckets> is "x" (allowed: 1 to 256)`},
		{"budget list --limit 0", "--limit is 0 (allowed: 1 to 1000)"},
		{"events tail --limit -1", "--limit is -1 (allowed: 0 or more)"},
		{"events tail --since 0s", "--since is 0s (allowed: more than 0s)"},
		{"order reserve o b --budget B --amount 1 --attempt 0", "--attempt is 0 (allowed: 1 to 16)"},
		{"order commit o b --amount 0", "--amount is 0 (allowed: more than 0)"},
		{"order reverse o b --refund r --line l --quantity 2 --quantity -1", "--quantity is -1 (allowed: 1 to 1000000000)"},
		{"queue enqueue q j --delay -1s", "--delay is -1s (allowed: 0s to 720h)"},
		{"queue lease q --max 101", "--max is 101 (allowed: 1 to 100)"},
		{"bench run --duplicates -1", "duplicates is -1 (allowed: 0 to 1)"},
		{"bench run --duplicates x", `--duplicates is "x" (allowed: a number)`},
		{"bench run --callers x", `--callers is "x" (allowed: a whole number)`},
		{"demo --orders -1", "--orders is -1 (allowed: 200 to 1000000)"},
		{"budget freeze --json -1", "bool value must be"},
		{"demo --orders", "coffer: --orders has no value (allowed: 200 to 1000000)\n"},
		{"budget create B --currency", "coffer: --currency has no value\n"},
	} {
		fails(t, exitUsage, tc.words, strings.Fields(tc.args)...)
	}
}

// What is at the edge of a range is taken.
func TestLegalZero(t *testing.T) {
	s := serve(t, t.TempDir())
	contains(t, s.cli(t, "wallet", "create", "W", "--currency", "CREDIT", "--debt-cap", "0", "--overdraft", "0", "--over-percent", "0", "--over-amount", "0"), "wallet W created")
	contains(t, s.cli(t, "budget", "create", "B", "--currency", "BRL", "--over-percent", "1000", "--over-amount", "0", "--max-lifetime", "9600h"), "budget B created")
	contains(t, s.cli(t, "budget", "fund", "B", "--amount", "1", "--key", "-5"), "funded")
	s.cli(t, "ledger", "entries", "B", "--bucket", "0", "--limit", "1000")
}

// Every number and time has a range of its own, or its command checks it; ranges
// are those of the ledger.
func TestRangesAreTheLedgers(t *testing.T) {
	var a app
	parser, err := kong.New(&a, kong.Writers(io.Discard, io.Discard), kong.Bind(&cli{}))
	if err != nil {
		t.Fatal(err)
	}
	free := map[string]bool{"seed": true} // any number
	want := map[string]string{
		"--buckets": fmt.Sprint("1 to ", ledger.MaxBuckets), "--bucket": fmt.Sprint("0 to ", ledger.MaxBuckets),
		"--attempt": fmt.Sprint("1 to ", ledger.MaxAttempts), "--quantity": fmt.Sprint("1 to ", ledger.MaxQuantity),
		"--max-lifetime": "1s to " + hours(ledger.MaxLifetimeLimit), "--ttl": "1ms to " + hours(ledger.MaxLifetimeLimit),
		"--batch": fmt.Sprint("1 to ", rpc.MaxBatch), "--set": fmt.Sprint("1 to ", uint64(store.MaxIncarnation)),
		"--max-attempts": fmt.Sprint("1 to ", work.LimitMaxAttempts), "--backoff-base": fmt.Sprint(work.MinBackoff, " to ", hours(work.LimitBackoff)),
		"--backoff-max": fmt.Sprint(work.MinBackoff, " to ", hours(work.LimitBackoff)), "--keep": "1m to " + hours(work.LimitKeep),
		"--delay": "0s to " + hours(work.LimitDelay), "--for": fmt.Sprint(work.MinLease, " to ", hours(work.LimitLease)),
	}
	seen := map[string]bool{}
	for _, n := range parser.Model.Leaves(true) {
		if strings.HasPrefix(n.Path(), "bench") { // bench.Config checks
			continue
		}
		values := map[string]*kong.Value{}
		for _, p := range n.Positional {
			values["<"+p.Name+">"] = p
		}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				values["--"+f.Name] = f.Value
			}
		}
		for name, v := range values {
			kind := v.Target.Type()
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			rng := v.Tag.Get(rangeTag)
			if rng == "" {
				if kind.Kind() != reflect.String && kind.Kind() != reflect.Bool && kind.Kind() != reflect.Struct && !free[v.Name] {
					t.Errorf("%s: %s has no range", n.Path(), name)
				}
				continue
			}
			within(reflect.Zero(kind), rng) // panics if it is malformed
			if w := want[name]; w != "" && rng != w {
				t.Errorf("%s: %s takes %s, want %s", n.Path(), name, rng, w)
			}
			seen[name] = true
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no command has %s with a range", name)
		}
	}
}

func hours(d time.Duration) string { return fmt.Sprintf("%dh", d/time.Hour) }
