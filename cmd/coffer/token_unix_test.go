//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
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
