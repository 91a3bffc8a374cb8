package store

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// bare is a store without an engine: enough for keys and values.
func encodeReservation(r *ledger.Reservation) []byte { return appendReservation(nil, r) }

func bare() *Store { return &Store{opt: Options{Prefix: []byte("coffer")}} }

// Generators of values as the ledger makes them.

var (
	genID    = rapid.StringN(1, 32, ledger.MaxIDBytes)
	genMaybe = rapid.OneOf(rapid.Just(""), genID)
	genMoney = rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1000))
	genU32   = rapid.Uint32()
	genBytes = rapid.SliceOfN(rapid.Byte(), 1, 64)
)

func genTime(t *rapid.T, label string) time.Time {
	ms := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<45)).Draw(t, label)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func genBalances(t *rapid.T) ledger.Balances {
	return ledger.Balances{
		Funded: genMoney.Draw(t, "funded"), Available: genMoney.Draw(t, "available"), Reserved: genMoney.Draw(t, "reserved"),
		Committed: genMoney.Draw(t, "committed"), Reversed: genMoney.Draw(t, "reversed"),
	}
}

func genBucketID(t *rapid.T, tenant string) ledger.BucketID {
	return ledger.BucketID{
		Budget: ledger.BudgetID{Tenant: tenant, Funder: genMaybe.Draw(t, "funder"), Key: genID.Draw(t, "key")},
		Index:  rapid.Uint16Range(0, ledger.Unallocated).Draw(t, "index"),
	}
}

