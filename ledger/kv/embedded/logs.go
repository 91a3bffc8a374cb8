package embedded

import (
	"io"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// logFS keeps a fault of the disk from the engine in two places, in each of which
// nothing could recover from what the engine makes of it, and the process would
// end. So the store fails, and the goroutine stays in the file system for good.
//
//   - While the engine ends one log file and begins the next it would answer with
//     a panic, in a place where a deferred call unlocks a mutex that it does not
//     hold at that moment. The goroutine holds the engine's lock on commits and
//     none that a read needs.
//   - In an open that has written a table, the engine may be merging tables already.
//     It would close the files, return the error, and the merge would panic.
//
// A folder that cannot be synced while a marker moves in it would be a panic, too,
// and stops the store instead. Everywhere else the engine is told of the fault: it
// returns it, tells onBackgroundError, or calls Fatalf.
type logFS struct {
	vfs.FS
	s *Store
}

// Unwrap implements vfs.FS.
func (fs logFS) Unwrap() vfs.FS { return fs.FS }

// Lock takes the engine's own lock, which a store that was left behind holds until
// its process ends.
func (fs logFS) Lock(name string) (io.Closer, error) {
	l, err := fs.FS.Lock(name)
	return l, lockFault(err)
}

func (fs logFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return fs.watched(name, f, err)
}

func (fs logFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, c)
	return fs.watched(newname, f, err)
}

func (fs logFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, fs.seen(err)
	}
	return &logFile{File: f, s: fs.s}, nil
}

func (fs logFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return names, fs.seen(err)
}

func (fs logFS) Remove(name string) error { return fs.seen(fs.FS.Remove(name)) }

func (fs logFS) Rename(oldname, newname string) error {
	return fs.seen(fs.FS.Rename(oldname, newname))
}

func (fs logFS) seen(err error) error {
	if err != nil {
		fs.s.stayIfMidway(err)
	}
	return err
}

func (fs logFS) watched(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, fs.seen(err)
	}
	if !strings.HasSuffix(name, ".log") && !fs.s.openingMidway() {
		return f, nil
	}
	return &logFile{File: f, s: fs.s}, nil
}

// logFile is a log, the folder that names the logs, or a file of an open's last
// steps.
type logFile struct {
	vfs.File
	s *Store
	// fault is the first one. The engine writes on a goroutine of its own, so it
	// may meet the fault there and hear of it when it ends the log.
	fault atomic.Pointer[error]
}

func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.seen(err)
}

func (f *logFile) Sync() error { return f.seen(f.File.Sync()) }

func (f *logFile) SyncData() error { return f.seen(f.File.SyncData()) }

func (f *logFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.seen(err)
}

func (f *logFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return info, f.seen(err)
}

func (f *logFile) Close() error { return f.seen(f.File.Close()) }

func (f *logFile) seen(err error) error {
	if err != nil {
		f.fault.CompareAndSwap(nil, &err)
	}
	if first := f.fault.Load(); first != nil {
		f.s.stayIfMidway(*first)
		if below(marking) {
			f.s.stop(*first) // the engine would panic
		}
	}
	return err
}

var (
	// rotation is the function of the engine that ends a log and begins the next.
	rotation = enginePath + ".(*DB).rotateWAL"
	// opening is the function that opens it.
	opening = enginePath + ".Open"
	// marking is the one that says which of two files counts, by a name in a folder.
	marking = reflect.TypeFor[atomicfs.Marker]().PkgPath() + ".(*Marker).Move"
)

// openingMidway says whether this goroutine opens the engine, and has come so far
// that tables may be merged.
func (s *Store) openingMidway() bool { return s.tabled.Load() && below(opening) }

func (s *Store) stayIfMidway(err error) {
	if !below(rotation) && !s.openingMidway() {
		return
	}
	s.abandon(err)
	select {}
}
