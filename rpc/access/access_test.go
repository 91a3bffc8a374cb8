package access

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"
)

// made is a token and its entry.
func made(t *testing.T, id, tenant string, roles Roles) (string, Entry) {
	t.Helper()
	tok, sum, err := New(id)
	if err != nil {
		t.Fatal(err)
	}
	return tok, Entry{ID: id, Tenant: tenant, Roles: roles, Sum: sum}
}

func file(entries ...Entry) []byte {
	out := "tokens:\n"
	for i := range entries {
		out += entries[i].YAML(2)
	}
	return []byte(out)
}

func TestTokens(t *testing.T) {
	tok, e := made(t, "check-out1", "shop", Service|Monitor)
	other, o := made(t, "other", EveryTenant, Operator)
	if len(tok) != len("coffer_check-out1_")+43 || !strings.HasPrefix(tok, "coffer_check-out1_") || IDOf(tok) != "check-out1" {
		t.Errorf("token %s", tok)
	}
	e.NotAfter, e.Comment = time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC), "till: \"7\" #1"
	raw := file(e, o)
	s, err := Parse(raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	if got := s.Entries(); len(got) != 2 || got[0] != e || got[1] != o {
		t.Errorf("entries %+v, want %+v", got, []Entry{e, o})
	}
	if strings.Contains(string(raw), tok[len(tok)-secretLen:]) {
		t.Error("the file has the secret")
	}
	if got := s.Find(tok); got == nil || *got != e {
		t.Errorf("found %+v", got)
	}
	if got := s.Find(other); got == nil || *got != o || !got.Everywhere() || got.Expired(time.Now()) {
		t.Errorf("found %+v", got)
	}
	secret := tok[len(tok)-secretLen:]
	for _, bad := range []string{
		"", "coffer_", "coffer__" + secret, secret, tok[:len(tok)-1], tok + "A", tok + "\n", " " + tok, strings.ToUpper(tok),
		"coffer_other_" + secret, "coffer_nobody_" + secret, "coffer_check-out1_" + strings.Repeat("A", secretLen),
		"coffer_Check-out1_" + secret, "coffer_check-out1" + secret, "coffer_check-out1_" + hex.EncodeToString(e.Sum[:]),
	} {
		if got := s.Find(bad); got != nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
	if IDOf("coffer_"+secret) != "" || IDOf("Bearer "+tok) != "" {
		t.Error("an id is read from what is no token")
	}
	if e.Expired(e.NotAfter.Add(-1)) || !e.Expired(e.NotAfter) {
		t.Error("a token ends at another time")
	}
	if again, _, _ := New("other"); again == other {
		t.Error("two tokens are the same")
	}
	for _, id := range []string{"", "A", "a_b", "a b", strings.Repeat("x", 65), "é"} {
		if _, _, err := New(id); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
}

// An empty list is one of nobody.
func TestNobody(t *testing.T) {
	s, err := Parse([]byte("tokens: []\n"))
	if err != nil || len(s.Entries()) != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	token, _ := made(t, "a", "shop", Service)
	if s.Find(token) != nil {
		t.Error("somebody is found")
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	tok, e := made(t, "a", "shop", Service)
	s, err := Parse(file(e))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { s.Find(tok) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A fault in a file names line, key and what is allowed, all faults come at
// once, and none repeats what may be a secret.
func TestFaults(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	secret, _ := made(t, "leaked", "shop", Service)
	good := "  - {id: a, tenant: shop, roles: [service], sha256: \"" + sum + "\"}\n"
	for text, want := range map[string][]string{
		"":                               {"line 1: the file has no tokens; coffer token new --file adds one"},
		"# nothing\n":                    {"the file has no tokens"},
		"tokens:\n":                      {"line 1: tokens is no list"},
		"just text\n":                    {`line 1: the file is no mapping`},
		"tokens:\n" + good + "more: 1":   {`line 3: unknown key "more"; remove it or correct its spelling`},
		"tokens:\n" + good + "---\na: 1": {"holds more than one document"},
		"tokens: [\n":                    {"line "},
		"tokens:\n  - a\n":               {"line 2: the token is no mapping"},
		"tokens:\n" + good + good:        {`line 3: id "a" is that of line 2, too`},
		"tokens:\n  - id: a\n":           {"line 2: the token has no tenant", "line 2: the token has no roles", "line 2: the token has no sha256"},
		"tokens:\n  - {id: A b, tenant: \"\", roles: [boss, service, service], sha256: 12, not_after: soon, comment: [x], role: x, id: y}\n": {
			`id is "A b" (allowed: 1 to 64 small letters, digits and hyphens)`, `tenant is "" (allowed: 1 to 128 bytes`,
			`role is "boss" (allowed: service, operator, auditor, monitor)`, "role service stands there twice", "sha256 has 2 characters (allowed: 64 hexadecimal digits",
			`not_after is "soon" (allowed: a time such as 2030-01-31T00:00:00Z)`, "comment is no text", `unknown key "role"`, `key "id" stands there twice`,
		},
		"tokens:\n  - {id: a, tenant: shop, roles: service, sha256: " + secret + "}\n": {"roles is no list of roles", "sha256 has 57 characters"},
		"tokens:\n  - {id: " + secret + ", tenant: shop, roles: [" + secret + "], sha256: \"" + sum + "\", not_after: " + secret + ", " + secret + ": 1}\n": {
			"id is a text of 57 bytes", "role is a text of 57 bytes", "not_after is a text of 57 bytes", "unknown key a text of 57 bytes",
		},
		"tokens:\n" + strings.Replace(good, "sha256", "not_after: 0001-01-01T00:00:00Z, sha256", 1):  {`not_after is "0001-01-01T00:00:00Z"`},
		"tokens:\n" + strings.Replace(good, "shop", strings.Repeat("t", 129), 1):                     {"tenant is a text of 129 bytes"},
		"tokens:\n" + strings.Replace(good, "id: a", "id: a, comment: "+strings.Repeat("c", 257), 1): {"comment has 257 bytes (allowed: up to 256)"},
		strings.Repeat("#", MaxFileBytes+1):                                                          {"the file is larger than 4194304 bytes"},
	} {
		s, err := Parse([]byte(text))
		if err == nil || s != nil {
			t.Errorf("%.200q: %v, %v", text, s, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.200q: error lacks %q:\n%v", text, w, err)
			}
		}
		if strings.Contains(err.Error(), secret[len(secret)-20:]) {
			t.Errorf("the fault has the secret: %v", err)
		}
	}
}

// A file that is another one altogether is refused in few words.
func TestManyFaults(t *testing.T) {
	_, err := Parse([]byte("tokens:\n" + strings.Repeat("- {}\n", 100)))
	if err == nil {
		t.Fatal("it is taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxFaults+1 || lines[0] != "line 2: the token has no id" || lines[maxFaults] != "and 370 faults more" {
		t.Errorf("%d lines:\n%v", len(lines), err)
	}
}

// A token is added behind the others; what was there stays as it was.
func TestAppend(t *testing.T) {
	_, a := made(t, "a", "123", Auditor)
	_, b := made(t, "b", EveryTenant, Operator|Monitor)
	b.NotAfter = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	raw, err := Append(nil, a)
	if err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string]string{
		"made here":         string(raw),
		"no indentation":    "# ours\ntokens: # all\n" + a.YAML(0),
		"deep":              "tokens:\n" + a.YAML(6) + "# end",
		"no newline at end": strings.TrimSuffix("tokens:\n"+a.YAML(2), "\n"),
	} {
		out, err := Append([]byte(before), b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s, err := Parse(out)
		if err != nil || !slices.Equal(s.Entries(), []Entry{a, b}) || !strings.HasPrefix(string(out), before) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for before, want := range map[string]string{
		string(raw) + b.YAML(2): "id \"b\" is that of line",
		"tokens: [{id: a, tenant: x, roles: [auditor], sha256: \"" + strings.Repeat("0a", 32) + "\"}]\n": "written in brackets",
		"tokens:\n  - nonsense\n": "is no mapping",
	} {
		if out, err := Append([]byte(before), b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s\n%s", before, err, want, out)
		}
	}
}

// BenchmarkFind is what a call pays for its token.
func BenchmarkFind(b *testing.B) {
	tok, sum, err := New("checkout")
	if err != nil {
		b.Fatal(err)
	}
	s, err := Parse(file(Entry{ID: "checkout", Tenant: "shop", Roles: Service, Sum: sum}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s.Find(tok) == nil {
			b.Fatal("not found")
		}
	}
}
