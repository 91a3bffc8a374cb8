package store

import (
	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// The tables of event delivery; the outbox itself is in keys.go:
//
//	Y, 0                                        counts changes of sinks, for watches
//	Y, 1, tenant, sink                          sink
//	P, partition, tenant, sink                  a sink's cursor in a partition
//	T, 0, partition                             lease of a relay on a partition
//	T, 1, token                                 a relay that lives
//	T, 2, partition                             trimmed: up to which pointer
//	T, 3, tenant, funder, key, bucket           trimmed: up to which block of a bucket
//	Z, tenant, sink, 0, partition, key                             parked key
//	Z, tenant, sink, 1, partition, key, incarnation, stamp, index  event of a parked key
//	Z, tenant, sink, 2, partition, key                             parked key to be tried again
//	Z, tenant, sink, 3, partition, incarnation, stamp, index       event that was skipped
const (
	tableSink   = "Y"
	tableCursor = "P"
	tableRelay  = "T"
	tableParked = "Z"
)

// Sub-tables of Y, T and Z.
const (
	sinkChanges  = 0
	sinkRows     = 1
	relayLeases  = 0
	relayMembers = 1
	trimmedTo    = 2
	trimmedBlock = 3
	parkedKeys   = 0
	parkedEvents = 1
	parkedRetry  = 2
	parkedSkips  = 3
)

const stampCode = 0x33 // the tuple layer's type code of a versionstamp

func (k key) stamp(s [event.StampSize]byte) key { return append(append(k, stampCode), s[:]...) }

func (r *keyReader) stamp() (s [event.StampSize]byte) {
	if r.err != nil || len(r.b) < 1+event.StampSize || r.b[0] != stampCode {
		r.err = errKey
		return s
	}
	copy(s[:], r.b[1:])
	r.b = r.b[1+event.StampSize:]
	return s
}

// is reads a sub-table's number and checks it.
func (r *keyReader) is(n uint64) {
	if r.uint() != n && r.err == nil {
		r.err = errKey
	}
}

// pointersOf is the range of a partition's pointers of one incarnation.
func (s *Store) pointersOf(incarnation, partition uint64) key {
	return s.key(tableOutbox).uint(incarnation).uint(partition)
}

// pointersFrom is the range of a partition's pointers of the position's
// incarnation, from the one at the position on.
func (s *Store) pointersFrom(p event.Position) kv.Range {
	of := s.pointersOf(p.Incarnation, p.Partition)
	return kv.Range{Begin: append(append(key(nil), of...), key(nil).stamp(p.Stamp)...), End: of.all().End}
}

// readPointerKey gives the place of a pointer; its index is 0.
func (s *Store) readPointerKey(k []byte) (event.Position, error) {
	r := s.read(k, tableOutbox)
	p := event.Position{Incarnation: r.uint(), Partition: r.uint(), Stamp: r.stamp()}
	return p, r.end()
}

func (s *Store) sinkChangesKey() key { return s.key(tableSink).uint(sinkChanges) }

func (s *Store) sinksOf(tenant string) key { return s.key(tableSink).uint(sinkRows).str(tenant) }

func (s *Store) sinkKey(id SinkID) key { return s.sinksOf(id.Tenant).str(id.Name) }

func (s *Store) readSinkKey(k []byte) (SinkID, error) {
	r := s.read(k, tableSink)
	r.is(sinkRows)
	id := SinkID{Tenant: r.str(), Name: r.str()}
	return id, r.end()
}

func (s *Store) cursorsOf(partition uint64) key { return s.key(tableCursor).uint(partition) }

func (s *Store) cursorKey(id SinkID, partition uint64) key {
	return s.cursorsOf(partition).str(id.Tenant).str(id.Name)
}

func (s *Store) readCursorKey(k []byte) (id SinkID, partition uint64, err error) {
	r := s.read(k, tableCursor)
	partition = r.uint()
	id = SinkID{Tenant: r.str(), Name: r.str()}
	return id, partition, r.end()
}

func (s *Store) relayLeaseKey(partition uint64) key {
	return s.key(tableRelay).uint(relayLeases).uint(partition)
}

func (s *Store) relayMembersAll() key { return s.key(tableRelay).uint(relayMembers) }

func (s *Store) relayMemberKey(token string) key { return s.relayMembersAll().str(token) }

func (s *Store) readRelayMemberKey(k []byte) (token string, err error) {
	r := s.read(k, tableRelay)
	r.is(relayMembers)
	token = r.str()
	return token, r.end()
}

func (s *Store) trimmedKey(partition uint64) key {
	return s.key(tableRelay).uint(trimmedTo).uint(partition)
}

func (s *Store) trimmedBlocksAll() key { return s.key(tableRelay).uint(trimmedBlock) }

func (s *Store) trimmedBlockKey(b ledger.BucketID) key { return s.trimmedBlocksAll().bucket(b) }

func (s *Store) readTrimmedBlockKey(k []byte) (ledger.BucketID, error) {
	r := s.read(k, tableRelay)
	r.is(trimmedBlock)
	b := r.bucket()
	return b, r.end()
}

// Parked events of a sink.

func (s *Store) parkedOf(id SinkID) key { return s.key(tableParked).str(id.Tenant).str(id.Name) }

func (s *Store) parkedKeysOf(id SinkID, partition uint64) key {
	return s.parkedOf(id).uint(parkedKeys).uint(partition)
}

func (s *Store) parkedKeyRow(id SinkID, partition uint64, k string) key {
	return s.parkedKeysOf(id, partition).str(k)
}

func (s *Store) readParkedKey(k []byte) (partition uint64, name string, err error) {
	r := s.read(k, tableParked)
	_, _ = r.str(), r.str() // tenant and sink
	r.is(parkedKeys)
	partition, name = r.uint(), r.str()
	return partition, name, r.end()
}

func (s *Store) parkedEventsOf(id SinkID, partition uint64, k string) key {
	return s.parkedOf(id).uint(parkedEvents).uint(partition).str(k)
}

func (s *Store) parkedEventKey(id SinkID, k string, at event.Position) key {
	return s.parkedEventsOf(id, at.Partition, k).uint(at.Incarnation).stamp(at.Stamp).uint(uint64(at.Index))
}

func (s *Store) readParkedEvent(k []byte) (name string, at event.Position, err error) {
	r := s.read(k, tableParked)
	_, _ = r.str(), r.str()
	r.is(parkedEvents)
	at.Partition, name = r.uint(), r.str()
	at.Incarnation, at.Stamp = r.uint(), r.stamp()
	at.Index = uint32(r.uint())
	return name, at, r.end()
}

func (s *Store) retriesOf(id SinkID, partition uint64) key {
	return s.parkedOf(id).uint(parkedRetry).uint(partition)
}

func (s *Store) retryKey(id SinkID, partition uint64, k string) key {
	return s.retriesOf(id, partition).str(k)
}

func (s *Store) readRetryKey(k []byte) (name string, err error) {
	r := s.read(k, tableParked)
	_, _ = r.str(), r.str()
	r.is(parkedRetry)
	r.uint() // partition
	name = r.str()
	return name, r.end()
}

func (s *Store) skipsOf(id SinkID) key { return s.parkedOf(id).uint(parkedSkips) }

func (s *Store) skipKey(id SinkID, at event.Position) key {
	return s.skipsOf(id).uint(at.Partition).uint(at.Incarnation).stamp(at.Stamp).uint(uint64(at.Index))
}

func (s *Store) readSkipKey(k []byte) (at event.Position, err error) {
	r := s.read(k, tableParked)
	_, _ = r.str(), r.str()
	r.is(parkedSkips)
	at.Partition, at.Incarnation, at.Stamp = r.uint(), r.uint(), r.stamp()
	at.Index = uint32(r.uint())
	return at, r.end()
}
