package embedded

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// tx is one transaction. It is used by one goroutine.
type tx struct {
	store *Store
	ctx   context.Context
	ended bool

	// at is the read version, taken at the first read; readAt is when.
	at     *readVersion
	readAt time.Time
	// flushed tells what was in tables when the read version was taken, or is
	// nil where that is too old or new for it; tables is borrowed from there.
	flushed *flushed
	tables  *pebble.Iterator

	reads  *readSet
	writes *writeSet
	// values holds copies of what was read. It is never reused, so a value
	// kept past the end of the transaction stays what it was.
	values arena
	slab   []value
	// fault is the first fault in the arguments of a write.
	fault error
}

var _ kv.Tx = (*tx)(nil)

// Begin implements kv.Store.
func (s *Store) Begin(ctx context.Context) (kv.Tx, error) {
	if ctx.Err() != nil {
		return nil, kv.ContextError(ctx, "begin")
	}
	if s.isClosed() {
		return nil, &kv.Error{Code: kv.CodeClosed, Op: "begin"}
	}
	return &tx{store: s, ctx: ctx}, nil
}

// Get implements kv.Reader.
func (t *tx) Get(key []byte) kv.Value { return reader{tx: t}.Get(key) }

// Range implements kv.Reader.
func (t *tx) Range(r kv.Range, opt kv.RangeOptions) kv.Rows { return reader{tx: t}.Range(r, opt) }

// Snapshot implements kv.Tx.
func (t *tx) Snapshot() kv.Reader { return reader{tx: t, snapshot: true} }

// newValue allocates point reads by the slab.
func (t *tx) newValue(b []byte) *value {
	if len(t.slab) == 0 {
		t.slab = make([]value, 16)
	}
	v := &t.slab[0]
	t.slab = t.slab[1:]
	v.bytes, v.ok = b, true
	return v
}

func (t *tx) readSet() *readSet {
	if t.reads == nil {
		t.reads, _ = readSets.Get().(*readSet) // the pool holds nothing else
	}
	return t.reads
}

func (t *tx) writeSet() *writeSet {
	if t.writes == nil {
		t.writes, _ = writeSets.Get().(*writeSet) // the pool holds nothing else
	}
	return t.writes
}

// readable makes sure that the transaction may read, and that it has a read
// version.
func (t *tx) readable(op string) error {
	if t.ended {
		return &kv.Error{Code: kv.CodeUsedTx, Op: op}
	}
	if t.store.isClosed() {
		return &kv.Error{Code: kv.CodeClosed, Op: op}
	}
	if t.ctx.Err() != nil {
		return kv.ContextError(t.ctx, op)
	}
	if err := t.store.faults.read(op); err != nil {
		return err
	}
	if t.at == nil {
		t.at = t.store.versions.acquire()
		if t.at == nil {
			return &kv.Error{Code: kv.CodeClosed, Op: op}
		}
		t.readAt = t.store.clock()
		// In this order: what is flushed by now has filters for all that the
		// read version holds.
		if f := t.store.flushed.Load(); f != nil && f.since <= t.at.version {
			t.flushed = f
		}
		return nil
	}
	if age := t.store.clock().Sub(t.readAt); age > kv.MaxTxAge {
		return tooOld(op, age)
	}
	return nil
}

func tooOld(op string, age time.Duration) error {
	return &kv.Error{
		Code: kv.CodeTooOld, Op: op,
		Detail: fmt.Sprintf("read version is %v old, at most %v allowed", age.Round(time.Millisecond), kv.MaxTxAge),
	}
}

// gone is the error of a read whose snapshot was closed under it.
func (t *tx) gone(op string) error {
	if t.store.isClosed() {
		return &kv.Error{Code: kv.CodeClosed, Op: op}
	}
	return tooOld(op, t.store.clock().Sub(t.readAt))
}

// ReadVersion implements kv.Tx.
func (t *tx) ReadVersion() (kv.Version, error) {
	if err := t.readable("read version"); err != nil {
		return 0, err
	}
	return t.at.version, nil
}

