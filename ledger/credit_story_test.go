package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// newWallet is a world whose budget is a wallet and whose order is a job.
func newWallet(t testing.TB, available, overdraft, debtCap int64) *world {
	w := newWorld(t)
	w.budget.Kind = KindWallet
	w.budget.Policy = Policy{LateCommit: LateReclaim, MaxLifetime: time.Hour, Overdraft: overdraft, DebtCap: debtCap}
	w.bucket.Balances = Balances{Funded: available, Available: available}
	w.row.Key = JobKey("t1", "j")
	return w
}

func (w *world) openJob(op Op, amount int64) Command {
	c := Command{Op: op, Budget: w.budget.ID, Amount: amount, Currency: "BRL"}
	if op == OpHold {
		c.TTL = 10 * time.Minute
	}
	return c
}

// interleavings calls visit with every order of n failures (false) and n
// successes (true).
func interleavings(n int, visit func(order []bool)) {
	order := make([]bool, 0, 2*n)
	var place func(failures, successes int)
	place = func(failures, successes int) {
		if failures+successes == 0 {
			visit(order)
			return
		}
		if failures > 0 {
			order = append(order, false)
			place(failures-1, successes)
			order = order[:len(order)-1]
		}
		if successes > 0 {
			order = append(order, true)
			place(failures, successes-1)
			order = order[:len(order)-1]
		}
	}
	place(n, n)
}

// One worker signals five times that the job failed, another one five times
// that it succeeded. In every order the net is the cost: three rows where the
// failure came first, one where the success did.
func TestEveryOrderOfFailureAndSuccess(t *testing.T) {
	seen, threeRows := 0, 0
	interleavings(5, func(order []bool) {
		seen++
		w := newWallet(t, 100, 0, 0)
		w.ok(w.openJob(OpCharge, 30))
		for i, success := range order {
			op := OpRefund
			if success {
				op = OpReclaimCharge
			}
			d := w.do(Command{Op: op})
			if r := d.Rejection; r != nil && (success || order[0] == false || r.Code != JobDelivered) {
				t.Fatalf("%v, signal %d: %v", order, i, r)
			}
			if d.Rejection == nil && !success && order[0] {
				t.Fatalf("%v, signal %d: a refund after the success", order, i)
			}
		}
		rows := 1
		if !order[0] {
			rows, threeRows = 3, threeRows+1
		}
		if len(w.entries) != rows {
			t.Fatalf("%v: %d rows, want %d", order, len(w.entries), rows)
		}
		if want := (Balances{Funded: 100, Available: 70, Committed: 30}); w.bucket.Balances != want {
			t.Fatalf("%v leaves %+v, want %+v", order, w.bucket.Balances, want)
		}
		if a := w.attempt(); a.State != StateCommitted || !a.Delivered() {
			t.Fatalf("%v leaves the job %s, delivered: %v", order, a.State, a.Delivered())
		}
	})
	if seen != 252 || threeRows != 126 {
		t.Errorf("%d orders, %d with the failure first; want 252 and 126", seen, threeRows)
	}
}

func TestChargeRefundReclaim(t *testing.T) {
	w := newWallet(t, 50, 0, 0)
	d := w.ok(w.openJob(OpCharge, 30))
	if d.Entry.Type != EntryCharge || d.Entry.Delta != (Balances{Available: -30, Committed: 30}) || d.Result.Outcome.Amount != 30 {
		t.Errorf("the charge is %+v", d.Entry)
	}
	if d = w.ok(Command{Op: OpRefund}); d.Entry.Type != EntryRefund || d.Entry.Delta != (Balances{Available: 30, Reversed: 30}) || d.Entry.RefersTo != 3 {
		t.Errorf("the refund is %+v", d.Entry)
	}
	if d = w.ok(Command{Op: OpReclaimCharge}); d.Entry.Type != EntryReclaim || d.Entry.Delta != (Balances{Available: -30, Reversed: -30}) || d.Entry.RefersTo != 4 {
		t.Errorf("the reclaim is %+v", d.Entry)
	}
	// A retry that reports another cost is another request, and changes nothing.
	wantFields(t, w.refused(IdempotencyConflict, w.openJob(OpCharge, 31)), "amount_minor")
	for _, n := range []uint32{2, 7} {
		c := w.openJob(OpCharge, 30)
		c.Attempt = n
		w.refused(JobCharged, c)
	}
	w.refused(IllegalState, w.openJob(OpHold, 5))
	if r := w.do(Command{Op: OpRefund}); !r.Result.Replayed || r.Result.Outcome.Seq != 4 {
		t.Errorf("a failure after all is %+v, %v", r.Result, r.Rejection)
	}
}

