package scan

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// A scanner that is fenced off counts nothing as settled, drops no row, and
// ends at once, whichever slot it is at.
func TestFencedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		now := time.Now()
		w.hold(1, now, "a")
		w.hold(2, now, "b")
		w.refuse["a"], w.refuse["b"] = ledger.Fenced, ledger.Fenced
		e := w.expiry(t, DefaultConfig())
		err := e.Run(t.Context())
		if !errors.Is(err, &ledger.Rejection{Code: ledger.Fenced}) {
			t.Fatalf("ended with %v", err)
		}
		if s := e.Status(t.Context()); w.left() != 2 || w.sent["a"]+w.sent["b"] != 1 || s.Skipped+s.Expired+s.Deferred+s.Rows != 0 {
			t.Errorf("%d rows left, sent %v, status %+v", w.left(), w.sent, s)
		}
		// The next term finds all of it.
		w.refuse = map[string]ledger.Code{}
		run(t, e, 2*time.Second)
		if s := e.Status(t.Context()); s.Expired != 2 || w.left() != 0 {
			t.Errorf("in the next term: %+v, %d rows left", s, w.left())
		}
	})
}

// A pass that waits for another one leaves when its context ends.
func TestWaitingPassLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.hold(1, time.Now(), "a")
		w.stuck = make(chan struct{})
		e := w.expiry(t, DefaultConfig())
		first := make(chan error)
		go func() { first <- e.Pass(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Pass(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second pass ended with %v", err)
		}
		close(w.stuck)
		if err := <-first; err != nil || w.left() != 0 {
			t.Errorf("the first pass ended with %v, %d rows left", err, w.left())
		}
	})
}
