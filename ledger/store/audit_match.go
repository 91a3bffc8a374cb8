package store

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
)

// fingerprint is a 128-bit hash, or a sum of such hashes. The seeds are drawn
// for each audit, so nobody can prepare rows whose fingerprints collide.
type fingerprint [2]uint64

func (f *fingerprint) add(g fingerprint) {
	f[0] += g[0]
	f[1] += g[1]
}

// addTimes adds g so often (or takes it away): the sum is linear, so that the
// shares of a sum add up to the fingerprint of the whole.
func (f *fingerprint) addTimes(g fingerprint, times int64) {
	f[0] += g[0] * uint64(times)
	f[1] += g[1] * uint64(times)
}

// fingerprinter builds what is hashed in a reused buffer.
type fingerprinter struct {
	seeds [2]maphash.Seed
	buf   []byte
}

func (f *fingerprinter) start(kind byte) *fingerprinter {
	f.buf = append(f.buf[:0], kind)
	return f
}

func (f *fingerprinter) u(v uint64) *fingerprinter {
	f.buf = binary.LittleEndian.AppendUint64(f.buf, v)
	return f
}

func (f *fingerprinter) balances(b *ledger.Balances) *fingerprinter {
	return f.u(uint64(b.Funded)).u(uint64(b.Available)).u(uint64(b.Reserved)).u(uint64(b.Committed)).u(uint64(b.Reversed))
}

func (f *fingerprinter) bytes(b []byte) *fingerprinter {
	f.buf = binary.AppendUvarint(f.buf, uint64(len(b)))
	f.buf = append(f.buf, b...)
	return f
}

func (f *fingerprinter) str(s string) *fingerprinter {
	f.buf = binary.AppendUvarint(f.buf, uint64(len(s)))
	f.buf = append(f.buf, s...)
	return f
}

func (f *fingerprinter) sum() fingerprint {
	return fingerprint{maphash.Bytes(f.seeds[0], f.buf), maphash.Bytes(f.seeds[1], f.buf)}
}

// Sizes of a matcher.
const (
	matchShards = 4096
	// maxCollected is how many items an exact pass keeps at once.
	maxCollected = 1 << 18
	// maxExactPasses bounds how often the store is read again for examples.
	maxExactPasses = 4
)

type side int

const (
	left side = iota
	right
)

// matcher compares two sets of rows that come in any order, from two sources.
// Each row goes into the shard its fingerprint names; a shard keeps only the
// sum and number of its rows on either side. Equal sets have equal sums; sets
// that differ have equal sums with a probability of about 2⁻¹²⁸ a shard.
//
// Then, for the shards that differ, the sources are read again and the rows of
// those shards kept: what is left on one side is named.
type matcher struct {
	shards [matchShards]struct {
		sum [2]fingerprint
		n   [2]uint64
	}
	picked map[int]bool
	items  map[fingerprint]*matchItem
}

// matchItem is a row kept in an exact pass.
type matchItem struct {
	n    int // how much more often left than right
	text string
	// peer is the bucket where the other side would be (moves), or where the
	// block is; first is its number and weight how many entries hang on it.
	peer          ledger.BucketID
	first, weight uint64
}

// add adds a row. True means that the caller must keep it: this is an exact
// pass and the row's shard is one of those that differ.
func (m *matcher) add(s side, fp fingerprint) bool {
	shard := int(fp[0] % matchShards)
	if m.picked != nil {
		return m.picked[shard]
	}
	sh := &m.shards[shard]
	sh.sum[s].add(fp)
	sh.n[s]++
	return false
}

// keep keeps a row of an exact pass.
func (m *matcher) keep(s side, fp fingerprint, it matchItem) {
	if old := m.items[fp]; old != nil {
		it.n = old.n
	}
	if s == left {
		it.n++
	} else {
		it.n--
	}
	if it.n == 0 {
		delete(m.items, fp)
		return
	}
	m.items[fp] = &it
}

// settle counts a row of one side against those kept, and keeps nothing new.
func (m *matcher) settle(s side, fp fingerprint) {
	it := m.items[fp]
	if it == nil || (s == left) == (it.n > 0) {
		return
	}
	m.keep(s, fp, *it)
}

// differing lists the shards whose sides differ.
func (m *matcher) differing() []int {
	var out []int
	for i := range m.shards {
		if sh := &m.shards[i]; sh.sum[left] != sh.sum[right] || sh.n[left] != sh.n[right] {
			out = append(out, i)
		}
	}
	return out
}

// pick prepares an exact pass over as many of the shards as memory allows, and
// returns the rest.
func (m *matcher) pick(shards []int) (rest []int) {
	m.picked, m.items = map[int]bool{}, map[fingerprint]*matchItem{}
	total := uint64(0)
	for i, sh := range shards {
		n := max(m.shards[sh].n[left], m.shards[sh].n[right])
		if total += n; i > 0 && total > maxCollected {
			return shards[i:]
		}
		m.picked[sh] = true
	}
	return nil
}

// unmatched are the rows that an exact pass found on one side only, in the
// order of their texts.
func (m *matcher) unmatched() []*matchItem {
	out := make([]*matchItem, 0, len(m.items))
	for _, it := range m.items {
		out = append(out, it)
	}
	slices.SortFunc(out, func(a, b *matchItem) int {
		if a.text < b.text {
			return -1
		}
		return 1
	})
	return out
}
