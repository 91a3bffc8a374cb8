package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// This file, and keys_work.go for the tables of queues and facts, are the only
// ones that know the key layout. Keys are encoded as
// FoundationDB tuples (its tuple layer's type codes, so its tools can read
// them) under the store's prefix:
//
//	M, name                                             meta: format, incarnation, probe
//	B, tenant, funder, key                              budget
//	K, tenant, funder, key, bucket                      bucket balances
//	R, h(order), tenant, order, benefit                 reservation with receipts
//	L, tenant, funder, key, bucket, first seq           ledger block
//	X, slot, due, tenant, funder, key, bucket, seq, n   expiry block
//	O, incarnation, partition, stamp                    outbox pointer
//	I, tenant, idempotency key                          receipt of a budget command
//	S, partition                                        signal
//	C, tenant, opened, order, benefit, attempt          case
//	A, h(order), tenant, order, benefit, attempt, refund  who paid and got back what, per line and funder
//	E                                                   leader: the fence
//	E, 1                                                signs of life of the leader
//	H, 0, node                                          node's sign of life
//	H, 1, node                                          node that an operator drains
//	V, round, tenant, funder, key, bucket               how far a bucket was verified
const (
	tableMeta        = "M"
	tableBudget      = "B"
	tableBucket      = "K"
	tableReservation = "R"
	tableBlock       = "L"
	tableExpiry      = "X"
	tableOutbox      = "O"
	tableReceipt     = "I"
	tableSignal      = "S"
	tableCase        = "C"
	tableAllocation  = "A"
	tableLeader      = "E"
	tableMember      = "H"
	tableVerified    = "V"
)

// Tables of queues and facts; keys_work.go has their keys.
const (
	tableDue   = "W"
	tableJob   = "Q"
	tableDead  = "D"
	tableInbox = "N"
	tableFact  = "F"
)

// Layout constants. They are part of the stored format.
const (
	// ExpirySlots spreads the expiry index.
	ExpirySlots = 64
	// Partitions is the number of ordered event streams.
	Partitions = 16
)

var errKey = errors.New("malformed key")

// key builds one tuple-encoded key.
type key []byte

func (s *Store) key(table string) key {
	k := make(key, 0, len(s.opt.Prefix)+96)
	return append(k, s.opt.Prefix...).str(table)
}

func (k key) str(s string) key {
	k = append(k, 0x02)
	for i := 0; i < len(s); i++ {
		k = append(k, s[i])
		if s[i] == 0 {
			k = append(k, 0xFF)
		}
	}
	return append(k, 0x00)
}

func (k key) uint(v uint64) key {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	i := 0
	for i < 8 && b[i] == 0 {
		i++
	}
	return append(append(k, byte(0x14+8-i)), b[i:]...)
}

func (k key) budget(b ledger.BudgetID) key { return k.str(b.Tenant).str(b.Funder).str(b.Key) }

func (k key) bucket(b ledger.BucketID) key { return k.budget(b.Budget).uint(uint64(b.Index)) }

// all is the range of the keys that continue k with further elements.
func (k key) all() kv.Range {
	begin := append(append([]byte(nil), k...), 0x00)
	end := append(append([]byte(nil), k...), 0xFF)
	return kv.Range{Begin: begin, End: end}
}

func (s *Store) metaKey(name string) key              { return s.key(tableMeta).str(name) }
func (s *Store) budgetKey(b ledger.BudgetID) key      { return s.key(tableBudget).budget(b) }
func (s *Store) bucketKey(b ledger.BucketID) key      { return s.key(tableBucket).bucket(b) }
func (s *Store) bucketsOf(b ledger.BudgetID) kv.Range { return s.key(tableBucket).budget(b).all() }

func (s *Store) orderPrefix(tenant, order string) key {
	return s.key(tableReservation).uint(uint64(byte(ledger.Hash64(0, tenant, order)))).str(tenant).str(order)
}

func (s *Store) reservationKey(k ledger.OrderKey) key {
	return s.orderPrefix(k.Tenant, k.Order).str(k.Benefit)
}

func (s *Store) blockKey(b ledger.BucketID, first uint64) key {
	return s.key(tableBlock).bucket(b).uint(first)
}

// blockIdentity is the part of a block's key that its hash covers: without
// the store's prefix, so that a block keeps its hash wherever it is kept.
func (s *Store) blockIdentity(k key) []byte { return k[len(s.opt.Prefix):] }

func (s *Store) receiptKey(tenant, id string) key { return s.key(tableReceipt).str(tenant).str(id) }

func (s *Store) leaderKey() key     { return s.key(tableLeader) }
func (s *Store) leaderBeatKey() key { return s.key(tableLeader).uint(1) }

// Sub-tables of H.
const (
	memberRows  = 0
	memberDrain = 1
)

func (s *Store) membersOf(sub uint64) key { return s.key(tableMember).uint(sub) }

func (s *Store) memberKey(sub uint64, node string) key { return s.membersOf(sub).str(node) }

func (s *Store) readMemberKey(k []byte) (node string, err error) {
	r := s.read(k, tableMember)
	r.uint()
	node = r.str()
	return node, r.end()
}

func (s *Store) signalKey(partition uint64) key { return s.key(tableSignal).uint(partition) }

func (s *Store) caseKey(c *ledger.Case) key {
	return s.key(tableCase).str(c.Key.Tenant).uint(uint64(c.Opened.UnixMilli())).str(c.Key.Order).str(c.Key.Benefit).uint(uint64(c.Attempt))
}

