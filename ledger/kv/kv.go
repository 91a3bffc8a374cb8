package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Limits of a transaction, the same on every engine. They are FoundationDB's,
// so that what works on a laptop works on a cluster.
const (
	// MaxKeyBytes is the largest key.
	MaxKeyBytes = 10_000
	// MaxValueBytes is the largest value.
	MaxValueBytes = 100_000
	// MaxTxBytes bounds the keys, values and conflict ranges of one
	// transaction. Stay below a tenth of it.
	MaxTxBytes = 10_000_000
	// MaxTxAge is how long after its read version a transaction may still
	// read and commit.
	MaxTxAge = 5 * time.Second
	// StampBytes is the length of a Stamp: ten bytes given by the engine at
	// commit and two of user version.
	StampBytes = 12
	// StampOverhead is how much less than MaxKeyBytes or MaxValueBytes a key or
	// value that gets a stamp may have: where the stamp goes is sent within it.
	StampOverhead = 4
)

// Version is a point in the store's history. Versions grow with every commit;
// they are not clocks and may jump.
type Version uint64

// Stamp is the position of a commit in the store's history: ten bytes that
// the engine assigns at commit (big-endian, growing in commit order) and a
// user version of two bytes that orders several stamps of one transaction.
type Stamp [StampBytes]byte

// Version is the commit version part of the stamp, its first eight bytes.
func (s Stamp) Version() Version { return Version(binary.BigEndian.Uint64(s[:8])) }

// String is the stamp in hexadecimal.
func (s Stamp) String() string { return hex.EncodeToString(s[:]) }

// Compare orders stamps by commit, then by user version.
func (s Stamp) Compare(t Stamp) int { return bytes.Compare(s[:], t[:]) }

// Range is the half-open interval of keys [Begin, End).
type Range struct{ Begin, End []byte }

// KeyRange is the range that holds exactly key.
func KeyRange(key []byte) Range {
	end := make([]byte, len(key)+1)
	copy(end, key)
	return Range{Begin: key, End: end}
}

// PrefixRange is the range of all keys that start with prefix, the prefix
// itself included. The prefix must hold a byte other than 0xFF.
func PrefixRange(prefix []byte) Range { return Range{Begin: prefix, End: PrefixEnd(prefix)} }

// PrefixEnd is the first key after all keys that start with prefix, or nil
// where there is none (prefix empty or all 0xFF).
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// KeyValue is one row of a range read.
type KeyValue struct{ Key, Value []byte }

// RangeOptions shape a range read.
type RangeOptions struct {
	// Limit is the largest number of rows returned; 0 means no limit (the
	// transaction's own bounds still hold).
	Limit int
	// Reverse returns rows from the end of the range to its beginning.
	Reverse bool
}

// Value is a pending point read. Wait may be called more than once and only
// inside the transaction's closure, on its goroutine.
type Value interface {
	// Wait returns the value and whether the key exists. An empty value is
	// not an absent one. The slice must not be modified and is valid until
	// the transaction ends.
	Wait() (value []byte, ok bool, err error)
}

// Rows is a pending range read; the rules of Value hold.
type Rows interface {
	// Wait returns the rows in order, and whether the limit cut the range
	// short (so there may be more).
	Wait() (rows []KeyValue, more bool, err error)
}

// Reader reads at a transaction's read version, under the transaction's own
// writes. Issue all reads first, then wait: engines answer them together.
type Reader interface {
	Get(key []byte) Value
	// Range reads the rows of r. The read conflict a serializable Range adds
	// covers only what it looked at: up to and including the last row
	// returned where the limit cut it (from the other end when reversed),
	// else the whole range.
	Range(r Range, opt RangeOptions) Rows
}

// Tx is one attempt of a transaction. It is not safe for concurrent use.
// Writes are buffered until Commit; faults in their arguments (a key too
// long, a system key, an inverted range) surface at Commit as typed errors.
// Keys that start with 0xFF belong to the system and are refused.
//
// The engine copies what is passed in; the caller may reuse its slices.
type Tx interface {
	Reader // serializable: each read adds a read conflict

	// Snapshot reads at the same version, with the transaction's own writes,
	// but adds no read conflicts.
	Snapshot() Reader

	Set(key, value []byte)
	Clear(key []byte)
	ClearRange(r Range)
	// Add adds a little-endian integer to the value at key, wrapping at the
	// operand's width. An absent value counts as zero; a shorter one is
	// extended with zeros and a longer one truncated to the operand's
	// length. It reads nothing and so conflicts with no other Add.
	Add(key, operand []byte)
	// SetStampedKey writes value at key with the ten bytes from offset
	// replaced by the commit's stamp. The two bytes after them are the
	// caller's user version. Reading such a key, or the place it may land
	// in, within the same transaction fails with ErrUnreadable, and so does
	// the transaction's commit then.
	SetStampedKey(key []byte, offset int, value []byte)
	// SetStampedValue writes at key a value with the ten bytes from offset
	// replaced by the commit's stamp.
	SetStampedValue(key, value []byte, offset int)

	// AddReadConflict makes the transaction fail if r is written by another
	// one that commits first.
	AddReadConflict(r Range)
	// AddWriteConflict makes other transactions that read r and commit later
	// fail.
	AddWriteConflict(r Range)

	// ReadVersion is the version the transaction reads at.
	ReadVersion() (Version, error)
	// Commit makes the writes durable and visible, all or none, and returns
	// the first stamp of the transaction (user version zero). A read-only
	// transaction commits without conflict and has a zero stamp. When ctx
	// ends during the call the outcome is unknown and the error says so.
	// After Commit or Cancel every use of the transaction is refused with
	// ErrUsedTx.
	Commit(ctx context.Context) (Stamp, error)
	// Cancel ends the transaction and frees what it holds. It is a no-op on
	// an ended one and must be called on every transaction.
	Cancel()
}

// Watch tells of a change of one key.
type Watch interface {
	// Done is closed when the key's value may have changed since the watch
	// was made, or when the watch ended for any other reason. A spurious
	// wake-up is legal: read the key again.
	Done() <-chan struct{}
	// Cancel ends the watch; Done is closed.
	Cancel()
}

// Store is an engine. It is safe for concurrent use.
type Store interface {
	// Begin starts a transaction. The read version is taken at the first
	// read at the latest and includes every commit acknowledged before Begin
	// was called. The context bounds the transaction's reads.
	Begin(ctx context.Context) (Tx, error)
	// Watch watches key from a state that is not older than what the caller
	// read before the call; the caller reads, makes the watch, reads again
	// and then waits. The number of watches is bounded: ErrTooManyWatches.
	Watch(ctx context.Context, key []byte) (Watch, error)
	// Close releases the engine. Transactions still open fail.
	Close() error
}
