//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile waits until nobody else holds the lock file that it names, and holds
// it until unlock. A process that ends lets go of it, whatever it ends by. The
// file is gone afterwards: whoever waited for it looks whether what it has locked
// is the one that still stands there.
func lockFile(name string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(name); err == nil && os.SameFile(mine, now) {
			return func() {
				_ = os.Remove(name) // one that stays is locked by nobody
				_ = f.Close()
			}, nil
		}
		_ = f.Close() // the last holder has removed it
	}
}
