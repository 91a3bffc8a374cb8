package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Every stored value starts with the version of its form. Integers are
// varints, strings and bytes have their length in front, times are Unix
// milliseconds with 0 for none.
const codecVersion = 1

var (
	errTruncated = errors.New("value is cut short")
	errTrailing  = errors.New("value has bytes after its end")
	errValue     = errors.New("value is out of its range")
)

// enc appends to a value.
type enc []byte

func (e *enc) u(v uint64)   { *e = binary.AppendUvarint(*e, v) }
func (e *enc) i(v int64)    { *e = binary.AppendVarint(*e, v) }
func (e *enc) str(s string) { e.u(uint64(len(s))); *e = append(*e, s...) }
func (e *enc) raw(b []byte) { e.u(uint64(len(b))); *e = append(*e, b...) }
func (e *enc) time(t time.Time) {
	if t.IsZero() {
		e.i(0)
		return
	}
	e.i(t.UnixMilli())
}

func (e *enc) flag(b bool) {
	if b {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
}

func (e *enc) balances(b *ledger.Balances) {
	e.i(b.Funded)
	e.i(b.Available)
	e.i(b.Reserved)
	e.i(b.Committed)
	e.i(b.Reversed)
}

// place writes a bucket; the tenant is known from the key.
func (e *enc) place(b ledger.BucketID) {
	e.str(b.Budget.Funder)
	e.str(b.Budget.Key)
	e.u(uint64(b.Index))
}

// dec reads a value; its first error sticks.
type dec struct {
	b   []byte
	err error
	// shared, if not nil, is where names that many rows have in common are
	// taken from, and raw bytes stay where they are: for a reader that keeps
	// nothing of a row.
	shared names
}

// names holds one copy of strings that come again and again. It is not safe
// for concurrent use.
type names map[string]string

// maxNames bounds a names: what does not fit is copied each time.
const maxNames = 1 << 14

// of is string(b), without a copy where it was met before.
func (n names) of(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	s := string(b)
	if n != nil && len(n) < maxNames {
		n[s] = s
	}
	return s
}

func newDec(b []byte) dec { return newSharedDec(b, nil) }

func newSharedDec(b []byte, shared names) dec {
	d, _ := newDecUpTo(b, codecVersion)
	d.shared = shared
	return d
}

// newDecUpTo starts a value of which there is more than one form, and tells
// which one this is.
func newDecUpTo(b []byte, newest uint64) (d dec, form uint64) {
	d = dec{b: b}
	if form = d.u(); d.err == nil && (form < codecVersion || form > newest) {
		d.err = fmt.Errorf("value has form %d, this version reads %d", form, newest)
	}
	return d, form
}

func (d *dec) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *dec) u() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errTruncated)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *dec) i() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errTruncated)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// max reads an unsigned number that must not be above limit.
func (d *dec) max(limit uint64) uint64 {
	v := d.u()
	if v > limit {
		d.fail(errValue)
		return 0
	}
	return v
}

func (d *dec) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail(errTruncated)
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *dec) str() string  { return string(d.take(d.u())) }
func (d *dec) name() string { return d.shared.of(d.take(d.u())) }
func (d *dec) flag() bool   { return d.max(1) == 1 }

func (d *dec) raw() []byte {
	b := d.take(d.u())
	if d.shared != nil {
		return b[:len(b):len(b)]
	}
	return append([]byte(nil), b...)
}

func (d *dec) hash() (h [32]byte) {
	copy(h[:], d.take(32))
	return h
}

func (d *dec) time() time.Time {
	v := d.i()
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMilli(v).UTC()
}

func (d *dec) balances() (b ledger.Balances) {
	b.Funded, b.Available, b.Reserved, b.Committed, b.Reversed = d.i(), d.i(), d.i(), d.i(), d.i()
	return b
}

func (d *dec) place(tenant string) ledger.BucketID {
	b := ledger.BucketID{Budget: ledger.BudgetID{Tenant: tenant, Funder: d.name(), Key: d.name()}}
	b.Index = uint16(d.max(ledger.Unallocated))
	if b.Budget.IsZero() {
		d.fail(errValue) // no bucket is without a budget; where there may be none, a flag says so
	}
	return b
}

func (d *dec) end() error {
	if d.err == nil && len(d.b) != 0 {
		return errTrailing
	}
	return d.err
}

func encodeBucket(b *ledger.Bucket) []byte {
	e := enc(make([]byte, 0, 96))
	e.u(codecVersion)
	e.balances(&b.Balances)
	e.u(b.Seq)
	e = append(e, b.Hash[:]...)
	e.time(b.Time)
	return e
}

func decodeBucket(id ledger.BucketID, v []byte) (ledger.Bucket, error) {
	d := newDec(v)
	b := ledger.Bucket{ID: id, Balances: d.balances(), Seq: d.u(), Hash: d.hash(), Time: d.time()}
	return b, d.end()
}

// budgetWithKind is the form of a budget's row that appends what wallets have.
// A promotion budget keeps the first form, which has none of it, until it has
// retired buckets.
const (
	budgetWithKind    = 2
	budgetWithRetired = 3
)

