package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// due reads what is due in all slots.
func (b *bench) due() []DueBlock {
	b.t.Helper()
	var out []DueBlock
	for slot := range uint64(ExpirySlots) {
		blocks, err := b.DueBlocks(context.Background(), slot, DueBlock{}, 100)
		if err != nil {
			b.t.Fatal(causes(err))
		}
		if rest, err := b.DueBlocks(context.Background(), slot, DueBlock{key: []byte{0xff}}, 100); err != nil || len(rest) > 0 {
			b.t.Errorf("slot %d: %d rows behind one that is not due yet, %v", slot, len(rest), err)
		}
		for i := range blocks { // those behind each are the others
			rest, err := b.DueBlocks(context.Background(), slot, blocks[i], 100)
			if err != nil || !slices.EqualFunc(rest, blocks[i+1:], func(x, y DueBlock) bool { return bytes.Equal(x.key, y.key) }) {
				b.t.Errorf("slot %d: %d rows behind number %d of %d, %v", slot, len(rest), i, len(blocks), err)
			}
		}
		for _, bl := range blocks {
			if slotOf(bl.Bucket) != slot {
				b.t.Errorf("bucket %s is in slot %d, not %d", bl.Bucket, slot, slotOf(bl.Bucket))
			}
		}
		out = append(out, blocks...)
	}
	return out
}

// expireAll does what the expiry loop does, and returns how many expired.
func (b *bench) expireAll() (n int) {
	b.t.Helper()
	blocks := b.due()
	for _, bl := range blocks {
		for _, k := range bl.Keys {
			if r := b.one(ledger.Command{Op: ledger.OpExpire, Key: k.OrderKey, Attempt: k.Attempt}); r.Err == nil {
				n++
			}
		}
	}
	if err := b.DropDue(context.Background(), blocks); err != nil {
		b.t.Fatal(causes(err))
	}
	return n
}

func TestDueBlocksAppearWhenDue(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	if _, ok, err := b.OldestDue(context.Background()); ok || err != nil {
		t.Errorf("an empty index has an oldest row (%v)", err)
	}
	c := reserve("spring", "a", 10)
	c.TTL = 90 * time.Second
	b.ok(c)
	oldest, ok, err := b.OldestDue(context.Background())
	if err != nil || !ok || !oldest.Equal(clockStart.Add(90*time.Second)) {
		t.Errorf("the oldest is due at %s (%v, %v)", oldest, ok, err)
	}
	b.advance(90*time.Second - time.Millisecond)
	if got := b.due(); len(got) != 0 {
		t.Errorf("due before its time: %+v", got)
	}
	b.advance(time.Millisecond)
	got := b.due()
	if len(got) != 1 || len(got[0].Keys) != 1 || got[0].Keys[0] != (DueKey{orderKey("a"), 1}) ||
		got[0].Bucket != (ledger.BucketID{Budget: budgetID("spring")}) || !got[0].Due.Equal(clockStart.Add(90*time.Second)) {
		t.Fatalf("due: %+v", got)
	}
	if n := b.expireAll(); n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
	if got := b.due(); len(got) != 0 {
		t.Errorf("still due after it was dropped: %+v", got)
	}
	if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 1000, Available: 1000}) {
		t.Errorf("after the expiry: %+v", got)
	}
	if err := b.DropDue(context.Background(), got); err != nil {
		t.Errorf("dropping twice: %v", err)
	}
	b.audit()
}

// The expiry rounds up to a grain that grows with the time to live, never
// down: money never goes back before its hold ends.
func TestDueAtRoundsUp(t *testing.T) {
	for _, tc := range []struct{ ttl, want time.Duration }{
		{time.Millisecond, time.Second},
		{time.Second, time.Second},
		{119 * time.Second, 119 * time.Second},
		{2*time.Minute + time.Millisecond, 125 * time.Second},
		{14*time.Minute + 59*time.Second, 15 * time.Minute},
		{15 * time.Minute, 15 * time.Minute},
		{15*time.Minute + time.Millisecond, 16 * time.Minute},
		{-time.Second, -time.Second},
	} {
		if got := time.Unix(dueAt(clockStart, clockStart.Add(tc.ttl)), 0).Sub(clockStart); got != tc.want {
			t.Errorf("a hold of %s is due after %s, want %s", tc.ttl, got, tc.want)
		}
	}
}

