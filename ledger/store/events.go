package store

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

const (
	// MaxEventBlocks bounds the pointers, and so the blocks, that one page of
	// events looks at.
	MaxEventBlocks = 64
	// blocksAtOnce is how many blocks are read together, and enoughEvents how many
	// events end a page after such a read.
	blocksAtOnce = 8
	enoughEvents = 1024
	// wholeBlock is the index of a cursor that has all events of its block.
	wholeBlock = math.MaxUint32
	// maxIncarnations bounds how many incarnations one read goes through; the
	// next one goes on.
	maxIncarnations = 16
	// maxCurrencies bounds the budgets whose currency is kept in memory.
	maxCurrencies = 1 << 14
)

// EventPage is a part of a partition's events, in their order.
type EventPage struct {
	// Events that the filter lets through.
	Events []*event.Event
	// Next is the cursor to go on from: past everything that was looked at,
	// also what the filter held back. Where there was nothing it is where the
	// page began, and at the beginning what was trimmed last.
	Next event.Position
	// More says that there is more after Next already.
	More bool
}

// ReadEvents reads what comes after a cursor in its partition. A cursor is the
// position of an event, or what Next was, StartOfEvents or EndOfEvents gave; the
// zero stamp of incarnation 0 is the oldest event that is kept.
//
// The pointers of an older incarnation come first, all of them, then those of
// the next. EVENTS_TRIMMED says that events after the cursor are no longer kept;
// BAD_CURSOR that this store never gave it, as when an older copy of the store
// was put in place and its incarnation not raised.
func (s *Store) ReadEvents(ctx context.Context, after event.Position, f *event.Filter, blocks int) (EventPage, error) {
	var page EventPage
	blocks = min(max(blocks, 1), MaxEventBlocks)
	if after.Partition >= Partitions {
		return page, badCursor(after, fmt.Sprintf("names a partition that is not there (allowed: 0 to %d)", Partitions-1))
	}
	err := s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		r := tx.Snapshot()
		current, from, err := s.checkCursor(tx, r, after)
		if err != nil {
			return err
		}
		page = EventPage{Next: from}
		pointers, err := s.pointersAfter(r, &page, current, blocks)
		if err != nil {
			return err
		}
		return s.resolve(r, pointers, after, f, &page)
	})
	return page, err
}

func badCursor(p event.Position, msg string) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.BadCursor, Field: "cursor", Value: p.String(), Message: msg}
}

// checkCursor refuses a cursor that is not of this store's history, or that is
// behind what is kept. It gives the store's incarnation and where to read on from:
// the cursor, and for the beginning what was trimmed last.
func (s *Store) checkCursor(tx kv.Tx, r kv.Reader, p event.Position) (current uint64, from event.Position, err error) {
	inc, mark := r.Get(s.metaKey(metaIncarnation)), r.Get(s.trimmedKey(p.Partition))
	raw, ok, err := inc.Wait()
	if err != nil {
		return 0, p, err
	}
	if !ok {
		return 0, p, corrupt("incarnation", ErrNoLedger)
	}
	if current, err = metaNumber(metaIncarnation, raw); err != nil {
		return 0, p, corrupt("incarnation", err)
	}
	if p.Incarnation > current {
		return 0, p, badCursor(p, fmt.Sprintf("is of incarnation %d; the store has %d", p.Incarnation, current))
	}
	if p.Incarnation == current {
		v, err := tx.ReadVersion()
		if err != nil {
			return 0, p, err
		}
		if kv.Stamp(p.Stamp).Version() > v {
			return 0, p, badCursor(p, "is ahead of everything in the store; was an older copy put in place without raising the incarnation?")
		}
	}
	to, err := s.trimMark(mark, p.Partition)
	if err != nil {
		return 0, p, err
	}
	if p.Incarnation > 0 && sameOrder(p).Before(to) {
		return 0, p, &ledger.Rejection{
			Code: ledger.EventsTrimmed, Field: "cursor", Value: p.String(), Limit: "after " + to.String(),
			Message: "is behind the oldest event that is kept",
		}
	}
	if p.Incarnation == 0 && !to.IsZero() {
		return current, to, nil
	}
	return current, p, nil
}

