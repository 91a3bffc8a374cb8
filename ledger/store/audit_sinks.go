package store

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readTrimmed reads up to which block each bucket's pointers were trimmed. What
// is trimmed while the audit runs shows as blocks without a pointer, and is told
// apart by settleTrimmed.
func (a *audit) readTrimmed(ctx context.Context) error {
	marks, err := a.s.trimmedBlocks(ctx)
	if isCorrupt(err) {
		a.report(checkReadable, "%v", unwrapped(err))
		return nil
	}
	if err != nil {
		return err
	}
	for id, first := range marks {
		k := a.buckets[id]
		switch {
		case k != nil:
			k.trimmed = first
		default:
			ok, err := a.exists(ctx, a.s.bucketKey(id))
			if err != nil {
				return err
			}
			if !ok {
				a.report(checkBelongs, "a trim mark names bucket %s of tenant %s, which does not exist", id, id.Budget.Tenant)
			}
		}
	}
	return nil
}

// settleTrimmed drops the blocks whose pointers were trimmed since the audit
// began. Marks only grow, so one that is read now covers every trim that the
// reading of the outbox may have met.
func (a *audit) settleTrimmed(ctx context.Context) error {
	lost := false
	for _, it := range a.pointers.items {
		lost = lost || it.n > 0
	}
	if !lost {
		return nil
	}
	marks, err := a.s.trimmedBlocks(ctx)
	if err != nil && !isCorrupt(err) {
		return err
	}
	for fp, it := range a.pointers.items {
		if it.n > 0 && it.first <= marks[it.peer] {
			delete(a.pointers.items, fp)
		}
	}
	return nil
}

// readSinks checks that nothing was trimmed that a sink has not got. The marks
// are read before the cursors, which never go behind them.
func (a *audit) readSinks(ctx context.Context) error {
	var marks [Partitions]event.Position
	a.count(Partitions, checkSinks)
	err := a.s.readTx(ctx, func(r kv.Reader) (err error) {
		for p := range marks {
			if marks[p], err = a.s.trimMark(r.Get(a.s.trimmedKey(uint64(p))), uint64(p)); err != nil {
				return err
			}
		}
		return nil
	})
	if isCorrupt(err) {
		a.report(checkReadable, "%v", unwrapped(err))
		return nil
	}
	if err != nil {
		return err
	}
	return a.s.scan(ctx, a.s.key(tableCursor).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			a.count(1, checkReadable)
			id, partition, err := a.s.readCursorKey(row.Key)
			if err != nil || partition >= Partitions {
				a.report(checkReadable, "cursor key %x cannot be read", row.Key)
				continue
			}
			c, err := decodeCursor(partition, row.Value)
			if err != nil {
				a.report(checkReadable, "the cursor of sink %s in partition %d cannot be read: %v", id, partition, err)
				continue
			}
			// One of incarnation 0 is at the beginning, whatever is kept.
			if c.At.Incarnation > 0 && sameOrder(c.At).Before(marks[partition]) {
				a.report(checkSinks, "sink %s is at %s of partition %d, but what was before %s is trimmed", id, c.At, partition, marks[partition])
			}
		}
		return nil
	})
}
