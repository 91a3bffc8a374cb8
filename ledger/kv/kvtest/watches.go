package kvtest

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// wakeLimit is how long a watch may take to fire on the slowest engine. It is
// no part of a test's time unless the test fails.
const wakeLimit = 2 * time.Minute

func (e *env) watch(ctx context.Context, name string) kv.Watch {
	e.Helper()
	w, err := e.s.Watch(ctx, e.key(name))
	if err != nil {
		e.Fatalf("watch %s: %v", name, err)
	}
	e.Cleanup(w.Cancel)
	return w
}

func (e *env) fires(w kv.Watch) {
	e.Helper()
	select {
	case <-w.Done():
	case <-time.After(wakeLimit):
		e.Fatal("the watch did not fire")
	}
}

var watchCases = []testCase{
	{"watch fires on change", func(e *env) {
		change := map[string]func(kv.Tx){
			"set":         func(tx kv.Tx) { tx.Set(e.key("w"), []byte("2")) },
			"clear":       func(tx kv.Tx) { tx.Clear(e.key("w")) },
			"clear range": func(tx kv.Tx) { tx.ClearRange(e.rng("v", "x")) },
			"add":         func(tx kv.Tx) { tx.Add(e.key("w"), []byte{1}) },
			"stamped":     func(tx kv.Tx) { tx.SetStampedValue(e.key("w"), make([]byte, 10), 0) },
		}
		for name, write := range change {
			e.set("w", "1")
			w := e.watch(e.ctx, "w")
			e.stored("w", "1")
			tx := e.begin()
			write(tx)
			e.commit(tx)
			e.Log(name)
			e.fires(w)
			if e.get(e.begin(), "w") == "1" {
				e.Fatal("who wakes does not see the change")
			}
		}
	}},
	{"watch of an absent key", func(e *env) {
		w := e.watch(e.ctx, "w")
		e.set("w", "")
		e.fires(w)
	}},
	{"watches of one key all fire", func(e *env) {
		one, two := e.watch(e.ctx, "w"), e.watch(e.ctx, "w")
		one.Cancel()
		three := e.watch(e.ctx, "w")
		e.set("w", "")
		e.fires(two)
		e.fires(three)
	}},
	{"watch ends on cancel", func(e *env) {
		w := e.watch(e.ctx, "w")
		w.Cancel()
		e.fires(w)
		w.Cancel()
		ctx, cancel := context.WithCancel(e.ctx)
		w = e.watch(ctx, "w")
		cancel()
		e.fires(w)
		_, err := e.s.Watch(ctx, e.key("w"))
		e.wantErr(err, kv.ErrCancelled)
	}},
	{"watch is bounded", func(e *env) {
		if e.h.MaxWatches == 0 {
			e.Skip("the bound of the engine's watches is not known here")
		}
		var ws []kv.Watch
		for range e.h.MaxWatches {
			ws = append(ws, e.watch(e.ctx, "w"))
		}
		_, err := e.s.Watch(e.ctx, e.key("x"))
		e.wantErr(err, kv.ErrTooManyWatches)
		ws[0].Cancel() // makes room for one
		e.fires(ws[0])
		ws[0] = e.watch(e.ctx, "x")
		_, err = e.s.Watch(e.ctx, e.key("x"))
		e.wantErr(err, kv.ErrTooManyWatches)
		e.set("w", "")
		for _, w := range ws[1:] {
			e.fires(w)
		}
		select {
		case <-ws[0].Done():
			e.Log("spurious wake-up of another key, which is legal")
		default:
		}
		e.watch(e.ctx, "y")
	}},
}
