package embedded

import (
	"io"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readOnlyFS refuses everything that would change the file system, so that
// opening for reading cannot. The engine's lock is not taken: the store's own
// stands for it.
type readOnlyFS struct{ vfs.FS }

type noLock struct{}

func (noLock) Close() error { return nil }

func refuse(op, name string) error { return &os.PathError{Op: op, Path: name, Err: syscall.EROFS} }

func (readOnlyFS) Lock(string) (io.Closer, error) { return noLock{}, nil }
func (readOnlyFS) Remove(name string) error       { return refuse("remove", name) }
func (readOnlyFS) RemoveAll(name string) error    { return refuse("remove", name) }
func (readOnlyFS) Rename(name, _ string) error    { return refuse("rename", name) }
func (readOnlyFS) Link(name, _ string) error      { return refuse("link", name) }
func (readOnlyFS) MkdirAll(name string, _ os.FileMode) error {
	return refuse("mkdir", name)
}

func (readOnlyFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refuse("create", name)
}

func (readOnlyFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refuse("open", name)
}

func (readOnlyFS) ReuseForWrite(name, _ string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refuse("open", name)
}
