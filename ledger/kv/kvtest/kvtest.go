package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Harness is an engine under test. Store and Prefix are required; a case that
// needs a capability whose field is nil is skipped.
type Harness struct {
	Store kv.Store
	// Prefix begins all keys the suite touches. It must be free of rows and
	// used by nobody else; the suite clears it at the end.
	Prefix []byte

	// Reopen closes the store in good order and opens it again.
	Reopen func(t *testing.T) kv.Store
	// Advance moves the engine's clock.
	Advance func(d time.Duration)
	// HoldSync keeps commits from becoming durable until release is called.
	HoldSync func() (release func())
	// Crash cuts the power: it opens a store from what was durable at this
	// moment. The old one goes on and is closed by the harness.
	Crash func(t *testing.T) kv.Store
	// Inject arms a fault for the next commit that writes. land, for
	// LateLanding, lets the commit land and returns when it has ended.
	Inject func(f Fault) (land func() error)
	// MaxWatches is how many watches the store admits; 0 skips the case.
	MaxWatches int
}

// Fault is a fault that a Harness can inject.
type Fault int

const (
	// Conflict: the commit answers ErrConflict and writes nothing.
	Conflict Fault = iota
	// UnknownLanded: the commit writes and answers ErrCommitUnknown.
	UnknownLanded
	// UnknownLost: the commit answers ErrCommitUnknown and writes nothing.
	UnknownLost
	// LateLanding: the commit answers ErrTimedOut and writes later.
	LateLanding
)

// testCase is one case of the suite.
type testCase struct {
	name string
	run  func(*env)
}

// Run runs the conformance suite, each case as a subtest on a harness of its
// own.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	groups := [][]testCase{
		conflictCases, rangeConflictCases, readCases, addCases, stampCases, stampOrderCases, limitCases,
		lifeCases, watchCases, concurrencyCases, faultCases, oracleCases,
	}
	for _, g := range groups {
		for _, c := range g {
			t.Run(c.name, func(t *testing.T) {
				h := open(t)
				e := &env{T: t, h: h, s: h.Store, ctx: t.Context()}
				t.Cleanup(func() { e.wipe() })
				c.run(e)
			})
		}
	}
}

// env is what a case works with. Its helpers fail the test on any error that
// is not expected.
type env struct {
	*testing.T
	h   Harness
	s   kv.Store
	ctx context.Context
}

// wipe clears the prefix, if the store is still open.
func (e *env) wipe() {
	_, err := kv.Transact(context.Background(), e.s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.PrefixRange(e.h.Prefix))
		return nil
	})
	if err != nil && !errors.Is(err, kv.ErrClosed) {
		e.Logf("wiping the prefix: %v", err)
	}
}

// key is name under the prefix.
func (e *env) key(name string) []byte { return append(bytes.Clone(e.h.Prefix), name...) }

// rng is the range of names [from, to).
func (e *env) rng(from, to string) kv.Range { return kv.Range{Begin: e.key(from), End: e.key(to)} }

func (e *env) begin() kv.Tx {
	e.Helper()
	tx, err := e.s.Begin(e.ctx)
	if err != nil {
		e.Fatalf("begin: %v", err)
	}
	e.Cleanup(tx.Cancel)
	return tx
}

// reading begins a transaction that has its read version.
func (e *env) reading() kv.Tx {
	e.Helper()
	tx := e.begin()
	if _, err := tx.ReadVersion(); err != nil {
		e.Fatalf("read version: %v", err)
	}
	return tx
}

func (e *env) commit(tx kv.Tx) kv.Stamp {
	e.Helper()
	st, err := tx.Commit(e.ctx)
	if err != nil {
		e.Fatalf("commit: %v", err)
	}
	return st
}

// fails wants the commit to fail with the error and to write nothing that it
// might be asked for later.
func (e *env) fails(tx kv.Tx, want error) {
	e.Helper()
	st, err := tx.Commit(e.ctx)
	e.wantErr(err, want)
	if st != (kv.Stamp{}) {
		e.Fatalf("failed commit returned stamp %v", st)
	}
}

func (e *env) wantErr(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("got error %v, want %v", err, want)
	}
}

// set commits name=value pairs.
func (e *env) set(pairs ...string) kv.Stamp {
	e.Helper()
	tx := e.begin()
	for i := 0; i < len(pairs); i += 2 {
		tx.Set(e.key(pairs[i]), []byte(pairs[i+1]))
	}
	return e.commit(tx)
}

// absent stands for a key that is not there.
const absent = "\x00absent"

func (e *env) get(r kv.Reader, name string) string {
	e.Helper()
	v, ok, err := r.Get(e.key(name)).Wait()
	if err != nil {
		e.Fatalf("get %s: %v", name, err)
	}
	if !ok {
		return absent
	}
	return string(v)
}

// want reads name=value pairs within r.
func (e *env) want(r kv.Reader, pairs ...string) {
	e.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := e.get(r, pairs[i]); got != pairs[i+1] {
			e.Fatalf("%s = %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

// stored reads name=value pairs in a fresh transaction.
func (e *env) stored(pairs ...string) {
	e.Helper()
	tx := e.begin()
	defer tx.Cancel()
	e.want(tx, pairs...)
}

// rows is a range read as "name=value name=value".
func (e *env) rows(r kv.Reader, rg kv.Range, opt kv.RangeOptions) (string, bool) {
	e.Helper()
	rows, more, err := r.Range(rg, opt).Wait()
	if err != nil {
		e.Fatalf("range: %v", err)
	}
	return e.show(rows), more
}

func (e *env) show(rows []kv.KeyValue) string {
	var b bytes.Buffer
	for i, row := range rows {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", bytes.TrimPrefix(row.Key, e.h.Prefix), row.Value)
	}
	return b.String()
}

func (e *env) wantRows(r kv.Reader, rg kv.Range, opt kv.RangeOptions, want string, wantMore bool) {
	e.Helper()
	got, more := e.rows(r, rg, opt)
	if got != want {
		e.Fatalf("rows %q, want %q", got, want)
	}
	if more != wantMore {
		e.Fatalf("more is %v, want %v, after rows %q", more, wantMore, got)
	}
}

// all is the range of all names the suite uses.
func (e *env) all() kv.Range { return kv.PrefixRange(e.h.Prefix) }
