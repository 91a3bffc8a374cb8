package scan

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Rows that cannot go head their slot and hold up no others.
func TestKeptRowsDoNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		now := time.Now()
		for i := range 5 {
			o := fmt.Sprint("poison", i)
			w.hold(7, now.Add(-time.Minute), o)
			w.refuse[o] = ledger.Corrupt
		}
		for i := range 40 {
			w.hold(7, now, fmt.Sprint("good", i))
		}
		cfg := DefaultConfig()
		cfg.PageRows = 8
		e := w.expiry(t, cfg)
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.left() != 5 || w.sent["poison0"] != 1 {
			t.Errorf("%d rows left, want 5; poison0 was sent %d times, want 1", w.left(), w.sent["poison0"])
		}
	})
}

// A pass is bounded, the next one goes on where it stopped, the rate holds,
// and no call to the executor is too large.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		now := time.Now()
		for i := range 40 {
			var orders []string
			for j := range 100 {
				orders = append(orders, fmt.Sprintf("%d-%d", i, j))
			}
			w.hold(uint64(i%5), now, orders...)
		}
		cfg := DefaultConfig()
		cfg.PassLimit, cfg.Rate, cfg.CatchUpAfter = 1000, 1000, time.Hour
		e := w.expiry(t, cfg)
		run(t, e, 2*time.Second+time.Millisecond)
		if n := e.Status(t.Context()).Expired; n < 1500 || n > 2600 {
			t.Errorf("%d expired in 2 s at 1000/s", n)
		}
		run(t, e, 5*time.Second)
		s := e.Status(t.Context())
		// The second run meets again the row that was under way when the first ended.
		if s.Expired+s.Skipped != 4000 || s.Skipped >= maxCommands || w.left() != 0 || w.most != cfg.Rate/bursts {
			t.Errorf("status %+v, %d rows left, largest call %d", s, w.left(), w.most)
		}
	})
}

// Rows that must be kept, however many, hold up no others of their slot: passes
// read on behind them, and come back to them in the end.
func TestStuckRowsLeaveOthersTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const rows, each = 50, 10
		for i := range rows {
			var orders []string
			for j := range each {
				o := fmt.Sprint("stuck ", i, " ", j)
				w.refuse[o] = ledger.Corrupt
				orders = append(orders, o)
			}
			w.hold(5, time.Now(), orders...)
		}
		w.hold(5, time.Now(), "quiet")
		cfg := DefaultConfig()
		cfg.PageRows, cfg.PassLimit = 4, 60
		e := w.expiry(t, cfg)
		for range 2 * rows * each / cfg.PassLimit {
			if err := e.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.sent["quiet"]; n != 1 {
			t.Errorf("the hold behind them was looked at %d times", n)
		}
		if first, last := w.sent["stuck 0 0"], w.sent[fmt.Sprintf("stuck %d 0", rows-1)]; first < 2 || last < 1 {
			t.Errorf("the first of them was tried %d times, the last %d", first, last)
		}
	})
}

// A row that makes its pass fail holds up neither its slot nor the others.
func TestPanicLeavesOthersTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for slot := range uint64(2) {
			w.hold(slot, time.Now(), fmt.Sprint("bad ", slot))
			w.hold(slot, time.Now(), fmt.Sprint("good ", slot))
			w.panics = append(w.panics, fmt.Sprint("bad ", slot))
		}
		cfg := DefaultConfig()
		cfg.PageRows = 1
		e := w.expiry(t, cfg)
		for range 4 {
			_ = e.Pass(t.Context()) // fails at each bad row
		}
		for slot := range 2 {
			if n := w.sent[fmt.Sprint("good ", slot)]; n != 1 {
				t.Errorf("the good hold in slot %d was looked at %d times", slot, n)
			}
		}
	})
}

// A bucket of one tenant with more holds due than passes can expire makes the
// holds of others wait for a pass, and not until it has none.
func TestBusySlotLeavesOthersTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := 0
		fill := func() { // as fast as they expire
			for range 10 {
				var orders []string
				for range 100 {
					n++
					orders = append(orders, fmt.Sprint("hot ", n))
				}
				w.hold(5, time.Now(), orders...)
			}
		}
		fill()
		fill()
		for slot := range uint64(store.ExpirySlots) {
			w.hold(slot, time.Now(), fmt.Sprint("quiet ", slot))
		}
		cfg := DefaultConfig()
		cfg.PassLimit = 1000
		e := w.expiry(t, cfg)
		for range 3 {
			if err := e.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			fill()
		}
		for slot := range uint64(store.ExpirySlots) {
			if n := w.sent[fmt.Sprint("quiet ", slot)]; n != 1 && slot != 5 {
				t.Errorf("the hold in slot %d was looked at %d times", slot, n)
			}
		}
	})
}
