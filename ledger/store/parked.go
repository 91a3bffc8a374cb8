package store

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// MaxParkedPage bounds the parked events that are read or removed at once.
const MaxParkedPage = 256

// ParkedKey is a key whose events wait for a person.
type ParkedKey struct {
	Partition uint64
	Key       string
	// Since when, why, and after how many tries.
	Since  time.Time
	Reason string
	Tries  uint32
	// Events that wait, the refused one among them.
	Events uint64
	// Retrying: a person said to try again, and no relay has done so yet.
	Retrying bool
}

// SkippedEvent is an event that a person decided not to deliver.
type SkippedEvent struct {
	At          event.Position
	Key, Reason string
	Time        time.Time

	bucket ledger.BucketID
	first  uint64
}

func parkedMissing(k string) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.ParkedNotFound, Field: "key", Value: fmt.Sprintf("%.80q", k), Message: "is not parked"}
}

// ParkedKeys lists a sink's parked keys, partition by partition.
func (s *Store) ParkedKeys(ctx context.Context, id SinkID, p Page) (keys []ParkedKey, next string, err error) {
	list := "parked/" + id.Tenant + "\x00" + id.Name
	from, size, err := s.open(p, list, s.parkedOf(id).uint(parkedKeys).all())
	if err != nil {
		return nil, "", err
	}
	if _, err := s.Sink(ctx, id); err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		keys, next = nil, ""
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: size}).Wait()
		if err != nil {
			return err
		}
		marks := make([]kv.Value, len(rows))
		for i, row := range rows {
			partition, name, err := s.readParkedKey(row.Key)
			if err != nil {
				return corrupt("parked key", err)
			}
			k, err := decodeParkedKey(partition, name, row.Value)
			if err != nil {
				return corrupt("parked key", err)
			}
			marks[i] = r.Get(s.retryKey(id, partition, name))
			keys = append(keys, k)
		}
		for i := range marks {
			if _, keys[i].Retrying, err = marks[i].Wait(); err != nil {
				return err
			}
		}
		if more {
			next = s.token(list, rows[len(rows)-1].Key)
		}
		return nil
	})
	return keys, next, err
}

// ParkedNames reads the names of the keys that a sink has parked in a partition.
func (s *Store) ParkedNames(ctx context.Context, id SinkID, partition uint64) (names map[string]bool, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		names = map[string]bool{}
		rows, _, err := r.Range(s.parkedKeysOf(id, partition).all(), kv.RangeOptions{Limit: MaxParked}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			_, name, err := s.readParkedKey(row.Key)
			if err != nil {
				return corrupt("parked key", err)
			}
			names[name] = true
		}
		return nil
	})
	return names, err
}

// ParkedEvents reads a parked key and the first of its events, in the order in
// which they are to be delivered.
func (s *Store) ParkedEvents(ctx context.Context, id SinkID, partition uint64, name string, limit int) (k ParkedKey, events []*event.Event, err error) {
	limit = min(max(limit, 1), MaxParkedPage)
	err = s.readTx(ctx, func(r kv.Reader) error {
		events = nil
		var ok bool
		if k, ok, err = s.parkedKeyIn(r.Get(s.parkedKeyRow(id, partition, name)), partition, name); err != nil {
			return err
		}
		if !ok {
			return parkedMissing(name)
		}
		if _, k.Retrying, err = r.Get(s.retryKey(id, partition, name)).Wait(); err != nil {
			return err
		}
		rows, _, err := r.Range(s.parkedEventsOf(id, partition, name).all(), kv.RangeOptions{Limit: limit}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			e, err := s.parkedEvent(r, row)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		return nil
	})
	return k, events, err
}

// parkedEvent reads the event that a parked row names.
func (s *Store) parkedEvent(r kv.Reader, row kv.KeyValue) (*event.Event, error) {
	_, at, err := s.readParkedEvent(row.Key)
	if err != nil {
		return nil, corrupt("parked event key", err)
	}
	bucket, first, err := decodePointer(row.Value)
	if err != nil {
		return nil, corrupt("parked event", err)
	}
	all, err := s.eventsOf(r, &pointer{at: at, bucket: bucket, first: first}, r.Get(s.blockKey(bucket, first)))
	if err != nil {
		return nil, err
	}
	if int(at.Index) >= len(all) {
		return nil, corrupt("parked event", fmt.Errorf("its block has %d entries, it is number %d", len(all), at.Index))
	}
	return all[at.Index], nil
}

// ParkedIn finds the partitions in which a sink has a key parked: one, or more
// where an order's attempts were made on different budgets.
func (s *Store) ParkedIn(ctx context.Context, id SinkID, name string) (partitions []uint64, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		partitions = nil
		var rows [Partitions]kv.Value
		for p := range rows {
			rows[p] = r.Get(s.parkedKeyRow(id, uint64(p), name))
		}
		for p, v := range rows {
			_, ok, err := v.Wait()
			if err != nil {
				return err
			}
			if ok {
				partitions = append(partitions, uint64(p))
			}
		}
		if len(partitions) == 0 {
			return parkedMissing(name)
		}
		return nil
	})
	return partitions, err
}

// RetryParked asks the relays to deliver a parked key's events again.
func (s *Store) RetryParked(ctx context.Context, id SinkID, partition uint64, name string) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		_, ok, err := s.parkedKeyIn(tx.Get(s.parkedKeyRow(id, partition, name)), partition, name)
		if err != nil {
			return err
		}
		if !ok {
			return parkedMissing(name)
		}
		tx.Add(s.retryKey(id, partition, name), one)
		tx.Add(s.sinkChangesKey(), one)
		return nil
	})
}

