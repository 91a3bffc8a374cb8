package kv

import (
	"context"
	"errors"
	"fmt"
)

// Code identifies what went wrong, by FoundationDB's error numbers so that
// its documentation applies on every engine.
type Code int

// The codes an engine may return. The outcome of each is in its table row in
// this file.
const (
	CodeTooOld           Code = 1007
	CodeFutureVersion    Code = 1009
	CodeConflict         Code = 1020
	CodeCommitUnknown    Code = 1021
	CodeCancelled        Code = 1025
	CodeTimedOut         Code = 1031
	CodeProcessBehind    Code = 1037
	CodeDatabaseLocked   Code = 1038
	CodeThrottled        Code = 1051
	CodeClosed           Code = 1100
	CodeTooManyWatches   Code = 1032
	CodeIO               Code = 1510
	CodeInternal         Code = 4100
	CodeKeyOutside       Code = 2004
	CodeInvertedRange    Code = 2005
	CodeUsedTx           Code = 2017
	CodeUnreadable       Code = 1036
	CodeBadStampOffset   Code = 2000
	CodeTxTooLarge       Code = 2101
	CodeKeyTooLarge      Code = 2102
	CodeValueTooLarge    Code = 2103
	CodeRetriesExhausted Code = 9001
)

// Outcome says what a failed transaction did to the store.
type Outcome int

const (
	// NotCommitted: the transaction certainly had no effect and never will.
	NotCommitted Outcome = iota
	// Unknown: the transaction may have taken effect, or may yet do so. Only
	// a later transaction that reads what it would have written, and writes
	// there itself, can settle it.
	Unknown
)

// Error is the error of an engine.
type Error struct {
	Code Code
	// Op is what was being done, for people: "commit", "get".
	Op string
	// Detail names the value and limit where there is one.
	Detail string
	// Cause is the underlying error, if any.
	Cause error
}

// codeInfo is one row of the table of codes.
type codeInfo struct {
	name  string
	retry bool // a fresh attempt may succeed
	// unknown: when returned by a commit, the outcome is unknown.
	unknown bool
}

var codes = map[Code]codeInfo{
	CodeTooOld:           {name: "transaction too old", retry: true},
	CodeFutureVersion:    {name: "read version not yet available", retry: true},
	CodeConflict:         {name: "conflict with another transaction", retry: true},
	CodeCommitUnknown:    {name: "commit outcome unknown", retry: true, unknown: true},
	CodeCancelled:        {name: "transaction cancelled", unknown: true},
	CodeTimedOut:         {name: "transaction timed out", unknown: true},
	CodeProcessBehind:    {name: "storage is behind", retry: true},
	CodeDatabaseLocked:   {name: "database locked"},
	CodeThrottled:        {name: "throttled", retry: true},
	CodeClosed:           {name: "store closed"},
	CodeTooManyWatches:   {name: "too many watches"},
	CodeIO:               {name: "i/o error", unknown: true},
	CodeInternal:         {name: "internal engine error", unknown: true},
	CodeKeyOutside:       {name: "key outside the legal range"},
	CodeInvertedRange:    {name: "range ends before it begins"},
	CodeUsedTx:           {name: "transaction used after its end"},
	CodeUnreadable:       {name: "read of a key this transaction writes with a stamp"},
	CodeBadStampOffset:   {name: "stamp offset outside the key or value"},
	CodeTxTooLarge:       {name: "transaction too large"},
	CodeKeyTooLarge:      {name: "key too large"},
	CodeValueTooLarge:    {name: "value too large"},
	CodeRetriesExhausted: {name: "retries exhausted"},
}

// Sentinels for errors.Is; an *Error matches the sentinel of its code.
var (
	ErrTooOld           = &Error{Code: CodeTooOld}
	ErrConflict         = &Error{Code: CodeConflict}
	ErrCommitUnknown    = &Error{Code: CodeCommitUnknown}
	ErrCancelled        = &Error{Code: CodeCancelled}
	ErrTimedOut         = &Error{Code: CodeTimedOut}
	ErrClosed           = &Error{Code: CodeClosed}
	ErrTooManyWatches   = &Error{Code: CodeTooManyWatches}
	ErrKeyOutside       = &Error{Code: CodeKeyOutside}
	ErrInvertedRange    = &Error{Code: CodeInvertedRange}
	ErrUsedTx           = &Error{Code: CodeUsedTx}
	ErrUnreadable       = &Error{Code: CodeUnreadable}
	ErrBadStampOffset   = &Error{Code: CodeBadStampOffset}
	ErrTxTooLarge       = &Error{Code: CodeTxTooLarge}
	ErrKeyTooLarge      = &Error{Code: CodeKeyTooLarge}
	ErrValueTooLarge    = &Error{Code: CodeValueTooLarge}
	ErrRetriesExhausted = &Error{Code: CodeRetriesExhausted}
)

// ErrDamaged is in the errors of an engine that met data of its own which is
// damaged, and in those of commits that it refuses for it since. The error
// names what is damaged. No retry helps; a copy has to be restored.
var ErrDamaged = errors.New("store is damaged")

// Error is lower case, names the operation and the code's number.
func (e *Error) Error() string {
	s := codes[e.Code].name
	if s == "" {
		s = "engine error"
	}
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	s = fmt.Sprintf("%s (%d)", s, int(e.Code))
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches any *Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Retryable says whether a fresh attempt of the transaction may succeed.
func (e *Error) Retryable() bool { return codes[e.Code].retry }

// CommitOutcome is the outcome when the error came out of a commit.
func (e *Error) CommitOutcome() Outcome {
	if codes[e.Code].unknown {
		return Unknown
	}
	return NotCommitted
}

// TxError is what [Transact] returns when it gives up: the last error and
// what is known about the effect of all attempts together.
type TxError struct {
	Outcome  Outcome
	Attempts int
	Cause    error
}

// Error says the outcome first.
func (e *TxError) Error() string {
	word := "not committed"
	if e.Outcome == Unknown {
		word = "outcome unknown"
	}
	return fmt.Sprintf("transaction %s after %d attempts: %v", word, e.Attempts, e.Cause)
}

// Unwrap returns the last attempt's error.
func (e *TxError) Unwrap() error { return e.Cause }

// OutcomeOf says what a failed [Transact] did to the store. Errors that are
// not a *TxError never left the closure and count as NotCommitted.
func OutcomeOf(err error) Outcome {
	var te *TxError
	if errors.As(err, &te) {
		return te.Outcome
	}
	return NotCommitted
}

// ContextError turns the end of a context into the engine error that says the
// same: CodeTimedOut for a deadline, CodeCancelled else.
func ContextError(ctx context.Context, op string) *Error {
	e := &Error{Code: CodeCancelled, Op: op, Cause: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = CodeTimedOut
	}
	return e
}
