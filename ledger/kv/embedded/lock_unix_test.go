//go:build unix

package embedded

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// othersFS is the file system as somebody sees it who may read all files and
// write none.
type othersFS struct{ readOnlyFS }

func (othersFS) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
}

// holder names, in a process of its own, the store that it is to hold open.
const holder = "COFFER_TEST_HOLDER"

// Whoever may only read a store's files does not read them while another process
// writes them, and keeps none from writing once they are done.
func TestReadersOfOthersFiles(t *testing.T) {
	if dir := os.Getenv(holder); dir != "" {
		s, err := Open(Options{Dir: dir, CacheBytes: testCache})
		if err != nil {
			_, _ = os.Stdout.WriteString("refused: " + err.Error() + "\n")
			return
		}
		_, _ = os.Stdout.WriteString("open\n")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the other end is closed
		_ = s.Close()
		return
	}
	opt := Options{Dir: filepath.Join(t.TempDir(), "s"), CacheBytes: testCache}
	s := mustOpen(t, opt)
	if err := errors.Join(put(t, s, "a"), s.Close()); err != nil {
		t.Fatal(err)
	}
	opt.ReadOnly, opt.FS = true, othersFS{readOnlyFS{vfs.Default}}

	said, end := hold(t, opt.Dir)
	if said != "open\n" {
		t.Fatal(said)
	}
	if _, err := Open(opt); !errors.Is(err, ErrLocked) || errors.Is(err, ErrReadOnly) {
		t.Errorf("while another process has it open: %v", err)
	}
	end()

	s = mustOpen(t, opt)
	said, end = hold(t, opt.Dir)
	end()
	if want := "refused: open store " + opt.Dir + ": " + ErrLocked.Error(); len(said) < len(want) || said[:len(want)] != want {
		t.Errorf("another process, while this one reads: %q", said)
	}
	if !holds(t, s, "a") {
		t.Error("a is not there")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	said, end = hold(t, opt.Dir)
	end()
	if said != "open\n" {
		t.Errorf("another process afterwards: %q", said)
	}

	if err := os.Remove(filepath.Join(opt.Dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, opt).Close(); err != nil {
		t.Errorf("without a lock file: %v", err)
	}
}

// hold has another process open the store, and gives what that says first.
func hold(t *testing.T, dir string) (said string, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), holder+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	said, err = r.ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return said, func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, r)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