// Retry is a parked key that is to be tried again. Asked counts how often that
// was said: who asks while a try is under way asks for another one.
type Retry struct {
	Key   string
	Asked uint64
}

// ParkedRetries lists up to limit parked keys of a partition that are to be tried
// again.
func (s *Store) ParkedRetries(ctx context.Context, id SinkID, partition uint64, limit int) (retries []Retry, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		retries = nil
		rows, _, err := r.Range(s.retriesOf(id, partition).all(), kv.RangeOptions{Limit: limit}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			name, err := s.readRetryKey(row.Key)
			if err != nil {
				return corrupt("retry key", err)
			}
			retries = append(retries, Retry{Key: name, Asked: uint64(decodeCount(row.Value))})
		}
		return nil
	})
	return retries, err
}

// SkipParked gives up the first event of a parked key, or with all up to
// MaxParkedPage of them, and keeps a record with the reason. What waits behind
// is tried again.
func (s *Store) SkipParked(ctx context.Context, id SinkID, partition uint64, name, reason string, all bool) (skipped []event.Position, err error) {
	limit := 1
	if all {
		limit = MaxParkedPage
	}
	return s.skipParked(ctx, id, partition, name, reason, limit, nil)
}

// SkipEvent gives up the first event of a parked key if it is the one named.
// Of one that was skipped before it changes nothing.
func (s *Store) SkipEvent(ctx context.Context, id SinkID, name, reason string, at event.Position) error {
	_, err := s.skipParked(ctx, id, at.Partition, name, reason, 1, &at)
	return err
}

// skipParked skips the first events of a key, up to limit; want, where it is not
// nil, is what the first of them must be.
func (s *Store) skipParked(
	ctx context.Context, id SinkID, partition uint64, name, reason string, limit int, want *event.Position,
) (skipped []event.Position, err error) {
	err = s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		if a.MayHaveCommitted {
			if done, err := s.haveSkipped(tx, id, name, skipped); err != nil || done {
				return err
			}
		}
		skipped = nil
		if want != nil {
			if done, err := s.skippedBefore(tx, id, name, *want); err != nil || done {
				return err
			}
		}
		k, ok, err := s.parkedKeyIn(tx.Get(s.parkedKeyRow(id, partition, name)), partition, name)
		if err != nil {
			return err
		}
		if !ok {
			return parkedMissing(name)
		}
		rows, _, err := tx.Range(s.parkedEventsOf(id, partition, name).all(), kv.RangeOptions{Limit: limit}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			_, at, err := s.readParkedEvent(row.Key)
			if err != nil {
				return corrupt("parked event key", err)
			}
			if want != nil && at != *want {
				return &ledger.Rejection{
					Code: ledger.ParkedNotFound, Field: "event_id", Value: want.String(), Limit: at.String(),
					Message: "is not the first event that waits for the key",
				}
			}
			bucket, first, err := decodePointer(row.Value)
			if err != nil {
				return corrupt("parked event", err)
			}
			sk := SkippedEvent{At: at, Key: name, Reason: clip(reason, maxReason), Time: s.now(), bucket: bucket, first: first}
			tx.Set(s.skipKey(id, at), encodeSkip(&sk))
			skipped = append(skipped, at)
		}
		n, err := s.unpark(tx, id, &k, skipped)
		if err != nil {
			return err
		}
		if k.Events > 0 {
			tx.Add(s.retryKey(id, partition, name), one)
		}
		tx.Add(s.sinkChangesKey(), one)
		return s.putParked(tx, id, &k, n, 0)
	})
	return skipped, err
}

// skippedBefore reports whether there is a record of an event's skip.
func (s *Store) skippedBefore(tx kv.Tx, id SinkID, name string, at event.Position) (bool, error) {
	v, ok, err := tx.Get(s.skipKey(id, at)).Wait()
	if err != nil || !ok {
		return false, err
	}
	sk, err := decodeSkip(at, v)
	if err != nil {
		return false, corrupt("skipped event", err)
	}
	return sk.Key == name, nil
}

// haveSkipped reports whether an earlier attempt did skip the events, all in one
// transaction: the first is no longer parked, and there is a record of it.
func (s *Store) haveSkipped(tx kv.Tx, id SinkID, name string, events []event.Position) (bool, error) {
	if len(events) == 0 {
		return false, nil
	}
	_, parked, err := tx.Get(s.parkedEventKey(id, name, events[0])).Wait()
	if err != nil || parked {
		return false, err
	}
	_, done, err := tx.Get(s.skipKey(id, events[0])).Wait()
	return done, err
}

// Skipped lists the events of a sink that were skipped.
func (s *Store) Skipped(ctx context.Context, id SinkID, p Page) (out []SkippedEvent, next string, err error) {
	list := "skipped/" + id.Tenant + "\x00" + id.Name
	from, size, err := s.open(p, list, s.skipsOf(id).all())
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		out, next = nil, ""
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: size}).Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			at, err := s.readSkipKey(row.Key)
			if err != nil {
				return corrupt("skipped event key", err)
			}
			sk, err := decodeSkip(at, row.Value)
			if err != nil {
				return corrupt("skipped event", err)
			}
			out = append(out, sk)
		}
		if more {
			next = s.token(list, rows[len(rows)-1].Key)
		}
		return nil
	})
	return out, next, err
}
