//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner and the group of the file that it will replace.
func keepOwner(f *os.File, was fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok := was.Sys().(*syscall.Stat_t)
	have, also := now.Sys().(*syscall.Stat_t)
	if !ok || !also || (want.Uid == have.Uid && want.Gid == have.Gid) {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
