package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// request is a transaction on its way through the pipeline. It owns the read
// and write sets; the caller may have stopped waiting.
type request struct {
	reads  *readSet // nil when nothing was read
	writes *writeSet
	// at is held until the answer, so that the log of recent writes reaches
	// back far enough. nil for a blind write.
	at     *readVersion
	readAt time.Time
	stamp  kv.Stamp
	err    error
	done   chan struct{}
}

// Commit implements kv.Tx.
func (t *tx) Commit(ctx context.Context) (kv.Stamp, error) {
	if t.ended {
		return kv.Stamp{}, &kv.Error{Code: kv.CodeUsedTx, Op: "commit"}
	}
	defer t.Cancel()
	if t.fault != nil {
		return kv.Stamp{}, t.fault
	}
	if t.writes == nil || t.writes.empty() {
		return kv.Stamp{}, nil
	}
	if err := t.checkSize(); err != nil {
		return kv.Stamp{}, err
	}
	s := t.store
	if s.opt.ReadOnly {
		return kv.Stamp{}, &kv.Error{Code: kv.CodeDatabaseLocked, Op: "commit", Cause: ErrReadOnly}
	}
	if ctx.Err() != nil {
		return kv.Stamp{}, kv.ContextError(ctx, "commit")
	}
	return s.faults.commit(ctx, s, t.hand())
}

func (t *tx) checkSize() error {
	size := t.writes.bytes
	if t.reads != nil {
		size += t.reads.bytes
	}
	if size > kv.MaxTxBytes {
		return &kv.Error{
			Code: kv.CodeTxTooLarge, Op: "commit",
			Detail: fmt.Sprintf("%d bytes with conflict ranges, at most %d allowed", size, kv.MaxTxBytes),
		}
	}
	return nil
}

// hand moves what the transaction holds into a request.
func (t *tx) hand() *request {
	t.giveTables()
	r := &request{reads: t.reads, writes: t.writes, at: t.at, readAt: t.readAt, done: make(chan struct{})}
	t.reads, t.writes, t.at = nil, nil, nil
	return r
}

// run puts a request into the pipeline and waits for the answer.
func (s *Store) run(ctx context.Context, r *request) (kv.Stamp, error) {
	if err := s.submit(ctx, r); err != nil {
		s.drop(r)
		return kv.Stamp{}, err
	}
	select {
	case <-r.done:
		return r.stamp, r.err
	default:
	}
	select {
	case <-r.done:
		return r.stamp, r.err
	case <-ctx.Done():
		return kv.Stamp{}, kv.ContextError(ctx, "commit")
	case <-s.failed:
		// The pipeline may be stuck in the engine, so it is not waited for.
		select {
		case <-r.done:
			return r.stamp, r.err
		default:
			return kv.Stamp{}, &kv.Error{Code: kv.CodeIO, Op: "commit", Cause: s.Failure()}
		}
	}
}

// submit queues r, or says why it certainly will not be committed.
func (s *Store) submit(ctx context.Context, r *request) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return &kv.Error{Code: kv.CodeClosed, Op: "commit"}
	}
	if err := s.refusal(); err != nil {
		return err
	}
	select {
	case s.queue <- r:
		return nil
	case <-ctx.Done():
		return kv.ContextError(ctx, "commit")
	case <-s.failed:
		return s.refusal()
	}
}

// refusal is the error of commits after the store has failed, or nil. They
// have certainly no effect, hence not the code of the failure itself.
func (s *Store) refusal() error {
	if err := s.Failure(); err != nil {
		return &kv.Error{Code: kv.CodeDatabaseLocked, Op: "commit", Cause: err}
	}
	return nil
}

// drop frees a request that will not be answered.
func (s *Store) drop(r *request) {
	if r.at != nil {
		s.versions.release(r.at)
	}
	if r.reads != nil {
		r.reads.release()
	}
	r.writes.release()
}

// answer ends a request. Its write set stays with whoever has it.
func (s *Store) answer(r *request) {
	if r.at != nil {
		s.versions.release(r.at)
		r.at = nil
	}
	if r.reads != nil {
		r.reads.release()
		r.reads = nil
	}
	close(r.done)
}

// Failure is why the store refuses commits, or nil while it is well. Restart
// the process to recover: everything acknowledged is on disk.
func (s *Store) Failure() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Failed is closed when the store fails; Failure then says why.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// fail stops all commits for good. The first reason stays.
func (s *Store) fail(err error) {
	err = fmt.Errorf("%w: %w; commits are refused until the process is restarted", ErrFailed, err)
	if s.failure.CompareAndSwap(nil, &err) {
		close(s.failed)
	}
}

// abandon stops all commits, and leaves the engine as it is for good.
func (s *Store) abandon(err error) {
	s.abandonIt.Do(func() {
		s.fault = err
		close(s.abandoned)
	})
	s.fail(err)
}

// ErrFailed is the reason of all refusals after the disk has failed.
var ErrFailed = errors.New("store stopped after a disk failure")