func genHash(t *rapid.T) (h [32]byte) {
	copy(h[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
	return h
}

func genReceipt(t *rapid.T, tenant string, leg ledger.BucketID) ledger.Receipt {
	r := ledger.Receipt{Op: ledger.Op(rapid.IntRange(1, int(ledger.OpResolve)).Draw(t, "op")), ID: genMaybe.Draw(t, "id"), Void: rapid.Bool().Draw(t, "void")}
	if !r.Void {
		r.Request = genBytes.Draw(t, "request")
	}
	if rapid.Bool().Draw(t, "rejected") {
		r.Rejection, r.Requested, r.Available = ledger.InsufficientBudget, genMoney.Draw(t, "requested"), genMoney.Draw(t, "left")
	}
	o := &r.Outcome
	o.State = ledger.State(rapid.IntRange(0, int(ledger.StateVoid)).Draw(t, "state"))
	o.Amount, o.Held, o.Committed, o.Reversed = genMoney.Draw(t, "amount"), genMoney.Draw(t, "held"), genMoney.Draw(t, "committed"), genMoney.Draw(t, "reversed")
	o.Expires, o.At, o.Late, o.Seq = genTime(t, "expires"), genTime(t, "at"), rapid.Bool().Draw(t, "late"), rapid.Uint64().Draw(t, "seq")
	switch rapid.IntRange(0, 2).Draw(t, "place") {
	case 0:
		o.Bucket = leg
	case 1:
		o.Bucket = genBucketID(t, tenant)
	}
	if rapid.Bool().Draw(t, "sink") {
		s := genBucketID(t, tenant)
		r.Sink = &s
	}
	return r
}

func genReservation(t *rapid.T) *ledger.Reservation {
	r := &ledger.Reservation{
		Key:      ledger.OrderKey{Tenant: genID.Draw(t, "tenant"), Order: genID.Draw(t, "order"), Benefit: genID.Draw(t, "benefit")},
		EventSeq: genU32.Draw(t, "event seq"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "attempts") {
		a := ledger.Attempt{
			Number: genU32.Draw(t, "number"), State: ledger.State(rapid.IntRange(0, int(ledger.StateVoid)).Draw(t, "state")),
			Created: genTime(t, "created"), Expires: genTime(t, "expires"), CommitSeq: rapid.Uint64().Draw(t, "commit"),
			CaseOpened: rapid.Bool().Draw(t, "case"), Correlation: genMaybe.Draw(t, "correlation"),
		}
		if rapid.Bool().Draw(t, "leg") {
			a.Leg = ledger.Leg{
				Bucket: genBucketID(t, r.Key.Tenant), Currency: "BRL", Amount: genMoney.Draw(t, "amount"), Held: genMoney.Draw(t, "held"),
				Lapsed: genMoney.Draw(t, "lapsed"), Committed: genMoney.Draw(t, "committed"), Reversed: genMoney.Draw(t, "reversed"),
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "receipts") {
			a.Receipts = append(a.Receipts, genReceipt(t, r.Key.Tenant, a.Leg.Bucket))
		}
		r.Attempts = append(r.Attempts, a)
	}
	return r
}

func genEntry(t *rapid.T, tenant string) ledger.Entry {
	en := ledger.Entry{
		Type: ledger.EntryType(rapid.IntRange(1, int(ledger.EntryMoveIn)).Draw(t, "type")), Order: genMaybe.Draw(t, "order"),
		Delta: genBalances(t), After: genBalances(t), RefersTo: rapid.Uint64().Draw(t, "refers"), Cause: genMaybe.Draw(t, "cause"), Correlation: genMaybe.Draw(t, "correlation"),
	}
	if en.Order != "" {
		en.Benefit, en.Attempt, en.EventSeq = genID.Draw(t, "benefit"), genU32.Draw(t, "attempt"), genU32.Draw(t, "event")
	}
	if rapid.Bool().Draw(t, "peer") {
		p := genBucketID(t, tenant)
		en.Peer = &p
	}
	return en
}

func same(t *rapid.T, want, got any, err error) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(want, got) {
		t.Fatalf("wrote %+v, read %+v (%v)", want, got, err)
	}
}

func TestCodecsRoundTrip(t *testing.T) {
	s := bare()
	t.Run("reservation", rapid.MakeCheck(func(t *rapid.T) {
		r := genReservation(t)
		got, err := decodeReservation(r.Key, encodeReservation(r))
		same(t, r, got, err)
	}))
	// A reader that reads row after row into one reservation sees nothing of the
	// rows before.
	t.Run("reservations in one place", rapid.MakeCheck(func(t *rapid.T) {
		var place ledger.Reservation
		shared := names{}
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			r := genReservation(t)
			row := kv.KeyValue{Key: s.reservationKey(r.Key), Value: encodeReservation(r)}
			err := s.readReservation(row, shared, &place)
			if err != nil || !bytes.Equal(encodeReservation(&place), row.Value) || place.Key != r.Key {
				t.Fatalf("wrote %+v, read %+v (%v)", r, place, err)
			}
		}
	}))
	t.Run("bucket", rapid.MakeCheck(func(t *rapid.T) {
		b := ledger.Bucket{ID: genBucketID(t, "t"), Balances: genBalances(t), Seq: rapid.Uint64().Draw(t, "seq"), Hash: genHash(t), Time: genTime(t, "time")}
		got, err := decodeBucket(b.ID, encodeBucket(&b))
		same(t, b, got, err)
	}))
	t.Run("budget", rapid.MakeCheck(func(t *rapid.T) {
		b := &ledger.Budget{
			ID: genBucketID(t, "t").Budget, Currency: genID.Draw(t, "currency"), State: ledger.BudgetState(rapid.IntRange(1, 3).Draw(t, "state")),
			Created: genTime(t, "created"), Definition: genBytes.Draw(t, "definition"),
		}
		b.Policy = ledger.Policy{
			LateCommit: ledger.LateCommit(rapid.IntRange(0, 2).Draw(t, "late")), Exhaustion: ledger.Exhaustion(rapid.IntRange(0, 1).Draw(t, "exhaustion")),
			OnUnavailable: ledger.OnUnavailable(rapid.IntRange(0, 1).Draw(t, "unavailable")), MaxLifetime: time.Duration(rapid.Int64Range(0, 1<<32).Draw(t, "life")) * time.Millisecond,
		}
		b.Policy.OverCommit = ledger.OverCommit{Percent: rapid.Int32().Draw(t, "percent"), Amount: genMoney.Draw(t, "amount")}
		if rapid.Bool().Draw(t, "sink") {
			b.Policy.ReversalSink = genBucketID(t, "t").Budget
		}
		b.Epoch = ledger.Epoch{Number: genU32.Draw(t, "epoch"), Buckets: rapid.Uint16Range(1, ledger.MaxBuckets).Draw(t, "buckets")}
		if rapid.Bool().Draw(t, "resharded") {
			b.Epoch.Retired = rapid.Uint16Range(0, ledger.MaxBuckets-b.Epoch.Buckets).Draw(t, "retired")
		}
		got, err := decodeBudget(b.ID, encodeBudget(b))
		same(t, b, got, err)
	}))
	t.Run("budget receipt", rapid.MakeCheck(func(t *rapid.T) {
		r := &ledger.BudgetReceipt{
			Op: ledger.Op(rapid.IntRange(1, int(ledger.OpMove)).Draw(t, "op")), Budget: genBucketID(t, "t").Budget, Request: genBytes.Draw(t, "request"),
			State: ledger.BudgetState(rapid.IntRange(0, 3).Draw(t, "state")), Totals: genBalances(t), At: genTime(t, "at"),
		}
		if rapid.Bool().Draw(t, "reshard") {
			r.Epoch = ledger.Epoch{
				Number: rapid.Uint32Range(1, 1<<32-1).Draw(t, "epoch"), Buckets: rapid.Uint16Range(1, ledger.MaxBuckets).Draw(t, "buckets"),
				Retired: rapid.Uint16Range(0, ledger.MaxBuckets).Draw(t, "retired"),
			}
		}
		got, err := decodeBudgetReceipt("t", encodeBudgetReceipt(r))
		same(t, r, got, err)
	}))
	t.Run("expiry", rapid.MakeCheck(func(t *rapid.T) {
		items := []dueItem{}
		for range rapid.IntRange(0, maxDueItems).Draw(t, "n") {
			items = append(items, dueItem{genID.Draw(t, "order"), genID.Draw(t, "benefit"), genU32.Draw(t, "attempt")})
		}
		got, err := decodeExpiry(encodeExpiry(items))
		same(t, items, got, err)
	}))
	t.Run("pointer", rapid.MakeCheck(func(t *rapid.T) {
		b, first := genBucketID(t, genID.Draw(t, "tenant")), rapid.Uint64().Draw(t, "first")
		gotB, gotFirst, err := decodePointer(encodePointer(b, first))
		same(t, []any{b, first}, []any{gotB, gotFirst}, err)
	}))
	t.Run("case", rapid.MakeCheck(func(t *rapid.T) {
		c := ledger.Case{
			Key:     ledger.OrderKey{Tenant: genID.Draw(t, "tenant"), Order: genID.Draw(t, "order"), Benefit: genID.Draw(t, "benefit")},
			Attempt: genU32.Draw(t, "attempt"), Amount: genMoney.Draw(t, "amount"), Opened: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "opened")).UTC(),
		}
		c.Budget = genBucketID(t, c.Key.Tenant).Budget
		got, err := s.decodeCase(s.caseKey(&c), encodeCase(&c))
		same(t, c, got, err)
	}))
	t.Run("block", rapid.MakeCheck(func(t *rapid.T) { blockRoundTrip(t, s) }))
}