// A refunded job is not charged a second time: its success takes the refund
// back, whatever attempt of the work it was.
func TestRefundedJobIsNotChargedAgain(t *testing.T) {
	w := newWallet(t, 50, 0, 0)
	w.ok(w.openJob(OpCharge, 30), Command{Op: OpRefund})
	c := w.openJob(OpCharge, 30)
	c.Attempt = 2
	if r := w.refused(JobCharged, c); r.State != "REVERSED" || r.Attempt != 1 {
		t.Errorf("the refusal is %+v", r)
	}
	w.ok(Command{Op: OpReclaimCharge})
	if w.bucket.Available != 20 {
		t.Errorf("available is %d", w.bucket.Available)
	}
}

func TestRefusedChargeIsRecorded(t *testing.T) {
	w := newWallet(t, 20, 5, 0)
	if r := w.refused(InsufficientBudget, w.openJob(OpCharge, 26)); r.Available != 25 || r.Limit != "25" || !strings.HasPrefix(r.Message, "exceeds what wallet ") {
		t.Errorf("the refusal is %+v", r)
	}
	w.bucket.Funded, w.bucket.Available = 100, 100
	if r := w.refused(InsufficientBudget, w.openJob(OpCharge, 26)); !r.Replayed {
		t.Error("a refused charge is not refused again")
	}
	w.refused(IllegalState, Command{Op: OpRefund})
	w.refused(IllegalState, Command{Op: OpReclaimCharge})
	c := w.openJob(OpCharge, 26)
	c.Attempt = 2
	w.ok(c)
	if w.bucket.Available != 74 {
		t.Errorf("available is %d", w.bucket.Available)
	}
}

func TestOverdraftAndDebt(t *testing.T) {
	w := newWallet(t, 20, 5, 12)
	w.ok(w.openJob(OpCharge, 25)) // the overdraft, to the last unit
	if w.bucket.Available != -5 {
		t.Fatalf("available is %d", w.bucket.Available)
	}
	w.ok(Command{Op: OpRefund})
	// Meanwhile another job takes all that the first one gave back, and more.
	w.bucket.Available, w.bucket.Committed = -2, w.bucket.Committed+22
	r := w.refused(DebtCapReached, Command{Op: OpReclaimCharge})
	if r.Requested != 25 || r.Available != 10 || r.Limit != "10" {
		t.Errorf("the refusal is %+v", r)
	}
	if len(w.cases) != 1 || w.cases[0].Amount != 25 || w.cases[0].Key != w.row.Key {
		t.Errorf("cases: %+v", w.cases)
	}
	if w.refused(DebtCapReached, Command{Op: OpReclaimCharge}); len(w.cases) != 1 {
		t.Errorf("the same refusal opens another case: %+v", w.cases)
	}
	w.bucket.Funded, w.bucket.Available = w.bucket.Funded+15, w.bucket.Available+15
	w.ok(Command{Op: OpReclaimCharge})
	if w.bucket.Available != -12 || w.bucket.Check(-12) != nil || w.bucket.Check(-11) == nil {
		t.Errorf("available is %d", w.bucket.Available)
	}
}

func TestHoldAndSettle(t *testing.T) {
	for _, tc := range []struct {
		settle int64
		want   Balances
		code   Code
	}{
		{40, Balances{Funded: 100, Available: 60, Committed: 40}, ""},
		{50, Balances{Funded: 100, Available: 50, Committed: 50}, ""},
		{60, Balances{Funded: 100, Available: 40, Committed: 60}, ""},
		{61, Balances{Funded: 100, Available: 50, Reserved: 50}, OverCommitRefused},
	} {
		t.Run(fmt.Sprint(tc.settle), func(t *testing.T) {
			w := newWallet(t, 100, 0, 0)
			w.budget.Policy.OverCommit.Percent = 20
			if d := w.ok(w.openJob(OpHold, 50)); d.Entry.Type != EntryHold || w.attempt().Expires != w.now.Add(10*time.Minute) {
				t.Errorf("the hold is %+v", d.Entry)
			}
			w.refused(IllegalState, Command{Op: OpReclaimCharge})
			w.refused(IllegalState, Command{Op: OpRefund})
			if tc.code != "" {
				w.refused(tc.code, Command{Op: OpSettle, Amount: tc.settle})
			} else if d := w.ok(Command{Op: OpSettle, Amount: tc.settle}); d.Entry.Type != EntrySettle {
				t.Errorf("the settlement is %+v", d.Entry)
			}
			if w.bucket.Balances != tc.want {
				t.Errorf("%+v, want %+v", w.bucket.Balances, tc.want)
			}
			if tc.code == "" {
				w.refused(JobDelivered, Command{Op: OpRefund})
				if d := w.ok(Command{Op: OpReclaimCharge}); d.Entry != nil || d.Result.Outcome.Seq != 0 {
					t.Errorf("a success after the settlement writes %+v", d.Entry)
				}
			}
		})
	}
	t.Run("more than there is", func(t *testing.T) {
		w := newWallet(t, 50, 7, 0)
		w.budget.Policy.OverCommit.Amount = 20
		w.ok(w.openJob(OpHold, 50))
		w.refused(InsufficientBudget, Command{Op: OpSettle, Amount: 58})
		w.ok(Command{Op: OpSettle, Amount: 57})
		if w.bucket.Available != -7 {
			t.Errorf("available is %d", w.bucket.Available)
		}
	})
}

