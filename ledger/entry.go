package ledger

import "time"

// EntryType says which transition an entry records.
type EntryType uint8

// Entry types. Those of a budget's own life (CREATE, FREEZE, RESHARD, …) carry a zero
// delta and stand in bucket 0.
const (
	EntryReserve EntryType = iota + 1
	EntryCommit
	EntryExtend
	EntryRelease
	EntryExpire
	EntryReclaim
	EntryReverse
	EntryReinstate
	EntryCreate
	EntryFund
	EntryDefund
	EntryFreeze
	EntryUnfreeze
	EntryClose
	EntryMoveOut
	EntryMoveIn
	EntryReshard
)

// Entry types of jobs; their reclaims are RECLAIM entries, too. The numbers
// leave room for more of the others.
const (
	EntryCharge EntryType = iota + 32
	EntryRefund
	EntryHold
	EntrySettle
)

var entryNames = [...]string{
	EntryReserve: "RESERVE", EntryCommit: "COMMIT", EntryExtend: "EXTEND", EntryRelease: "RELEASE", EntryExpire: "EXPIRE",
	EntryReclaim: "RECLAIM", EntryReverse: "REVERSE", EntryReinstate: "REINSTATE",
	EntryCreate: "CREATE", EntryFund: "FUND", EntryDefund: "DEFUND", EntryFreeze: "FREEZE", EntryUnfreeze: "UNFREEZE", EntryClose: "CLOSE",
	EntryMoveOut: "MOVE_OUT", EntryMoveIn: "MOVE_IN", EntryReshard: "RESHARD",
	EntryCharge: "CHARGE", EntryRefund: "REFUND", EntryHold: "HOLD", EntrySettle: "SETTLE",
}

func (t EntryType) String() string {
	if t.Valid() {
		return entryNames[t]
	}
	if t == 0 {
		return ""
	}
	return "UNKNOWN"
}

// Valid reports whether the type is one of the above.
func (t EntryType) Valid() bool { return int(t) < len(entryNames) && entryNames[t] != "" }

// OfBudget reports whether the entry is of a command on the budget itself.
func (t EntryType) OfBudget() bool { return (t >= EntryCreate && t <= EntryClose) || t == EntryReshard }

// Entry is one immutable ledger row.
type Entry struct {
	// Seq counts the bucket's entries from 1, without gaps.
	Seq  uint64
	Type EntryType
	// Order, Benefit and Attempt name the reservation; empty for entries of
	// the budget itself.
	Order, Benefit string
	Attempt        uint32
	// EventSeq counts the reservation's entries from 1.
	EventSeq uint32
	// Delta is the whole change, After the balances once it was made.
	Delta, After Balances
	// RefersTo is the Seq of the entry that this one undoes, 0 if none.
	RefersTo uint64
	// Cause is the id that tells the command from others of its kind
	// (payment, refund, idempotency key), or for an internal command why.
	Cause string
	// Correlation is the caller's tracing id.
	Correlation string
	// Peer is the other bucket of a move between buckets. Of a RESHARD it is
	// the last of the buckets that orders are routed to from then on.
	Peer *BucketID
}

// Block is the entries that one batch wrote to one bucket, chained by hash.
type Block struct {
	Bucket  BucketID
	First   uint64 // Seq of Entries[0]
	Prev    [32]byte
	Hash    [32]byte
	Time    time.Time
	Writer  string // id of the node that wrote it
	Entries []Entry
}
