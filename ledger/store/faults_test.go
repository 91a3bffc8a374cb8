package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

// Whatever befalls the first commits, a batch takes effect once, and its
// callers get their first answers: none is told "replayed" of what its own
// attempt did.
func TestUnknownOutcomes(t *testing.T) {
	const conflict, landed, lost = embedded.FaultConflict, embedded.FaultUnknownLanded, embedded.FaultUnknownLost
	for _, fates := range [][]embedded.FaultKind{
		{conflict}, {landed}, {lost}, {lost, landed}, {lost, lost, conflict}, {conflict, landed}, {lost, conflict, landed},
	} {
		t.Run(fmt.Sprint(fates), func(t *testing.T) {
			b := newBench(t)
			b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000), reserve("spring", "paid", 50))
			cmds := []ledger.Command{
				reserve("spring", "a", 100), on(ledger.OpCommit, "paid", "p", 0), reserve("spring", "b", 5000),
				on(ledger.OpCommit, "never", "p", 0), reserve("spring", "a", 100), reserve("spring", "c", 7),
			}
			for i := range cmds {
				cmds[i] = cmds[i].Normalize()
			}
			b.nextFates(fates...)
			got, err := b.Apply(context.Background(), &ledger.BucketID{Budget: budgetID("spring")}, cmds)
			if err != nil {
				t.Fatal(causes(err))
			}
			for i, want := range []struct {
				code     ledger.Code
				replayed bool
				seq      uint64
			}{{"", false, 4}, {"", false, 5}, {ledger.InsufficientBudget, false, 0}, {ledger.ReservationNotFound, false, 0}, {"", true, 4}, {"", false, 6}} {
				g := got[i]
				if want.code != "" {
					if r := wantCode(t, want.code, g.Err); r.Replayed {
						t.Errorf("command %d: the refusal says that it is replayed", i)
					}
					continue
				}
				if g.Err != nil || g.Result.Replayed != want.replayed || g.Result.Outcome.Seq != want.seq {
					t.Errorf("command %d: %+v, %v; want entry %d, replayed %v", i, g.Result, g.Err, want.seq, want.replayed)
				}
			}
			if got := b.totals(budgetID("spring")); got != (ledger.Balances{Funded: 1000, Available: 843, Reserved: 107, Committed: 50}) {
				t.Errorf("after it: %+v", got)
			}
			if n := len(b.entries(budgetID("spring"))); n != 6 {
				t.Errorf("there are %d entries, want 6", n)
			}
			if rep := b.audit(); rep.Events != 6 {
				t.Errorf("there are %d events, want 6", rep.Events)
			}
		})
	}
}

// The same for commands that write no entry, so that no block tells whether
// the attempt landed.
func TestUnknownOutcomeWithoutEntries(t *testing.T) {
	for _, tc := range []struct {
		name string
		cmd  ledger.Command
		code ledger.Code
	}{
		{"tombstone", on(ledger.OpRelease, "x", "", 0), ""},
		{"void", ledger.Command{Op: ledger.OpResolve, Key: orderKey("x"), Target: ledger.OpReserve}, ""},
		{"recorded refusal", reserve("spring", "x", 5000), ledger.InsufficientBudget},
	} {
		for _, fate := range []embedded.FaultKind{embedded.FaultUnknownLanded, embedded.FaultUnknownLost, embedded.FaultConflict} {
			t.Run(fmt.Sprint(tc.name, fate), func(t *testing.T) {
				b := newBench(t)
				b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
				b.nextFates(fate)
				got := b.one(tc.cmd)
				replayed := got.Result.Replayed
				if tc.code != "" {
					replayed = wantCode(t, tc.code, got.Err).Replayed
				} else if got.Err != nil {
					t.Fatal(causes(got.Err))
				}
				if replayed {
					t.Error("the first answer says that it is replayed")
				}
				b.audit()
			})
		}
	}
}

