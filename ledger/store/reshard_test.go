package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

func reshard(key, id string, buckets int) ledger.Command {
	return ledger.Command{Op: ledger.OpReshard, Budget: budgetID(key), ID: id, Buckets: buckets}
}

func moveOf(key, id string, from, to uint16, amount int64) ledger.Command {
	return ledger.Command{Op: ledger.OpMove, Budget: budgetID(key), ID: id, From: from, To: to, Amount: amount}
}

// routed sends a command first to the bucket that the budget's epoch gives, as
// an executor does with one that names its budget.
func (b *bench) routed(key string, c ledger.Command) ledger.Reply {
	b.t.Helper()
	def, err := b.Definition(context.Background(), budgetID(key))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	at := def.Route(c.Key)
	for range 4 {
		got := b.batch(at, c)[0]
		if got.Reroute == nil {
			return got.Reply
		}
		at = *got.Reroute
	}
	b.t.Fatalf("%s of %s finds no bucket", c.Op, c.Key)
	return ledger.Reply{}
}

// Every operation, once in the first epoch: each of them repeated in a later
// one finds its reservation in its old bucket and gets its first answer, and
// each operation that comes only then works there, too.
func TestRetriesFindTheirBucketInEveryEpoch(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 3, ledger.Policy{LateCommit: ledger.LateReclaim}), onBudget(ledger.OpFund, "spring", "f1", 100_000))
	partial := on(ledger.OpCommit, "parts", "p1", 40)
	partial.Partial = true
	first := []ledger.Command{
		reserve("spring", "held", 100),
		reserve("spring", "extended", 100), on(ledger.OpExtend, "extended", "x", 0),
		reserve("spring", "parts", 100), partial,
		reserve("spring", "paid", 100), on(ledger.OpCommit, "paid", "p", 0),
		reserve("spring", "released", 100), on(ledger.OpRelease, "released", "", 0),
		reserve("spring", "reclaimed", 100), on(ledger.OpRelease, "reclaimed", "", 0), on(ledger.OpReclaim, "reclaimed", "", 0),
		reserve("spring", "refunded", 100), on(ledger.OpCommit, "refunded", "", 0), on(ledger.OpReverse, "refunded", "r1", 30),
		reserve("spring", "restored", 100), on(ledger.OpCommit, "restored", "", 0), on(ledger.OpReverse, "restored", "r1", 100), on(ledger.OpReinstate, "restored", "r1", 0),
		reserve("spring", "lapsed", 100),
		reserve("spring", "late", 100),
	}
	expiry := []ledger.Command{on(ledger.OpExpire, "lapsed", "", 0), on(ledger.OpExpire, "late", "", 0), on(ledger.OpCommit, "late", "p", 0)}
	answers := map[int]ledger.Result{}
	all := append(append([]ledger.Command{}, first...), expiry...)
	for i, c := range all {
		if i == len(first) {
			b.advance(16 * time.Minute)
		}
		answers[i] = b.ok(c)
	}
	b.refused(ledger.InsufficientBudget, reserve("spring", "refused", 1_000_000))
	b.ok(on(ledger.OpRelease, "tomb", "", 0))
	b.ok(ledger.Command{Op: ledger.OpResolve, Key: orderKey("void"), Target: ledger.OpReserve})
	moved := 0
	for epoch, n := range []int{16, 2, 7, 1} {
		b.ok(reshard("spring", fmt.Sprint("to ", n), n))
		for i, c := range all {
			c = c.Normalize()
			for name, got := range map[string]ledger.Reply{"routed": b.routed("spring", c), "located": b.one(c)} {
				want := answers[i]
				want.Replayed = true
				if got.Err != nil || got.Result.Outcome != want.Outcome || !got.Result.Replayed || got.Result.Key != want.Key {
					t.Fatalf("epoch %d, %s: %s of %s again gives %+v, %v; first it gave %+v", epoch+2, name, c.Op, c.Key, got.Result, causes(got.Err), want)
				}
			}
		}
		if r := wantCode(t, ledger.InsufficientBudget, b.routed("spring", reserve("spring", "refused", 1_000_000).Normalize()).Err); !r.Replayed {
			t.Errorf("epoch %d: the refusal is made anew", epoch+2)
		}
		wantCode(t, ledger.CancelledBeforeReserve, b.routed("spring", reserve("spring", "tomb", 5).Normalize()).Err)
		wantCode(t, ledger.Voided, b.routed("spring", reserve("spring", "void", 5).Normalize()).Err)
		// Another value under the old key is a conflict, not a second reservation.
		wantCode(t, ledger.IdempotencyConflict, b.routed("spring", reserve("spring", "held", 101).Normalize()).Err)
		// What comes only now works in the old bucket.
		old := b.legOf("refunded")
		if got := b.ok(on(ledger.OpReverse, "refunded", fmt.Sprint("r", epoch+2), 10)); got.Outcome.Bucket != old {
			t.Errorf("a refund of bucket %s went to %s", old, got.Outcome.Bucket)
		}
		def, _ := b.Definition(context.Background(), budgetID("spring"))
		if def.Route(orderKey("refunded")) != old {
			moved++
		}
		b.audit()
	}
	if moved == 0 {
		t.Error("no epoch routes the order elsewhere: the test shows nothing")
	}
	last := b.legOf("held")
	for _, c := range []ledger.Command{on(ledger.OpExtend, "held", "y", 0), on(ledger.OpCommit, "held", "", 0)} {
		if got := b.ok(c); got.Outcome.Bucket != last {
			t.Errorf("%s works in %s, the reservation is in %s", c.Op, got.Outcome.Bucket, last)
		}
	}
	// A further attempt is a reservation of its own: it goes to a living bucket.
	again := withAttempt(reserve("spring", "released", 60), 2)
	if got := b.ok(again); got.Outcome.Bucket.Index != 0 {
		t.Errorf("attempt 2 went to %s of a budget with one bucket", got.Outcome.Bucket)
	}
	if got := b.totals(budgetID("spring")).Funded; got != 100_000 {
		t.Errorf("funded is %d after all epochs", got)
	}
	b.audit()
}