func TestUnreadableDueRowDoesNotBlockItsSlot(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "a", 10))
	bucket := ledger.BucketID{Budget: budgetID("spring")}
	b.set(b.expiryKey(1, bucket, 1, 0), []byte{9})
	b.advance(time.Hour)
	if n := b.expireAll(); n != 1 {
		t.Errorf("%d expired beside a row that cannot be read, want 1", n)
	}
	oldest, ok, err := b.OldestDue(context.Background())
	if err != nil || !ok || oldest.Unix() != 1 {
		t.Errorf("the row that cannot be read is not seen: %s, %v, %v", oldest, ok, err)
	}
}

// Losing the whole index loses no expiry.
func TestRebuildExpiry(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 4, ledger.Policy{}), create("other", 1, ledger.Policy{}),
		onBudget(ledger.OpFund, "spring", "f1", 100_000), onBudget(ledger.OpFund, "other", "f2", 100_000))
	const n = 700
	for i := range n {
		budget := "spring"
		if i%3 == 0 {
			budget = "other"
		}
		b.ok(reserve(budget, fmt.Sprint("o", i), 10))
	}
	b.ok(on(ledger.OpCommit, "o1", "", 0), on(ledger.OpRelease, "o2", "", 0), on(ledger.OpExtend, "o3", "e", 0))
	b.tamper(func(tx kv.Tx) { tx.ClearRange(b.key(tableExpiry).all()) })
	for range 2 { // again does the same
		var scanned, written uint64
		if err := b.RebuildExpiry(context.Background(), func(s, w uint64) { scanned, written = s, w }); err != nil {
			t.Fatal(causes(err))
		}
		if scanned != n || written != n-2 {
			t.Errorf("scanned %d and wrote %d, want %d and %d", scanned, written, n, n-2)
		}
		b.audit()
	}
	b.advance(16 * time.Minute)
	if got := b.expireAll(); got != n-3 {
		t.Errorf("%d expired, want %d", got, n-3)
	}
	b.audit()
	b.advance(time.Hour)
	if got := b.expireAll(); got != 1 {
		t.Errorf("%d expired after the extension, want 1", got)
	}
	if got := b.totals(budgetID("spring")); got.Reserved != 0 || got.Committed != 10 {
		t.Errorf("after all expired: %+v", got)
	}
	b.audit()
}

// A rebuild while holds are made, extended and settled leaves every hold in
// the index.
func TestRebuildExpiryUnderTraffic(t *testing.T) {
	b := newBench(t)
	b.fill("spring", 2, 2000)
	err := b.RebuildExpiry(context.Background(), func(scanned, _ uint64) {
		o := fmt.Sprint("during", scanned)
		b.ok(reserve("spring", o, 1), on(ledger.OpExtend, o, "e", 0), reserve("spring", o+"x", 1), on(ledger.OpCommit, o+"x", "", 0))
	})
	if err != nil {
		t.Fatal(causes(err))
	}
	b.audit()
}

func TestRebuildExpiryPassesOverUnreadableRows(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "a", 10), reserve("spring", "b", 10))
	b.set(b.reservationKey(orderKey("a")), []byte{9})
	wantCode(t, ledger.Corrupt, b.RebuildExpiry(context.Background(), nil))
	b.advance(time.Hour)
	if n := b.expireAll(); n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
}

// No two rows of a batch share a key, however many holds it makes.
func TestExpiryRowsOfOneBatch(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 10_000))
	bucket := ledger.BucketID{Budget: budgetID("spring")}
	cmds := make([]ledger.Command, 600)
	for i := range cmds {
		cmds[i] = reserve("spring", fmt.Sprint("o", i), 1).Normalize()
	}
	if _, err := b.Apply(context.Background(), &bucket, cmds); err != nil {
		t.Fatal(causes(err))
	}
	rows := b.rows(b.key(tableExpiry).all())
	if len(rows) != 3 {
		t.Errorf("600 holds make %d expiry rows, want 3", len(rows))
	}
	for i := 1; i < len(rows); i++ {
		if bytes.Equal(rows[i].Key, rows[i-1].Key) {
			t.Error("two rows with one key")
		}
	}
	b.audit()
}
