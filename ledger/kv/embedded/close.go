package embedded

import (
	"errors"
	"fmt"
)

// Close implements kv.Store. Commits that were queued are finished and
// answered first. After a failure of the disk the engine may be stuck, and is
// left as it is: only the end of the process frees all of it then. The directory's
// lock is free at once. It may be called again, and by several at once: all return
// when the store is closed.
func (s *Store) Close() error {
	s.closing.Lock()
	first := !s.closed
	s.closed = true
	s.closing.Unlock()
	if first {
		s.closeErr = s.close()
		close(s.gone)
	}
	<-s.gone
	return s.closeErr
}

func (s *Store) close() error {
	close(s.ending)
	s.late.Wait()
	close(s.queue)
	s.watches.closeAll()
	select {
	case <-s.ended:
	case <-s.abandoned: // the pipeline may be stuck in the engine
	}
	if s.isAbandoned() {
		return s.leave()
	}
	s.versions.closeAll()
	if f := s.flushed.Load(); f != nil {
		f.tables.end()
	}
	var err error
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		err = s.closeEngine()
	}()
	select {
	case <-closed:
		return s.unlock(err)
	case <-s.abandoned: // as by a flush that Close waits for
		return s.leave()
	}
}

// leave ends a store whose engine was abandoned.
func (s *Store) leave() error {
	<-s.failed
	return s.unlock(s.Failure())
}

// closeEngine closes the engine; after a failure it may well panic.
func (s *Store) closeEngine() (err error) {
	defer s.guard(&err)
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store %s: %w", s.opt.Dir, err)
	}
	return nil
}

func (s *Store) unlock(err error) error {
	if s.lock == nil {
		return err
	}
	return errors.Join(err, s.lock.Close())
}
