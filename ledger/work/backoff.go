package work

import (
	"hash/fnv"
	"time"
)

// Ceiling is min(base·2ⁿ, max), without overflow.
func Ceiling(base, limit time.Duration, n uint32) time.Duration {
	for range n {
		if base >= limit-base { // doubling reaches the limit
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}

// Backoff is how long to wait after attempt n (counted from 0) of what name
// says: between half of the ceiling and all of it, always the same for the
// same arguments, in whole milliseconds, and at least one.
func Backoff(base, limit time.Duration, n uint32, name ...string) time.Duration {
	c := Ceiling(base, limit, n)
	half := c / 2
	d := half + time.Duration(spread(n, name)%uint64(c-half+1))
	return max(d.Truncate(time.Millisecond), time.Millisecond)
}

// spread is a hash of a name and an attempt whose bits are all good to use:
// FNV-1a with MurmurHash3's finalizer.
func spread(n uint32, name []string) uint64 {
	f := fnv.New64a()
	for _, s := range name {
		_, _ = f.Write([]byte(s))
		_, _ = f.Write([]byte{0})
	}
	_, _ = f.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	h := f.Sum64()
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Share divides n among owners who want so much each: equal parts, and what
// one does not need goes to the others, in equal parts again. What is left over
// of a part goes to the owners from first on, so that a caller that moves first
// on favours none.
func Share(want []int, n, first int) []int {
	got := make([]int, len(want))
	for n > 0 {
		var open []int
		for i := range want {
			if j := (first + i) % len(want); got[j] < want[j] {
				open = append(open, j)
			}
		}
		if len(open) == 0 {
			break
		}
		part := max(n/len(open), 1)
		for _, j := range open {
			more := min(part, want[j]-got[j], n)
			got[j] += more
			n -= more
		}
	}
	return got
}
