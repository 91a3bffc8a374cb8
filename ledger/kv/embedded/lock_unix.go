//go:build unix

package embedded

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readLock is the lock of those who may read the lock file and not write it.
// They share it among themselves, and with nobody who writes. It is nil where
// there is no lock file, and so no process that has the store open.
func readLock(fs vfs.FS, name string) (io.Closer, error) {
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart})
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		err = lockedError{err}
	}
	return nil, errors.Join(err, f.Close())
}
