package fact

import (
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// jobView is a job with one fact of each kind, both of attempt 1 unless a test
// changes that, and one attempt in the ledger.
func jobView(st ledger.State, receipts ...ledger.Receipt) *View {
	wallet := ledger.BudgetID{Tenant: "t", Key: "w"}
	v := &View{Now: t0, Budgets: map[ledger.BudgetID]*ledger.Budget{wallet: {ID: wallet, Kind: ledger.KindWallet}}}
	for _, k := range []Kind{JobFailed, JobSucceeded} {
		v.Facts = append(v.Facts, Row{Fact: says(k, ""), State: Pending, Version: 1, Deadline: t0.Add(time.Hour)})
	}
	v.Reservations = []ledger.Reservation{{
		Key: ledger.JobKey("t", "o"),
		Attempts: []ledger.Attempt{{
			Number: 1, State: st, Receipts: receipts, Leg: ledger.Leg{Bucket: ledger.BucketID{Budget: wallet}, Currency: "BRL", Amount: 30, Committed: 30},
		}},
	}}
	return v
}

// What a success and a failure of one job come to together, by the receipts.
func TestJobFactsTogether(t *testing.T) {
	rc := func(op ledger.Op, id string) ledger.Receipt { return ledger.Receipt{Op: op, ID: id} }
	void := ledger.Receipt{Op: ledger.OpReclaimCharge, Void: true}
	for name, tc := range map[string]struct {
		view             *View
		change           func(*View)
		succeeded, fails string // the command or the state, and the reason's words
	}{
		"charged":            {jobView(ledger.StateCommitted), nil, "RECLAIM_CHARGE", "PENDING its delivery is not noted yet"},
		"refunded":           {jobView(ledger.StateReversed, rc(ledger.OpRefund, "")), nil, "RECLAIM_CHARGE", "APPLIED"},
		"delivered":          {jobView(ledger.StateCommitted, rc(ledger.OpReclaimCharge, "")), nil, "APPLIED", "APPLIED the job was delivered, nothing is refunded"},
		"refund taken back":  {jobView(ledger.StateCommitted, rc(ledger.OpRefund, ""), rc(ledger.OpReclaimCharge, "")), nil, "APPLIED", "APPLIED"},
		"settled":            {jobView(ledger.StateCommitted, rc(ledger.OpSettle, "s1")), nil, "APPLIED", "APPLIED the job was delivered, nothing is refunded"},
		"held":               {jobView(ledger.StateReserved), nil, "PENDING its hold is not settled yet", "PENDING its hold is not settled yet"},
		"settled in part":    {jobView(ledger.StateReserved, rc(ledger.OpSettle, "s1")), nil, "PENDING its hold is not settled yet", "PENDING its hold is not settled yet"},
		"released":           {jobView(ledger.StateReleased), nil, "RECLAIM_CHARGE", "APPLIED"},
		"delivery ruled out": {jobView(ledger.StateCommitted, void), nil, "RECLAIM_CHARGE", "PENDING its delivery is not noted yet"},
		"success resolved":   {jobView(ledger.StateCommitted), func(v *View) { v.Facts[1].State = Resolved }, "", "REFUND"},
		"held, success resolved": {
			jobView(ledger.StateReserved), func(v *View) { v.Facts[1].State = Resolved }, "", "RELEASE",
		},
		"success of attempt 2": {jobView(ledger.StateReserved), func(v *View) { v.Facts[1].Attempt = 2 }, "PENDING nothing is charged yet", "RELEASE"},
		"raced with a delivery": { // refused, and the delivery not read yet
			jobView(ledger.StateCommitted), func(v *View) {
				v.Facts[1].State = Resolved
				v.Refused = map[CommandKey]*ledger.Rejection{{Op: ledger.OpRefund, Benefit: ledger.JobBenefit, Attempt: 1}: {Code: ledger.JobDelivered}}
			}, "", "PENDING REFUND was refused: JOB_DELIVERED",
		},
		"debt": {
			jobView(ledger.StateReversed, rc(ledger.OpRefund, "")), func(v *View) {
				v.Refused = map[CommandKey]*ledger.Rejection{{Op: ledger.OpReclaimCharge, Benefit: ledger.JobBenefit, Attempt: 1}: {Code: ledger.DebtCapReached}}
			}, "PENDING RECLAIM_CHARGE was refused: DEBT_CAP", "APPLIED",
		},
	} {
		if tc.change != nil {
			tc.change(tc.view)
		}
		got := map[string]Verdict{}
		for _, v := range Plan(tc.view) {
			got[v.Event] = v
		}
		for event, want := range map[string]string{"JOB_SUCCEEDED": tc.succeeded, "JOB_FAILED": tc.fails} {
			v, planned := got[event]
			what := v.State.String()
			if len(v.Send) > 0 {
				what = v.Send[0].Op.String()
			}
			if !planned {
				what = ""
			}
			state, words, _ := strings.Cut(want, " ")
			if what != state || !strings.Contains(v.Reason, words) {
				t.Errorf("%s: %s comes to %s (%s), want %s (%s)", name, event, what, v.Reason, state, words)
			}
		}
	}
}

// Facts of an order leave a job of the same name alone.
func TestOrderFactsLeaveJobsAlone(t *testing.T) {
	for k := PaymentSucceeded; k.Valid(); k++ {
		if k.job() || k == RefundSucceeded {
			continue // it is about the job; it has to name its benefits
		}
		v := jobView(ledger.StateReserved)
		v.Facts = []Row{{Fact: says(k, "r"), State: Pending, Version: 1, Deadline: t0.Add(time.Hour)}}
		if got := Plan(v)[0]; got.State != Pending || len(got.Send) != 0 || got.Reason != "the order has no reservation yet" {
			t.Errorf("%s: %+v", k, got)
		}
	}
}

// Every code is decided: it passes, or it is final.
func TestEveryCodePassesOrIsFinal(t *testing.T) {
	final := map[ledger.Code]bool{}
	for _, c := range []ledger.Code{
		// The command can never be right, or a person has to change something.
		ledger.InvalidArgument, ledger.CurrencyMismatch, ledger.TTLTooLong, ledger.AmountOverflow, ledger.DuplicateInBatch,
		ledger.BudgetNotFound, ledger.BudgetMismatch, ledger.BudgetKindMismatch, ledger.BudgetClosedCode, ledger.BudgetIllegalState,
		ledger.IdempotencyConflict, ledger.CancelledBeforeReserve, ledger.Voided, ledger.AttemptSuperseded, ledger.OverCommitRefused,
		ledger.LateCommitRejected, ledger.LateCommitCase, ledger.QuoteMissing, ledger.QuoteLineNotFound, ledger.JobCharged,
		ledger.OperationLimit, ledger.Corrupt,
		// No command is refused with these.
		ledger.CutoffInFuture, ledger.BadPageToken, ledger.JobNotFound, ledger.JobIllegalState, ledger.LeaseLost, ledger.LeaseLimit,
		ledger.QueueFull, ledger.FactNotFound, ledger.FactIllegalState, ledger.FactLimit,
		ledger.BadCursor, ledger.EventsTrimmed, ledger.SinkNotFound, ledger.SinkChanged, ledger.SinkLimit, ledger.ParkedNotFound, ledger.NodeNotFound,
		ledger.Unauthenticated, ledger.PermissionDenied,
	} {
		final[c] = true
	}
	codes := ledger.Codes()
	if len(final)+len(passing) != len(codes) {
		t.Errorf("%d final and %d passing of %d codes", len(final), len(passing), len(codes))
	}
	for _, info := range codes {
		if Passing(info.Code) == final[info.Code] {
			t.Errorf("%s: passing %v, final %v", info.Code, Passing(info.Code), final[info.Code])
		}
	}
}
