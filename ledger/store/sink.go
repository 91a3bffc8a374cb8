package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Bounds of sinks.
const (
	// MaxSinks is the most sinks of one tenant, MaxAllSinks of a whole store.
	MaxSinks    = 16
	MaxAllSinks = 256
	// MaxSinkConfig bounds the configuration of a sink's driver, in bytes.
	MaxSinkConfig = 80 << 10
	// maxReason bounds a reason, and the last error of a sink.
	maxReason = 512
)

// SinkID names a sink of a tenant.
type SinkID struct{ Tenant, Name string }

func (id SinkID) String() string { return id.Tenant + "/" + id.Name }

// SinkState is what a sink does.
type SinkState uint8

// States of a sink. A paused one keeps its cursors, and what it has not got is
// not trimmed.
const (
	SinkRunning SinkState = iota + 1
	SinkPaused
)

func (s SinkState) String() string {
	switch s {
	case SinkRunning:
		return "RUNNING"
	case SinkPaused:
		return "PAUSED"
	}
	return ""
}

// Sink is a place to which a tenant's events are delivered.
type Sink struct {
	SinkID
	// Config is the driver's, in a form that the store does not read.
	Config []byte
	Filter event.Filter
	State  SinkState
	// Reason is why it was paused.
	Reason string
	// Version counts changes from 1.
	Version          uint64
	Created, Changed time.Time
}

// Cursor is how far a sink is in one partition.
type Cursor struct {
	// At: everything up to it was delivered, held back by the filter, parked or
	// skipped.
	At event.Position
	// Moves rises each time that a person moves the cursor. A sink that is made
	// again under a name begins above where the one before it ended, so that a
	// relay that still delivers to that one cannot move it.
	Moves uint64
	// Delivered counts events, Parked those that wait for a person.
	Delivered, Parked uint64
	// Trouble is what keeps the sink from going on, Since when it began.
	Trouble string
	Since   time.Time
}

// From says where a new or rewound sink begins. The zero value is the oldest
// event that is kept.
type From struct {
	// Now begins after what is there already.
	Now bool
	// Time begins with what was written then, as far as nodes' clocks agree.
	Time time.Time
	// Cursors begin after positions; partitions without one begin (or stay)
	// where the rest of From says.
	Cursors []event.Position
}

func sinkMissing(id SinkID) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.SinkNotFound, Field: "sink", Value: fmt.Sprintf("%.40q", id.Name), Message: "does not exist"}
}

// CreateSink adds a running sink. The same call again does nothing; one with
// another configuration or filter is a conflict.
func (s *Store) CreateSink(ctx context.Context, in Sink, from From) (out Sink, replayed bool, err error) {
	if r := checkSink(&in); r != nil {
		return out, false, r
	}
	start, err := s.startOf(ctx, from)
	if err != nil {
		return out, false, err
	}
	err = s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		old, err := s.sinkIn(in.SinkID, tx.Get(s.sinkKey(in.SinkID)))
		if err != nil {
			return err
		}
		if old != nil {
			if diff := sinkDiff(old, &in); len(diff) > 0 {
				return &ledger.Rejection{Code: ledger.IdempotencyConflict, Fields: diff, Message: fmt.Sprintf("sink %s exists with other values of %s", in.Name, strings.Join(diff, ", "))}
			}
			out, replayed = *old, !a.MayHaveCommitted
			return nil
		}
		if err := s.roomForSink(tx, in.Tenant); err != nil {
			return err
		}
		out, replayed = in, false
		out.State, out.Version, out.Reason = SinkRunning, 1, ""
		out.Created, out.Changed = s.now(), s.now()
		changes, _, err := tx.Snapshot().Get(s.sinkChangesKey()).Wait() // each move and each deletion before it counts there
		if err != nil {
			return err
		}
		for p := range uint64(Partitions) {
			if err := s.placeCursor(tx, in.SinkID, Cursor{At: start[p], Moves: uint64(decodeCount(changes))}); err != nil {
				return err
			}
		}
		s.putSink(tx, &out)
		return nil
	})
	return out, replayed, err
}