// A reshard in the middle of a batch: what comes after it in the batch is sent
// on to where it belongs, in the order it came, and nothing is refused for it.
func TestReshardInTheMiddleOfABatch(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "old", 10))
	cmds := []ledger.Command{reserve("spring", "before", 10), reshard("spring", "up", 16), on(ledger.OpCommit, "old", "", 0)}
	for i := range 20 {
		cmds = append(cmds, reserve("spring", fmt.Sprint("o", i), 10), on(ledger.OpCommit, fmt.Sprint("o", i), "", 0))
	}
	got := b.batch(ledger.BucketID{Budget: budgetID("spring")}, cmds...)
	def, _ := b.Definition(context.Background(), budgetID("spring"))
	if got[0].Err != nil || got[1].Err != nil || got[2].Err != nil || got[1].Result.Definition.Epoch != (ledger.Epoch{Number: 2, Buckets: 16}) || def.Epoch != got[1].Result.Definition.Epoch {
		t.Fatalf("%+v, %+v, %+v", got[0], got[1], got[2])
	}
	sent := 0
	for i := 3; i < len(cmds); i++ {
		to := def.Route(cmds[i].Key)
		switch {
		case got[i].Err != nil:
			t.Errorf("%s of %s: %v", cmds[i].Op, cmds[i].Key, got[i].Err)
		case to.Index == 0 && (got[i].Reroute != nil || got[i].Result.Outcome.Bucket != to):
			t.Errorf("%s of %s stays in bucket 0: %+v", cmds[i].Op, cmds[i].Key, got[i])
		case to.Index != 0 && (got[i].Reroute == nil || *got[i].Reroute != to || got[i].Epoch != 2):
			t.Errorf("%s of %s belongs to %s: %+v", cmds[i].Op, cmds[i].Key, to, got[i])
		case to.Index != 0:
			sent++
		}
	}
	if sent < 10 {
		t.Errorf("only %d commands were sent on", sent)
	}
	b.audit()
}

