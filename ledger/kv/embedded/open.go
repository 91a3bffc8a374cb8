package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// reservedKey holds the highest version that may have been given away, eight
// bytes big-endian. It is beyond the users' keys.
var reservedKey = []byte("\xff\xff/versions")

// Store is the embedded engine. It is safe for concurrent use.
type Store struct {
	opt    Options
	clock  func() time.Time
	seed   maphash.Seed
	lock   io.Closer
	fresh  bool // openDir found no store; its creation is to be finished
	db     *pebble.DB
	faults *Faults
	stats  counters

	versions versions
	// flushed is nil until the first commit. tabled is set when the engine begins to
	// write its first table, compacted when it has put tables in the place of others,
	// stalled while it lets a commit wait.
	flushed   atomic.Pointer[flushed]
	tabled    atomic.Bool
	compacted atomic.Bool
	stalled   atomic.Bool
	watches   watches

	// closing is held shared to put something into queue.
	closing sync.RWMutex
	closed  bool
	queue   chan *request
	ending  chan struct{} // closed when Close begins
	late    sync.WaitGroup
	ended   chan struct{} // closed when the pipeline has ended
	gone    chan struct{} // closed when the first Close has ended, with closeErr

	closeErr error

	readFaults chan error

	failed    chan struct{}
	failure   atomic.Pointer[error]
	abandoned chan struct{} // closed when the engine is in no state to be closed
	abandonIt sync.Once
	fault     error // why it was abandoned
}

var _ kv.Store = (*Store)(nil)

// Open opens the store in opt.Dir, which it makes where there is none. Its
// errors are of type *OpenError and name the directory and what to do.
func Open(opt Options) (*Store, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	opt = opt.withDefaults()
	opt.FS = opt.Faults.wrap(opt.FS)
	s := &Store{
		opt: opt, clock: opt.Clock, seed: maphash.MakeSeed(), faults: opt.Faults,
		queue:  make(chan *request, maxQueued),
		ending: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
		failed: make(chan struct{}), abandoned: make(chan struct{}), readFaults: make(chan error, 1),
		watches: watches{limit: opt.MaxWatches, byHash: make(map[uint64]map[*watch]struct{})},
	}
	if err := s.openDir(); err != nil {
		return nil, openError(opt.Dir, err)
	}
	last, err := s.startEngine()
	if err == nil && s.fresh {
		if err = finishMarker(opt.FS, opt.Dir); err != nil {
			err = errors.Join(writeFault(err), s.db.Close())
		}
	}
	if err != nil {
		if s.lock != nil {
			err = errors.Join(err, s.lock.Close())
		}
		return nil, openError(opt.Dir, err)
	}
	s.versions.publish(&readVersion{version: last, snap: s.db.NewSnapshot()}, s.clock())
	if opt.ReadOnly {
		close(s.ended)
	} else {
		s.start(last)
	}
	return s, nil
}

// openDir checks the directory before it writes anything there, then locks
// it, and begins to mark it where it is to become a store.
func (s *Store) openDir() error {
	fs, dir := s.opt.FS, s.opt.Dir
	format, exists, _, err := readMarker(fs, dir)
	if err != nil {
		return err
	}
	if format > formatVersion {
		return fmt.Errorf("%w: format %d, this build knows up to %d", ErrNewerFormat, format, formatVersion)
	}
	if exists {
		if _, err := fs.Stat(fs.PathJoin(dir, dataName)); errors.Is(err, os.ErrNotExist) {
			return ErrDataMissing
		}
	} else {
		if s.opt.ReadOnly {
			return ErrNoStore
		}
		if err := makeDir(fs, dir); err != nil {
			return writeFault(err)
		}
	}
	lock := fs.PathJoin(dir, lockName)
	s.lock, err = fs.Lock(lock)
	err = lockFault(err)
	if s.opt.ReadOnly && errors.Is(err, ErrReadOnly) {
		if errors.Is(err, syscall.EROFS) {
			return nil // nobody can have it open for writing
		}
		s.lock, err = readLock(fs, lock)
	}
	if err != nil {
		return err
	}
	if !exists {
		if err := s.create(); err != nil {
			return errors.Join(writeFault(err), s.lock.Close())
		}
	}
	return nil
}

