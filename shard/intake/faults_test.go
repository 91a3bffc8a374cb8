package intake

import (
	"context"
	"sync"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

// The node dies after any of its commits: what it had begun is finished by the
// next one, once.
func TestCrashAnywhere(t *testing.T) {
	testengine.OnlyEmbedded(t, "it injects faults")
	ctx := context.Background()
	for at := range 12 {
		b := newBench(t, DefaultConfig())
		b.budget(1000, ledger.Policy{})
		b.must(reserve("o", "coupon", 100))
		b.must(reserve("o", "voucher", 50))
		commits := 0
		crashed := func() embedded.Fault {
			if commits++; commits > at {
				return embedded.Fault{Kind: embedded.FaultTimeoutLate, Release: make(chan struct{})} // nothing more of this node lands
			}
			return embedded.Fault{}
		}
		b.next.Store(&crashed)
		facts := []fact.Fact{says(fact.PaymentSucceeded, "o", "p1"), says(fact.RefundSucceeded, "o", "r1", line("coupon", 40))}
		_, _ = b.Submit(ctx, facts)
		none := func() embedded.Fault { return embedded.Fault{} }
		b.next.Store(&none)
		b.submit(facts...) // at least once: its source sends it again
		if err := b.Settle(ctx, "t", "o"); err != nil {
			t.Fatal(err)
		}
		for _, f := range facts {
			if row := b.is(f, fact.Applied, ""); len(row.Effects) == 0 {
				t.Errorf("crash after %d commits: %s has no effect", at, f.Kind)
			}
		}
		b.money(890, 0, 150, 40)
		if es := b.entries(); es[ledger.EntryCommit] != 2 || es[ledger.EntryReverse] != 1 {
			t.Errorf("crash after %d commits: entries %v", at, es)
		}
		b.audit()
	}
}

// Whatever befalls the commits, each fact takes effect once.
func TestUnknownOutcomes(t *testing.T) {
	testengine.OnlyEmbedded(t, "it injects faults")
	const conflict, landed, lost = embedded.FaultConflict, embedded.FaultUnknownLanded, embedded.FaultUnknownLost
	for _, fates := range [][]embedded.FaultKind{
		{landed},
		{lost},
		{landed, landed, landed, landed},
		{lost, lost, lost, lost, lost},
		{conflict, landed, lost, landed, conflict, lost},
		{0, landed},
		{0, lost},
		{0, 0, landed},
		{0, 0, lost},
		{0, 0, 0, landed},
	} {
		b := newBench(t, DefaultConfig())
		b.budget(1000, ledger.Policy{})
		b.must(reserve("o", "coupon", 100))
		b.fates(fates...)
		f := says(fact.PaymentSucceeded, "o", "p1")
		if got := b.submit(f)[0]; got.State != fact.Applied || got.Replayed {
			t.Errorf("%v: %+v", fates, got)
		}
		b.money(900, 0, 100, 0)
		if es := b.entries(); es[ledger.EntryCommit] != 1 {
			t.Errorf("%v: entries %v", fates, es)
		}
	}
	// A commit that times out and lands later: the fact waits, and the next
	// look finds the effect.
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	b.must(reserve("o", "coupon", 100))
	release, done := make(chan struct{}), make(chan struct{})
	n := 0
	late := func() embedded.Fault {
		if n++; n != 2 {
			return embedded.Fault{}
		}
		return embedded.Fault{Kind: embedded.FaultTimeoutLate, Release: release, Landed: func(_ kv.Stamp, _ error) { close(done) }}
	}
	b.next.Store(&late)
	f := says(fact.PaymentSucceeded, "o", "p1")
	if got := b.submit(f)[0]; got.State != fact.Pending || got.Code != ledger.OutcomeUnknown {
		t.Errorf("while nothing is known: %s %s", got.State, got.Reason)
	}
	close(release)
	<-done
	if row, err := b.Retry(context.Background(), f.ID); err != nil || row.State != fact.Applied || len(row.Effects) != 1 {
		t.Errorf("after the late landing: %+v %v", row, err)
	}
	b.money(900, 0, 100, 0)
	b.audit()
}

// Many callers, two nodes, one order: each fact takes effect once.
func TestManyAtOnce(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, DefaultConfig())
	b.budget(100000, ledger.Policy{LateCommit: ledger.LateReclaim})
	other, err := New(DefaultConfig(), b.st, b.exec, b.log)
	if err != nil {
		t.Fatal(err)
	}
	b.must(reserve("o", "coupon", 100))
	facts := []fact.Fact{
		says(fact.PaymentSucceeded, "o", "p1"), says(fact.RefundSucceeded, "o", "r1", line("coupon", 60)),
		says(fact.RefundCancelled, "o", "r1", line("coupon", 0)), says(fact.RefundSucceeded, "o", "r2", line("coupon", 30)),
	}
	var wg sync.WaitGroup
	for i := range 40 {
		in := []*Intake{b.Intake, other}[i%2]
		wg.Go(func() {
			f := facts[i/2%len(facts)]
			if got, err := in.Submit(ctx, []fact.Fact{f}); err != nil || got[0].Err != nil {
				t.Errorf("%v %v", err, got)
			}
		})
	}
	wg.Wait()
	if err := b.Settle(ctx, "t", "o"); err != nil {
		t.Fatal(err)
	}
	for _, f := range facts {
		b.is(f, fact.Applied, "")
	}
	b.money(99930, 0, 100, 30)
	if es := b.entries(); es[ledger.EntryCommit] != 1 || es[ledger.EntryReverse] != 2 || es[ledger.EntryReinstate] != 1 {
		t.Errorf("entries %v", es)
	}
	b.audit()
}
