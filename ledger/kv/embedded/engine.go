package embedded

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// engineLog takes the engine's log. Its information is dropped: what matters
// comes as an error. Fatal ones stop the store, not the process.
type engineLog struct{ s *Store }

func (engineLog) Infof(string, ...any)  {}
func (engineLog) Errorf(string, ...any) {}

// Fatalf stops the store. It must not return: the engine would go on as if
// nothing had happened and might delete files that its broken manifest still
// needs.
//
// Ending a goroutine in the midst of a compaction's read makes the engine's
// own clean-up panic. The only cause for that is a damaged file, which is
// therefore kept from coming here: see onCorruption.
func (l engineLog) Fatalf(format string, args ...any) {
	e := fatalError{text: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if cause, ok := a.(error); ok {
			e.cause = cause
		}
	}
	l.s.stop(e)
}

// fatalError has the engine's words and its cause, which they do not wrap.
type fatalError struct {
	text  string
	cause error
}

// Error gives the engine's words.
func (e fatalError) Error() string { return e.text }

// Unwrap returns the cause, nil where none was given.
func (e fatalError) Unwrap() error { return e.cause }

// stopped is the panic that carries a fault up to the method of this package
// that called into the engine.
type stopped struct{ err error }

// stop abandons the engine in the midst of what it does, and does not return.
// What it does instead depends on whose goroutine it is on:
//
//   - on a caller's, somebody waits for an answer. Ending it would leave them
//     waiting for ever, so it panics, and guard makes an error of that;
//   - on one of the engine's, nobody would recover a panic, and it would end the
//     process. So it ends the goroutine. That runs the deferred unlocks, which
//     blocking it would not: the engine reports a broken manifest with its
//     central mutex held, and without the mutex reads of published versions
//     still work.
func (s *Store) stop(err error) {
	s.versions.frozen.Store(true)
	s.abandon(err)
	if onEngineGoroutine() {
		runtime.Goexit()
	}
	panic(stopped{err})
}

// enginePath is the path of the engine's package.
var enginePath = reflect.TypeFor[pebble.DB]().PkgPath()

// onEngineGoroutine says whether the engine started this goroutine.
func onEngineGoroutine() bool {
	first := ""
	for f := range callers() {
		if !strings.HasPrefix(f, "runtime.") {
			first = f
		}
	}
	return strings.HasPrefix(first, enginePath)
}

// below says whether this goroutine is in a function, at whatever depth, whose
// full name begins so.
func below(function string) bool {
	for f := range callers() {
		if strings.HasPrefix(f, function) {
			return true
		}
	}
	return false
}

// callers are the full names of the functions that this goroutine is in, the
// innermost first.
func callers() iter.Seq[string] {
	return func(yield func(string) bool) {
		pcs := make([]uintptr, 512)
		frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
		for {
			f, more := frames.Next()
			if !yield(f.Function) || !more {
				return
			}
		}
	}
}

// Functions of the engine, below which it tells of what failed.
var (
	flushing   = enginePath + ".(*DB).flush"
	compacting = enginePath + ".(*DB).compact"
	statistics = enginePath + ".(*DB).collectTableStats"
	diskUsage  = enginePath + ".(*DB).calculateDiskAvailableBytes"
)

// onBackgroundError is told what the engine's own work met. It stops the store
// where a flush or a merge failed: the engine would try again at once and for
// ever, at the cost of a processor, while commits and Close wait for it. At damage
// it pauses, see onCorruption, and can be closed, unless a commit waits for a merge
// that will never be. Statistics, for which nobody waits, it tries again at once,
// too. How full the disk is does not matter.
func (s *Store) onBackgroundError(err error) {
	switch {
	case below(diskUsage):
	case below(flushing) || below(compacting):
		if !pebble.IsCorruptionError(err) || s.stalled.Load() {
			s.stop(s.found(err))
		}
	case below(statistics) && !pebble.IsCorruptionError(err):
		s.pause()
	}
}

// onStall is told that a commit waits for the engine's own work. In a store that
// has failed that may be for ever, so it is left there. A merge that meets damage
// looks for such a commit; one of the two finds the other.
func (s *Store) onStall(pebble.WriteStallBeginInfo) {
	s.stalled.Store(true)
	if err := s.Failure(); err != nil {
		s.abandon(err)
	}
}

// enginePause is how long the engine's own work pauses at what it cannot read.
const enginePause = time.Second

// pause holds the engine's own work up, unless the store is being closed.
func (s *Store) pause() {
	select {
	case <-time.After(enginePause):
	case <-s.ending:
	}
}

// onCorruption is told of a damaged file before whoever reads it gets the
// error. The engine's default is to call Fatalf, but nothing of its state is
// wrong: the read fails in good order, a compaction is given up and put off,
// and the engine can still be closed.
func (s *Store) onCorruption(info pebble.DataCorruptionInfo) {
	s.fail(corruption(info.Path, info.Details))
	if onEngineGoroutine() {
		s.pause()
	}
}

func corruption(path string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
}

// damaged says whether an error of the engine tells of a damaged file. One that
// ends before it should was cut off: no disk that fails says so.
func damaged(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// found is err from the engine; where that says that a file is damaged, it
// stops the store and returns an error that says so.
func (s *Store) found(err error) error {
	if !damaged(err) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		err = corruption(info.Path, info.Details)
	} else if path := damagedLog(err); path != "" {
		err = corruption(path, err)
	} else {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.fail(err)
	return err
}

// logPlace is where the engine says which record of which log it could not read.
var logPlace = regexp.MustCompile(`\((\S.*\.log): (\d+)\)`)

// damagedLog is the log that an error of the engine is about, with the place in
// it, or empty. The engine says it in what it adds to an error, beside its words.
func damagedLog(err error) string {
	var more interface{ ErrorDetail() string }
	if !errors.As(err, &more) {
		return ""
	}
	if m := logPlace.FindStringSubmatch(more.ErrorDetail()); m != nil {
		return m[1] + ", record at byte " + m[2]
	}
	return ""
}

// ioError is the error of a read that the engine answered with err.
func (s *Store) ioError(op string, err error) error {
	e := &kv.Error{Code: kv.CodeIO, Op: op, Cause: s.found(err)}
	if !damaged(err) {
		s.stats.readFaults.Add(1)
		select {
		case s.readFaults <- e:
		default: // there is one to tell already
		}
	}
	return e
}

// ReadFaults gives an error of a read that the disk did not answer, which names the
// file; of many that come at once it gives the first. Each read has its own error,
// but whoever asked for it cannot mend a disk.
func (s *Store) ReadFaults() <-chan error { return s.readFaults }

// guard is deferred by what calls into the engine. It turns the panic of
// Fatalf, or one that the engine's deferred clean-up put in its place, into
// the store's failure. Any other panic of a store that is well goes on.
func (s *Store) guard(err *error) {
	if p := recover(); p != nil {
		*err = s.recovered(p)
	}
}

// guardRead is guard for the reads of transactions.
func (s *Store) guardRead(op string, err *error) {
	if p := recover(); p != nil {
		*err = &kv.Error{Code: kv.CodeIO, Op: op, Cause: s.recovered(p)}
	}
}

func (s *Store) recovered(p any) error {
	err := s.Failure()
	if err == nil {
		panic(p)
	}
	return err
}