// sameOrder is the position as one that stands for its whole block.
func sameOrder(p event.Position) event.Position {
	p.Index = wholeBlock
	return p
}

// pointer is an outbox pointer: where it stands and which block it names.
type pointer struct {
	at     event.Position
	bucket ledger.BucketID
	first  uint64
}

// pointersAfter reads the next pointers, those of one incarnation, and moves the
// page's cursor past them. Where there are none left in an incarnation that is
// over it goes on to the next: every commit reads the incarnation, so at this
// read version an older one has no more to come.
func (s *Store) pointersAfter(r kv.Reader, page *EventPage, current uint64, limit int) ([]pointer, error) {
	for range maxIncarnations {
		from := s.pointersFrom(page.Next)
		if page.Next.Index == wholeBlock {
			from.Begin = append(from.Begin, 0)
		}
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: limit}).Wait()
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			out := make([]pointer, len(rows))
			for i, row := range rows {
				if out[i], err = s.decodePointerRow(row); err != nil {
					return nil, err
				}
			}
			page.Next = sameOrder(out[len(out)-1].at)
			page.More = more || page.Next.Incarnation < current
			return out, nil
		}
		if page.Next.Incarnation >= current {
			return nil, nil
		}
		next, ok, err := s.nextIncarnation(r, page.Next.Incarnation+1, page.Next.Partition)
		if err != nil {
			return nil, err
		}
		if !ok {
			next = current
		}
		page.Next = event.Position{Incarnation: next, Partition: page.Next.Partition}
	}
	page.More = true
	return nil, nil
}

// nextIncarnation finds the first incarnation from one on in which a partition
// has pointers.
func (s *Store) nextIncarnation(r kv.Reader, from, partition uint64) (inc uint64, ok bool, err error) {
	all := s.key(tableOutbox).all()
	for range maxIncarnations {
		rng := kv.Range{Begin: s.pointersOf(from, partition), End: all.End}
		rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
		if err != nil || len(rows) == 0 {
			return 0, false, err
		}
		at, err := s.readPointerKey(rows[0].Key)
		if err != nil {
			return 0, false, corrupt("outbox key", err)
		}
		switch {
		case at.Partition == partition:
			return at.Incarnation, true, nil
		case at.Partition > partition:
			from = at.Incarnation + 1
		default:
			from = at.Incarnation
		}
	}
	return from, true, nil // not there yet; who reads from it goes on
}

func (s *Store) decodePointerRow(row kv.KeyValue) (p pointer, err error) {
	if p.at, err = s.readPointerKey(row.Key); err != nil {
		return p, corrupt("outbox key", err)
	}
	if p.bucket, p.first, err = decodePointer(row.Value); err != nil {
		return p, corrupt("outbox pointer", err)
	}
	return p, nil
}

// resolve reads the blocks that the filter may want, some at once, and makes
// events of their entries. The page ends early where there are many.
func (s *Store) resolve(r kv.Reader, pointers []pointer, after event.Position, f *event.Filter, page *EventPage) error {
	for len(pointers) > 0 {
		n := min(len(pointers), blocksAtOnce)
		blocks := make([]kv.Value, n)
		for i := range blocks {
			if f.WantsBucket(pointers[i].bucket) {
				blocks[i] = r.Get(s.blockKey(pointers[i].bucket, pointers[i].first))
			}
		}
		for i, v := range blocks {
			if v == nil {
				continue
			}
			events, err := s.eventsOf(r, &pointers[i], v)
			if err != nil {
				return err
			}
			for _, e := range events {
				if e.At.Stamp == after.Stamp && e.At.Incarnation == after.Incarnation && e.At.Index <= after.Index {
					continue
				}
				if f.Wants(e) {
					page.Events = append(page.Events, e)
				}
			}
		}
		last := pointers[n-1].at
		if pointers = pointers[n:]; len(pointers) > 0 && len(page.Events) >= enoughEvents {
			page.Next, page.More = sameOrder(last), true
			return nil
		}
	}
	return nil
}

