package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/node/scan"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

func says(kind cofferv1.FactKind, order, ref string, lines ...*cofferv1.FactLine) *cofferv1.NewFact {
	return &cofferv1.NewFact{Source: "shop", EventId: fmt.Sprint(order, " ", kind, " ", ref), Kind: kind, OrderId: order, ReferenceId: ref, Lines: lines}
}

func line(amount int64) *cofferv1.FactLine {
	return &cofferv1.FactLine{BenefitKey: "coupon:A", AmountMinor: amount}
}

const (
	paid     = cofferv1.FactKind_FACT_KIND_PAYMENT_SUCCEEDED
	refunded = cofferv1.FactKind_FACT_KIND_REFUND_SUCCEEDED
)

// tell submits facts that must be taken.
func (w *world) tell(facts ...*cofferv1.NewFact) []*cofferv1.SubmitFactsResult {
	w.Helper()
	res, err := w.client.SubmitFacts(context.Background(), facts...)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range res {
		if r.GetError() != nil {
			w.Fatal(r.GetError())
		}
	}
	return res
}

func (w *world) fact(f *cofferv1.NewFact) *cofferv1.Fact {
	w.Helper()
	got, err := w.client.GetFact(context.Background(), f.GetSource(), f.GetEventId())
	if err != nil {
		w.Fatal(err)
	}
	return got
}