// What retired buckets get back is the budget's: an EXACT budget spends it, a
// STRICT one after it was moved.
func TestRetiredBucketsCount(t *testing.T) {
	for _, p := range []ledger.Exhaustion{ledger.Exact, ledger.Strict} {
		b := newBench(t)
		b.ok(create("spring", 8, ledger.Policy{Exhaustion: p}), onBudget(ledger.OpFund, "spring", "f1", 800))
		var retired ledger.BucketID
		for i := 0; retired.Index == 0; i++ {
			order := fmt.Sprint("o", i)
			if r := b.ok(reserve("spring", order, 10)); r.Outcome.Bucket.Index > 0 {
				retired = r.Outcome.Bucket
			}
			b.ok(on(ledger.OpCommit, order, "", 0))
			if retired.Index != 0 {
				b.ok(reshard("spring", "down", 1), on(ledger.OpReverse, order, "r", 10))
			}
		}
		if got := b.bucketRow(retired).Available; got != 10 {
			t.Fatalf("%s: the retired bucket %s has %d available", p, retired, got)
		}
		all := b.totals(budgetID("spring")).Available
		if p == ledger.Strict {
			if r := b.refused(ledger.InsufficientBudget, reserve("spring", "greedy", all)); r.Available != all-10 {
				t.Errorf("%s: refused at %d of %d", p, r.Available, all)
			}
			b.ok(moveOf("spring", "m1", retired.Index, 0, 10))
			b.ok(reserve("spring", "next", all))
		} else {
			if r := b.refused(ledger.InsufficientBudget, reserve("spring", "too much", all+1)); r.Available != all {
				t.Errorf("%s: refused at %d of %d", p, r.Available, all)
			}
			b.ok(reserve("spring", "next", all))
		}
		if got := b.totals(budgetID("spring")).Available; got != 0 {
			t.Errorf("%s: %d left", p, got)
		}
		b.audit()
	}
}

// RESHARD and MOVE take effect once whatever befalls their commits, and their
// callers get their first answers.
func TestUnknownOutcomesOfReshardAndMove(t *testing.T) {
	const conflict, landed, lost = embedded.FaultConflict, embedded.FaultUnknownLanded, embedded.FaultUnknownLost
	for _, fates := range [][]embedded.FaultKind{{conflict}, {landed}, {lost}, {lost, landed}, {conflict, landed}} {
		b := newBench(t)
		b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
		b.nextFates(fates...)
		if r := b.ok(reshard("spring", "up", 4)); r.Replayed || r.Definition.Epoch.Buckets != 4 || r.Totals.Available != 1000 {
			t.Errorf("%v: %+v", fates, r)
		}
		b.nextFates(fates...)
		if r := b.ok(moveOf("spring", "m", 1, 2, 50)); r.Replayed {
			t.Errorf("%v: the move is replayed the first time", fates)
		}
		if r := b.ok(moveOf("spring", "m", 1, 2, 50)); !r.Replayed {
			t.Errorf("%v: the move is made twice", fates)
		}
		b.refused(ledger.IdempotencyConflict, moveOf("spring", "m", 1, 2, 51))
		b.ok(reshard("spring", "down", 2))
		if r := b.ok(reshard("spring", "up", 4)); !r.Replayed || r.Definition.Epoch != (ledger.Epoch{Number: 2, Buckets: 4}) {
			t.Errorf("%v: the first reshard again gives %+v", fates, r)
		}
		for i, want := range []int64{500, 500, 0, 0} {
			if got := b.bucketRow(ledger.BucketID{Budget: budgetID("spring"), Index: uint16(i)}).Available; got != want {
				t.Errorf("%v: bucket %d has %d, want %d", fates, i, got, want)
			}
		}
		b.audit()
	}
}

