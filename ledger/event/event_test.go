package event

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
)

// reserved is an event with something in every field it may have.
func reserved() *Event {
	return &Event{
		At:     Position{Incarnation: 1, Partition: 3, Stamp: [StampSize]byte{7: 7, 11: 2}, Index: 4},
		Bucket: ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t 1", Funder: "acme", Key: "SPRING"}, Index: 8}, Currency: "BRL",
		Time: time.Date(2026, 11, 29, 16, 33, 40, 930e6, time.UTC), Writer: "node-1",
		Entry: ledger.Entry{
			Seq: 9, Type: ledger.EntryReserve, Order: "o-1", Benefit: "coupon:SPRING/ä", Attempt: 2, EventSeq: 3,
			Delta:    ledger.Balances{Available: -1250, Reserved: 1250},
			After:    ledger.Balances{Funded: 10000, Available: 8000, Reserved: 1250, Committed: 800, Reversed: 50},
			RefersTo: 7, Cause: "p-1", Correlation: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			Peer: &ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t 1", Key: "SINK"}, Index: ledger.Unallocated},
		},
	}
}

// entryTypes finds every constant of type EntryType in ledger's source.
func entryTypes(t *testing.T) []string {
	t.Helper()
	src, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "entry.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(src, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for _, id := range v.Names {
				if strings.HasPrefix(id.Name, "Entry") {
					out = append(out, id.Name)
				}
			}
		}
		return true
	})
	return out
}

// An entry type that is added without an event type fails here.
func TestEveryEntryHasAType(t *testing.T) {
	declared, found := entryTypes(t), 0
	for i := range 256 {
		et := ledger.EntryType(i)
		e := Event{Entry: ledger.Entry{Type: et, Order: "o", Benefit: "b"}}
		if !et.Valid() {
			if e.Type() != "" {
				t.Errorf("entry type %d is none and has type %q", i, e.Type())
			}
			continue
		}
		found++
		if e.Type() == "" || !KnownType(e.Type()) || !slices.Contains(Types(), e.Type()) {
			t.Errorf("entry type %s has event type %q", et, e.Type())
		}
		if et.OfBudget() != strings.HasPrefix(e.Type(), "coffer.budget.") {
			t.Errorf("entry type %s has event type %q", et, e.Type())
		}
		if e.Internal() != strings.HasPrefix(e.Type(), "coffer.internal.") || e.Internal() != InternalType(e.Type()) {
			t.Errorf("%s: internal %v", e.Type(), e.Internal())
		}
	}
	if found != len(declared) || found != len(types) {
		t.Errorf("ledger declares %d entry types (%v), %d are valid, %d have an event type", len(declared), declared, found, len(types))
	}
	if n := len(Types()); n != len(types)+len(jobTypes) {
		t.Errorf("%d types, want %d: two entries share one", n, len(types)+len(jobTypes))
	}
	for et := range jobTypes {
		e := Event{Entry: ledger.Entry{Type: et, Order: "j", Benefit: ledger.JobBenefit}}
		if !strings.HasPrefix(e.Type(), "coffer.job.") {
			t.Errorf("%s of a job has type %q", et, e.Type())
		}
	}
}

