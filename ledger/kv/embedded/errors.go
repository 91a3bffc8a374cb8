package embedded

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Reasons why a store cannot be opened, for errors.Is.
var (
	ErrLocked      = errors.New("store is open in another process")
	ErrNotAStore   = errors.New("directory is not a store")
	ErrNoStore     = fmt.Errorf("%w: there is no store to read", ErrNotAStore)
	ErrReadOnly    = errors.New("store is read-only")
	ErrNewerFormat = errors.New("store was written by a newer version")
	ErrDataMissing = errors.New("the store's data is missing")
)

// ErrCorrupt is in the errors of Open and of reads that met a damaged file,
// and in the failure of the store that follows. It is the contract's word for
// that, so that those above can tell it without knowing the engine.
var ErrCorrupt = kv.ErrDamaged

// advice is what to do about each reason; DIR stands for the directory.
var advice = []struct {
	reason error
	text   string
}{
	{ErrLocked, "stop that process, or choose another directory"},
	{ErrNoStore, "name the directory of a store"}, // before ErrNotAStore, which it is, too
	{ErrNotAStore, "choose an empty or absent directory for a new store; nothing was changed here"},
	{syscall.ENOSPC, noRoom},
	{syscall.EDQUOT, noRoom},
	{ErrReadOnly, "make the directory writable, or open the store read-only"},
	{ErrNewerFormat, "use the version that wrote it or a later one; nothing was changed"},
	{ErrDataMissing, "restore DIR/data from a backup or mount; to start over, remove DIR"},
	{ErrCorrupt, "restore DIR from a backup"},
	{syscall.EIO, "see that the disk of DIR is well, then try again; if it stays so, restore DIR from a backup on another disk"},
	{os.ErrPermission, "run as a user who may read all files in DIR"},
}

const noRoom = "make room on the disk of DIR; nothing is lost"

// lockedError is ErrLocked without the system's words for it, which say
// nothing more; its cause is kept.
type lockedError struct{ cause error }

// Error gives the reason.
func (lockedError) Error() string { return ErrLocked.Error() }

// Unwrap returns the reason and its cause.
func (e lockedError) Unwrap() []error { return []error{ErrLocked, e.cause} }

// OpenError says why a store cannot be opened and what to do.
type OpenError struct {
	Dir    string
	Advice string // empty where there is none
	Cause  error
}

// Error names the directory, the reason and the advice.
func (e *OpenError) Error() string {
	s := fmt.Sprintf("open store %s: %v", e.Dir, e.Cause)
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	return s
}

// Unwrap returns the reason.
func (e *OpenError) Unwrap() error { return e.Cause }

// otherSize is what the engine says of a table that was cut off or grew. It has
// no error for that which could be told by anything else.
const otherSize = "object size mismatch"

// openError explains an error of Open. What is not there by then, although the
// store is, are files that it consists of.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrDataMissing):
		err = fmt.Errorf("%w: %w", ErrDataMissing, err)
	case strings.Contains(err.Error(), otherSize):
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	e := &OpenError{Dir: dir, Cause: err}
	for _, a := range advice {
		if errors.Is(err, a.reason) {
			e.Advice = strings.ReplaceAll(a.text, "DIR", dir)
			break
		}
	}
	return e
}
