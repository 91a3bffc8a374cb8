//go:build fdb

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// noEngine is what a command says of the store fdb:x, in this build.
const noEngine = "x does not exist; copy it from a machine of the cluster"

// What is wrong with a cluster is named by every command that opens one.
func TestStoreCheckExplainsClusters(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close() //nolint:errcheck,gosec // its number is wanted
	file := func(name, content string) string {
		with(t, filepath.Join(dir, name), content)
		return "fdb:" + filepath.Join(dir, name)
	}
	for _, tc := range []struct{ place, problem, words string }{
		{"fdb:" + filepath.Join(dir, "none"), "CLUSTER_FILE", "does not exist; copy it from a machine of the cluster"},
		{"fdb:" + dir, "CLUSTER_FILE", "cannot be read"},
		{file("odd", "hello\n"), "CLUSTER_FILE", "not description:id@host:port"},
		{file("closed", "a:b@"+closed+"\n"), "UNREACHABLE", closed + " refuses connections"},
	} {
		code, out, _ := coffer(t, "store", "check", "--store", tc.place, "--timeout", "6s", "--json")
		if got := decode[checked](t, out); code != exitFailed || got.OK || got.Problem != tc.problem || !strings.Contains(got.Error, tc.words) {
			t.Errorf("%s: exit code %d, %+v; want %s and %q", tc.place, code, got, tc.problem, tc.words)
		}
	}
}

// asChild runs this test binary as coffer with another client library in the
// place of FoundationDB's.
func asChild(t *testing.T, library string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"=1", "LD_LIBRARY_PATH="+filepath.Dir(library))
	raw, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(raw)
}

// A client library that is too old is told apart from a missing one, of which
// only the system's loader can speak.
func TestClientLibrary(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler") // a build with this tag needs one
	}
	dir := t.TempDir()
	library := filepath.Join(dir, "libfdb_c.so")
	with(t, library, "no library")
	cluster := filepath.Join(dir, "fdb.cluster")
	with(t, cluster, "a:b@127.0.0.1:1\n")
	check := []string{"store", "check", "--store", "fdb:" + cluster, "--json"}
	if code, out := asChild(t, library, check...); code != 127 || !strings.Contains(out, "error while loading shared libraries") || !strings.Contains(out, "libfdb_c.so") {
		t.Errorf("no client library: exit code %d:\n%s", code, out)
	}

	source := filepath.Join(dir, "old.c")
	with(t, source, `int fdb_select_api_version_impl(int version, int header) { return 2203; }
int fdb_get_max_api_version(void) { return 710; }
`+stubs(t))
	if out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, out := asChild(t, library, check...)
	line, _, _ := strings.Cut(out[strings.Index(out, "{"):], "\n")
	if got := decode[checked](t, line); code != exitFailed || got.Problem != "API_VERSION" || !strings.Contains(got.Error, "a maximum version of 710") {
		t.Errorf("old client library: exit code %d:\n%s", code, out)
	}
}

// stubs defines what else this binary wants of the client library.
func stubs(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nm", "-D", "--undefined-only", os.Args[0]).Output()
	if err != nil {
		t.Skipf("nm: %v", err)
	}
	var b strings.Builder
	for f := range strings.FieldsSeq(string(out)) {
		name, _, _ := strings.Cut(f, "@")
		if strings.HasPrefix(name, "fdb_") && name != "fdb_select_api_version_impl" && name != "fdb_get_max_api_version" {
			fmt.Fprintf(&b, "int %s(void) { return 0; }\n", name)
		}
	}
	return b.String()
}