// blockRoundTrip reads a block with both decoders: they must agree.
func blockRoundTrip(t *rapid.T, s *Store) {
	b := &ledger.Block{
		Bucket: genBucketID(t, genID.Draw(t, "tenant")), First: rapid.Uint64Range(1, 1<<40).Draw(t, "first"), Prev: genHash(t),
		Time: genTime(t, "time"), Writer: genID.Draw(t, "writer"), Entries: []ledger.Entry{},
	}
	var w blockWriter
	for i := range rapid.IntRange(1, 8).Draw(t, "n") {
		en := genEntry(t, b.Bucket.Budget.Tenant)
		en.Seq = b.First + uint64(i)
		w.add(&en)
		b.Entries = append(b.Entries, en)
	}
	k := s.blockKey(b.Bucket, b.First)
	v := w.seal(b.Prev, b.Time, b.Writer)
	b.Hash = blockHash(s.blockIdentity(k), v)
	got, err := s.decodeBlock(k, v)
	same(t, b, got, err)
	h, ok := readHeader(v)
	if !ok || h.first != b.First || h.count != uint64(len(b.Entries)) || h.prev != b.Prev || h.time != unixMilli(b.Time) {
		t.Fatalf("the light decoder reads header %+v of %+v", h, b)
	}
	c := cursor{b: h.entries}
	for i := range b.Entries {
		var e rawEntry
		c.entry(&e)
		got := ledger.Entry{
			Seq: b.Entries[i].Seq, Type: e.kind, Order: string(e.order), Benefit: string(e.benefit), Attempt: e.attempt, EventSeq: e.eventSeq,
			Delta: e.delta, After: e.after, RefersTo: e.refersTo, Cause: string(e.cause), Correlation: string(e.correlation),
		}
		if e.place != nil {
			p := e.peer(b.Bucket.Budget.Tenant)
			got.Peer = &p
			if want := enc(nil); true {
				want.place(p)
				if !bytes.Equal(want, e.place) {
					t.Fatalf("the peer's stored form is %x, want %x", e.place, want)
				}
			}
		}
		same(t, b.Entries[i], got, nil)
	}
	if c.bad || len(c.b) != 0 {
		t.Fatal("the light decoder does not end where the block ends")
	}
}

// What is cut short, goes on too long or has another form is refused.
func TestCodecsRefuse(t *testing.T) {
	b := ledger.Bucket{ID: ledger.BucketID{Budget: budgetID("b")}, Balances: ledger.Balances{Funded: 300, Available: 300}, Seq: 7, Time: clockStart}
	v := encodeBucket(&b)
	for n := range v {
		if _, err := decodeBucket(b.ID, v[:n]); !errors.Is(err, errTruncated) {
			t.Errorf("%d of %d bytes: %v", n, len(v), err)
		}
	}
	if _, err := decodeBucket(b.ID, append(bytes.Clone(v), 0)); !errors.Is(err, errTrailing) {
		t.Errorf("one byte too many: %v", err)
	}
	v[0] = 2
	if _, err := decodeBucket(b.ID, v); err == nil || err.Error() != "value has form 2, this version reads 1" {
		t.Errorf("another form: %v", err)
	}
	big := enc{}
	big.u(codecVersion)
	big.u(maxDueItems + 1)
	if _, err := decodeExpiry(big); !errors.Is(err, errValue) {
		t.Errorf("too many items: %v", err)
	}
}

