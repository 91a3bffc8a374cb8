package intake

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// Every order in which five failures and five successes of one job can be told:
// the net is the cost, in one row where a success is first, and in three (charge,
// refund, reclaim) where a failure is.
func TestEveryOrderOfResults(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.wallet(10_000, 0)
	jobs := map[int]int{} // by their rows
	for mask := range 1 << 10 {
		if bits.OnesCount(uint(mask)) != 5 {
			continue
		}
		id := fmt.Sprint("j", mask)
		b.must(job(ledger.OpCharge, id, 3))
		for i := range 10 {
			k := fact.JobFailed
			if mask>>i&1 == 1 {
				k = fact.JobSucceeded
			}
			if got := b.submit(says(k, id, fmt.Sprint(i)))[0]; got.State != fact.Applied || got.Replayed {
				t.Fatalf("order %b, fact %d: %s is %s (%s)", mask, i, k, got.State, got.Reason)
			}
		}
		want := 3
		if mask&1 == 1 {
			want = 1
		}
		if got := b.rows(id); got != want {
			t.Fatalf("order %b has %d rows, want %d", mask, got, want)
		}
		jobs[want]++
		b.credits(10_000, int64(3*(jobs[1]+jobs[3])))
	}
	if jobs[1] != 126 || jobs[3] != 126 {
		t.Errorf("jobs by rows: %v", jobs)
	}
	b.audit()
}

// A delivered job is never free: however its success and failures come, and
// also when the failure is applied by somebody who has not seen the success.
func TestJobRefundAfterSuccess(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.wallet(1000, 0)
	b.must(job(ledger.OpCharge, "j1", 70))
	for i := range 5 { // five signals of one failure
		b.submit(says(fact.JobFailed, "j1", fmt.Sprint(i)))
	}
	b.credits(1000, 0)
	b.submit(says(fact.JobSucceeded, "j1", ""))
	b.credits(1000, 70)
	b.submit(says(fact.JobFailed, "j1", "late"))
	b.credits(1000, 70)
	if n := b.rows("j1"); n != 3 {
		t.Errorf("%d rows, want charge, refund and reclaim", n)
	}
	// A caller sends the refund by itself, after the success.
	b.must(job(ledger.OpCharge, "j2", 70))
	if row := b.submit(says(fact.JobSucceeded, "j2", ""))[0]; len(row.Effects) != 1 || row.Effects[0].Op != ledger.OpReclaimCharge || row.Effects[0].Outcome.Seq != 0 {
		t.Errorf("the delivery of a charged job: %+v", row.Effects)
	}
	if _, err := b.exec.Do(context.Background(), job(ledger.OpRefund, "j2", 0)); code(err) != ledger.JobDelivered {
		t.Errorf("a refund after the success: %v", err)
	}
	late := says(fact.JobFailed, "j2", "")
	b.submit(late)
	if row := b.is(late, fact.Applied, "the job was delivered, nothing is refunded"); len(row.Effects) != 0 {
		t.Errorf("a late failure did %+v", row.Effects)
	}
	b.credits(1000, 140)
	if n := b.rows("j2"); n != 1 {
		t.Errorf("%d rows, want the charge", n)
	}
	b.audit()
}

// A refund whose answer was lost lands before the success is told, or would land
// after it: the net is the cost either way.
func TestLostJobRefund(t *testing.T) {
	testengine.OnlyEmbedded(t, "it injects faults")
	for _, landsFirst := range []bool{true, false} {
		b := newBench(t, DefaultConfig())
		b.wallet(1000, 0)
		b.must(job(ledger.OpCharge, "j", 70))
		release, done := make(chan struct{}), make(chan error, 1)
		n := 0
		late := func() embedded.Fault {
			if n++; n != 2 { // the first stores the fact
				return embedded.Fault{}
			}
			return embedded.Fault{Kind: embedded.FaultTimeoutLate, Release: release, Landed: func(_ kv.Stamp, err error) { done <- err }}
		}
		b.next.Store(&late)
		failed, succeeded := says(fact.JobFailed, "j", ""), says(fact.JobSucceeded, "j", "")
		if got := b.submit(failed)[0]; got.State != fact.Pending || got.Code != ledger.OutcomeUnknown {
			t.Errorf("the refund was not lost: %s %s", got.State, got.Reason)
		}
		rows := 3
		if landsFirst {
			close(release)
			if err := <-done; err != nil {
				t.Errorf("the lost refund: %v", err)
			}
			b.credits(1000, 0)
			b.submit(succeeded)
			b.is(failed, fact.Applied, "")
		} else {
			rows = 1
			b.submit(succeeded)
			b.is(failed, fact.Applied, "the job was delivered, nothing is refunded")
			close(release)
			if err := <-done; !errors.Is(err, kv.ErrConflict) {
				t.Errorf("the lost refund lands: %v", err)
			}
		}
		b.is(succeeded, fact.Applied, "")
		b.credits(1000, 70)
		if got := b.rows("j"); got != rows {
			t.Errorf("landed first %v: %d rows, want %d", landsFirst, got, rows)
		}
		b.audit()
	}
}

// racing delivers a job just before it is refunded, as another node would.
type racing struct {
	Executor
	refused []ledger.Code
}