func TestKeyAndSequence(t *testing.T) {
	budget := ledger.BudgetID{Tenant: "t/1", Key: "B"}
	peer := ledger.BucketID{Budget: budget, Index: 3}
	for _, c := range []struct {
		name      string
		e         ledger.Entry
		key, typ  string
		seq, next uint64
	}{
		{
			"reservation",
			ledger.Entry{Seq: 90, Type: ledger.EntryCommit, Order: "o/1", Benefit: "c", EventSeq: 2},
			"t%2F1/reservations/o%2F1/c", "coffer.reservation.committed.v1", 2, 3,
		},
		{
			"refund to another budget",
			ledger.Entry{Seq: 90, Type: ledger.EntryReverse, Order: "o", Benefit: "c", EventSeq: 3, Peer: &peer},
			"t%2F1/reservations/o/c", "coffer.reservation.reversed.v1", 3, 5,
		},
		{
			"its other side",
			ledger.Entry{Seq: 91, Type: ledger.EntryMoveIn, Order: "o", Benefit: "c", EventSeq: 4, Peer: &peer},
			"t%2F1/budgets/B/5", "coffer.internal.moved_in.v1", 91, 0,
		},
		{
			"job",
			ledger.Entry{Seq: 90, Type: ledger.EntryRelease, Order: "j", Benefit: ledger.JobBenefit, EventSeq: 2},
			"t%2F1/jobs/j", "coffer.job.released.v1", 2, 3,
		},
		{"budget", ledger.Entry{Seq: 90, Type: ledger.EntryFund}, "t%2F1/budgets/B/5", "coffer.budget.funded.v1", 90, 0},
	} {
		e := Event{Bucket: ledger.BucketID{Budget: budget, Index: 5}, Entry: c.e}
		if e.Key() != c.key || e.Type() != c.typ || e.Sequence() != c.seq || e.Next() != c.next {
			t.Errorf("%s: key %q, type %q, sequence %d, next %d", c.name, e.Key(), e.Type(), e.Sequence(), e.Next())
		}
	}
	funded := Event{Bucket: ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t", Funder: "f", Key: "B"}}, Entry: ledger.Entry{Type: ledger.EntryFund}}
	if funded.Key() != "t/budgets/f/B/0" {
		t.Errorf("key %q", funded.Key())
	}
}

func TestPosition(t *testing.T) {
	p := reserved().At
	if s := p.String(); s != "1-03-000000000000000700000002-4" {
		t.Errorf("position %q", s)
	}
	gen := rapid.Custom(func(t *rapid.T) Position {
		p := Position{
			Incarnation: rapid.Uint64().Draw(t, "incarnation"), Partition: rapid.Uint64Range(0, 300).Draw(t, "partition"), Index: rapid.Uint32().Draw(t, "index"),
		}
		copy(p.Stamp[:], rapid.SliceOfN(rapid.Byte(), StampSize, StampSize).Draw(t, "stamp"))
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		p, q := gen.Draw(t, "p"), gen.Draw(t, "q")
		if back, err := ParsePosition(p.String()); err != nil || back != p {
			t.Fatalf("%v came back as %v, %v", p, back, err)
		}
		if p.Compare(q) != -q.Compare(p) || (p.Compare(q) == 0) != (p == q) || p.Before(q) != (p.Compare(q) < 0) {
			t.Fatalf("compare %v with %v: %d, %d", p, q, p.Compare(q), q.Compare(p))
		}
	})
	// Each step is later than the one before.
	steps := []string{
		"1-02-000000000000000000000001-9", "1-03-000000000000000700000001-9", "1-03-000000000000000700000002-4",
		"1-03-000000000000000700000002-5", "1-03-010000000000000000000000-0", "1-10-000000000000000000000000-0", "2-00-000000000000000000000000-0",
	}
	for i := range steps[1:] {
		a, b := mustPosition(t, steps[i]), mustPosition(t, steps[i+1])
		if !a.Before(b) || b.Before(a) {
			t.Errorf("%s is not before %s", a, b)
		}
	}
	for _, s := range []string{
		"", "1", "1-3-000000000000000700000002-4", "01-03-000000000000000700000002-4", "1-03-00000000000000070000000G-4", "1-03-0000000000000007000002-4",
		"1-03-000000000000000700000002-4294967296", "1-03-000000000000000700000002-4-5", "1-03-00000000000000AB00000002-4", "-1-03-000000000000000700000002-4",
	} {
		if _, err := ParsePosition(s); !errors.Is(err, ErrPosition) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func mustPosition(t *testing.T, s string) Position {
	t.Helper()
	p, err := ParsePosition(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The form that consumers rely on. A change of this file is a change of the
// schema: fields may be added, and that is all.
func TestGolden(t *testing.T) {
	b, err := json.MarshalIndent(reserved(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "reserved.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b) + "\n"; got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	for name := range entryOf {
		e := reserved()
		e.Entry.Type = entryOf[name]
		switch {
		case strings.HasPrefix(name, "coffer.job."):
			e.Entry.Benefit = ledger.JobBenefit
		case strings.HasPrefix(name, "coffer.budget."):
			e.Entry.Order, e.Entry.Benefit, e.Entry.Attempt, e.Entry.EventSeq = "", "", 0, 0
			e.Bucket.Budget.Funder = ""
			e.Entry.Peer, e.Entry.Correlation = nil, ""
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(b, &back); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		attrs, data, err := e.Attributes()
		if err != nil {
			t.Fatal(err)
		}
		second, err := FromAttributes(func(n string) string {
			for _, a := range attrs {
				if a.Name == n {
					return a.Value
				}
			}
			return ""
		}, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		e.Writer = "" // not told
		if !reflect.DeepEqual(&back, e) || !reflect.DeepEqual(second, e) {
			t.Errorf("%s came back as\n%+v\n%+v\nwant\n%+v", name, back, second, e)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good, err := json.Marshal(reserved())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, new string
		want     error
	}{
		{`{"specversion"`, `{{"specversion"`, ErrMalformed},
		{`"specversion":"1.0"`, `"specversion":"0.3"`, ErrMalformed},
		{`reserved.v1`, `reserved.v2`, ErrUnknownType},
		{`"id":"1-03`, `"id":"1-3`, ErrMalformed},
		{`:40.930Z`, `:99.930Z`, ErrMalformed},
		{`"data":{`, `"data":7,"x":{`, ErrMalformed},
		{`/coffer/t%201`, `/coffer/t2`, ErrMalformed},
		{`"subject":"reservations/o-1`, `"subject":"reservations/o-2`, ErrMalformed},
		{`"sequence":3`, `"sequence":4`, ErrMalformed},
		{`"next_sequence":5`, `"next_sequence":4`, ErrMalformed},
		{`"entry_seq":9`, `"entry_seq":0`, ErrMalformed},
		{`"currency":"BRL"`, `"currency":""`, ErrMalformed},
		{`"bucket":8`, `"bucket":80000`, ErrMalformed},
	} {
		b := strings.Replace(string(good), c.old, c.new, 1)
		if b == string(good) {
			t.Fatalf("%q is not in %s", c.old, good)
		}
		if e, err := Parse([]byte(b)); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", c.new, e, err)
		}
	}
	grown := strings.Replace(string(good), `"data":{`, `"colour":"red","data":{"size":[7],`, 1)
	if e, err := Parse([]byte(grown)); err != nil || e.Entry.Order != "o-1" {
		t.Errorf("with members it does not know: %+v, %v", e, err)
	}
}

func TestTraceParent(t *testing.T) {
	for s, want := range map[string]bool{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": false,
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": false,
		"cart-7": false, "": false,
	} {
		if isTraceParent(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

// An installation with a source of its own: its events say so, and come back with
// it; the default is not told apart from none.
func TestSource(t *testing.T) {
	for source, want := range map[string]string{
		"": "/coffer/t%201", DefaultSource: "/coffer/t%201", "https://ledger.example.com/eu": "https://ledger.example.com/eu/t%201",
		"urn:coffer:eu": "urn:coffer:eu/t%201", "coffer-eu": "coffer-eu/t%201", "https://example.com/100%25": "https://example.com/100%25/t%201",
	} {
		e := reserved()
		e.Source = source
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var raw map[string]any
		if err := json.Unmarshal(b, &raw); err != nil || raw["source"] != want {
			t.Errorf("source of %q is %v, want %s (%v)", source, raw["source"], want, err)
		}
		back, err := Parse(b)
		if source == DefaultSource {
			source = ""
		}
		if err != nil || back.Source != source {
			t.Errorf("%q came back as %+v, %v", source, back, err)
		}
	}
	for _, s := range []string{"/t%201", "t%201", "/coffer/t%202", "/coffer/t 1"} {
		b, err := json.Marshal(reserved())
		if err != nil {
			t.Fatal(err)
		}
		b = []byte(strings.Replace(string(b), `"source":"/coffer/t%201"`, `"source":"`+s+`"`, 1))
		if e, err := Parse(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("source %s: %+v, %v", s, e, err)
		}
	}
}

func TestCheckSource(t *testing.T) {
	for _, s := range []string{DefaultSource, "https://ledger.example.com/eu", "https://ledger.example.com", "urn:coffer:eu", "coffer-eu", "//host/a", strings.Repeat("x", 256)} {
		if err := CheckSource(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"", "/", "/coffer/", "https://", "urn:", "a b", "a\nb", "ä", "/a?b", "/a?", "/a#b", "/%zz", `/"a"`, strings.Repeat("x", 257)} {
		if err := CheckSource(s); err == nil || !strings.Contains(err.Error(), "source is ") || !strings.Contains(err.Error(), "(allowed: a URI such as https://ledger.example.com/eu or /coffer, up to 256 bytes") {
			t.Errorf("%.20q: %v", s, err)
		}
	}
}
