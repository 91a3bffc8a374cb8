package ledger

import (
	"fmt"
	"time"
)

// Balances are the five sums of a bucket, in minor units. They also serve as a
// delta. The invariant of a bucket is Available + Reserved + Committed −
// Reversed = Funded.
type Balances struct {
	Funded, Available, Reserved, Committed, Reversed int64
}

// Add returns the sum, or false when one of the five overflows.
func (b Balances) Add(d Balances) (Balances, bool) {
	var s Balances
	var ok [5]bool
	s.Funded, ok[0] = add(b.Funded, d.Funded)
	s.Available, ok[1] = add(b.Available, d.Available)
	s.Reserved, ok[2] = add(b.Reserved, d.Reserved)
	s.Committed, ok[3] = add(b.Committed, d.Committed)
	s.Reversed, ok[4] = add(b.Reversed, d.Reversed)
	return s, ok == [5]bool{true, true, true, true, true}
}

// Check returns what is wrong with the balances, or nil: a negative sum, more
// reversed than committed, or sums that do not add up to what was funded.
// Available may go down to floor, which is 0 but for wallets; see
// [Policy.Floor].
func (b Balances) Check(floor int64) error {
	switch {
	case b.Funded < 0 || b.Reserved < 0 || b.Committed < 0 || b.Reversed < 0:
		return fmt.Errorf("a balance is negative: %+v", b)
	case b.Available < floor:
		return fmt.Errorf("available %d is below %d", b.Available, floor)
	case b.Reversed > b.Committed:
		return fmt.Errorf("reversed %d exceeds committed %d", b.Reversed, b.Committed)
	}
	// Committed − Reversed cannot overflow; the other sums are bounded by
	// Funded when the invariant holds.
	s, ok := add(b.Available, b.Reserved)
	if ok {
		s, ok = add(s, b.Committed-b.Reversed)
	}
	if !ok || s != b.Funded {
		return fmt.Errorf("available %d + reserved %d + committed %d - reversed %d is not funded %d",
			b.Available, b.Reserved, b.Committed, b.Reversed, b.Funded)
	}
	return nil
}

// Bucket is the row of one bucket: its balances and the head of its chain.
type Bucket struct {
	ID BucketID
	Balances
	// Seq is the number of the bucket's last entry; entries count from 1.
	Seq uint64
	// Hash is the hash of the last block, zero before the first.
	Hash [32]byte
	// Time is the time of the last block. Times of a bucket never go back,
	// whatever the clocks of the nodes that write to it do.
	Time time.Time
}