func checkSink(in *Sink) *ledger.Rejection {
	if r := ledger.CheckID("sink", in.Name); r != nil {
		return r
	}
	if n := len(in.Config); n > MaxSinkConfig {
		return &ledger.Rejection{Code: ledger.InvalidArgument, Field: "config", Value: fmt.Sprintf("%d bytes", n), Limit: fmt.Sprint(MaxSinkConfig), Message: "is too large"}
	}
	in.Filter.Tenant = in.Tenant
	return in.Filter.Validate()
}

// sinkDiff names what differs between two sinks of one name.
func sinkDiff(a, b *Sink) (diff []string) {
	if !bytes.Equal(a.Config, b.Config) {
		diff = append(diff, "config")
	}
	if !slices.Equal(a.Filter.Budgets, b.Filter.Budgets) {
		diff = append(diff, "budgets")
	}
	if !slices.Equal(a.Filter.Types, b.Filter.Types) {
		diff = append(diff, "types")
	}
	if a.Filter.Internal != b.Filter.Internal {
		diff = append(diff, "internal")
	}
	return diff
}

// roomForSink counts the sinks that there are.
func (s *Store) roomForSink(tx kv.Tx, tenant string) error {
	for _, c := range []struct {
		of    key
		limit int
		what  string
	}{{s.sinksOf(tenant), MaxSinks, "of one tenant"}, {s.key(tableSink).uint(sinkRows), MaxAllSinks, "in all"}} {
		rows, _, err := tx.Range(c.of.all(), kv.RangeOptions{Limit: c.limit}).Wait()
		if err != nil {
			return err
		}
		if len(rows) >= c.limit {
			return &ledger.Rejection{Code: ledger.SinkLimit, Field: "sink", Value: fmt.Sprint(len(rows) + 1), Limit: fmt.Sprintf("%d sinks %s", c.limit, c.what), Message: "would be one too many"}
		}
	}
	return nil
}

// startOf resolves where a sink begins, for each partition.
func (s *Store) startOf(ctx context.Context, from From) (start [Partitions]event.Position, err error) {
	for p := range uint64(Partitions) {
		switch {
		case from.Now:
			start[p], err = s.EndOfEvents(ctx, p)
		case !from.Time.IsZero():
			start[p], err = s.EventsAt(ctx, p, from.Time)
		default:
			start[p] = StartOfEvents(p)
		}
		if err != nil {
			return start, err
		}
	}
	for _, c := range from.Cursors {
		if c.Partition >= Partitions {
			return start, badCursor(c, fmt.Sprintf("names a partition that is not there (allowed: 0 to %d)", Partitions-1))
		}
		start[c.Partition] = c
	}
	return start, nil
}

// placeCursor writes a cursor that a person chose, checked against what is kept
// in the same transaction: a trim that comes at the same moment makes one of the
// two fail.
func (s *Store) placeCursor(tx kv.Tx, id SinkID, c Cursor) error {
	if _, _, err := s.checkCursor(tx, tx, c.At); err != nil {
		return err
	}
	tx.Set(s.cursorKey(id, c.At.Partition), encodeCursor(&c))
	return nil
}

// putSink writes a sink and tells the relays.
func (s *Store) putSink(tx kv.Tx, sink *Sink) {
	tx.Set(s.sinkKey(sink.SinkID), encodeSink(sink))
	tx.Add(s.sinkChangesKey(), one)
}

// sinkIn decodes a sink's row, nil where there is none.
func (s *Store) sinkIn(id SinkID, v kv.Value) (*Sink, error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return nil, err
	}
	sink, err := decodeSink(id, raw)
	if err != nil {
		return nil, corrupt("sink "+id.String(), err)
	}
	return sink, nil
}