// A commit that times out may land later. The caller is told that nothing is
// known, and Resolve settles it either way.
func TestLateLanding(t *testing.T) {
	testengine.OnlyEmbedded(t, "it injects faults")
	for _, landsFirst := range []bool{true, false} {
		b := newBench(t)
		b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
		release, done := make(chan struct{}), make(chan error, 1)
		first := true
		f := func() embedded.Fault {
			if !first {
				return embedded.Fault{}
			}
			first = false
			return embedded.Fault{Kind: embedded.FaultTimeoutLate, Release: release, Landed: func(_ kv.Stamp, err error) { done <- err }}
		}
		cmd := reserve("spring", "a", 100).Normalize()
		b.fate.Store(&f)
		_, err := b.Apply(context.Background(), &ledger.BucketID{Budget: budgetID("spring")}, []ledger.Command{cmd})
		r := wantCode(t, ledger.OutcomeUnknown, err)
		if !errors.Is(r, kv.ErrTimedOut) {
			t.Errorf("the cause is %v", causes(r))
		}
		if landsFirst {
			close(release)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		res := b.ok(ledger.Command{Op: ledger.OpResolve, Key: cmd.Key, Target: ledger.OpReserve})
		if res.Void == landsFirst {
			t.Errorf("resolve says void %v when the attempt landed first: %v", res.Void, landsFirst)
		}
		if landsFirst {
			if res.Receipt == nil || res.Outcome.Amount != 100 || res.Outcome.State != ledger.StateReserved {
				t.Errorf("resolve gives %+v", res)
			}
			if again := b.ok(reserve("spring", "a", 100)); !again.Replayed || again.Outcome != res.Outcome {
				t.Errorf("reserve again gives %+v", again)
			}
		} else {
			close(release)
			if err := <-done; !errors.Is(err, kv.ErrConflict) {
				t.Errorf("the late landing ends with %v, want a conflict with the void receipt", err)
			}
			b.refused(ledger.Voided, reserve("spring", "a", 100))
			if got := b.totals(budgetID("spring")); got.Reserved != 0 {
				t.Errorf("a voided reserve holds %d", got.Reserved)
			}
		}
		b.audit()
	}
}

// Conflicts without end, and a store that is gone, are refusals that say that
// nothing was done.
func TestNotCommitted(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000))
	b.opt.Tx = kv.Options{Retries: 3, MaxBackoff: time.Microsecond}
	b.nextFates(embedded.FaultConflict, embedded.FaultConflict, embedded.FaultConflict, embedded.FaultConflict)
	before := b.Retries()
	r := b.refused(ledger.Unavailable, reserve("spring", "a", 1))
	if !errors.Is(r, kv.ErrRetriesExhausted) || r.RetryAfter <= 0 || b.Retries() != before+3 {
		t.Errorf("%s, after %d retries", causes(r), b.Retries()-before)
	}
	b.ok(reserve("spring", "a", 1))
	// Unknown first, certainly not afterwards: still unknown.
	b.nextFates(embedded.FaultUnknownLost, embedded.FaultConflict, embedded.FaultConflict, embedded.FaultConflict)
	b.refused(ledger.OutcomeUnknown, reserve("spring", "b", 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := b.Apply(ctx, &ledger.BucketID{Budget: budgetID("spring")}, []ledger.Command{reserve("spring", "c", 1).Normalize()})
	wantCode(t, ledger.Unavailable, err)
	b.audit()
}

// damaged is an engine that meets a damaged file after some transactions.
type damaged struct {
	kv.Store
	after *int
}

func (d damaged) Begin(ctx context.Context) (kv.Tx, error) {
	if *d.after--; *d.after >= 0 {
		return d.Store.Begin(ctx)
	}
	return nil, &kv.Error{Code: kv.CodeIO, Op: "get", Cause: fmt.Errorf("%w: data/000005.sst", kv.ErrDamaged)}
}

// What a damaged store did not do is a defect, and not to be sent again.
func TestDamagedStore(t *testing.T) {
	b := newBench(t)
	b.ok(create("spring", 1, ledger.Policy{}))
	b.kv = damaged{b.kv, new(int)}
	_, err := b.Apply(context.Background(), &ledger.BucketID{Budget: budgetID("spring")}, []ledger.Command{reserve("spring", "a", 1).Normalize()})
	_, aerr := b.Audit(context.Background(), nil)
	for _, err := range []error{err, aerr} {
		r := wantCode(t, ledger.Corrupt, err)
		if !errors.Is(r, kv.ErrDamaged) || r.Code.SendAgain() || r.RetryAfter != 0 {
			t.Errorf("%s, to be sent again: %v, after %s", causes(r), r.Code.SendAgain(), r.RetryAfter)
		}
		if want := "CORRUPT: the store is damaged, and nothing was done; run coffer audit; do not repair by hand"; r.Error() != want {
			t.Errorf("got  %s\nwant %s", r, want)
		}
	}
}

// An audit that meets a damaged file ends there, wherever it is, and calls no row
// a finding, nor the ledger right.
func TestAuditOfADamagedStore(t *testing.T) {
	b := newBench(t)
	story(b)
	whole := b.kv
	for n := 0; ; n++ {
		left := n
		b.kv = damaged{whole, &left}
		rep, err := b.Audit(context.Background(), nil)
		if err == nil && left >= 0 {
			break
		}
		if !errors.Is(err, kv.ErrDamaged) {
			t.Fatalf("damage met by transaction %d: %v, %+v", n, err, rep)
		}
	}
	b.kv = whole
}
