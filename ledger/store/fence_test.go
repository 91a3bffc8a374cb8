package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

func TestFenceOnlyRises(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	if l, err := b.Leader(ctx); err != nil || l != (Leader{}) {
		t.Fatalf("leader of an empty store: %+v, %v", l, err)
	}
	claim := func(term uint64, node string, want ledger.Code) {
		t.Helper()
		if err := b.Claim(ctx, term, node); want == "" && err != nil {
			t.Errorf("claim of %d by %s: %v", term, node, err)
		} else if want != "" {
			wantCode(t, want, err)
		}
	}
	claim(0, "n1", ledger.Fenced)
	claim(5, "n1", "")
	claim(5, "n1", "") // an answer that was lost
	claim(5, "n2", ledger.Fenced)
	claim(4, "n1", ledger.Fenced)
	claim(1, "", ledger.InvalidArgument)
	b.advance(time.Minute)
	claim(7, "n2", "")
	claim(5, "n1", ledger.Fenced)
	if err := b.Beat(WithTerm(ctx, 7)); err != nil {
		t.Error(err)
	}
	wantCode(t, ledger.Fenced, b.Beat(WithTerm(ctx, 5)))
	want := Leader{Term: 7, Node: "n2", Since: clockStart.Add(time.Minute), Beats: 1}
	if l, err := b.Leader(ctx); err != nil || l != want {
		t.Errorf("leader %+v, %v, want %+v", l, err, want)
	}
	if term, err := b.ClaimNext(ctx, "n3"); term != 8 || err != nil {
		t.Errorf("next term %d, %v, want 8", term, err)
	}
}

