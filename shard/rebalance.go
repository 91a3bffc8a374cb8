package shard

// Skew is how far apart the fullest and the emptiest of the buckets in use are,
// in equal shares of what they have together; 0 is level, and nothing is level.
// available holds what each of them has.
func Skew(available []int64) float64 {
	if len(available) == 0 {
		return 0
	}
	low, high, sum := available[0], available[0], 0.0
	for _, v := range available {
		low, high = min(low, v), max(high, v)
		sum += float64(v)
	}
	if sum <= 0 {
		return 0
	}
	return float64(high-low) / (sum / float64(len(available)))
}
