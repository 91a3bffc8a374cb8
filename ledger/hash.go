package ledger

// Hash64 is 64-bit FNV-1a over the strings, each ended by a zero byte, then
// salt mixed in and the finalizer of MurmurHash3. Routes and keys are made of
// it: it is part of the stored format.
func Hash64(salt uint64, parts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, p := range parts {
		for i := 0; i < len(p); i++ {
			h = (h ^ uint64(p[i])) * 1099511628211
		}
		h *= 1099511628211
	}
	h ^= salt
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