// A refusal says who leads, and which terms there still are.
func TestFenceSaysWhoLeads(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	says := func(err error, want string) {
		t.Helper()
		if want += "; stop scanning: another node leads by now"; err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	says(b.Claim(ctx, 0, "n1"), `FENCED: term 0 is not above the current one, in which nobody leads (allowed: above 0)`)
	says(b.Beat(WithTerm(ctx, 1)), `FENCED: term 1 is not the current one, in which nobody leads (allowed: 0)`)
	if err := b.Claim(ctx, 3, "solo"); err != nil {
		t.Fatal(err)
	}
	// The same term, which elections and a node outside of them gave to two.
	says(b.Claim(ctx, 3, "n1"), `FENCED: term 3 is not above the current one, in which "solo" leads (allowed: above 3)`)
	says(b.Claim(ctx, 2, "n1"), `FENCED: term 2 is not above the current one, in which "solo" leads (allowed: above 3)`)
	says(b.Claim(ctx, 2, "solo"), `FENCED: term 2 is not above the current one, in which "solo" leads (allowed: above 3)`)
	says(b.Beat(WithTerm(ctx, 2)), `FENCED: term 2 is not the current one, in which "solo" leads (allowed: 3)`)
	r := b.refused(ledger.Fenced, ledger.Command{Op: ledger.OpExpire, Key: orderKey("1"), Budget: budgetID("hot"), Term: 2})
	says(r, `FENCED: term 2 is not the current one, in which "solo" leads (allowed: 3)`)
}

// Nodes that claim the next term at the same moment get terms of their own.
func TestClaimsAtOnce(t *testing.T) {
	b := newBench(t)
	const nodes = 8
	terms := make([]uint64, nodes)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			var err error
			if terms[i], err = b.ClaimNext(context.Background(), string(rune('a'+i))); err != nil {
				t.Error(causes(err))
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, term := range terms {
		if term < 1 || term > nodes || seen[term] {
			t.Errorf("terms %v, want 1 to %d once each", terms, nodes)
			break
		}
		seen[term] = true
	}
}

// A claim whose outcome is unknown still ends with a term of its own.
func TestClaimWithFaults(t *testing.T) {
	for _, kind := range []embedded.FaultKind{embedded.FaultConflict, embedded.FaultUnknownLanded, embedded.FaultUnknownLost} {
		b := newBench(t)
		b.nextFates(kind)
		term, err := b.ClaimNext(context.Background(), "n1")
		l, lerr := b.Leader(context.Background())
		if err != nil || lerr != nil || l.Term != term || l.Node != "n1" {
			t.Errorf("fault %v: term %d, %v; leader %+v, %v", kind, term, causes(err), l, lerr)
		}
	}
}

// In a batch only the commands of the old term are refused.
func TestFencedCommand(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	id := budgetID("hot")
	b.ok(create("hot", 1, ledger.Policy{}), onBudget(ledger.OpFund, "hot", "f", 1000))
	for _, o := range []string{"1", "2"} {
		b.ok(reserve("hot", o, 100))
	}
	expire := func(order string, term uint64) ledger.Command {
		return ledger.Command{Op: ledger.OpExpire, Key: orderKey(order), Budget: id, Term: term}
	}
	if err := b.Claim(ctx, 3, "n1"); err != nil {
		t.Fatal(err)
	}
	b.advance(time.Hour)
	r := b.refused(ledger.Fenced, expire("1", 2))
	if r.Field != "term" || r.Value != "2" || r.Limit != "3" {
		t.Errorf("refusal %+v", r)
	}
	b.refused(ledger.Fenced, expire("1", 4)) // a term nobody has claimed
	at := &ledger.BucketID{Budget: id}
	out, err := b.Apply(ctx, at, []ledger.Command{
		expire("1", 2).Normalize(), expire("2", 3).Normalize(),
		reserve("hot", "3", 7).Normalize(),
	})
	if err != nil {
		t.Fatal(causes(err))
	}
	wantCode(t, ledger.Fenced, out[0].Err)
	if out[1].Err != nil || out[2].Err != nil {
		t.Errorf("the others: %v, %v", out[1].Err, out[2].Err)
	}
	if got := b.totals(id); got != (ledger.Balances{Funded: 1000, Available: 893, Reserved: 107}) {
		t.Errorf("totals %+v", got)
	}
}

// A claim that commits between a scanner's reads and its commit makes the
// commit fail, and nothing of it is written.
func TestClaimInTheMiddle(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	if err := b.Claim(ctx, 1, "n1"); err != nil {
		t.Fatal(err)
	}
	id := budgetID("hot")
	b.ok(create("hot", 1, ledger.Policy{}), onBudget(ledger.OpFund, "hot", "f", 1000))
	key := orderKey("1")
	b.ok(reserve("hot", "1", 100))
	b.advance(time.Hour)
	claimed := false
	b.hook = func(c *ledger.Command) { // after the batch has read, before it commits
		if c.Op == ledger.OpExpire && !claimed {
			claimed = true
			if err := b.Claim(ctx, 2, "n2"); err != nil {
				t.Error(causes(err))
			}
		}
	}
	b.refused(ledger.Fenced, ledger.Command{Op: ledger.OpExpire, Key: key, Budget: id, Term: 1})
	if res, err := b.Reservation(ctx, key); err != nil || res.Attempt(1).State != ledger.StateReserved {
		t.Errorf("reservation %+v, %v", res, err)
	}
	b.ok(ledger.Command{Op: ledger.OpExpire, Key: key, Budget: id, Term: 2})
}

// What a scanner does besides commands is behind the fence, too.
func TestFencedSweeps(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	if err := b.Claim(ctx, 2, "n1"); err != nil {
		t.Fatal(err)
	}
	b.ok(create("hot", 1, ledger.Policy{}), onBudget(ledger.OpFund, "hot", "f", 1000))
	b.ok(reserve("hot", "1", 100))
	b.enqueue(queued("j1"), queued("j2"))
	b.lease(mail, 1)
	b.advance(time.Hour)
	due := b.due()
	old := WithTerm(ctx, 1)
	wantCode(t, ledger.Fenced, b.DropDue(old, due))
	_, err := b.LapseJobs(old, mail, 10)
	wantCode(t, ledger.Fenced, err)
	_, err = b.ForgetJobs(old, mail, 10)
	wantCode(t, ledger.Fenced, err)
	if n := len(b.rows(b.key(tableExpiry).all())); n != 1 {
		t.Errorf("%d expiry rows, want 1", n)
	}
	if st := b.stats(mail); st.Leased != 1 {
		t.Errorf("queue %+v, want 1 leased", st)
	}
	if n, err := b.LapseJobs(WithTerm(ctx, 2), mail, 10); n != 1 || err != nil {
		t.Errorf("in the current term %d leases ended, %v", n, err)
	}
	if err := b.DropDue(WithTerm(ctx, 2), due); err != nil || len(b.rows(b.key(tableExpiry).all())) != 0 {
		t.Errorf("in the current term the row stays: %v", err)
	}
	b.tamper(func(tx kv.Tx) { tx.Set(b.leaderKey(), []byte{9}) })
	_, err = b.Leader(ctx)
	wantCode(t, ledger.Corrupt, err)
}
