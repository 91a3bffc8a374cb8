package embedded

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestFilter(t *testing.T) {
	f := newFilter(1 << 20)
	rng := rand.New(rand.NewPCG(3, 4))
	in := make([]uint64, 10_000) // a hundred bytes of the buffer each
	for i := range in {
		in[i] = rng.Uint64()
		var w writeSet
		w.set(in[i], fmt.Append(nil, i), nil)
		f.add(&w)
	}
	for _, h := range in {
		if !f.mayHold(h, nil) {
			t.Fatalf("hash %x was added and is not named", h)
		}
	}
	wrong := 0
	for range 100_000 {
		if f.mayHold(rng.Uint64(), nil) {
			wrong++
		}
	}
	if wrong == 0 || wrong > 1000 {
		t.Errorf("%d of 100,000 keys named for nothing, want at most one in a hundred", wrong)
	}
}

func TestFilterRanges(t *testing.T) {
	f := newFilter(1 << 16)
	clearRange := func(begin, end string) {
		var w writeSet
		w.clearRange([]byte(begin), []byte(end))
		f.add(&w)
	}
	holds := func(key string, want bool) {
		t.Helper()
		if got := f.mayHold(0, []byte(key)); got != want {
			t.Errorf("%s: %t, want %t", key, got, want)
		}
	}
	holds("b", false)
	clearRange("b", "c")
	clearRange("x", "y")
	holds("a", false)
	holds("b", true)
	holds("bz", true)
	holds("c", false)
	holds("x", true)
	holds("y", false)
	for i := range maxFilterRanges {
		clearRange(fmt.Sprintf("m%04d", 2*i), fmt.Sprintf("m%04d", 2*i+1))
	}
	holds("m0003", true) // too many to tell apart
	holds("a", false)
	holds("c", true)
	holds("y", false)
}