// eventsOf makes events of a block's entries.
func (s *Store) eventsOf(r kv.Reader, p *pointer, v kv.Value) ([]*event.Event, error) {
	raw, ok, err := v.Wait()
	if err != nil {
		return nil, err
	}
	k := s.blockKey(p.bucket, p.first)
	if !ok {
		return nil, corrupt(fmt.Sprintf("block %d of %s", p.first, p.bucket), fmt.Errorf("pointer %s names it, it is not there", p.at))
	}
	b, err := s.readBlock(k, raw)
	if err != nil {
		return nil, corrupt("block", err)
	}
	currency, err := s.currencyOf(r, p.bucket.Budget)
	if err != nil {
		return nil, err
	}
	source := s.opt.EventSource
	if source == event.DefaultSource {
		source = ""
	}
	all := make([]event.Event, len(b.Entries))
	out := make([]*event.Event, len(b.Entries))
	for i := range b.Entries {
		all[i] = event.Event{Source: source, At: p.at, Bucket: p.bucket, Currency: currency, Time: b.Time, Writer: b.Writer, Entry: b.Entries[i]}
		all[i].At.Index = uint32(i)
		out[i] = &all[i]
	}
	return out, nil
}

// currencies remembers the currency of budgets, which never changes.
type currencies struct {
	mu sync.Mutex
	of map[ledger.BudgetID]string
}

func (s *Store) currencyOf(r kv.Reader, id ledger.BudgetID) (string, error) {
	s.currencies.mu.Lock()
	c, ok := s.currencies.of[id]
	s.currencies.mu.Unlock()
	if ok {
		return c, nil
	}
	raw, ok, err := r.Get(s.budgetKey(id)).Wait()
	if err != nil {
		return "", err
	}
	if !ok {
		return "", corrupt("budget "+id.String(), fmt.Errorf("it has blocks and no row"))
	}
	b, err := decodeBudget(id, raw)
	if err != nil {
		return "", corrupt("budget "+id.String(), err)
	}
	s.currencies.mu.Lock()
	defer s.currencies.mu.Unlock()
	if s.currencies.of == nil || len(s.currencies.of) >= maxCurrencies {
		s.currencies.of = map[ledger.BudgetID]string{}
	}
	s.currencies.of[id] = b.Currency
	return b.Currency, nil
}

// StartOfEvents is the cursor before the oldest event that a partition keeps.
func StartOfEvents(partition uint64) event.Position { return event.Position{Partition: partition} }

// EndOfEvents is the cursor after the newest event of a partition.
func (s *Store) EndOfEvents(ctx context.Context, partition uint64) (end event.Position, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		end, err = s.endOf(r, partition)
		return err
	})
	return end, err
}

// endOf is the partition's end in the store's incarnation, which those before it
// are behind.
func (s *Store) endOf(r kv.Reader, partition uint64) (event.Position, error) {
	raw, ok, err := r.Get(s.metaKey(metaIncarnation)).Wait()
	if err != nil {
		return event.Position{}, err
	}
	if !ok {
		return event.Position{}, corrupt("incarnation", ErrNoLedger)
	}
	inc, err := metaNumber(metaIncarnation, raw)
	if err != nil {
		return event.Position{}, corrupt("incarnation", err)
	}
	rows, _, err := r.Range(s.pointersOf(inc, partition).all(), kv.RangeOptions{Limit: 1, Reverse: true}).Wait()
	if err != nil || len(rows) == 0 {
		mark, merr := s.trimMark(r.Get(s.trimmedKey(partition)), partition)
		if err == nil && merr == nil && mark.Incarnation == inc {
			return mark, nil
		}
		return event.Position{Incarnation: inc, Partition: partition}, firstError(err, merr)
	}
	at, err := s.readPointerKey(rows[0].Key)
	if err != nil {
		return event.Position{}, corrupt("outbox key", err)
	}
	return sameOrder(at), nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
