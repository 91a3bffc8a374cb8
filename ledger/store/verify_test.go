package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

const everyDay = 24 * time.Hour

// verify steps over a bucket until it is through.
func (b *bench) verify(id ledger.BucketID, r Round) Verification {
	b.t.Helper()
	for range 1000 {
		v, err := b.VerifyNext(context.Background(), id, 0, r, everyDay)
		if err != nil {
			b.t.Fatal(causes(err))
		}
		if !v.More || v.Problem != "" {
			return v
		}
	}
	b.t.Fatal("the verification does not come to an end")
	return Verification{}
}

// Each step goes on where the last one stopped, also in another process; RoundAll
// begins again once its time has come.
func TestVerifyGoesOnWhereItStopped(t *testing.T) {
	b := newBench(t)
	id := ledger.BucketID{Budget: budgetID("spring")}
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	for i := range 2*verifyBlocks + 3 {
		b.ok(reserve("spring", fmt.Sprint("o", i), 1))
	}
	head := uint64(2*verifyBlocks + 5)
	for i, want := range []Verification{
		{Bucket: id, From: 0, To: verifyBlocks, Head: head, More: true},
		{Bucket: id, From: verifyBlocks, To: 2 * verifyBlocks, Head: head, More: true},
		{Bucket: id, From: 2 * verifyBlocks, To: head, Head: head},
		{Bucket: id, From: head, To: head, Head: head},
	} {
		if got, err := b.VerifyNext(context.Background(), id, 0, RoundNew, everyDay); err != nil || got != want {
			t.Errorf("step %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
	b.ok(reserve("spring", "late", 1))
	if got := b.verify(id, RoundNew); got.From != head || got.To != head+1 {
		t.Errorf("after one more entry: %+v", got)
	}
	if got := b.verify(id, RoundAll); got.To != 0 || got.Head != 0 {
		t.Errorf("the first round begins at once: %+v", got)
	}
	b.advance(everyDay)
	if got := b.verify(id, RoundAll); got.To != head+1 {
		t.Errorf("a day later: %+v", got)
	}
	if got := b.verify(id, RoundAll); got.To != 0 {
		t.Errorf("a second round begins at once: %+v", got)
	}
	b.advance(everyDay)
	if got, err := b.VerifyNext(context.Background(), id, 0, RoundAll, everyDay); err != nil || got.From != 0 || got.To != verifyBlocks {
		t.Errorf("the next round: %+v, %v", got, err)
	}
	if got, err := b.VerifyNext(context.Background(), ledger.BucketID{Budget: budgetID("none")}, 0, RoundNew, everyDay); err != nil || got.Problem != "bucket none#0 has no row" {
		t.Errorf("a bucket that is not there: %+v, %v", got, err)
	}
	// A record that is lost, or cannot be read, only costs time.
	b.set(b.verifiedKey(RoundNew, id), []byte{77})
	if got := b.verify(id, RoundNew); got.Problem != "" || got.To != head+1 {
		t.Errorf("after a bad record: %+v", got)
	}
	b.audit()
}

func TestVerifyFindsWhatWasChanged(t *testing.T) {
	id := ledger.BucketID{Budget: budgetID("spring")}
	for _, tc := range []struct {
		name  string
		round Round
		want  string
		plant func(b *bench)
	}{
		{"a balance", RoundNew, "available 971", func(b *bench) { b.editBucket(id, func(k *ledger.Bucket) { k.Available++; k.Funded++ }) }},
		{"a hash", RoundNew, "its row says", func(b *bench) { b.editBucket(id, func(k *ledger.Bucket) { k.Hash[3]++ }) }},
		{"a time", RoundNew, "is of", func(b *bench) { b.editBucket(id, func(k *ledger.Bucket) { k.Time = k.Time.Add(time.Hour) }) }},
		{"a number", RoundNew, "its row says 40", func(b *bench) { b.editBucket(id, func(k *ledger.Bucket) { k.Seq = 40 }) }},
		{"an older row", RoundNew, "its row says", func(b *bench) { b.set(b.bucketKey(id), b.older) }},
		{"a row that cannot be read", RoundNew, "cannot be read", func(b *bench) { b.set(b.bucketKey(id), []byte{9}) }},
		{"no row", RoundNew, "has no row", func(b *bench) { b.drop(b.bucketKey(id)) }},
		{"a new block", RoundNew, "hash", func(b *bench) { b.ok(reserve("spring", "new", 1)); b.spoil(id, 33) }},
		{"a new block lost", RoundNew, "its row says 34", func(b *bench) {
			b.ok(reserve("spring", "x", 1), reserve("spring", "y", 1))
			b.drop(b.blockKey(id, 34))
		}},
		{"an old block", RoundAll, "hash", func(b *bench) { b.spoil(id, 5) }},
		{"an old block lost", RoundAll, "block 6 of bucket spring#0 follows entry 4", func(b *bench) { b.drop(b.blockKey(id, 5)) }},
		{"an old block that cannot be read", RoundAll, "block 5 of bucket spring#0 cannot be read", func(b *bench) { b.set(b.blockKey(id, 5), []byte{1}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
			b.older = b.rows(kv.KeyRange(b.bucketKey(id)))[0].Value
			for i := range 30 {
				b.ok(reserve("spring", fmt.Sprint("o", i), 1))
			}
			b.verify(id, RoundNew)
			b.verify(id, RoundAll)
			b.advance(everyDay)
			tc.plant(b)
			got := b.verify(id, tc.round)
			if !strings.Contains(got.Problem, tc.want) {
				t.Errorf("%+v, want %q", got, tc.want)
			}
			if again := b.verify(id, tc.round); again.Problem != got.Problem {
				t.Errorf("found once: %+v", again)
			}
			full, err := b.VerifyBucket(context.Background(), id, 0)
			if err != nil || full.Problem == "" {
				t.Errorf("the whole bucket: %+v, %v", full, err)
			}
		})
	}
}

// spoil changes one byte of a block that says nothing of its form.
func (b *bench) spoil(id ledger.BucketID, first uint64) {
	b.t.Helper()
	r := b.rows(kv.KeyRange(b.blockKey(id, first)))[0]
	b.set(r.Key, []byte(strings.Replace(string(r.Value), "n1", "n2", 1)))
}

// A record that is wrong is found out by the whole bucket, and forgotten.
func TestVerifyWithAWrongRecord(t *testing.T) {
	b := newBench(t)
	id := ledger.BucketID{Budget: budgetID("spring")}
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "a", 1))
	b.set(b.verifiedKey(RoundNew, id), encodeVerified(&verified{seq: 2, hash: [32]byte{1}, sum: ledger.Balances{Funded: 7, Available: 7}}))
	if got := b.verify(id, RoundNew); got.Problem == "" {
		t.Fatalf("%+v", got)
	}
	if full, err := b.VerifyBucket(context.Background(), id, 0); err != nil || full.Problem != "" || full.Seq != 3 {
		t.Fatalf("%+v, %v", full, err)
	}
	if got := b.verify(id, RoundNew); got.Problem != "" || got.From != 0 || got.To != 3 {
		t.Errorf("%+v", got)
	}
}

// Verification beside traffic, moves and reshards never finds anything.
func TestVerifyUnderTraffic(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 2, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1_000_000))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			b.one(reserve("spring", fmt.Sprint("o", i), 5))
			b.one(moveOf("spring", fmt.Sprint("m", i), uint16(i%2), uint16(1-i%2), 3))
			if i%10 == 0 {
				b.one(reshard("spring", fmt.Sprint("r", i), 2+i/10%3))
			}
		}
	})
	for i := range 300 {
		id := ledger.BucketID{Budget: budgetID("spring"), Index: uint16(i % 2)}
		for _, r := range []Round{RoundNew, RoundAll} {
			if v, err := b.VerifyNext(ctx, id, 0, r, 0); err != nil || v.Problem != "" {
				t.Fatalf("%+v, %v", v, err)
			}
		}
	}
	cancel()
	wg.Wait()
	for i := range uint16(2) {
		if full, err := b.VerifyBucket(context.Background(), ledger.BucketID{Budget: budgetID("spring"), Index: i}, 0); err != nil || full.Problem != "" {
			t.Errorf("%+v, %v", full, err)
		}
	}
}