func (r *racing) DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply {
	for i := range cmds {
		if c := cmds[i]; c.Op == ledger.OpRefund {
			c.Op = ledger.OpReclaimCharge
			_, _ = r.Do(ctx, c)
		}
	}
	replies := r.Executor.DoAll(ctx, cmds)
	for _, reply := range replies {
		if reply.Err != nil {
			r.refused = append(r.refused, code(reply.Err))
		}
	}
	return replies
}

// The success lands between a plan and its refund: the refund is refused, and
// its fact is applied in the same pass.
func TestRefundRacesWithDelivery(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.wallet(1000, 0)
	b.must(job(ledger.OpCharge, "j", 70))
	r := &racing{Executor: b.exec}
	var err error
	if b.Intake, err = New(DefaultConfig(), b.st, r, b.log); err != nil {
		t.Fatal(err)
	}
	failed := says(fact.JobFailed, "j", "")
	b.submit(failed)
	b.is(failed, fact.Applied, "the job was delivered, nothing is refunded")
	if len(r.refused) != 1 || r.refused[0] != ledger.JobDelivered {
		t.Errorf("refused: %v", r.refused)
	}
	b.credits(1000, 70)
	if n := b.rows("j"); n != 1 {
		t.Errorf("%d rows", n)
	}
	b.audit()
}

// A success that the wallet may not owe waits, and is seen as a case; once the
// wallet is funded it is applied, also after the deadline.
func TestDebtCap(t *testing.T) {
	ctx := context.Background()
	for _, afterDeadline := range []bool{false, true} {
		b := newBench(t, DefaultConfig())
		b.wallet(100, 20)
		b.must(job(ledger.OpCharge, "j", 100))
		b.submit(says(fact.JobFailed, "j", ""))
		b.must(job(ledger.OpCharge, "other", 100)) // takes what was refunded
		done := says(fact.JobSucceeded, "j", "")
		b.submit(done, done)
		if row := b.is(done, fact.Pending, "RECLAIM_CHARGE was refused: DEBT_CAP"); row.Code != ledger.DebtCapReached || row.Due.IsZero() {
			t.Errorf("%+v", row)
		}
		b.submit(says(fact.JobFailed, "j", "again"))
		b.credits(100, 100)
		cases, _, err := b.st.Cases(ctx, "t", store.Page{})
		if err != nil || len(cases) != 1 || cases[0].Amount != 100 {
			t.Errorf("cases %v %v", cases, err)
		}
		if afterDeadline {
			b.advance(24 * time.Hour)
			if err := b.Settle(ctx, "t", "j"); err != nil {
				t.Fatal(err)
			}
			b.is(done, fact.Exception, "in vain")
		}
		b.grant("more", 79)
		if row, err := b.Retry(ctx, done.ID); err != nil || row.State == fact.Applied {
			t.Errorf("one short of the cap: %+v %v", row, err)
		}
		b.grant("last", 1)
		if row, err := b.Retry(ctx, done.ID); err != nil || row.State != fact.Applied || len(row.Effects) != 1 || row.Effects[0].Outcome.Amount != 100 {
			t.Errorf("after the funding: %+v %v", row, err)
		}
		if got := b.totalsOf(acme); got.Available != -20 {
			t.Errorf("available %d, want the debt of 20", got.Available)
		}
		b.credits(180, 200)
		b.audit()
	}
}

// A hold by its facts: a failure releases it, a success waits for its
// settlement, and takes it again where it was given up.
func TestHoldsByFacts(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, DefaultConfig())
	b.wallet(1000, 0)
	b.must(job(ledger.OpHold, "failed", 100))
	b.submit(says(fact.JobFailed, "failed", ""))
	b.credits(1000, 0)
	if got := b.totalsOf(acme).Reserved; got != 0 {
		t.Errorf("%d held after the failure", got)
	}
	b.submit(says(fact.JobSucceeded, "failed", "")) // after all
	b.credits(1000, 100)

	b.must(job(ledger.OpHold, "settled", 100))
	done, failed := says(fact.JobSucceeded, "settled", ""), says(fact.JobFailed, "settled", "")
	b.submit(done, failed)
	b.is(done, fact.Pending, "its hold is not settled yet")
	b.is(failed, fact.Pending, "its hold is not settled yet")
	part := job(ledger.OpSettle, "settled", 30)
	part.ID, part.Partial = "s1", true
	b.must(part)
	if err := b.Settle(ctx, "t", "settled"); err != nil {
		t.Fatal(err)
	}
	b.is(done, fact.Pending, "its hold is not settled yet")
	last := job(ledger.OpSettle, "settled", 20)
	last.ID = "s2"
	b.must(last)
	if err := b.Settle(ctx, "t", "settled"); err != nil {
		t.Fatal(err)
	}
	if row := b.is(done, fact.Applied, ""); len(row.Effects) != 1 || row.Effects[0].Op != ledger.OpSettle || row.Effects[0].Outcome.Amount != 20 {
		t.Errorf("%+v", row.Effects)
	}
	b.is(failed, fact.Applied, "the job was delivered, nothing is refunded")
	b.credits(1000, 150)

	b.must(job(ledger.OpHold, "expired", 100))
	b.advance(16 * time.Minute)
	b.must(job(ledger.OpExpire, "expired", 0))
	b.submit(says(fact.JobFailed, "expired", ""), says(fact.JobSucceeded, "expired", ""))
	b.credits(1000, 250)
	b.audit()
}
