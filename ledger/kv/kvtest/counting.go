package kvtest

import (
	"context"
	"sync/atomic"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Counts are the calls that transactions made. A test of what an operation
// costs subtracts two of them.
type Counts struct {
	Begins, Commits, Cancels                  int64
	Gets, Ranges, SnapshotGets, SnapshotRange int64
	RowsRead                                  int64 // rows that range reads returned
	Sets, Clears, ClearRanges, Adds           int64
	StampedKeys, StampedValues                int64
	ReadConflicts, WriteConflicts             int64
	BytesWritten                              int64 // keys and values given to writes
	Watches                                   int64
}

// Reads are the reads of all kinds.
func (c Counts) Reads() int64 { return c.Gets + c.Ranges + c.SnapshotGets + c.SnapshotRange }

// Writes are the mutations of all kinds.
func (c Counts) Writes() int64 {
	return c.Sets + c.Clears + c.ClearRanges + c.Adds + c.StampedKeys + c.StampedValues
}

// Sub is what was counted since o.
func (c Counts) Sub(o Counts) Counts {
	return Counts{
		c.Begins - o.Begins, c.Commits - o.Commits, c.Cancels - o.Cancels,
		c.Gets - o.Gets, c.Ranges - o.Ranges, c.SnapshotGets - o.SnapshotGets, c.SnapshotRange - o.SnapshotRange,
		c.RowsRead - o.RowsRead,
		c.Sets - o.Sets, c.Clears - o.Clears, c.ClearRanges - o.ClearRanges, c.Adds - o.Adds,
		c.StampedKeys - o.StampedKeys, c.StampedValues - o.StampedValues,
		c.ReadConflicts - o.ReadConflicts, c.WriteConflicts - o.WriteConflicts,
		c.BytesWritten - o.BytesWritten, c.Watches - o.Watches,
	}
}

// Counter is a store that counts the calls made to another one.
type Counter struct {
	kv.Store
	begins, commits, cancels                  atomic.Int64
	gets, ranges, snapshotGets, snapshotRange atomic.Int64
	rowsRead                                  atomic.Int64
	sets, clears, clearRanges, adds           atomic.Int64
	stampedKeys, stampedValues                atomic.Int64
	readConflicts, writeConflicts             atomic.Int64
	bytesWritten, watches                     atomic.Int64
}

// Counting wraps a store.
func Counting(s kv.Store) *Counter { return &Counter{Store: s} }

// Counts returns what was counted so far.
func (c *Counter) Counts() Counts {
	return Counts{
		c.begins.Load(), c.commits.Load(), c.cancels.Load(),
		c.gets.Load(), c.ranges.Load(), c.snapshotGets.Load(), c.snapshotRange.Load(),
		c.rowsRead.Load(),
		c.sets.Load(), c.clears.Load(), c.clearRanges.Load(), c.adds.Load(),
		c.stampedKeys.Load(), c.stampedValues.Load(),
		c.readConflicts.Load(), c.writeConflicts.Load(),
		c.bytesWritten.Load(), c.watches.Load(),
	}
}

// Begin implements kv.Store.
func (c *Counter) Begin(ctx context.Context) (kv.Tx, error) {
	c.begins.Add(1)
	tx, err := c.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &countedTx{Tx: tx, c: c}, nil
}

// Watch implements kv.Store.
func (c *Counter) Watch(ctx context.Context, key []byte) (kv.Watch, error) {
	c.watches.Add(1)
	return c.Store.Watch(ctx, key)
}

type countedTx struct {
	kv.Tx
	c *Counter
}

// countedRows counts rows at the first Wait.
type countedRows struct {
	kv.Rows
	c    *Counter
	done bool
}

func (r *countedRows) Wait() ([]kv.KeyValue, bool, error) {
	rows, more, err := r.Rows.Wait()
	if !r.done {
		r.done = true
		r.c.rowsRead.Add(int64(len(rows)))
	}
	return rows, more, err
}

type countedSnapshot struct {
	kv.Reader
	c *Counter
}

func (s countedSnapshot) Get(key []byte) kv.Value {
	s.c.snapshotGets.Add(1)
	return s.Reader.Get(key)
}

func (s countedSnapshot) Range(r kv.Range, opt kv.RangeOptions) kv.Rows {
	s.c.snapshotRange.Add(1)
	return &countedRows{Rows: s.Reader.Range(r, opt), c: s.c}
}

func (t *countedTx) Get(key []byte) kv.Value {
	t.c.gets.Add(1)
	return t.Tx.Get(key)
}

func (t *countedTx) Range(r kv.Range, opt kv.RangeOptions) kv.Rows {
	t.c.ranges.Add(1)
	return &countedRows{Rows: t.Tx.Range(r, opt), c: t.c}
}

func (t *countedTx) Snapshot() kv.Reader { return countedSnapshot{t.Tx.Snapshot(), t.c} }

// write counts one mutation and its bytes.
func (t *countedTx) write(n *atomic.Int64, key, value []byte) {
	n.Add(1)
	t.c.bytesWritten.Add(int64(len(key) + len(value)))
}

func (t *countedTx) Set(key, value []byte) {
	t.write(&t.c.sets, key, value)
	t.Tx.Set(key, value)
}

func (t *countedTx) Clear(key []byte) {
	t.write(&t.c.clears, key, nil)
	t.Tx.Clear(key)
}

func (t *countedTx) ClearRange(r kv.Range) {
	t.write(&t.c.clearRanges, r.Begin, r.End)
	t.Tx.ClearRange(r)
}

func (t *countedTx) Add(key, operand []byte) {
	t.write(&t.c.adds, key, operand)
	t.Tx.Add(key, operand)
}

func (t *countedTx) SetStampedKey(key []byte, offset int, value []byte) {
	t.write(&t.c.stampedKeys, key, value)
	t.Tx.SetStampedKey(key, offset, value)
}

func (t *countedTx) SetStampedValue(key, value []byte, offset int) {
	t.write(&t.c.stampedValues, key, value)
	t.Tx.SetStampedValue(key, value, offset)
}

func (t *countedTx) AddReadConflict(r kv.Range) {
	t.c.readConflicts.Add(1)
	t.Tx.AddReadConflict(r)
}

func (t *countedTx) AddWriteConflict(r kv.Range) {
	t.c.writeConflicts.Add(1)
	t.Tx.AddWriteConflict(r)
}

func (t *countedTx) Commit(ctx context.Context) (kv.Stamp, error) {
	t.c.commits.Add(1)
	return t.Tx.Commit(ctx)
}

func (t *countedTx) Cancel() {
	t.c.cancels.Add(1)
	t.Tx.Cancel()
}
