package scan

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// A bucket whose commits take all their time and come to nothing costs a pass
// one piece, not all that is due in it, and holds up no other bucket.
func TestStuckBucketCostsOnePiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		now := time.Now()
		var stuck, fine []string
		for i := range 200 {
			stuck, fine = append(stuck, fmt.Sprint("stuck", i)), append(fine, fmt.Sprint("fine", i))
			w.refuse[stuck[i]] = ledger.Unavailable
		}
		w.hold(3, now.Add(-time.Second), stuck...)
		w.hold(3, now, fine...)
		w.rows[3][1].Bucket.Index = 1
		e := w.expiry(t, DefaultConfig())
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := e.Status(t.Context()); s.Expired != 200 || s.Deferred != 200 || s.Rows != 1 || w.calls != 6 || w.sent["stuck199"] != 0 {
			t.Errorf("status %+v after %d calls", s, w.calls)
		}
		w.refuse = map[string]ledger.Code{}
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := e.Status(t.Context()); s.Expired != 400 || s.Rows != 2 || w.left() != 0 || w.sent["fine0"] != 1 {
			t.Errorf("status %+v, %d rows left", s, w.left())
		}
	})
}

// A pass that ends in the middle of a row keeps the row, and the next one
// expires what is left of it, each hold once.
func TestEndInTheMiddleOfARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var orders []string
		for i := range 256 {
			orders = append(orders, fmt.Sprint(i))
		}
		w.hold(3, time.Now(), orders...)
		e := w.expiry(t, DefaultConfig())
		run(t, e, 25*time.Millisecond) // two or three pieces of forty
		if w.left() != 1 || w.sent["0"] != 1 || w.sent["255"] != 0 {
			t.Fatalf("%d rows left; the first was sent %d times, the last %d times", w.left(), w.sent["0"], w.sent["255"])
		}
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := e.Status(t.Context()); w.left() != 0 || s.Expired+s.Skipped != 256 || w.states["255"].State != ledger.StateExpired {
			t.Errorf("status %+v, %d rows left", s, w.left())
		}
	})
}