// unreadable is the error of reading what the commit's stamp will be in. The
// transaction can't commit any more: nobody may build on such a read.
func (t *tx) unreadable(op string) error {
	err := &kv.Error{Code: kv.CodeUnreadable, Op: op}
	t.writable(err)
	return err
}

// writable says whether a write is to be buffered; err is what is wrong with
// its arguments, kept for Commit.
func (t *tx) writable(err error) bool {
	if t.ended {
		return false
	}
	if err != nil && t.fault == nil {
		t.fault = err
	}
	return err == nil
}

// Set implements kv.Tx.
func (t *tx) Set(key, value []byte) {
	if t.writable(checkWrite("set", key, value)) {
		t.writeSet().set(t.store.hash(key), key, value)
	}
}

// Clear implements kv.Tx.
func (t *tx) Clear(key []byte) {
	if t.writable(checkWrite("clear", key, nil)) {
		t.writeSet().clear(t.store.hash(key), key)
	}
}

// ClearRange implements kv.Tx.
func (t *tx) ClearRange(r kv.Range) {
	if !t.writable(checkRange("clear range", r)) {
		return
	}
	if isPoint(r) && checkWrite("", r.Begin, nil) == nil {
		t.writeSet().clear(t.store.hash(r.Begin), r.Begin)
		return
	}
	if string(r.Begin) != string(r.End) {
		t.writeSet().clearRange(r.Begin, r.End)
	}
}

// Add implements kv.Tx.
func (t *tx) Add(key, operand []byte) {
	if t.writable(checkWrite("add", key, operand)) {
		t.writeSet().add(t.store.hash(key), key, operand)
	}
}

// SetStampedKey implements kv.Tx.
func (t *tx) SetStampedKey(key []byte, offset int, value []byte) {
	err := checkStampedKey("set stamped key", key, value)
	if err == nil {
		err = checkOffset("set stamped key", offset, len(key))
	}
	if t.writable(err) {
		var after kv.Version
		if t.at != nil {
			after = t.at.version
		}
		t.writeSet().stampedKey(key, offset, value, after)
	}
}

// SetStampedValue implements kv.Tx.
func (t *tx) SetStampedValue(key, value []byte, offset int) {
	err := checkStampedValue("set stamped value", key, value)
	if err == nil {
		err = checkOffset("set stamped value", offset, len(value))
	}
	if t.writable(err) {
		t.writeSet().stampedValue(t.store.hash(key), key, value, offset)
	}
}

// AddReadConflict implements kv.Tx. It takes the read version if there is none.
func (t *tx) AddReadConflict(r kv.Range) {
	if !t.writable(checkRange("add read conflict", r)) {
		return
	}
	if err := t.readable("add read conflict"); err != nil {
		t.writable(err)
		return
	}
	if isPoint(r) {
		t.readSet().addPoint(t.store.hash(r.Begin), r.Begin)
		return
	}
	t.readSet().addRange(r.Begin, r.End)
}

// AddWriteConflict implements kv.Tx.
func (t *tx) AddWriteConflict(r kv.Range) {
	if !t.writable(checkRange("add write conflict", r)) || string(r.Begin) == string(r.End) {
		return
	}
	w := t.writeSet()
	w.bytes += len(r.Begin) + len(r.End)
	if isPoint(r) {
		w.points = append(w.points, point{t.store.hash(r.Begin), w.keys.copy(r.Begin)})
		return
	}
	w.ranges = append(w.ranges, span{w.keys.copy(r.Begin), w.keys.copy(r.End)})
}

// Cancel implements kv.Tx.
func (t *tx) Cancel() {
	if t.ended {
		return
	}
	t.end()
	if t.writes != nil {
		t.writes.release()
		t.writes = nil
	}
}

// end marks the transaction ended and gives back what only reads needed.
func (t *tx) end() {
	t.ended = true
	if t.reads != nil {
		t.reads.release()
		t.reads = nil
	}
	t.giveTables()
	if t.at != nil {
		t.store.versions.release(t.at)
		t.at = nil
	}
}

// giveTables gives the iterator back before the read version is given away.
func (t *tx) giveTables() {
	if t.tables != nil && !t.store.versions.frozen.Load() {
		t.at.giveBack(t.tables)
	}
	t.tables = nil
}
