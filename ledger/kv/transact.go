package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Options bound [Transact].
type Options struct {
	// Timeout bounds all attempts together. Default 4 s.
	Timeout time.Duration
	// Retries is how many attempts may follow the first. Default 32.
	Retries int
	// MaxBackoff caps the pause between attempts, which starts at 1 ms,
	// doubles and is jittered over its full width. Default 100 ms.
	MaxBackoff time.Duration
}

// DefaultOptions are the bounds used where an Options field is zero.
func DefaultOptions() Options {
	return Options{Timeout: 4 * time.Second, Retries: 32, MaxBackoff: 100 * time.Millisecond}
}

func (o Options) withDefaults() Options {
	d := DefaultOptions()
	if o.Timeout <= 0 {
		o.Timeout = d.Timeout
	}
	if o.Retries <= 0 {
		o.Retries = d.Retries
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = d.MaxBackoff
	}
	return o
}

// Attempt tells the closure of [Transact] where it stands.
type Attempt struct {
	// Number counts from 1.
	Number int
	// MayHaveCommitted: an earlier attempt of this call ended with an unknown
	// outcome, so its writes may be there.
	MayHaveCommitted bool
}

// Transact runs fn in a transaction and commits it. It retries what is safe to
// retry: fn may run several times and must have no effect outside the
// transaction; what it read or made belongs to that attempt alone.
//
// An error that fn returns by itself ends the call: nothing of that attempt is
// written. If an earlier attempt's outcome was unknown the error is wrapped in
// a *TxError that says so; with no such attempt it is returned as it is.
//
// Otherwise the error is a *TxError: NotCommitted (nothing happened and nothing
// will) or Unknown (some attempt may have landed, or may still land after this
// call has returned).
func Transact(ctx context.Context, s Store, opt Options, fn func(Tx, Attempt) error) (Stamp, error) {
	opt = opt.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	outcome := NotCommitted
	for n := 1; ; n++ {
		stamp, inCommit, err := attempt(ctx, s, Attempt{Number: n, MayHaveCommitted: outcome == Unknown}, fn)
		if err == nil {
			return stamp, nil
		}
		var ke *Error
		if !errors.As(err, &ke) {
			if inCommit || outcome == Unknown { // an engine that does not say what happened
				return Stamp{}, &TxError{Outcome: Unknown, Attempts: n, Cause: err}
			}
			return Stamp{}, err
		}
		if inCommit && ke.CommitOutcome() == Unknown {
			outcome = Unknown
		}
		if !ke.Retryable() || ctx.Err() != nil {
			return Stamp{}, &TxError{Outcome: outcome, Attempts: n, Cause: err}
		}
		if n > opt.Retries {
			return Stamp{}, &TxError{Outcome: outcome, Attempts: n, Cause: &Error{Code: CodeRetriesExhausted, Op: "transact", Cause: err}}
		}
		if !pause(ctx, n, opt.MaxBackoff) {
			return Stamp{}, &TxError{Outcome: outcome, Attempts: n, Cause: ContextError(ctx, "retry")}
		}
	}
}

// attempt runs fn once. inCommit says whether the error came from the commit.
func attempt(ctx context.Context, s Store, a Attempt, fn func(Tx, Attempt) error) (stamp Stamp, inCommit bool, err error) {
	if ctx.Err() != nil {
		return Stamp{}, false, ContextError(ctx, "begin")
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		return Stamp{}, false, err
	}
	defer tx.Cancel()
	if err := fn(tx, a); err != nil {
		return Stamp{}, false, err
	}
	if ctx.Err() != nil { // nothing was sent yet: certainly not committed
		return Stamp{}, false, ContextError(ctx, "commit")
	}
	stamp, err = tx.Commit(ctx)
	return stamp, err != nil, err
}

// pause sleeps before attempt n+1, or returns false when ctx ended.
func pause(ctx context.Context, n int, limit time.Duration) bool {
	d := min(time.Millisecond<<min(n-1, 20), limit)
	t := time.NewTimer(time.Duration(rand.Int64N(int64(d) + 1)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Read runs fn in a transaction that writes nothing and retries as [Transact]
// does. fn must not write.
func Read(ctx context.Context, s Store, opt Options, fn func(Reader) error) error {
	_, err := Transact(ctx, s, opt, func(tx Tx, _ Attempt) error { return fn(tx.Snapshot()) })
	return err
}