// Work that was done under a hold that lapsed or was given up is paid, into
// debt if need be.
func TestDeliveredAfterTheHold(t *testing.T) {
	for name, tc := range map[string]struct {
		end, pay Command
		want     int64
	}{
		"expired, settled late": {Command{Op: OpExpire}, Command{Op: OpSettle, Amount: 45}, -45},
		"expired, reclaimed":    {Command{Op: OpExpire}, Command{Op: OpReclaimCharge}, -50},
		"released, reclaimed":   {Command{Op: OpRelease}, Command{Op: OpReclaimCharge}, -50},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWallet(t, 50, 0, 60)
			w.ok(w.openJob(OpHold, 50))
			w.now = w.now.Add(10 * time.Minute)
			w.ok(tc.end)
			w.bucket.Available, w.bucket.Committed = 0, w.bucket.Committed+50 // spent meanwhile
			if d := w.ok(tc.pay); d.Entry.Type != EntryReclaim || w.bucket.Available != tc.want {
				t.Errorf("%s leaves %d, want %d", d.Entry.Type, w.bucket.Available, tc.want)
			}
			w.refused(JobDelivered, Command{Op: OpRefund})
		})
	}
}

// Jobs and benefits, wallets and promotion budgets stay apart.
func TestJobsStayApart(t *testing.T) {
	budget := BudgetID{Tenant: "t1", Key: "b"}
	for op := Op(1); op < 64; op++ {
		if !op.Valid() || op.OnBudget() {
			continue
		}
		job, both := op.forJobs()
		for _, key := range []OrderKey{{Tenant: "t1", Order: "o", Benefit: "coupon"}, JobKey("t1", "j")} {
			c := Command{Op: op, Key: key, Budget: budget, Amount: 5, Currency: "BRL", TTL: time.Minute, Attempt: 1}
			switch op {
			case OpReverse, OpReinstate:
				c.ID = "r"
			case OpResolve:
				c.Target = OpRelease
			}
			r := c.Validate()
			if legal := both || job == key.IsJob(); legal != (r == nil) {
				t.Errorf("%s of %s: %v", op, key, r)
			} else if !legal && r.Field != "benefit_key" {
				t.Errorf("%s of %s is refused for %s", op, key, r.Field)
			}
		}
	}
	w := newWallet(t, 50, 0, 0)
	w.budget.Kind = KindPromotion
	w.refused(BudgetKindMismatch, w.openJob(OpCharge, 1))
	w = newWorld(t)
	w.budget.Kind = KindWallet
	w.refused(BudgetKindMismatch, Command{Op: OpReserve, Amount: 1})
}

// A release before the charge keeps it out, as it does for a benefit.
func TestCancelledJob(t *testing.T) {
	w := newWallet(t, 50, 0, 0)
	w.ok(Command{Op: OpRelease})
	w.refused(CancelledBeforeReserve, w.openJob(OpCharge, 5))
	w.refused(CancelledBeforeReserve, w.openJob(OpHold, 5))
	c := w.openJob(OpCharge, 5)
	c.Attempt = 2
	w.ok(c)
}

func TestResolveOfAJob(t *testing.T) {
	w := newWallet(t, 50, 0, 0)
	if d := w.ok(Command{Op: OpResolve, Target: OpCharge}); !d.Result.Void || w.attempt().State != StateVoid {
		t.Fatalf("%+v", d.Result)
	}
	w.refused(Voided, w.openJob(OpCharge, 5))
	c := w.openJob(OpCharge, 5)
	c.Attempt = 2
	w.ok(c)
	// Settling a hold as never happening leaves the charge alone.
	w.ok(Command{Op: OpResolve, Target: OpHold, Attempt: 2})
	if a := w.row.Attempt(2); a.State != StateCommitted {
		t.Errorf("the job is %s", a.State)
	}
	// A success that was settled as never signalled is none.
	w.ok(Command{Op: OpResolve, Target: OpReclaimCharge, Attempt: 2}, Command{Op: OpRefund, Attempt: 2})
	if w.bucket.Available != 50 {
		t.Errorf("available is %d", w.bucket.Available)
	}
}
