package node

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// tokensFile writes a file with one token, for every tenant.
func tokensFile(t *testing.T, roles access.Roles) (file, token string) {
	t.Helper()
	token, raw := oneToken(t, roles)
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, raw)
	return file, token
}

func oneToken(t *testing.T, roles access.Roles) (token string, raw []byte) {
	t.Helper()
	token, sum, err := access.New("one")
	if err != nil {
		t.Fatal(err)
	}
	raw, err = access.Append(nil, access.Entry{ID: "one", Tenant: access.EveryTenant, Roles: roles, Sum: sum})
	if err != nil {
		t.Fatal(err)
	}
	return token, raw
}

func write(t *testing.T, file string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A change of the file is taken at the second look that sees it, one with a
// fault changes nothing and is logged once.
func TestTokensAreReadAgain(t *testing.T) {
	var log bytes.Buffer
	old, raw := oneToken(t, access.Service)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, raw)
	tk, err := loadTokens(file, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	has := func(token string) bool { return tk.set.Load().Find(token) != nil }
	next, raw := oneToken(t, access.Service)
	write(t, file, raw[:len(raw)/2]) // half of it is written
	tk.look()
	write(t, file, raw)
	tk.look()
	if !has(old) || has(next) || strings.Contains(log.String(), "error") {
		t.Fatalf("a file that is being written was taken:\n%s", &log)
	}
	tk.look()
	if has(old) || !has(next) {
		t.Fatal("the new file was not taken")
	}
	faults := func() int { return strings.Count(log.String(), "the tokens stay as they were") }
	bad := append(bytes.Clone(raw), "more: 1\n"...)
	for i, change := range []func(){
		func() { write(t, file, bad) },
		func() { _ = os.Remove(file) },
		func() { write(t, file, bad) },
	} {
		change()
		for range 4 {
			tk.look()
		}
		if !has(next) || faults() != i+1 {
			t.Errorf("after change %d: the token is there: %v, faults logged: %d", i, has(next), faults())
		}
	}
	if text := log.String(); !strings.Contains(text, "line 7: unknown key") || !strings.Contains(text, "no such file") || strings.Contains(text, next[len(next)-43:]) {
		t.Errorf("log:\n%s", text)
	}
	write(t, file, []byte("tokens: []\n"))
	tk.look()
	tk.look()
	if has(next) {
		t.Error("a list of nobody was not taken")
	}
	const makes = "coffer token new --file makes the file"
	for name, want := range map[string]string{file + "x": makes, filepath.Dir(file): "is a directory", filepath.Join(file, "x"): "not a directory"} {
		if _, err := loadTokens(name, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), makes) != (want == makes) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two looks are two in a row: a file that is written again and again, with what
// it had, is seen half written more than once.
func TestTokensSeenBetween(t *testing.T) {
	file, token := tokensFile(t, access.Service)
	var log bytes.Buffer
	tk, err := loadTokens(file, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{"", "tokens: []\n", "", "tokens: []\n"} {
		write(t, file, []byte(half))
		tk.look()
		write(t, file, tk.used)
		tk.look()
		if tk.set.Load().Find(token) == nil || strings.Contains(log.String(), "the tokens stay as they were") {
			t.Fatalf("%q was taken at the first look:\n%s", half, &log)
		}
	}
}

// A large file with a fault is read at each look, and understood but once.
func TestRefusedTokensAreNotParsedAgain(t *testing.T) {
	file, _ := tokensFile(t, access.Service)
	tk, err := loadTokens(file, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, []byte("tokens:\n"+strings.Repeat("- {}\n", 1000)))
	tk.look()
	if n := testing.AllocsPerRun(10, tk.look); n > 100 {
		t.Errorf("%v allocations a look", n)
	}
	_, raw := oneToken(t, access.Service)
	write(t, file, raw)
	tk.look()
	tk.look()
	if !bytes.Equal(tk.used, raw) {
		t.Error("the file without a fault was not taken")
	}
}

// The file is looked at by itself.
func TestTokensAreLookedAt(t *testing.T) {
	file, old := tokensFile(t, access.Service)
	synctest.Test(t, func(t *testing.T) {
		tk, err := loadTokens(file, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		go tk.run(t.Context())
		next, raw := oneToken(t, access.Service)
		write(t, file, raw)
		time.Sleep(2*tokensPoll + time.Millisecond)
		synctest.Wait()
		if s := tk.set.Load(); s.Find(old) != nil || s.Find(next) == nil {
			t.Error("the new file was not taken")
		}
	})
}

// With tokens a node asks for one, but for health; the log has no secret.
func TestNodeWithTokens(t *testing.T) {
	cfg, deps := testConfig(), testDeps(t, nil)
	var log bytes.Buffer
	deps.Log = zerolog.New(zerolog.SyncWriter(&log))
	var token string
	cfg.Tokens, token = tokensFile(t, access.Operator)
	cfg.Debug.Pprof = true
	n, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	c := rpc.NewClient(r.url, rpc.WithToken(token))
	defer c.Close()
	fund(t, c, 1)
	nobody := rpc.NewClient(r.url)
	defer nobody.Close()
	if _, err := nobody.GetBudget(t.Context(), "B"); rpc.ReasonOf(err) != ledger.Unauthenticated {
		t.Errorf("a caller without a token: %v", err)
	}
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusUnauthorized, "/debug/pprof/cmdline": http.StatusUnauthorized,
	} {
		if code, body := get(t, r.url+path); code != want {
			t.Errorf("%s: %d, %s", path, code, body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("metrics with a token: %s", res.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	r.stop()
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, `"token":"one"`) || strings.Contains(text, token[len(token)-43:]) {
		t.Errorf("log:\n%s", text)
	}
}

// A node that other machines reach warns when everybody may call it.
func TestOpenNodeWarns(t *testing.T) {
	for _, open := range []bool{true, false} {
		cfg, deps := testConfig(), testDeps(t, nil)
		cfg.Listen, cfg.Insecure = "0.0.0.0:0", true
		if !open {
			cfg.Tokens, _ = tokensFile(t, access.Operator)
		}
		var log bytes.Buffer
		deps.Log = zerolog.New(zerolog.SyncWriter(&log))
		n, err := New(cfg, deps)
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, n, nil)
		r.stop()
		if err := r.ended(t); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), `"level":"warn","listen":"0.0.0.0:0","message":"no tokens are set`); got != open {
			t.Errorf("open %v: warned %v:\n%s", open, got, log.String())
		}
	}
}
