//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lockFile makes the lock file that it names, and removes it with unlock. Where
// there is one already it fails: without locks of the system nobody can tell
// whether its maker still runs.
func lockFile(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists: another command is at work; try again, or remove that file if there is none", name)
	}
	if err != nil {
		return nil, err
	}
	return func() {
		_ = f.Close()
		_ = os.Remove(name)
	}, nil
}