// create begins the creation of a store, under the lock. It looks again: until
// the lock was taken another process may have made and used a store here.
func (s *Store) create() error {
	fs, dir := s.opt.FS, s.opt.Dir
	_, exists, begun, err := readMarker(fs, dir)
	if err != nil || exists {
		return err
	}
	s.fresh = true
	if !begun {
		return beginMarker(fs, dir)
	}
	// The engine cannot open every folder that a loss of power may leave of
	// its own creation, and nothing was ever acknowledged there.
	if err := fs.RemoveAll(fs.PathJoin(dir, dataName)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// makeDir makes dir and what is missing above it, and makes all new names
// durable: each is a row of the folder above.
func makeDir(fs vfs.FS, dir string) error {
	var above []string
	for at := dir; ; {
		if _, err := fs.Stat(at); err == nil {
			break
		}
		parent := fs.PathDir(at)
		if parent == at {
			break
		}
		above = append(above, parent)
		at = parent
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range above {
		if err := syncDir(fs, d); err != nil {
			return err
		}
	}
	return nil
}

// writeFault names the cases in which a directory cannot be written to.
func writeFault(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// lockFault tells a lock that another holds from a lock file that cannot be
// made. The former comes as a bare error, the latter with the file's path.
func lockFault(err error) error {
	if err == nil {
		return nil
	}
	var pe *os.PathError
	if errors.As(err, &pe) || errors.Is(err, syscall.EROFS) {
		return writeFault(err)
	}
	return lockedError{err}
}

// startEngine is openEngine, and does not wait for an engine that was abandoned.
func (s *Store) startEngine() (last kv.Version, err error) {
	opened := make(chan func() (kv.Version, error), 1)
	go func() {
		last, err := s.openEngine()
		opened <- func() (kv.Version, error) { return last, err }
	}()
	select {
	case result := <-opened:
		if !s.isAbandoned() {
			return result()
		}
	case <-s.abandoned:
	}
	return 0, writeFault(s.fault)
}

// openEngine opens the engine's folder and returns the last version that may
// have been given away.
func (s *Store) openEngine() (last kv.Version, err error) {
	defer s.guard(&err)
	fs := vfs.FS(logFS{s.opt.FS, s})
	if s.opt.ReadOnly {
		fs = readOnlyFS{s.opt.FS}
	}
	cache := pebble.NewCache(s.opt.CacheBytes)
	defer cache.Unref()
	po := &pebble.Options{
		FS: fs, Cache: cache, ReadOnly: s.opt.ReadOnly,
		ErrorIfNotExists:            !s.fresh,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		MemTableSize:                s.opt.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		Logger:                      engineLog{s},
		EventListener: &pebble.EventListener{
			DataCorruption:  s.onCorruption,
			BackgroundError: s.onBackgroundError,
			FlushBegin:      func(pebble.FlushInfo) { s.tabled.Store(true) },
			WriteStallBegin: s.onStall,
			WriteStallEnd:   func() { s.stalled.Store(false) },
			CompactionEnd:   func(pebble.CompactionInfo) { s.compacted.Store(true) },
		},
	}
	po.EnsureDefaults()
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	data := fs.PathJoin(s.opt.Dir, dataName)
	if !s.fresh {
		if err := needLog(fs, data); err != nil {
			return 0, err
		}
	}
	s.db, err = pebble.Open(data, po)
	if errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, pebble.ErrDBNotPristine) { // one of its markers is gone
		return 0, fmt.Errorf("%w: %w", ErrDataMissing, err)
	}
	if err != nil {
		if err = s.found(err); !s.opt.ReadOnly {
			err = writeFault(err)
		}
		return 0, err
	}
	if s.fresh {
		// The engine began its first log before it knew its format, without the
		// marks of what was synced that tell damage from the torn end of a log.
		if err := s.db.Flush(); err != nil {
			return 0, errors.Join(s.found(err), s.db.Close())
		}
	}
	b, closer, err := s.db.Get(reservedKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err == nil && len(b) != 8 {
		err = errors.Join(fmt.Errorf("version mark has %d bytes, want 8", len(b)), closer.Close())
	}
	if err != nil {
		close(s.ending)
		return 0, errors.Join(s.found(err), s.db.Close())
	}
	last = kv.Version(binary.BigEndian.Uint64(b))
	return last, closer.Close()
}

// needLog refuses a folder without any log. The engine keeps at least one, and
// where it found none it would go on without what is in no table yet.
func needLog(fs vfs.FS, data string) error {
	names, err := fs.List(data)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".log") }) {
		return fmt.Errorf("%w: %s has no file *.log", ErrDataMissing, data)
	}
	return nil
}

// start runs the two goroutines of the pipeline.
func (s *Store) start(last kv.Version) {
	c := &committer{s: s, flusher: flusher{s: s}, next: last + 1, reserved: last}
	c.recent.points = make(map[uint64]kv.Version)
	c.recent.floor = last
	syncing := make(chan *group, maxSyncing-1)
	go c.commitLoop(syncing)
	go func() { defer close(s.ended); s.syncLoop(syncing) }()
}

func (s *Store) hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) }

func (s *Store) isClosed() bool { return over(s.ending) }

func (s *Store) isAbandoned() bool { return over(s.abandoned) }

// over says whether ch is closed.
func over(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
