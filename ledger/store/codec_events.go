package store

import (
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// position writes a position without its partition, which is in the key.
func (e *enc) position(p event.Position) {
	e.u(p.Incarnation)
	*e = append(*e, p.Stamp[:]...)
	e.u(uint64(p.Index))
}

func (d *dec) position(partition uint64) event.Position {
	p := event.Position{Incarnation: d.u(), Partition: partition}
	copy(p.Stamp[:], d.take(event.StampSize))
	p.Index = uint32(d.max(wholeBlock))
	return p
}

func encodeSink(s *Sink) []byte {
	var e enc
	e.u(codecVersion)
	e.u(uint64(s.State))
	e.u(s.Version)
	e.time(s.Created)
	e.time(s.Changed)
	e.str(s.Reason)
	e.raw(s.Config)
	e.u(uint64(len(s.Filter.Budgets)))
	for _, b := range s.Filter.Budgets {
		e.str(b.Funder)
		e.str(b.Key)
	}
	e.u(uint64(len(s.Filter.Types)))
	for _, t := range s.Filter.Types {
		e.str(t)
	}
	e.flag(s.Filter.Internal)
	return e
}

func decodeSink(id SinkID, v []byte) (*Sink, error) {
	d := newDec(v)
	s := &Sink{SinkID: id, State: SinkState(d.max(uint64(SinkPaused)))}
	if s.State == 0 {
		d.fail(errValue)
	}
	s.Version = d.u()
	s.Created, s.Changed = d.time(), d.time()
	s.Reason, s.Config = d.str(), d.raw()
	s.Filter.Tenant = id.Tenant
	for range d.max(event.MaxFilterBudgets) {
		s.Filter.Budgets = append(s.Filter.Budgets, ledger.BudgetID{Tenant: id.Tenant, Funder: d.str(), Key: d.str()})
	}
	for range d.max(event.MaxFilterTypes) {
		s.Filter.Types = append(s.Filter.Types, d.str())
	}
	s.Filter.Internal = d.flag()
	return s, d.end()
}

func encodeCursor(c *Cursor) []byte {
	var e enc
	e.u(codecVersion)
	e.position(c.At)
	e.u(c.Moves)
	e.u(c.Delivered)
	e.u(c.Parked)
	e.str(c.Trouble)
	e.time(c.Since)
	return e
}

func decodeCursor(partition uint64, v []byte) (c Cursor, err error) {
	d := newDec(v)
	c.At = d.position(partition)
	c.Moves, c.Delivered, c.Parked = d.u(), d.u(), d.u()
	c.Trouble, c.Since = d.str(), d.time()
	return c, d.end()
}

func encodeRelayLease(l *RelayLease) []byte {
	var e enc
	e.u(codecVersion)
	e.str(l.Token)
	e.str(l.Node)
	e.u(l.Epoch)
	e.u(l.Beat)
	return e
}

func decodeRelayLease(partition uint64, v []byte) (RelayLease, error) {
	d := newDec(v)
	l := RelayLease{Partition: partition, Token: d.str(), Node: d.str(), Epoch: d.u(), Beat: d.u()}
	return l, d.end()
}

func encodeRelayMember(m *RelayMember) []byte {
	var e enc
	e.u(codecVersion)
	e.str(m.Node)
	e.u(m.Beat)
	return e
}

func decodeRelayMember(token string, v []byte) (RelayMember, error) {
	d := newDec(v)
	m := RelayMember{Token: token, Node: d.str(), Beat: d.u()}
	return m, d.end()
}

func encodeParkedKey(k *ParkedKey) []byte {
	var e enc
	e.u(codecVersion)
	e.time(k.Since)
	e.str(k.Reason)
	e.u(uint64(k.Tries))
	e.u(k.Events)
	return e
}

func decodeParkedKey(partition uint64, name string, v []byte) (k ParkedKey, err error) {
	d := newDec(v)
	k = ParkedKey{Partition: partition, Key: name, Since: d.time(), Reason: d.str()}
	k.Tries = uint32(d.max(1<<32 - 1))
	k.Events = d.u()
	return k, d.end()
}

// A parked event keeps the block it is in, so that it can be read after its
// pointer was trimmed.
func encodeParkedEvent(b ledger.BucketID, first uint64) []byte { return encodePointer(b, first) }

func encodeSkip(s *SkippedEvent) []byte {
	e := enc(encodePointer(s.bucket, s.first))
	e.str(s.Key)
	e.str(s.Reason)
	e.time(s.Time)
	return e
}

func decodeSkip(at event.Position, v []byte) (s SkippedEvent, err error) {
	d := newDec(v)
	tenant := d.str()
	s = SkippedEvent{At: at, bucket: d.place(tenant), first: d.u()}
	s.Key, s.Reason, s.Time = d.str(), d.str(), d.time()
	return s, d.end()
}

// encodeTrimmed is up to where a partition's pointers were trimmed.
func encodeTrimmed(p event.Position) []byte {
	var e enc
	e.u(codecVersion)
	e.position(p)
	return e
}

// trimMark is up to where a partition's pointers were trimmed; zero for none.
func (s *Store) trimMark(v kv.Value, partition uint64) (event.Position, error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return event.Position{}, err
	}
	d := newDec(raw)
	p := d.position(partition)
	if err := d.end(); err != nil {
		return event.Position{}, corrupt(fmt.Sprintf("trim mark of partition %d", partition), err)
	}
	return p, nil
}