// fuzz runs a decoder on anything: no panic, and what it reads it writes so
// that it reads the same again.
func fuzz[T any](f *testing.F, seeds [][]byte, decode func([]byte) (T, error), encode func(T) []byte) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		got, err := decode(v)
		if err != nil {
			return
		}
		again, err := decode(encode(got))
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", got) {
			t.Errorf("%x reads as %+v, written and read again %+v (%v)", v, got, again, err)
		}
	})
}

// seeds are stored values of one table, out of a store with rows of all kinds.
func seeds(f *testing.F, table string) [][]byte {
	b := newBench(f)
	story(b)
	var out [][]byte
	for _, r := range b.rows(b.key(table).all()) {
		out = append(out, r.Value)
	}
	return out
}

func FuzzDecodeReservation(f *testing.F) {
	k := orderKey("o")
	fuzz(f, seeds(f, tableReservation), func(v []byte) (*ledger.Reservation, error) { return decodeReservation(k, v) }, encodeReservation)
}

func FuzzDecodeBucket(f *testing.F) {
	fuzz(f, seeds(f, tableBucket), func(v []byte) (ledger.Bucket, error) { return decodeBucket(ledger.BucketID{}, v) }, func(b ledger.Bucket) []byte { return encodeBucket(&b) })
}

func FuzzDecodeBudget(f *testing.F) {
	fuzz(f, seeds(f, tableBudget), func(v []byte) (*ledger.Budget, error) { return decodeBudget(budgetID("b"), v) }, encodeBudget)
}

func FuzzDecodeBudgetReceipt(f *testing.F) {
	fuzz(f, seeds(f, tableReceipt), func(v []byte) (*ledger.BudgetReceipt, error) { return decodeBudgetReceipt("t", v) }, encodeBudgetReceipt)
}

func FuzzDecodeExpiry(f *testing.F) {
	fuzz(f, seeds(f, tableExpiry), decodeExpiry, encodeExpiry)
}

func FuzzDecodePointer(f *testing.F) {
	type pointer struct {
		b     ledger.BucketID
		first uint64
	}
	fuzz(f, seeds(f, tableOutbox), func(v []byte) (p pointer, err error) { p.b, p.first, err = decodePointer(v); return p, err },
		func(p pointer) []byte { return encodePointer(p.b, p.first) })
}

func FuzzDecodeCase(f *testing.F) {
	s := bare()
	k := s.caseKey(&ledger.Case{Key: orderKey("o"), Attempt: 1, Opened: clockStart})
	fuzz(f, seeds(f, tableCase), func(v []byte) (ledger.Case, error) { return s.decodeCase(k, v) }, func(c ledger.Case) []byte { return encodeCase(&c) })
}

func FuzzDecodeBlock(f *testing.F) {
	s := bare()
	k := s.blockKey(ledger.BucketID{Budget: budgetID("b")}, 1)
	for _, v := range seeds(f, tableBlock) {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		b, err := s.decodeBlock(k, v)
		w := s.newWalker(ledger.BucketID{Budget: budgetID("b")}, func(checkID, string, ...any) {})
		w.block(k, v) // the light decoder does not panic either
		if err == nil && w.entries != uint64(len(b.Entries)) {
			t.Errorf("one decoder reads %d entries, the other %d", len(b.Entries), w.entries)
		}
	})
}

func FuzzReadKeys(f *testing.F) {
	s := bare()
	f.Add([]byte(s.blockKey(ledger.BucketID{Budget: budgetID("b")}, 300)))
	f.Add([]byte(s.reservationKey(orderKey("o"))))
	f.Add([]byte(s.expiryKey(1<<33, ledger.BucketID{Budget: budgetID("b")}, 1, 2)))
	f.Fuzz(func(_ *testing.T, k []byte) {
		for _, table := range []string{tableBudget, tableBucket, tableReservation, tableBlock, tableExpiry} {
			r := s.read(k, table)
			r.bucket()
			_ = r.end()
		}
		_, _ = s.reservationOf(k, nil)
		_, _ = s.decodeDue(k, nil)
		_, _ = s.partitionOfKey(k)
		_, _, _ = s.receiptOfKey(k)
	})
}
