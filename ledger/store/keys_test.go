package store

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
)

// Keys are stored: their bytes are fixed for ever.
func TestKeysAreFixed(t *testing.T) {
	s := bare()
	bucket := ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t1", Funder: "brand", Key: "spring"}, Index: 7}
	for _, tc := range []struct {
		name string
		key  key
		want string
	}{
		{"budget", s.budgetKey(bucket.Budget), "636f6666657202420002743100026272616e640002737072696e6700"},
		{"bucket", s.bucketKey(bucket), "636f66666572024b0002743100026272616e640002737072696e67001507"},
		{"reservation", s.reservationKey(orderKey("o")), "636f6666657202520015bc02743100026f0002636f75706f6e00"},
		{"block", s.blockKey(bucket, 300), "636f66666572024c0002743100026272616e640002737072696e6700150716012c"},
		{"expiry", s.expiryKey(1_772_366_400, bucket, 300, 0), "636f6666657202580015381869a42a4002743100026272616e640002737072696e6700150716012c14"},
		{"receipt", s.receiptKey("t1", "f1"), "636f666665720249000274310002663100"},
		{"signal", s.signalKey(3), "636f666665720253001503"},
		{"allocation", s.allocationKey(orderKey("o"), 1, ""), "636f6666657202410015bc02743100026f0002636f75706f6e0015010200"},
		{"split", s.allocationKey(orderKey("o"), 1, "r1"), "636f6666657202410015bc02743100026f0002636f75706f6e00150102723100"},
	} {
		if got := hex.EncodeToString(tc.key); got != tc.want {
			t.Errorf("%s key is %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := [2]uint64{slotOf(bucket), partitionOf(bucket)}; got != [2]uint64{56, 9} {
		t.Errorf("slot and partition are %d, want 56 and 9", got)
	}
}

// Keys sort as their elements do, so that ranges and pages are what they seem.
func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		genPart := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "a\x00", "a\x00b", "ab", "\xff", "a\x01"}))
		a, b := genPart.Draw(t, "a"), genPart.Draw(t, "b")
		m, n := rapid.Uint64().Draw(t, "m"), rapid.Uint64().Draw(t, "n")
		want := cmp.Or(cmp.Compare(a, b), cmp.Compare(m, n))
		if got := bytes.Compare(key(nil).str(a).uint(m), key(nil).str(b).uint(n)); got != want {
			t.Fatalf("(%q, %d) and (%q, %d) sort as %d, want %d", a, m, b, n, got, want)
		}
		k := key(nil).str(a)
		longer := k.uint(m)
		if rng := k.all(); bytes.Compare(longer, rng.Begin) < 0 || bytes.Compare(longer, rng.End) >= 0 {
			t.Fatalf("%x is not in the range of its prefix %x", longer, k)
		}
		if other := key(nil).str(b).uint(m); a != b {
			if rng := k.all(); bytes.Compare(other, rng.Begin) >= 0 && bytes.Compare(other, rng.End) < 0 {
				t.Fatalf("%x is in the range of %q", other, a)
			}
		}
	})
}

func TestKeyRoundTrip(t *testing.T) {
	s := bare()
	rapid.Check(t, func(t *rapid.T) {
		b, seq := genBucketID(t, genID.Draw(t, "tenant")), rapid.Uint64().Draw(t, "seq")
		r := s.read(s.blockKey(b, seq), tableBlock)
		if got, n := r.bucket(), r.uint(); got != b || n != seq || r.end() != nil {
			t.Fatalf("block key of %v, %d reads as %v, %d", b, seq, got, n)
		}
		k := ledger.OrderKey{Tenant: genID.Draw(t, "t"), Order: genID.Draw(t, "order"), Benefit: genID.Draw(t, "benefit")}
		if got, err := s.reservationOf(s.reservationKey(k), nil); err != nil || got != k {
			t.Fatalf("reservation key of %v reads as %v (%v)", k, got, err)
		}
		due := rapid.Int64Range(0, 1<<40).Draw(t, "due")
		if got, err := s.decodeDue(s.expiryKey(due, b, seq, 3), encodeExpiry(nil)); err != nil || got.Bucket != b || got.Due.Unix() != due {
			t.Fatalf("expiry key of %v, %d reads as %+v (%v)", b, due, got, err)
		}
		if r := s.read(s.blockKey(b, seq), tableBucket); r.end() == nil {
			t.Fatal("a key of one table is read as one of another")
		}
	})
}

// The rows due by now are exactly those of the second and before.
func TestExpiryDueRange(t *testing.T) {
	s := bare()
	b := ledger.BucketID{Budget: budgetID("b")}
	rapid.Check(t, func(t *rapid.T) {
		due, now := rapid.Int64Range(0, 1<<34).Draw(t, "due"), rapid.Int64Range(0, 1<<34).Draw(t, "now")
		rng, k := s.expiryDue(slotOf(b), time.Unix(now, 999)), s.expiryKey(due, b, 1, 0)
		in := bytes.Compare(k, rng.Begin) >= 0 && bytes.Compare(k, rng.End) < 0
		if in != (due <= now) {
			t.Fatalf("a row due at %d is found at %d: %v", due, now, in)
		}
	})
}
