//go:build fdb

package fdbkv

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// tx is one attempt. It is used by one goroutine; Cancel of the underlying
// transaction may come from the context's end at any time.
type tx struct {
	s     *Store
	tr    fdb.Transaction
	ctx   context.Context
	stop  func() bool
	fault *kv.Error // the first fault in an argument; Commit returns it
	wrote bool
	ended bool
	// held counts what the client library keeps for this transaction until the
	// garbage collector finds it: itself and its futures.
	held int64
}

// snapshot reads without read conflicts.
type snapshot struct{ t *tx }

// outside says whether a key belongs to the system.
func outside(k []byte) bool { return len(k) > 0 && k[0] == 0xFF }

func checkKey(op string, k []byte) *kv.Error {
	switch {
	case outside(k):
		return &kv.Error{Code: kv.CodeKeyOutside, Op: op, Detail: fmt.Sprintf("key %.40q", k)}
	case len(k) > kv.MaxKeyBytes:
		return &kv.Error{Code: kv.CodeKeyTooLarge, Op: op, Detail: fmt.Sprintf("%d bytes (allowed: %d)", len(k), kv.MaxKeyBytes)}
	}
	return nil
}

func checkRange(op string, r kv.Range) *kv.Error {
	switch {
	case bytes.Compare(r.Begin, r.End) > 0:
		return &kv.Error{Code: kv.CodeInvertedRange, Op: op, Detail: fmt.Sprintf("%.40q to %.40q", r.Begin, r.End)}
	case outside(r.Begin) || bytes.Compare(r.End, []byte{0xFF}) > 0:
		return &kv.Error{Code: kv.CodeKeyOutside, Op: op, Detail: fmt.Sprintf("range %.40q to %.40q", r.Begin, r.End)}
	}
	return nil
}

// keep remembers the first fault.
func (t *tx) keep(e *kv.Error) bool {
	if e == nil && t.ended {
		e = &kv.Error{Code: kv.CodeUsedTx, Op: "use"}
	}
	if e != nil && t.fault == nil {
		t.fault = e
	}
	return e == nil
}

// usable is the error of a read on a transaction that cannot be used.
func (t *tx) usable(op string, e *kv.Error) error {
	if t.ended {
		return &kv.Error{Code: kv.CodeUsedTx, Op: op}
	}
	if e != nil {
		return e
	}
	return nil
}

// value is a pending point read.
type value struct {
	t   *tx
	f   fdb.FutureByteSlice
	err error
}

func (v *value) Wait() ([]byte, bool, error) {
	if v.err != nil {
		return nil, false, v.err
	}
	b, err := v.f.Get()
	if v.t.ctx.Err() != nil { // the cancellation may be a moment late
		return nil, false, kv.ContextError(v.t.ctx, "get")
	}
	if err != nil {
		return nil, false, v.t.readError("get", err)
	}
	return b, b != nil, nil
}

// readError prefers the context's end over the cancellation it caused.
func (t *tx) readError(op string, err error) error {
	if t.ctx.Err() != nil {
		return kv.ContextError(t.ctx, op)
	}
	err = wrap(op, err)
	t.s.count(err, false)
	return err
}

func (t *tx) Get(k []byte) kv.Value {
	if err := t.usable("get", checkKey("get", k)); err != nil {
		return &value{err: err}
	}
	t.held++
	return &value{t: t, f: t.tr.Get(fdb.Key(k))}
}

func (s snapshot) Get(k []byte) kv.Value {
	if err := s.t.usable("get", checkKey("get", k)); err != nil {
		return &value{err: err}
	}
	s.t.held++
	return &value{t: s.t, f: s.t.tr.Snapshot().Get(fdb.Key(k))}
}

// rows is a pending range read.
type rows struct {
	t     *tx
	r     fdb.RangeResult
	limit int
	err   error
	done  bool
	out   []kv.KeyValue
}

func (r *rows) Wait() ([]kv.KeyValue, bool, error) {
	if r.err != nil || r.done {
		return r.out, r.limit > 0 && len(r.out) == r.limit, r.err
	}
	got, err := r.r.GetSliceWithError()
	if err != nil || r.t.ctx.Err() != nil {
		r.err = r.t.readError("range", err)
		return nil, false, r.err
	}
	r.done = true
	r.out = make([]kv.KeyValue, len(got))
	for i, kvp := range got {
		r.out[i] = kv.KeyValue{Key: kvp.Key, Value: kvp.Value}
	}
	return r.out, r.limit > 0 && len(got) == r.limit, nil
}

func rangeOf(r kv.Range) fdb.KeyRange {
	return fdb.KeyRange{Begin: fdb.Key(r.Begin), End: fdb.Key(r.End)}
}

func rangeOptions(o kv.RangeOptions) fdb.RangeOptions {
	mode := fdb.StreamingModeWantAll
	if o.Limit > 0 {
		mode = fdb.StreamingModeExact
	}
	return fdb.RangeOptions{Limit: o.Limit, Reverse: o.Reverse, Mode: mode}
}

func (t *tx) Range(r kv.Range, o kv.RangeOptions) kv.Rows {
	if err := t.usable("range", checkRange("range", r)); err != nil {
		return &rows{err: err}
	}
	t.held++
	return &rows{t: t, limit: o.Limit, r: t.tr.GetRange(rangeOf(r), rangeOptions(o))}
}

func (s snapshot) Range(r kv.Range, o kv.RangeOptions) kv.Rows {
	if err := s.t.usable("range", checkRange("range", r)); err != nil {
		return &rows{err: err}
	}
	s.t.held++
	return &rows{t: s.t, limit: o.Limit, r: s.t.tr.Snapshot().GetRange(rangeOf(r), rangeOptions(o))}
}

