package embedded

import (
	"errors"
	"fmt"
)

// Reasons why a store cannot be opened, for errors.Is.
var (
	ErrLocked      = errors.New("store is open in another process")
	ErrNotAStore   = errors.New("directory is not a store")
	ErrReadOnly    = errors.New("store is read-only")
	ErrNewerFormat = errors.New("store was written by a newer version")
)

// advice is what to do about each reason.
var advice = []struct {
	reason error
	text   string
}{
	{ErrLocked, "stop that process, or choose another directory"},
	{ErrNotAStore, "choose an empty or absent directory for a new store; nothing was changed here"},
	{ErrReadOnly, "make the directory writable, or open the store read-only"},
	{ErrNewerFormat, "use the version that wrote it or a later one; nothing was changed"},
}

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

func openError(dir string, err error) error {
	e := &OpenError{Dir: dir, Cause: err}
	for _, a := range advice {
		if errors.Is(err, a.reason) {
			e.Advice = a.text
			break
		}
	}
	return e
}
