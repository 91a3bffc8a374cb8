package embedded

import (
	"io"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// logFS keeps a fault of the disk from the engine while that ends one log file
// and begins the next. It would answer with a panic, in a place where a
// deferred call unlocks a mutex that it does not hold at that moment: nothing
// can recover from that, and the process would end. So the store fails, and the
// goroutine stays in the file system for good. It holds the engine's lock on
// commits and none that a read needs.
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
		return nil, err
	}
	return &logFile{File: f, s: fs.s}, nil
}

func (fs logFS) watched(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		fs.s.stayIfRotating(err)
		return nil, err
	}
	if !strings.HasSuffix(name, ".log") {
		return f, nil
	}
	return &logFile{File: f, s: fs.s}, nil
}

// logFile is a log, or the folder that names the logs.
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
		if below(marking) {
			f.s.stop(*first) // the engine would panic
		}
		f.s.stayIfRotating(*first)
	}
	return err
}

var (
	// rotation is the function of the engine that ends a log and begins the next.
	rotation = enginePath + ".(*DB).rotateWAL"
	// marking is the one that says which of two files counts, by a name in a folder.
	marking = reflect.TypeFor[atomicfs.Marker]().PkgPath() + ".(*Marker).Move"
)

func (s *Store) stayIfRotating(err error) {
	if !below(rotation) {
		return
	}
	s.abandon(err)
	select {}
}