// Facts in the wrong order, each told 100 times at once by the public API (S1,
// S5, S13): each takes effect once.
func TestFactsTwiceAndOutOfOrder(t *testing.T) {
	onEngine(t, func(w *world) {
		b := w.budget("SPRING", 2, 1000, nil)
		refund, pay := says(refunded, "o", "r1", line(40)), says(paid, "o", "p1")
		if r := w.tell(refund)[0]; r.GetFact().GetState() != cofferv1.FactState_FACT_STATE_PENDING || r.GetFact().GetReason() == "" {
			t.Errorf("%v", r)
		}
		w.ok(w.client.Reserve(context.Background(), reserve(b, "o", 100)))
		var wg sync.WaitGroup
		var mu sync.Mutex
		first := 0
		for range 50 {
			wg.Go(func() {
				for _, f := range []*cofferv1.NewFact{pay, refund} {
					res, err := w.client.SubmitFacts(context.Background(), f)
					if err != nil || res[0].GetError() != nil {
						t.Errorf("%v %v", err, res)
						return
					}
					if !res[0].GetReplayed() {
						mu.Lock()
						first++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if first != 1 {
			t.Errorf("%d first answers, want 1 (the payment's)", first)
		}
		if err := w.work.Pass(context.Background()); err != nil {
			t.Error(err)
		}
		for _, f := range []*cofferv1.NewFact{pay, refund} {
			if got := w.fact(f); got.GetState() != cofferv1.FactState_FACT_STATE_APPLIED || len(got.GetEffects()) != 1 {
				t.Errorf("%v", got)
			}
		}
		w.expect(b, 1000, 940, 0, 100, 40)
		if es := w.entries(b); es[cofferv1.EntryType_ENTRY_TYPE_COMMIT] != 1 || es[cofferv1.EntryType_ENTRY_TYPE_REVERSE] != 1 {
			t.Errorf("entries %v", es)
		}
	})
}

// Two scanners of two nodes look at the same facts and leases at once.
func TestTwoWorkScanners(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("SPRING", 4, 100_000, nil)
		other, err := scan.NewWork(scan.DefaultWorkConfig(), w.store, w.facts, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		const orders = 30
		var jobs []*cofferv1.NewJob
		for i := range orders {
			w.tell(says(paid, fmt.Sprint("o", i), "p"), says(refunded, fmt.Sprint("o", i), "r", line(4)))
			w.ok(w.client.Reserve(ctx, reserve(b, fmt.Sprint("o", i), 10)))
			jobs = append(jobs, &cofferv1.NewJob{JobId: fmt.Sprint("j", i)})
		}
		if _, err := w.client.Enqueue(ctx, "q", jobs...); err != nil {
			t.Fatal(err)
		}
		if got, err := w.client.Lease(ctx, &cofferv1.LeaseRequest{Queue: "q", Worker: "dies", MaxJobs: orders}); err != nil || len(got) != orders {
			t.Fatalf("%d leased, %v", len(got), err)
		}
		w.advance(time.Minute)
		var wg sync.WaitGroup
		for _, s := range []*scan.Work{w.work, other} {
			wg.Go(func() {
				if err := s.Pass(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.expect(b, 100_000, 100_000-6*orders, 0, 10*orders, 4*orders)
		a, z := w.work.Status(ctx), other.Status(ctx)
		if a.Lapsed+z.Lapsed < orders || a.Facts.Pending != 0 || a.Facts.Applied != 2*orders || a.Facts.Exceptions != 0 || a.OldestPending != 0 {
			t.Errorf("%+v and %+v", a, z)
		}
		queues, err := w.client.ListQueues(ctx, &cofferv1.ListQueuesRequest{})
		if err != nil || len(queues.GetQueues()) != 1 || queues.GetQueues()[0].GetReady() != orders || queues.GetQueues()[0].GetLeased() != 0 {
			t.Errorf("%v %v", queues, err)
		}
		if es := w.entries(b); es[cofferv1.EntryType_ENTRY_TYPE_COMMIT] != orders || es[cofferv1.EntryType_ENTRY_TYPE_REVERSE] != orders {
			t.Errorf("entries %v", es)
		}
	})
}

// A flood of facts of one tenant does not keep another's waiting: its one fact
// is looked at in the first pass.
func TestFactFloodStarvesNobody(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		cfg := scan.DefaultWorkConfig()
		cfg.PassLimit, cfg.Owners = 10, 10
		small, err := scan.NewWork(cfg, w.store, w.facts, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			w.tell(says(paid, fmt.Sprint("flood", i), "p", line(0)))
		}
		quiet := w.client.ForTenant("zz")
		if _, err := quiet.SubmitFacts(ctx, says(paid, "one", "p", line(0))); err != nil {
			t.Fatal(err)
		}
		w.advance(25 * time.Hour)
		if err := small.Pass(ctx); err != nil {
			t.Fatal(err)
		}
		if got, err := quiet.GetFact(ctx, "shop", says(paid, "one", "p").GetEventId()); err != nil || got.GetState() != cofferv1.FactState_FACT_STATE_EXCEPTION {
			t.Errorf("%v %v", got, err)
		}
		list, err := w.client.ListFacts(ctx, &cofferv1.ListFactsRequest{State: cofferv1.FactState_FACT_STATE_EXCEPTION})
		if err != nil || len(list.GetFacts()) != 5 {
			t.Errorf("%d exceptions of the flood after one pass, want its half of 10; %v", len(list.GetFacts()), err)
		}
		for range 4 {
			if err := small.Pass(ctx); err != nil {
				t.Fatal(err)
			}
		}
		st := small.Status(ctx)
		if st.Facts.Exceptions != 21 || st.Facts.Pending != 0 || st.Settled != 21 {
			t.Errorf("%+v", st)
		}
	})
}

// A job that is settled is delivered again: its commands move nothing. The
// worker dies after its command, before it said that the job is done.
func TestDeliveringAgainMovesNothing(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("SPRING", 1, 1000, nil)
		w.ok(w.client.Reserve(ctx, reserve(b, "o", 100)))
		if _, err := w.client.Enqueue(ctx, "settle", &cofferv1.NewJob{JobId: "o", Payload: []byte("o")}); err != nil {
			t.Fatal(err)
		}
		var outcomes []*cofferv1.Outcome
		for delivery := range 4 {
			jobs, err := w.client.Lease(ctx, &cofferv1.LeaseRequest{Queue: "settle", Worker: fmt.Sprint("w", delivery), Lease: durationpb.New(time.Minute)})
			if err != nil || len(jobs) != 1 {
				t.Fatalf("delivery %d: %v %v", delivery, jobs, err)
			}
			order := string(jobs[0].GetPayload())
			o := w.ok(w.client.Commit(ctx, commit(order)))
			outcomes = append(outcomes, o)
			if o.GetReplayed() != (delivery > 0) || o.GetEntrySeq() != outcomes[0].GetEntrySeq() || o.GetAmountMinor() != 100 {
				t.Errorf("delivery %d: %v", delivery, o)
			}
			switch delivery {
			case 0: // dies: the lease runs out, and a scanner returns the job
				w.advance(time.Minute)
				if err := w.work.Pass(ctx); err != nil {
					t.Fatal(err)
				}
				_, err := w.client.Complete(ctx, &cofferv1.CompleteRequest{Queue: "settle", JobId: "o", LeaseToken: jobs[0].GetLeaseToken()})
				w.refused(err, ledger.LeaseLost)
			case 1: // dies: the next worker's call finds the lease run out
				w.advance(time.Minute)
			case 2: // fails for good, and a person replays it
				if _, err := w.client.Fail(ctx, &cofferv1.FailRequest{Queue: "settle", JobId: "o", LeaseToken: jobs[0].GetLeaseToken(), Permanent: true}); err != nil {
					t.Fatal(err)
				}
				if res, err := w.client.ReplayDeadLetter(ctx, "settle", "o"); err != nil || res.GetJob().GetJobId() != "o" {
					t.Fatalf("%v %v", res, err)
				}
			default:
				if _, err := w.client.Complete(ctx, &cofferv1.CompleteRequest{Queue: "settle", JobId: "o", LeaseToken: jobs[0].GetLeaseToken()}); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.expect(b, 1000, 900, 0, 100, 0)
		if es := w.entries(b); es[cofferv1.EntryType_ENTRY_TYPE_COMMIT] != 1 {
			t.Errorf("entries %v", es)
		}
	})
}

// S4 by facts: the payment that comes after the sweep is counted, or is an
// exception that a person sees and closes.
func TestPaymentFactAfterTheSweep(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("SPRING", 1, 1000, nil)
		w.ok(w.client.Reserve(ctx, reserve(b, "o", 100)))
		w.expire(16 * time.Minute)
		pay := says(paid, "o", "p1")
		if r := w.tell(pay)[0].GetFact(); r.GetState() != cofferv1.FactState_FACT_STATE_EXCEPTION || r.GetCode() != string(ledger.LateCommitRejected) {
			t.Errorf("%v", r)
		}
		if _, err := w.client.ResolveFact(ctx, "shop", pay.GetEventId(), ""); rpc.ReasonOf(err) != ledger.InvalidArgument {
			t.Errorf("%v", err)
		}
		if r, err := w.client.ResolveFact(ctx, "shop", pay.GetEventId(), "paid out by hand"); err != nil || r.GetFact().GetState() != cofferv1.FactState_FACT_STATE_RESOLVED {
			t.Errorf("%v %v", r, err)
		}
		if r, err := w.client.RetryFact(ctx, "shop", pay.GetEventId()); err != nil || r.GetState() != cofferv1.FactState_FACT_STATE_RESOLVED {
			t.Errorf("%v %v", r, err)
		}
		w.expect(b, 1000, 1000, 0, 0, 0)
		res, err := w.client.SubmitFacts(ctx, says(refunded, "o", "r"), &cofferv1.NewFact{Source: "shop"})
		if err != nil || res[0].GetError().GetField() != "facts[0].lines" || res[1].GetError().GetField() != "facts[1].event_id" {
			t.Errorf("%v %v", res, err)
		}
	})
}

// Results of a job, told by the public API in the wrong order and again and
// again: one charge, whatever is told, and a delivered job is not refunded.
func TestJobResultsByFacts(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		const failed, succeeded = cofferv1.FactKind_FACT_KIND_JOB_FAILED, cofferv1.FactKind_FACT_KIND_JOB_SUCCEEDED
		for _, f := range []*cofferv1.NewFact{says(failed, "j", "1"), says(failed, "j", "2")} {
			if got := w.tell(f)[0].GetFact(); got.GetState() != cofferv1.FactState_FACT_STATE_PENDING {
				t.Errorf("before the charge: %v", got)
			}
		}
		if _, err := w.client.CreateWallet(ctx, &cofferv1.CreateWalletRequest{Wallet: "acme", Currency: "BRL"}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Grant(ctx, &cofferv1.GrantRequest{Wallet: "acme", IdempotencyKey: "g", AmountMinor: 100, Currency: "BRL"}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Charge(ctx, &cofferv1.ChargeRequest{JobId: "j", Wallet: "acme", AmountMinor: 70, Currency: "BRL"}); err != nil {
			t.Fatal(err)
		}
		w.advance(time.Hour)
		if err := w.work.Pass(ctx); err != nil {
			t.Fatal(err)
		}
		if got := w.fact(says(failed, "j", "1")); got.GetState() != cofferv1.FactState_FACT_STATE_APPLIED || got.GetEffects()[0].GetOperation() != cofferv1.Operation_OPERATION_REFUND {
			t.Errorf("the failure: %v", got)
		}
		done := w.tell(says(succeeded, "j", ""), says(failed, "j", "3"))
		if e := done[0].GetFact().GetEffects(); len(e) != 1 || e[0].GetOperation() != cofferv1.Operation_OPERATION_RECLAIM_CHARGE || e[0].GetOutcome().GetAmountMinor() != 70 {
			t.Errorf("the success: %v", done[0])
		}
		if got := done[1].GetFact(); got.GetState() != cofferv1.FactState_FACT_STATE_APPLIED {
			t.Errorf("a failure after the success: %v", got)
		}
		job, err := w.client.GetJob(ctx, "j")
		if err != nil || len(job.GetAttempts()) != 1 || job.GetAttempts()[0].GetState() != cofferv1.JobState_JOB_STATE_DELIVERED {
			t.Errorf("%v %v", job, err)
		}
	})
}
