package embedded

import (
	"context"
	"fmt"
	"sync"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// watches are the watches of a store, by the hash of their key: a collision
// wakes a watch for nothing, which is legal.
type watches struct {
	mu     sync.Mutex
	limit  int
	n      int
	closed bool
	byHash map[uint64]map[*watch]struct{}
}

// watch implements kv.Watch.
type watch struct {
	set  *watches
	hash uint64
	key  []byte
	done chan struct{}
	over bool        // guarded by set.mu
	stop func() bool // detaches from the context
}

var _ kv.Watch = (*watch)(nil)

// Watch implements kv.Store. A watch fires at any write of the key, also one
// that leaves the value as it was.
func (s *Store) Watch(ctx context.Context, key []byte) (kv.Watch, error) {
	if ctx.Err() != nil {
		return nil, kv.ContextError(ctx, "watch")
	}
	if err := checkReadKey("watch", key); err != nil {
		return nil, err
	}
	w := &watch{set: &s.watches, hash: s.hash(key), key: append([]byte(nil), key...), done: make(chan struct{})}
	ws := &s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return nil, &kv.Error{Code: kv.CodeClosed, Op: "watch"}
	}
	if ws.n >= ws.limit {
		return nil, &kv.Error{Code: kv.CodeTooManyWatches, Op: "watch", Detail: fmt.Sprintf("at most %d allowed", ws.limit)}
	}
	if ws.byHash[w.hash] == nil {
		ws.byHash[w.hash] = make(map[*watch]struct{})
	}
	ws.byHash[w.hash][w] = struct{}{}
	ws.n++
	w.stop = context.AfterFunc(ctx, w.Cancel)
	return w, nil
}

// Done implements kv.Watch.
func (w *watch) Done() <-chan struct{} { return w.done }

// Cancel implements kv.Watch.
func (w *watch) Cancel() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.set.end(w)
}

// end closes w once. The caller holds mu.
func (ws *watches) end(w *watch) {
	if w.over {
		return
	}
	w.over = true
	w.stop()
	delete(ws.byHash[w.hash], w)
	if len(ws.byHash[w.hash]) == 0 {
		delete(ws.byHash, w.hash)
	}
	ws.n--
	close(w.done)
}

// during publishes a group and ends the watches of what it wrote. No watch is
// made meanwhile: one made before is woken, and who makes one after reads the
// published state. The write sets are looked at before, for once published
// they may be reused; watches end after, so that who wakes reads the change.
func (ws *watches) during(g *group, publish func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var hit []*watch
	if ws.n > 0 {
		for _, r := range g.wins {
			hit = ws.match(r.writes, hit)
		}
	}
	publish()
	for _, w := range hit {
		ws.end(w)
	}
}

// match appends the watches of what w wrote.
func (ws *watches) match(w *writeSet, hit []*watch) []*watch {
	w.eachPoint(func(p point) {
		for x := range ws.byHash[p.hash] {
			hit = append(hit, x)
		}
	})
	for i := range w.ops {
		o := &w.ops[i]
		if o.kind != opClearRange {
			continue
		}
		for _, set := range ws.byHash {
			for x := range set {
				if (span{o.key, o.value}).contains(x.key) {
					hit = append(hit, x)
				}
			}
		}
	}
	return hit
}

// closeAll ends all watches and admits no more.
func (ws *watches) closeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for _, set := range ws.byHash {
		for w := range set {
			ws.end(w)
		}
	}
}

func (ws *watches) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.n
}