// A create that is repeated after a reshard gives its first answer.
func TestCreateAgainAfterReshard(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 2, ledger.Policy{}), reshard("spring", "up", 5))
	if r := b.ok(create("spring", 2, ledger.Policy{})); !r.Replayed || r.Definition.Epoch != (ledger.Epoch{Number: 1, Buckets: 2}) {
		t.Errorf("%+v", r.Definition)
	}
	b.refused(ledger.IdempotencyConflict, create("spring", 5, ledger.Policy{}))
	b.audit()
}

// The largest change fits one transaction: 1 to 256 buckets and back, with
// every cutoff in between.
func TestReshardToTheMostBuckets(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1_000_003))
	for i, n := range []int{256, 1, 256, 100} {
		b.advance(time.Second)
		b.ok(reshard("spring", fmt.Sprint("k", i), n))
	}
	b.advance(time.Second)
	for i := range 5 {
		if r := b.replay(budgetID("spring"), clockStart.Add(time.Duration(i)*time.Second)); !r.OK() || r.Total.Funded != 1_000_003 {
			t.Errorf("after %d s: %+v", i, r.Total)
		}
	}
	v, err := b.Budget(context.Background(), budgetID("spring"))
	if err != nil || len(v.Buckets) != 256 || v.Epoch != (ledger.Epoch{Number: 5, Buckets: 100, Retired: 156}) {
		t.Fatalf("%d buckets, %+v, %v", len(v.Buckets), v.Epoch, err)
	}
	for i, k := range v.Buckets {
		want := int64(0)
		if i < 100 {
			want = 10_000
			if i < 3 {
				want++
			}
		}
		if k.Available != want {
			t.Errorf("bucket %d has %d, want %d", i, k.Available, want)
		}
	}
	b.audit()
}

// All blocks of a transaction are of one time, also where a bucket it moves
// money to was last written by a node whose clock is ahead: no cutoff falls
// between the two ends of a move.
func TestMovesAreOfOneTime(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 2, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 100))
	b.advance(10 * time.Second)
	b.ok(moveOf("spring", "m1", 0, 1, 10)) // both at 10 s
	b.advance(-8 * time.Second)
	for i := 0; ; i++ { // only bucket 0 is at 12 s
		b.clock.Store(12_000)
		if r := b.ok(reserve("spring", fmt.Sprint("o", i), 1)); r.Outcome.Bucket.Index == 0 {
			break
		}
	}
	b.clock.Store(11_000)
	b.ok(moveOf("spring", "m2", 1, 0, 20))
	b.clock.Store(20_000)
	for ms := int64(0); ms <= 20_000; ms += 500 {
		if r := b.replay(budgetID("spring"), clockStart.Add(time.Duration(ms)*time.Millisecond)); !r.OK() || r.Total.Funded != 100 {
			t.Errorf("at %d ms: %+v", ms, r.Total)
		}
	}
	b.audit()
}

// A budget is resharded and its money moved while audits and customers go on:
// no audit calls anything a problem.
func TestAuditUnderReshards(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 2, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1_000_000))
	// In a store without queues, two writers may keep each other from
	// committing for longer than one call tries.
	may := func(c ledger.Command) {
		var r *ledger.Rejection
		if got := b.one(c); errors.As(got.Err, &r) && r.Code != ledger.Unavailable && r.Code != ledger.BudgetIllegalState && r.Code != ledger.InsufficientBudget {
			t.Errorf("%s: %s", c.Op, causes(got.Err))
		}
	}
	b.auditsWhile(20, func(w, i int) {
		if w == 0 {
			may(reserve("spring", fmt.Sprint("o", i), 5))
			may(on(ledger.OpCommit, fmt.Sprint("o", i), "", 0))
			return
		}
		may(reshard("spring", fmt.Sprint("r", i), 1+i*5%12))
		may(moveOf("spring", fmt.Sprint("m", i), uint16(i%2), uint16(1-i%2), 3))
	})
	if !t.Failed() {
		b.audit()
	}
}