func (t *tx) Snapshot() kv.Reader { return snapshot{t} }

func checkValue(op string, v []byte) *kv.Error {
	if len(v) > kv.MaxValueBytes {
		return &kv.Error{Code: kv.CodeValueTooLarge, Op: op, Detail: fmt.Sprintf("%d bytes (allowed: %d)", len(v), kv.MaxValueBytes)}
	}
	return nil
}

// write checks a key and value and reports whether the write may go on.
func (t *tx) write(op string, k, v []byte) bool {
	e := checkKey(op, k)
	if e == nil {
		e = checkValue(op, v)
	}
	if !t.keep(e) {
		return false
	}
	t.wrote = true
	return true
}

func (t *tx) Set(k, v []byte) {
	if t.write("set", k, v) {
		t.tr.Set(fdb.Key(k), v)
	}
}

func (t *tx) Clear(k []byte) {
	if t.write("clear", k, nil) {
		t.tr.Clear(fdb.Key(k))
	}
}

func (t *tx) ClearRange(r kv.Range) {
	if t.keep(checkRange("clear range", r)) {
		t.wrote = true
		t.tr.ClearRange(rangeOf(r))
	}
}

func (t *tx) Add(k, operand []byte) {
	if t.write("add", k, operand) {
		t.tr.Add(fdb.Key(k), operand)
	}
}

// stamped appends the offset as the client library wants it.
func (t *tx) stamped(op string, b []byte, offset int) ([]byte, bool) {
	if offset < 0 || offset+10 > len(b) {
		return nil, t.keep(&kv.Error{Code: kv.CodeBadStampOffset, Op: op, Detail: fmt.Sprintf("offset %d in %d bytes", offset, len(b))})
	}
	out := make([]byte, 0, len(b)+kv.StampOverhead)
	return binary.LittleEndian.AppendUint32(append(out, b...), uint32(offset)), true
}

func (t *tx) SetStampedKey(k []byte, offset int, v []byte) {
	const op = "set stamped key"
	if limit := kv.MaxKeyBytes - kv.StampOverhead; len(k) > limit {
		t.keep(&kv.Error{Code: kv.CodeKeyTooLarge, Op: op, Detail: fmt.Sprintf("%d bytes (allowed: %d)", len(k), limit)})
		return
	}
	if p, ok := t.stamped(op, k, offset); ok && t.write(op, k, v) {
		t.tr.SetVersionstampedKey(fdb.Key(p), v)
	}
}

func (t *tx) SetStampedValue(k, v []byte, offset int) {
	const op = "set stamped value"
	if limit := kv.MaxValueBytes - kv.StampOverhead; len(v) > limit {
		t.keep(&kv.Error{Code: kv.CodeValueTooLarge, Op: op, Detail: fmt.Sprintf("%d bytes (allowed: %d)", len(v), limit)})
		return
	}
	if p, ok := t.stamped(op, v, offset); ok && t.write(op, k, v) {
		t.tr.SetVersionstampedValue(fdb.Key(k), p)
	}
}

func (t *tx) AddReadConflict(r kv.Range) {
	if t.keep(checkRange("add read conflict", r)) {
		if err := t.tr.AddReadConflictRange(rangeOf(r)); err != nil {
			t.keepError("add read conflict", err)
		}
	}
}

func (t *tx) AddWriteConflict(r kv.Range) {
	if t.keep(checkRange("add write conflict", r)) {
		t.wrote = true
		if err := t.tr.AddWriteConflictRange(rangeOf(r)); err != nil {
			t.keepError("add write conflict", err)
		}
	}
}

func (t *tx) keepError(op string, err error) {
	if e, ok := wrap(op, err).(*kv.Error); ok { //nolint:errorlint // wrap makes it
		t.keep(e)
	}
}

func (t *tx) ReadVersion() (kv.Version, error) {
	if err := t.usable("read version", nil); err != nil {
		return 0, err
	}
	v, err := t.tr.GetReadVersion().Get()
	if err != nil {
		return 0, t.readError("read version", err)
	}
	return kv.Version(v), nil
}

// Commit commits. When ctx ends meanwhile the transaction is cancelled, which
// may be too late: the outcome is unknown.
func (t *tx) Commit(ctx context.Context) (kv.Stamp, error) {
	if t.ended {
		return kv.Stamp{}, &kv.Error{Code: kv.CodeUsedTx, Op: "commit"}
	}
	defer t.Cancel()
	if t.fault != nil {
		return kv.Stamp{}, t.fault
	}
	if ctx.Err() != nil { // nothing was sent
		return kv.Stamp{}, kv.ContextError(ctx, "commit")
	}
	var stamp fdb.FutureKey
	if t.wrote {
		stamp = t.tr.GetVersionstamp()
	}
	stop := context.AfterFunc(ctx, t.tr.Cancel)
	err := t.tr.Commit().Get()
	stop()
	if err != nil {
		if ctx.Err() != nil {
			err = kv.ContextError(ctx, "commit")
		} else {
			err = wrap("commit", err)
		}
		t.s.count(err, true)
		return kv.Stamp{}, err
	}
	if stamp == nil {
		return kv.Stamp{}, nil
	}
	t.s.commits.Add(1)
	ten, err := stamp.Get()
	if err != nil {
		// The commit is done; only its stamp could not be had.
		return kv.Stamp{}, nil
	}
	var out kv.Stamp
	copy(out[:10], ten)
	return out, nil
}

func (t *tx) Cancel() {
	if t.ended {
		return
	}
	t.ended = true
	t.stop()
	t.tr.Cancel()
	// The library's object lives until Go's garbage collector finds it; what it
	// holds is freed now.
	t.tr.Reset()
	t.s.collect(t.held + 4) // itself, its read version, commit and stamp
	<-t.s.slots
}
