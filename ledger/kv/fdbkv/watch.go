//go:build fdb

package fdbkv

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// maxWatches is what one connection may have, over all its handles.
const maxWatches = 10_000

// watch is one watch with its poll.
type watch struct {
	done   chan struct{}
	cancel context.CancelFunc
	once   sync.Once
	future fdb.FutureNil
}

func (w *watch) Done() <-chan struct{} { return w.done }

func (w *watch) Cancel() { w.cancel() }

func (w *watch) fire() { w.once.Do(func() { close(w.done) }) }

// Watch makes a watch in a read-only transaction of its own. A watch can be
// lost when its server moves; a poll every Options.WatchPoll finds the change
// all the same.
func (s *Store) Watch(ctx context.Context, key []byte) (kv.Watch, error) {
	if e := checkKey("watch", key); e != nil {
		return nil, e
	}
	if s.watches.Add(1) > maxWatches {
		s.watches.Add(-1)
		return nil, &kv.Error{Code: kv.CodeTooManyWatches, Op: "watch"}
	}
	future, base, err := s.arm(ctx, key)
	if err != nil {
		s.watches.Add(-1)
		return nil, err
	}
	wctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	w := &watch{done: make(chan struct{}), cancel: cancel, future: future}
	go func() {
		future.BlockUntilReady()
		cancel()
	}()
	go func() {
		defer s.watches.Add(-1)
		defer stop()
		s.poll(wctx, key, base)
		cancel()
		future.Cancel()
		w.fire()
	}()
	return w, nil
}

// arm reads the key and sets the watch at the same version.
func (s *Store) arm(ctx context.Context, key []byte) (fdb.FutureNil, []byte, error) {
	b, err := s.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer b.Cancel()
	t := b.(*tx)
	base, err := t.tr.Snapshot().Get(fdb.Key(key)).Get()
	if err != nil {
		return nil, nil, t.readError("watch", err)
	}
	future := t.tr.Watch(fdb.Key(key))
	if err := t.tr.Commit().Get(); err != nil {
		future.Cancel()
		return nil, nil, t.readError("watch", err)
	}
	return future, base, nil
}

// poll returns when the key's value is no longer base, when the watch fired or
// was cancelled, or when the store was closed.
func (s *Store) poll(ctx context.Context, key, base []byte) {
	tick := time.NewTicker(s.opt.WatchPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case <-tick.C:
		}
		var now []byte
		err := kv.Read(ctx, s, kv.Options{}, func(r kv.Reader) error {
			v, ok, err := r.Get(key).Wait()
			now = nil
			if ok {
				now = append([]byte{}, v...)
			}
			return err
		})
		if err == nil && (!bytes.Equal(now, base) || (now == nil) != (base == nil)) {
			return
		}
	}
}
