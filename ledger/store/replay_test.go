package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

func (b *bench) replay(id ledger.BudgetID, cutoff time.Time) *Replay {
	b.t.Helper()
	r, err := b.Replay(context.Background(), id, cutoff)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return r
}

func TestReplayEqualsBalances(t *testing.T) {
	b := newBench(t)
	story(b)
	for _, name := range []string{"spring", "closing", "sink"} {
		r := b.replay(budgetID(name), time.Time{})
		v, err := b.Budget(context.Background(), budgetID(name))
		if err != nil {
			t.Fatal(causes(err))
		}
		if !r.OK() || r.Total != v.Total || !r.Cutoff.Equal(b.time()) || r.Budget.State != v.State || len(r.Buckets) != len(v.Buckets) {
			t.Errorf("replay of %s: %+v", name, r)
		}
		for i, k := range r.Buckets {
			row := v.Buckets[i]
			if k.Bucket != row.ID || k.Seq != row.Seq || k.Entries != row.Seq || k.Replayed != row.Balances || !k.HasStored || k.Stored != row.Balances || k.Head != row.Hash {
				t.Errorf("bucket %s replays to %+v, its row is %+v", row.ID, k, row)
			}
		}
	}
	_, err := b.Replay(context.Background(), budgetID("nowhere"), time.Time{})
	wantCode(t, ledger.BudgetNotFound, err)
	_, err = b.Replay(context.Background(), ledger.BudgetID{Tenant: "t2", Key: "spring"}, time.Time{})
	wantCode(t, ledger.BudgetNotFound, err)
}

func TestReplayToCutoff(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	b.advance(time.Second)
	b.ok(reserve("spring", "a", 100))
	b.advance(time.Second)
	b.ok(on(ledger.OpCommit, "a", "", 0))
	start := b.replay(budgetID("spring"), clockStart.Add(-time.Millisecond))
	for _, tc := range []struct {
		cutoff time.Duration
		seq    uint64
		want   ledger.Balances
	}{
		{-time.Millisecond, 0, ledger.Balances{}},
		{0, 2, ledger.Balances{Funded: 1000, Available: 1000}},
		{999 * time.Millisecond, 2, ledger.Balances{Funded: 1000, Available: 1000}},
		{time.Second, 3, ledger.Balances{Funded: 1000, Available: 900, Reserved: 100}},
		{1500 * time.Millisecond, 3, ledger.Balances{Funded: 1000, Available: 900, Reserved: 100}},
		{2 * time.Second, 4, ledger.Balances{Funded: 1000, Available: 900, Committed: 100}},
	} {
		r := b.replay(budgetID("spring"), clockStart.Add(tc.cutoff))
		k := r.Buckets[0]
		if !r.OK() || r.Total != tc.want || k.Seq != tc.seq || k.Replayed != tc.want || k.HasStored || !r.Cutoff.Equal(clockStart.Add(tc.cutoff)) {
			t.Errorf("cutoff %s: %+v, want entry %d and %+v", tc.cutoff, r, tc.seq, tc.want)
		}
	}
	if start.Buckets[0].Head != [32]byte{} {
		t.Error("a replay of nothing has a head")
	}
}

func TestReplayRefusesTheFuture(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}))
	_, err := b.Replay(context.Background(), budgetID("spring"), clockStart.Add(time.Nanosecond))
	r := wantCode(t, ledger.CutoffInFuture, err)
	if r.Field != "cutoff_time" || r.Value != "2026-03-01T12:00:00.000000001Z" || r.Limit != "up to 2026-03-01T12:00:00Z" {
		t.Errorf("the refusal names %q, %q, %q", r.Field, r.Value, r.Limit)
	}
	if got := b.replay(budgetID("spring"), clockStart); !got.OK() {
		t.Errorf("a cutoff of now is refused: %+v", got)
	}
	b.opt.Now = func() time.Time { return clockStart.Add(1234567 * time.Nanosecond) }
	_, err = b.Replay(context.Background(), budgetID("spring"), clockStart.Add(time.Hour))
	if r := wantCode(t, ledger.CutoffInFuture, err); r.Limit != "up to 2026-03-01T12:00:00.001Z" {
		t.Errorf("the limit is %q: entries have times of whole milliseconds", r.Limit)
	}
}