func encodeBudget(b *ledger.Budget) []byte {
	var e enc
	form := uint64(codecVersion)
	if b.Kind != ledger.KindPromotion {
		form = budgetWithKind
	} else if b.Epoch.Retired != 0 {
		form = budgetWithRetired
	}
	e.u(form)
	e.str(b.Currency)
	e.u(uint64(b.State))
	p := &b.Policy
	e.u(uint64(p.LateCommit))
	e.u(uint64(p.Exhaustion))
	e.u(uint64(p.OnUnavailable))
	e.i(int64(p.OverCommit.Percent))
	e.i(p.OverCommit.Amount)
	e.str(p.ReversalSink.Funder)
	e.str(p.ReversalSink.Key)
	e.i(p.MaxLifetime.Milliseconds())
	e.u(uint64(b.Epoch.Number))
	e.u(uint64(b.Epoch.Buckets))
	e.time(b.Created)
	e.raw(b.Definition)
	if form == budgetWithKind {
		e.u(uint64(b.Kind))
		e.i(p.Overdraft)
		e.i(p.DebtCap)
	}
	if form == budgetWithRetired {
		e.u(uint64(b.Epoch.Retired))
	}
	return e
}

func decodeBudget(id ledger.BudgetID, v []byte) (*ledger.Budget, error) {
	d, form := newDecUpTo(v, budgetWithRetired)
	b := &ledger.Budget{ID: id, Currency: d.str()}
	b.State = ledger.BudgetState(d.max(uint64(ledger.BudgetClosed)))
	if b.State == 0 {
		d.fail(errValue)
	}
	p := &b.Policy
	p.LateCommit = ledger.LateCommit(d.max(uint64(ledger.LateCase)))
	p.Exhaustion = ledger.Exhaustion(d.max(uint64(ledger.Strict)))
	p.OnUnavailable = ledger.OnUnavailable(d.max(uint64(ledger.SkipBenefit)))
	p.OverCommit.Percent = int32(d.i())
	p.OverCommit.Amount = d.i()
	sink := ledger.BudgetID{Tenant: id.Tenant, Funder: d.str(), Key: d.str()}
	if !sink.IsZero() {
		p.ReversalSink = sink
	}
	p.MaxLifetime = time.Duration(d.i()) * time.Millisecond
	b.Epoch.Number = uint32(d.max(1<<32 - 1))
	b.Epoch.Buckets = uint16(d.max(ledger.MaxBuckets))
	if b.Epoch.Buckets == 0 {
		d.fail(errValue)
	}
	b.Created = d.time()
	b.Definition = d.raw()
	if form == budgetWithKind {
		if b.Kind = ledger.BudgetKind(d.max(uint64(ledger.KindWallet))); b.Kind == ledger.KindPromotion {
			d.fail(errValue) // it keeps the first form
		}
		p.Overdraft, p.DebtCap = d.i(), d.i()
	}
	if form == budgetWithRetired {
		if b.Epoch.Retired = uint16(d.max(ledger.MaxBuckets - uint64(b.Epoch.Buckets))); b.Epoch.Retired == 0 {
			d.fail(errValue) // it keeps the first form
		}
	}
	return b, d.end()
}

// receiptWithEpoch is the form of a RESHARD's receipt.
const receiptWithEpoch = 2

func encodeBudgetReceipt(r *ledger.BudgetReceipt) []byte {
	var e enc
	form := uint64(codecVersion)
	if r.Epoch.Number != 0 {
		form = receiptWithEpoch
	}
	e.u(form)
	e.u(uint64(r.Op))
	e.str(r.Budget.Funder)
	e.str(r.Budget.Key)
	e.raw(r.Request)
	e.u(uint64(r.State))
	e.balances(&r.Totals)
	e.time(r.At)
	if form == receiptWithEpoch {
		e.u(uint64(r.Epoch.Number))
		e.u(uint64(r.Epoch.Buckets))
		e.u(uint64(r.Epoch.Retired))
	}
	return e
}

func decodeBudgetReceipt(tenant string, v []byte) (*ledger.BudgetReceipt, error) {
	d, form := newDecUpTo(v, receiptWithEpoch)
	r := &ledger.BudgetReceipt{Op: d.op()}
	r.Budget = ledger.BudgetID{Tenant: tenant, Funder: d.str(), Key: d.str()}
	r.Request = d.raw()
	r.State = ledger.BudgetState(d.max(uint64(ledger.BudgetClosed)))
	r.Totals = d.balances()
	r.At = d.time()
	if form == receiptWithEpoch {
		r.Epoch.Number = uint32(d.max(1<<32 - 1))
		r.Epoch.Buckets = uint16(d.max(ledger.MaxBuckets))
		r.Epoch.Retired = uint16(d.max(ledger.MaxBuckets))
		if r.Epoch.Number == 0 || r.Epoch.Buckets == 0 {
			d.fail(errValue)
		}
	}
	return r, d.end()
}

func (d *dec) op() ledger.Op {
	op := ledger.Op(d.max(255))
	if !op.Valid() {
		d.fail(errValue)
	}
	return op
}

func encodeCase(c *ledger.Case) []byte {
	var e enc
	e.u(codecVersion)
	e.str(c.Budget.Funder)
	e.str(c.Budget.Key)
	e.i(c.Amount)
	return e
}

func (s *Store) decodeCase(k, v []byte) (ledger.Case, error) {
	r := s.read(k, tableCase)
	c := ledger.Case{Key: ledger.OrderKey{Tenant: r.str()}}
	c.Opened = time.UnixMilli(int64(r.uint())).UTC()
	c.Key.Order, c.Key.Benefit = r.str(), r.str()
	c.Attempt = uint32(r.uint())
	if err := r.end(); err != nil {
		return c, err
	}
	d := newDec(v)
	c.Budget = ledger.BudgetID{Tenant: c.Key.Tenant, Funder: d.str(), Key: d.str()}
	c.Amount = d.i()
	return c, d.end()
}