// Sink reads one sink.
func (s *Store) Sink(ctx context.Context, id SinkID) (out Sink, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		sink, err := s.sinkIn(id, r.Get(s.sinkKey(id)))
		if err != nil {
			return err
		}
		if sink == nil {
			return sinkMissing(id)
		}
		out = *sink
		return nil
	})
	return out, err
}

// Sinks lists a tenant's sinks by name; those of all tenants when it is "".
// There are at most MaxAllSinks.
func (s *Store) Sinks(ctx context.Context, tenant string) (sinks []Sink, err error) {
	of := s.key(tableSink).uint(sinkRows)
	if tenant != "" {
		of = s.sinksOf(tenant)
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		sinks = nil
		rows, _, err := r.Range(of.all(), kv.RangeOptions{Limit: MaxAllSinks}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			id, err := s.readSinkKey(row.Key)
			if err != nil {
				return corrupt("sink key", err)
			}
			sink, err := decodeSink(id, row.Value)
			if err != nil {
				return corrupt("sink "+id.String(), err)
			}
			sinks = append(sinks, *sink)
		}
		return nil
	})
	return sinks, err
}

// ChangeSink changes a sink's configuration, filter, state or reason; change
// works on a copy. version is the one that the change is based on, 0 for any.
func (s *Store) ChangeSink(ctx context.Context, id SinkID, version uint64, change func(*Sink)) (out Sink, err error) {
	err = s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		sink, err := s.sinkIn(id, tx.Get(s.sinkKey(id)))
		if err != nil {
			return err
		}
		if sink == nil {
			return sinkMissing(id)
		}
		out = *sink
		change(&out)
		out.SinkID, out.Version, out.Reason = id, sink.Version, clip(out.Reason, maxReason)
		if out.State == sink.State && out.Reason == sink.Reason && len(sinkDiff(sink, &out)) == 0 {
			return nil // as it is already
		}
		if version != 0 && version != sink.Version {
			return &ledger.Rejection{Code: ledger.SinkChanged, Field: "version", Value: fmt.Sprint(version), Limit: fmt.Sprint(sink.Version), Message: "is not the sink's current one"}
		}
		if r := checkSink(&out); r != nil {
			return r
		}
		out.Version, out.Changed = sink.Version+1, s.now()
		s.putSink(tx, &out)
		return nil
	})
	return out, err
}

// DeleteSink removes a sink with its cursors and what it has parked.
func (s *Store) DeleteSink(ctx context.Context, id SinkID) error {
	return s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		sink, err := s.sinkIn(id, tx.Get(s.sinkKey(id)))
		if err != nil {
			return err
		}
		if sink == nil {
			if a.MayHaveCommitted {
				return nil
			}
			return sinkMissing(id)
		}
		tx.Clear(s.sinkKey(id))
		for p := range uint64(Partitions) {
			tx.Clear(s.cursorKey(id, p))
		}
		tx.ClearRange(s.parkedOf(id).all())
		tx.Add(s.sinkChangesKey(), one)
		return nil
	})
}

// RewindSink moves a sink's cursors, back or forth. With from.Cursors alone,
// other partitions stay where they are. What is parked stays parked.
func (s *Store) RewindSink(ctx context.Context, id SinkID, from From) error {
	start, err := s.startOf(ctx, from)
	if err != nil {
		return err
	}
	only := map[uint64]bool{}
	if len(from.Cursors) > 0 && !from.Now && from.Time.IsZero() {
		for _, c := range from.Cursors {
			only[c.Partition] = true
		}
	}
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		for p := range uint64(Partitions) {
			if len(only) > 0 && !only[p] {
				continue
			}
			c, ok, err := s.cursorIn(id, p, tx.Get(s.cursorKey(id, p)))
			if err != nil {
				return err
			}
			if !ok {
				return sinkMissing(id)
			}
			c.At, c.Moves = start[p], c.Moves+1
			if err := s.placeCursor(tx, id, c); err != nil {
				return err
			}
		}
		tx.Add(s.sinkChangesKey(), one)
		return nil
	})
}

// clip bounds a text from outside that is kept.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
