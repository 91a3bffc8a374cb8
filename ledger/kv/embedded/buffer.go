package embedded

import (
	"bytes"
	"slices"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// arena holds copies of many small byte slices in few allocations. What it
// hands out stays valid until reset: a full chunk is left alone and a new one
// begun, so slices are never moved.
type arena struct {
	chunk []byte
	size  int
}

// arenaChunk is the first chunk's size: what a batch of a few commands reads
// fits in. Further ones double.
const arenaChunk = 1 << 10

// grow returns a slice of n bytes for the caller to fill.
func (a *arena) grow(n int) []byte {
	if cap(a.chunk)-len(a.chunk) < n {
		a.size = min(max(2*a.size, arenaChunk), 64<<10)
		a.chunk = make([]byte, 0, max(a.size, n))
	}
	at := len(a.chunk)
	a.chunk = a.chunk[:at+n]
	return a.chunk[at : at+n : at+n]
}

// copy returns a copy of b that is never nil.
func (a *arena) copy(b []byte) []byte {
	c := a.grow(len(b))
	copy(c, b)
	return c
}

// reset forgets all slices handed out; the last chunk is used again.
func (a *arena) reset() {
	if cap(a.chunk) > maxPooledBytes {
		a.chunk = nil
	}
	a.chunk = a.chunk[:0]
}

// span is a half-open interval of keys.
type span struct{ begin, end []byte }

func (s span) contains(key []byte) bool {
	return bytes.Compare(s.begin, key) <= 0 && bytes.Compare(key, s.end) < 0
}

func (s span) overlaps(t span) bool {
	return bytes.Compare(s.begin, t.end) < 0 && bytes.Compare(t.begin, s.end) < 0
}

// isPoint says whether the range holds one key, its beginning, and no other.
func isPoint(r kv.Range) bool {
	n := len(r.Begin)
	return len(r.End) == n+1 && r.End[n] == 0 && bytes.Equal(r.Begin, r.End[:n])
}

// spanSet is a sorted list of disjoint spans that do not touch.
type spanSet []span

// find returns the index of the first span that ends after key.
func (s spanSet) find(key []byte) int {
	i, _ := slices.BinarySearchFunc(s, key, func(sp span, k []byte) int {
		if bytes.Compare(sp.end, k) <= 0 {
			return -1
		}
		return 1
	})
	return i
}

func (s spanSet) contains(key []byte) bool {
	if len(s) == 0 {
		return false
	}
	i := s.find(key)
	return i < len(s) && s[i].contains(key)
}

// add inserts sp, merged with what it overlaps or touches.
func (s spanSet) add(sp span) spanSet {
	i := 0
	if len(s) > 0 {
		i, _ = slices.BinarySearchFunc(s, sp.begin, func(x span, k []byte) int {
			if bytes.Compare(x.end, k) < 0 {
				return -1
			}
			return 1
		})
	}
	j := i
	for j < len(s) && bytes.Compare(s[j].begin, sp.end) <= 0 {
		if bytes.Compare(s[j].begin, sp.begin) < 0 {
			sp.begin = s[j].begin
		}
		if bytes.Compare(s[j].end, sp.end) > 0 {
			sp.end = s[j].end
		}
		j++
	}
	return slices.Replace(s, i, j, sp)
}