// A scanner of a term that has passed records nothing.
func TestVerifyBehindTheFence(t *testing.T) {
	b := newBench(t)
	id := ledger.BucketID{Budget: budgetID("spring")}
	b.ok(create("spring", 1, ledger.Policy{}))
	if err := b.Claim(context.Background(), 5, "other"); err != nil {
		t.Fatal(causes(err))
	}
	_, err := b.VerifyNext(WithTerm(context.Background(), 4), id, 0, RoundNew, everyDay)
	wantCode(t, ledger.Fenced, err)
	if n := len(b.rows(b.key(tableVerified).all())); n != 0 {
		t.Errorf("%d records", n)
	}
}

// A budget freezes although one of its buckets cannot be read.
func TestFreezeWithABrokenBucket(t *testing.T) {
	for _, broken := range [][]byte{{9}, nil} {
		b := newBench(t)
		b.ok(create("spring", 3, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 300))
		at := b.bucketKey(ledger.BucketID{Budget: budgetID("spring"), Index: 2})
		if broken == nil {
			b.drop(at)
		} else {
			b.set(at, broken)
		}
		if r := b.ok(onBudget(ledger.OpFreeze, "spring", "stop", 0)); r.Definition.State != ledger.BudgetFrozen || r.Totals.Funded != 100 {
			t.Errorf("%+v", r)
		}
		b.refused(ledger.Corrupt, onBudget(ledger.OpFund, "spring", "f2", 300))
	}
}

func TestVerifiedRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := verified{seq: rapid.Uint64().Draw(t, "seq"), time: rapid.Int64().Draw(t, "time"), sum: genBalances(t), began: genTime(t, "began"), through: rapid.Bool().Draw(t, "through")}
		v.hash[0] = rapid.Byte().Draw(t, "hash")
		got, err := decodeVerified(encodeVerified(&v))
		same(t, v, got, err)
	})
	if _, err := decodeVerified([]byte{1, 2}); err == nil {
		t.Error("a short value is read")
	}
}
