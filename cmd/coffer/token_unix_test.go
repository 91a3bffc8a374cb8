//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/coffer-ledger/coffer/rpc/access"
)

// The file stays its owner's, also when somebody else adds a token: the node
// must be able to read it.
func TestTokenFileKeepsItsOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	newToken(t, file, "a", "shop", "service")
	_ = os.Chown(file, 7420, 7421) // where the test may not, it stays its own
	owner := func() [2]uint32 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("%T", info.Sys())
		}
		return [2]uint32{s.Uid, s.Gid}
	}
	before := owner()
	newToken(t, file, "b", "shop", "service")
	if after := owner(); after != before {
		t.Errorf("owner and group were %d and are %d", before, after)
	}
}

// What is no file is not replaced by one.
func TestTokenGoesIntoNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, exitFailed, "it is no regular file", "token", "new", "--id", "a", "--tenant", "shop", "--role", "service", "--file", pipe)
	if info, err := os.Lstat(pipe); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

// Those who add tokens to one file at once, by whichever name, lose none, and
// leave nothing beside it; what a process that was killed left holds up nobody.
func TestTokensAtOnce(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "tokens.yaml"), filepath.Join(t.TempDir(), "link.yaml")
	if err := errors.Join(os.Symlink(file, link), os.WriteFile(file+".lock", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	const n = 24
	newToken(t, file, "first", "shop", "service")
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			at := []string{file, link}[i%2]
			if code, _, errs := coffer(t, "token", "new", "--id", fmt.Sprint("t", i), "--tenant", "shop", "--role", "service", "--file", at); code != exitOK {
				t.Errorf("token %d: exit code %d\n%s", i, code, errs)
			}
		})
	}
	all.Wait()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := access.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(set.Entries()); got != n+1 {
		t.Errorf("%d entries, want %d", got, n+1)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the file there is %v, %v", left, err)
	}
}
