package embedded

import (
	"bytes"
	"slices"
	"sync/atomic"
)

// filter says of a key whether it may have been written since the filter was
// made. It is wrong in one direction alone: it may name a key that was not
// written. One goroutine adds to it, any number ask it meanwhile.
//
// Single keys are two bits in one word each: a Bloom filter whose blocks are
// words (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom
// Filters, 2007), so that asking costs one access to memory. It never is full,
// it only errs more often.
type filter struct {
	words  []atomic.Uint64 // a power of two of them
	ranges atomic.Pointer[spanSet]
}

// filterShare is how many bytes of a write buffer there are to a byte of its
// filter. Rows take a hundred bytes of the buffer and more, so that is at least
// 25 bits a key: one key in a hundred is named for nothing, or fewer.
const filterShare = 32

// maxFilterRanges is how many ranges a filter tells apart. Beyond them it has
// one, from the first to the last.
const maxFilterRanges = 256

// newFilter makes a filter for the keys of a write buffer of so many bytes.
func newFilter(buffer uint64) *filter {
	n := uint64(1)
	for n < buffer/filterShare/8 {
		n *= 2
	}
	return &filter{words: make([]atomic.Uint64, n)}
}

// at is the word of a key's hash, and its bits there.
func (f *filter) at(hash uint64) (word *atomic.Uint64, bits uint64) {
	return &f.words[hash>>12&uint64(len(f.words)-1)], 1<<(hash&63) | 1<<(hash>>6&63)
}

// add adds what w writes.
func (f *filter) add(w *writeSet) {
	w.eachPoint(func(p point) {
		word, bits := f.at(p.hash)
		if old := word.Load(); old&bits != bits {
			word.Store(old | bits)
		}
	})
	for i := range w.ops {
		if o := &w.ops[i]; o.kind == opClearRange {
			f.addRange(span{o.key, o.value})
		}
	}
}

// addRange puts a new set of ranges in the place of the old one, which others
// may be reading.
func (f *filter) addRange(sp span) {
	var old spanSet
	if p := f.ranges.Load(); p != nil {
		old = *p
	}
	next := slices.Clone(old).add(span{bytes.Clone(sp.begin), bytes.Clone(sp.end)})
	if len(next) > maxFilterRanges {
		next = spanSet{{next[0].begin, next[len(next)-1].end}}
	}
	f.ranges.Store(&next)
}

// mayHold says whether key may have been written.
func (f *filter) mayHold(hash uint64, key []byte) bool {
	word, bits := f.at(hash)
	if word.Load()&bits == bits {
		return true
	}
	ranges := f.ranges.Load()
	return ranges != nil && ranges.contains(key)
}
