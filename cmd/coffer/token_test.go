package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/rpc/access"
)

// newToken makes one in a file.
func newToken(t *testing.T, file, id, tenant, roles string, more ...string) string {
	t.Helper()
	return strings.TrimSpace(must(t, append([]string{"token", "new", "--id", id, "--tenant", tenant, "--role", roles, "--file", file}, more...)...))
}

// as runs a command with a token against the server.
func (s *served) as(t *testing.T, token string, args ...string) (code int, out, errs string) {
	t.Helper()
	return cofferEnv(t, []string{"COFFER_SERVER=" + s.url, "COFFER_TOKEN=" + token}, args...)
}

// may is as, for a command that has to work.
func (s *served) may(t *testing.T, token string, args ...string) string {
	t.Helper()
	code, out, errs := s.as(t, token, args...)
	if code != exitOK {
		t.Fatalf("coffer %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// mayNot is as, for a command that is refused with words.
func (s *served) mayNot(t *testing.T, token, words string, args ...string) {
	t.Helper()
	if code, out, errs := s.as(t, token, args...); code != exitFailed || !strings.Contains(errs, words) {
		t.Errorf("coffer %s: exit code %d, must say %q:\n%s%s", strings.Join(args, " "), code, words, out, errs)
	}
}

// Tenants are kept apart and roles hold, from the command line to the ledger;
// a token that is taken out of the file ends without a restart.
func TestTokensEndToEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	ops := newToken(t, file, "ops", "*", "operator")
	checkout := newToken(t, file, "checkout", "shop", "service", "--expires", "90d", "--comment", "the shop's checkout")
	other := newToken(t, file, "other", "other", "operator,auditor")
	night := newToken(t, file, "night", "*", "auditor")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	s := serveEnv(t, t.TempDir(), []string{"COFFER_TOKENS=" + file}, "--log-level", "debug")

	s.may(t, ops, "budget", "create", "SPRING", "--currency", "BRL", "--tenant", "shop")
	s.may(t, ops, "budget", "fund", "SPRING", "--amount", "100.00", "--key", "k1", "--tenant", "shop")
	contains(t, s.may(t, checkout, "order", "reserve", "o-1", "coupon", "--budget", "SPRING", "--amount", "12.50"), "RESERVED")
	contains(t, s.may(t, checkout, "order", "commit", "o-1", "coupon", "--tenant", "shop"), "COMMITTED")
	s.mayNot(t, checkout, "PERMISSION_DENIED: role service of token checkout may not call /coffer.v1.BudgetService/FundBudget (allowed: operator)",
		"budget", "fund", "SPRING", "--amount", "1.00", "--key", "k2")
	s.mayNot(t, checkout, `PERMISSION_DENIED: Coffer-Tenant "other" is not the tenant of token checkout (allowed: "shop", or no such header)`, "budget", "list", "--tenant", "other")
	s.mayNot(t, "", "UNAUTHENTICATED: Authorization \"\" must be sent as a header", "budget", "list")

	contains(t, s.may(t, other, "budget", "list"), "the token's tenant (default, if it is for all) has no budgets")
	s.mayNot(t, other, "BUDGET_NOT_FOUND", "budget", "get", "SPRING")
	s.mayNot(t, other, "RESERVATION_NOT_FOUND", "order", "get", "o-1", "coupon")
	s.mayNot(t, other, `a token for every tenant, "*"`, "audit")
	// A page token is no way to another tenant, either.
	s.may(t, ops, "budget", "create", "WINTER", "--currency", "BRL", "--tenant", "shop")
	page := decode[struct{ NextPageToken string }](t, s.may(t, checkout, "budget", "list", "--limit", "1", "--json")).NextPageToken
	if page == "" {
		t.Fatal("the list has no second page")
	}
	s.mayNot(t, other, "BAD_PAGE_TOKEN", "budget", "list", "--page", page)
	contains(t, s.may(t, night, "audit"), "audit: ok")
	s.mayNot(t, night, "PERMISSION_DENIED: role auditor", "order", "release", "o-1", "coupon", "--tenant", "shop")

	held := filepath.Join(t.TempDir(), "held")
	if err := os.WriteFile(held, []byte(checkout+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, s.cli(t, "budget", "get", "SPRING", "--token-file", held), "SPRING")
	if code, _, errs := cofferEnv(t, []string{"COFFER_SERVER=" + s.url, "COFFER_TOKEN=" + night, "COFFER_TOKEN_FILE=" + held}, "budget", "get", "SPRING"); code != exitOK {
		t.Errorf("COFFER_TOKEN_FILE: %s", errs)
	}
	s.may(t, ops, "bench", "--target", "server", "--workload", "hot", "--tasks", "20", "--warmup", "0s", "--callers", "2")
	s.mayNot(t, "", "UNAUTHENTICATED", "bench", "--target", "server", "--workload", "hot", "--tasks", "20", "--warmup", "0s", "--callers", "2")

	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from, to := strings.Index(string(raw), `  - id: "checkout"`), strings.Index(string(raw), `  - id: "other"`)
	if err := os.WriteFile(file, append(raw[:from:from], raw[to:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the token to be revoked", func() bool {
		_, _, errs := s.as(t, checkout, "budget", "list")
		return strings.Contains(errs, "UNAUTHENTICATED: Authorization as sent has no token that this server knows")
	})
	s.may(t, ops, "budget", "list")
	s.end(t)
	log := s.log.String()
	contains(t, log, `"token":"checkout"`, `"token":"ops"`, `"reason":"PERMISSION_DENIED"`)
	for _, token := range []string{ops, checkout, other, night} {
		if strings.Contains(log+string(raw), token[len(token)-20:]) {
			t.Errorf("the log or the file has the secret of %.20s", token)
		}
	}
}

// A new token is shown once; its entry is printed, or in the file.
func TestTokenNew(t *testing.T) {
	code, out, errs := coffer(t, "token", "new", "--id", "checkout", "--tenant", "shop", "--role", "service,monitor", "--expires", "12h")
	if code != exitOK || access.IDOf(strings.TrimSpace(out)) != "checkout" || strings.Count(out, "\n") != 1 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	_, entry, _ := strings.Cut(errs, "\n\n")
	set, err := access.Parse([]byte("tokens:\n" + entry))
	if err != nil || set.Find(strings.TrimSpace(out)) == nil || set.Entries()[0].Roles != access.Service|access.Monitor {
		t.Errorf("the entry is no good: %v\n%s", err, errs)
	}
	if left := time.Until(set.Entries()[0].NotAfter); left > 12*time.Hour || left < 11*time.Hour {
		t.Errorf("it is good for %s", left)
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte("# ours\ntokens:\n"+entry), 0o640); err != nil {
		t.Fatal(err)
	}
	made := decode[struct {
		Token, ID, Tenant, SHA256 string
		Roles                     []string
	}](t, must(t, "token", "new", "--json", "--id", "b", "--tenant", "*", "--role", "operator", "--file", file))
	raw, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(raw), made.SHA256) || !strings.HasPrefix(string(raw), "# ours\ntokens:\n"+entry) || made.Roles[0] != "operator" {
		t.Errorf("%+v, %v\n%s", made, err, raw)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	contains(t, must(t, "token", "list", "--file", file), "checkout", "shop", "service, monitor", "good", "operator")
	contains(t, must(t, "token", "list", "--file", file, "--json"), `{"tokens":[{"expired":false,"id":"checkout"`, `"tenant":"*"`)
	fails(t, exitFailed, `id "b" is that of line`, "token", "new", "--id", "b", "--tenant", "x", "--role", "operator", "--file", file)
	if again, err := os.ReadFile(file); err != nil || string(again) != string(raw) {
		t.Errorf("a refused token changed the file: %v\n%s", err, again)
	}
	fails(t, exitFailed, "no such file", "token", "list", "--file", file+"x")
	for _, c := range []struct{ words, args string }{
		{"--id is \"A\" (allowed: 1 to 64 small letters, digits and hyphens)", "--id A --tenant x --role service"},
		{"--role is \"boss\" (allowed: service, operator, auditor, monitor)", "--id a --tenant x --role boss"},
		{"--expires is \"1y\" (allowed: a number with a unit, such as 90d or 12h)", "--id a --tenant x --role service --expires 1y"},
		{"--expires is \"0d\"", "--id a --tenant x --role service --expires 0d"},
		{"missing flags: --id=ID", "--tenant x --role service"},
		{"tenant is a text of 129 bytes (allowed: ", "--id a --role service --tenant " + strings.Repeat("t", 129)},
	} {
		fails(t, exitUsage, c.words, append([]string{"token", "new"}, strings.Fields(c.args)...)...)
	}
}

// A token goes to no other machine in plain text, and what is no token is refused
// without being repeated.
func TestTokenOfCaller(t *testing.T) {
	token, _, err := access.New("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words string
		env   []string
		args  string
	}{
		{`--server is "http://10.0.0.1:1" and there is a token, which would be sent in plain text (allowed: https://, this machine, or --insecure`, []string{"COFFER_TOKEN=" + token}, "budget list --server http://10.0.0.1:1"},
		{"COFFER_TOKEN holds no token (allowed: coffer_ID_SECRET", []string{"COFFER_TOKEN=" + token[:30]}, "budget list"},
		{"--insecure would do nothing (allowed: with a token)", nil, "budget list --insecure"},
		{"--token-file is empty", nil, "budget list --token-file="},
	} {
		code, out, errs := cofferEnv(t, c.env, strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(errs, c.words) || strings.Contains(errs, token[10:30]) {
			t.Errorf("%s: exit code %d, must say %q:\n%s%s", c.args, code, c.words, out, errs)
		}
	}
	fails(t, exitFailed, "read token: open nowhere", "budget", "list", "--token-file", "nowhere")
	code, _, errs := cofferEnv(t, []string{"COFFER_TOKEN=" + token}, "budget", "list", "--server", "http://10.0.0.1:1", "--insecure", "--timeout", "50ms")
	if code != exitFailed || strings.Contains(errs, "plain text") {
		t.Errorf("with --insecure: exit code %d\n%s", code, errs)
	}
}

// A file of tokens with a fault stops the start, with every fault; nodes without
// certificates have no tokens.
func TestServeRefusesBadTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte("tokens:\n  - {id: a, tenant: shop, roles: [boss], sha256: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := []string{"serve", "--listen", "127.0.0.1:0", "--store", t.TempDir(), "--tokens", file}
	fails(t, exitFailed, "line 2: role is \"boss\"", start...)
	fails(t, exitFailed, "line 2: sha256 has 1 characters", start...)
	code, _, errs := cofferEnv(t, []string{"COFFER_CLUSTER_ADVERTISE=auto"}, start...)
	if code != exitUsage || !strings.Contains(errs, "cluster.ca_file is \"\" (allowed: the authority of the nodes") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