// outboxKey is an outbox pointer's key with room for the stamp, and the
// stamp's offset. The user version orders the pointers of one transaction.
func (s *Store) outboxKey(incarnation, partition uint64, user uint16) (k key, offset int) {
	k = append(s.key(tableOutbox).uint(incarnation).uint(partition), 0x33)
	offset = len(k)
	k = append(k, make([]byte, 10)...)
	return binary.BigEndian.AppendUint16(k, user), offset
}

// Expiry rows are named by the time they are due, a whole second.
func (s *Store) expiryKey(due int64, b ledger.BucketID, seq, n uint64) key {
	return s.key(tableExpiry).uint(slotOf(b)).uint(uint64(due)).bucket(b).uint(seq).uint(n)
}

// expiryDue is the range of the rows of a slot that are due by now.
func (s *Store) expiryDue(slot uint64, now time.Time) kv.Range {
	p := s.key(tableExpiry).uint(slot)
	end := append(append(key(nil), p...), key(nil).uint(uint64(max(0, now.Unix())))...)
	return kv.Range{Begin: p.all().Begin, End: end.all().End}
}

// dueAt is the whole second by which an expiry shall be found: the expiry
// rounded up to a grain that grows with the time to live, so that a batch
// needs few expiry rows and money returns within about a hundredth of its
// holding time.
func dueAt(now, expires time.Time) int64 {
	grain := int64(60)
	switch ttl := expires.Sub(now); {
	case ttl < 2*time.Minute:
		grain = 1
	case ttl < 15*time.Minute:
		grain = 5
	}
	sec := (expires.UnixMilli() + 999) / 1000
	return (sec + grain - 1) / grain * grain
}

func slotOf(b ledger.BucketID) uint64      { return bucketHash(b) % ExpirySlots }
func partitionOf(b ledger.BucketID) uint64 { return bucketHash(b) >> 32 % Partitions }

func bucketHash(b ledger.BucketID) uint64 {
	return ledger.Hash64(0, b.Budget.Tenant, b.Budget.Funder, b.Budget.Key, string([]byte{byte(b.Index >> 8), byte(b.Index)}))
}

// Allocations: of one benefit of an order, of one attempt (an empty refund id)
// and of one of its refunds.

func (s *Store) allocationsKey(k ledger.OrderKey) key {
	return s.key(tableAllocation).uint(uint64(byte(ledger.Hash64(0, k.Tenant, k.Order)))).str(k.Tenant).str(k.Order).str(k.Benefit)
}

func (s *Store) allocationKey(k ledger.OrderKey, attempt uint32, refund string) key {
	return s.allocationsKey(k).uint(uint64(attempt)).str(refund)
}

// allocationOf takes an allocation's key apart.
func (s *Store) allocationOf(b []byte) (k ledger.OrderKey, attempt uint32, refund string, err error) {
	r := s.read(b, tableAllocation)
	r.uint() // h(order)
	k = ledger.OrderKey{Tenant: r.str(), Order: r.str(), Benefit: r.str()}
	attempt, refund = uint32(r.uint()), r.str()
	return k, attempt, refund, r.end()
}

// keyReader takes a key apart again.
type keyReader struct {
	b      []byte
	err    error
	shared names // see dec
}

// read starts after the prefix and table name of k.
func (s *Store) read(k []byte, table string) keyReader {
	rest, ok := bytes.CutPrefix(k, s.opt.Prefix)
	r := keyReader{b: rest}
	if !ok || len(rest) == 0 || string(r.raw()) != table {
		return keyReader{err: errKey}
	}
	return r
}

func (r *keyReader) str() string  { return string(r.raw()) }
func (r *keyReader) name() string { return r.shared.of(r.raw()) }

// raw is the bytes of a string. They may be those of the key.
func (r *keyReader) raw() []byte {
	if r.err != nil || len(r.b) == 0 || r.b[0] != 0x02 {
		r.err = errKey
		return nil
	}
	if n := bytes.IndexByte(r.b, 0); n >= 0 && (n+1 == len(r.b) || r.b[n+1] != 0xFF) {
		out := r.b[1:n]
		r.b = r.b[n+1:]
		return out
	}
	return r.escaped()
}

// escaped reads a string that has zero bytes in it, or no end.
func (r *keyReader) escaped() []byte {
	var out []byte
	for i := 1; i < len(r.b); i++ {
		if r.b[i] != 0 {
			out = append(out, r.b[i])
			continue
		}
		if i+1 < len(r.b) && r.b[i+1] == 0xFF {
			out = append(out, 0)
			i++
			continue
		}
		r.b = r.b[i+1:]
		return out
	}
	r.err = errKey
	return nil
}

func (r *keyReader) uint() uint64 {
	if r.err != nil || len(r.b) == 0 || r.b[0] < 0x14 || r.b[0] > 0x1C || len(r.b) < 1+int(r.b[0]-0x14) {
		r.err = errKey
		return 0
	}
	n := int(r.b[0] - 0x14)
	var v uint64
	for _, c := range r.b[1 : 1+n] {
		v = v<<8 | uint64(c)
	}
	r.b = r.b[1+n:]
	return v
}

func (r *keyReader) budget() ledger.BudgetID {
	return ledger.BudgetID{Tenant: r.name(), Funder: r.name(), Key: r.name()}
}

func (r *keyReader) bucket() ledger.BucketID {
	b := ledger.BucketID{Budget: r.budget()}
	i := r.uint()
	if i > ledger.Unallocated {
		r.err = errKey
	}
	b.Index = uint16(i)
	return b
}

// end reports an error when the key was malformed or has more elements.
func (r *keyReader) end() error {
	if r.err == nil && len(r.b) != 0 {
		return errKey
	}
	return r.err
}