func TestReplayNamesBucketSeqAndValues(t *testing.T) {
	one := ledger.BucketID{Budget: budgetID("spring")}
	for _, tc := range []struct {
		name  string
		want  []string
		plant func(b *bench)
	}{
		{"stored balances differ", []string{"bucket spring#0", "available 900", "available 899"}, func(b *bench) {
			b.editBucket(one, func(k *ledger.Bucket) { k.Available--; k.Funded-- })
		}},
		{"a block is gone", []string{"block 3 of bucket spring#0", "entry 1", "entry 2"}, func(b *bench) { b.drop(b.blockKey(one, 2)) }},
		{"the last block is gone", []string{"bucket spring#0", "entry 2", "its row says 3"}, func(b *bench) { b.drop(b.blockKey(one, 3)) }},
		{"a block changed", []string{"block 3 of bucket spring#0", "hash"}, func(b *bench) {
			r := b.rows(kv.KeyRange(b.blockKey(one, 2)))[0]
			b.set(r.Key, []byte(strings.Replace(string(r.Value), "n1", "n2", 1)))
		}},
		{"the row is behind", []string{"bucket spring#0 has block 3", "entry 2 is its last"}, func(b *bench) {
			b.set(b.bucketKey(one), b.older)
		}},
		{"an entry does not add up", []string{"entry 2 of bucket spring#0", "available 1001"}, func(b *bench) {
			b.rewrite(one, func(es []ledger.Entry) []ledger.Entry { es[1].After.Available++; return es })
		}},
		{"a block that cannot be read", []string{"block 2 of bucket spring#0", "cannot be read"}, func(b *bench) { b.set(b.blockKey(one, 2), []byte{1, 2, 3}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
			b.older = b.rows(kv.KeyRange(b.bucketKey(one)))[0].Value
			b.ok(reserve("spring", "a", 100))
			tc.plant(b)
			r := b.replay(budgetID("spring"), time.Time{})
			if r.OK() {
				t.Fatal("the replay finds nothing wrong")
			}
			for _, w := range tc.want {
				if !strings.Contains(r.Buckets[0].Problem, w) {
					t.Errorf("the problem %q does not name %q", r.Buckets[0].Problem, w)
				}
			}
		})
	}
}

// A ledger of many pages and blocks replays while it grows, and a walk over it
// never takes a transaction that is too large.
func TestReplayOfManyPages(t *testing.T) {
	b := newBench(t)
	b.fill("spring", 1, 30_000)
	r := b.replay(budgetID("spring"), time.Time{})
	if !r.OK() || r.Buckets[0].Entries != 30_002 || r.Total.Reserved != 30_000 {
		t.Errorf("replay of many entries: %+v", r)
	}
	es := b.entries(budgetID("spring"))
	if len(es) != 30_002 {
		t.Errorf("listed %d entries, want 30002", len(es))
	}
	for i, en := range es {
		if en.Seq != uint64(i+1) {
			t.Fatalf("entry %d has number %d", i+1, en.Seq)
		}
	}
}

// fill makes a budget with n holds of one minor unit, in batches of 128.
func (b *bench) fill(key string, buckets, n int) {
	b.t.Helper()
	b.ok(create(key, buckets, ledger.Policy{}), onBudget(ledger.OpFund, key, "fund-"+key, 1<<40))
	def, err := b.Definition(context.Background(), budgetID(key))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	queues := map[ledger.BucketID][]ledger.Command{}
	flush := func(id ledger.BucketID) {
		got, err := b.Apply(context.Background(), &id, queues[id])
		if err != nil {
			b.t.Fatal(causes(err))
		}
		for _, g := range got {
			if g.Err != nil || g.Reroute != nil {
				b.t.Fatalf("fill: %v, %v", g.Err, g.Reroute)
			}
		}
		queues[id] = queues[id][:0]
	}
	for i := range n {
		c := reserve(key, fmt.Sprintf("order-%s-%08d", key, i), 1).Normalize()
		id := def.Route(c.Key)
		if queues[id] = append(queues[id], c); len(queues[id]) == 128 {
			flush(id)
		}
	}
	for id, q := range queues {
		if len(q) > 0 {
			flush(id)
		}
	}
}

func BenchmarkReplay(bb *testing.B) {
	b := newBench(bb)
	b.fill("spring", 1, 100_000)
	bb.ResetTimer()
	var entries uint64
	for bb.Loop() {
		r := b.replay(budgetID("spring"), time.Time{})
		if !r.OK() {
			bb.Fatal(r.Buckets)
		}
		entries += r.Buckets[0].Entries
	}
	bb.ReportMetric(float64(entries)/bb.Elapsed().Seconds(), "entries/s")
}

// BenchmarkDecode is replay without the engine: hash, decode and check.
func BenchmarkDecode(bb *testing.B) {
	b := newBench(bb)
	b.fill("spring", 1, 20_000)
	rows := b.rows(b.key(tableBlock).bucket(ledger.BucketID{Budget: budgetID("spring")}).all())
	bb.ResetTimer()
	var entries uint64
	for bb.Loop() {
		w := b.newWalker(ledger.BucketID{Budget: budgetID("spring")}, func(_ checkID, f string, a ...any) { bb.Fatalf(f, a...) })
		for _, r := range rows {
			w.block(r.Key, r.Value)
		}
		entries += w.entries
	}
	bb.ReportMetric(float64(entries)/bb.Elapsed().Seconds(), "entries/s")
}

func BenchmarkAudit(bb *testing.B) {
	b := newBench(bb)
	b.fill("spring", 16, 100_000)
	bb.ResetTimer()
	var entries uint64
	for bb.Loop() {
		rep, err := b.Audit(context.Background(), nil)
		if err != nil || !rep.OK() {
			bb.Fatal(err, failures(rep))
		}
		entries += rep.Entries
	}
	bb.ReportMetric(float64(entries)/bb.Elapsed().Seconds(), "entries/s")
}
