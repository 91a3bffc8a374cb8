package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// Faults that real reservation, coupon and ledger systems have shipped. Each
// test goes through the public API, on every engine, and ends with an audit.

func rpcDetail(err error) *cofferv1.ErrorDetail {
	var e *rpc.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return nil
}

// sameAnswers checks that exactly one answer is a first one and all are equal
// but for that.
func (w *world) sameAnswers(outs []*cofferv1.Outcome, errs []error) {
	w.Helper()
	first := 0
	for i, o := range outs {
		if errs[i] != nil {
			w.Fatal(errs[i])
		}
		if !o.GetReplayed() {
			first++
		}
		o.Replayed = false
		if !proto.Equal(o, outs[0]) {
			w.Fatalf("answers differ: %v and %v", o, outs[0])
		}
	}
	if first != 1 {
		w.Errorf("%d first answers, want 1", first)
	}
}

// S1: two commits of one hold at the same moment both moved money.
func TestTwoCommitsAtOnceMoveMoneyOnce(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 10_000, nil)
		w.ok(w.client.Reserve(ctx, reserve(b, "o1", 100)))
		w.sameAnswers(together(2, func(int) (*cofferv1.Outcome, error) { return w.client.Commit(ctx, commit("o1")) }))
		w.expect(b, 10_000, 9_900, 0, 100, 0)
		if n := w.entries(b)[cofferv1.EntryType_ENTRY_TYPE_COMMIT]; n != 1 {
			t.Errorf("%d COMMIT entries, want 1", n)
		}
	})
}

// S2: the availability check looked only at spent money. Every path that
// admits spending must count what is held: reserve, commit above the hold,
// late commit, reclaim and reinstate, all at once for the last money.
func TestNoPathSpendsHeldMoney(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("tight", 4, 1000, &cofferv1.BudgetPolicy{
			LateCommit: cofferv1.LateCommit_LATE_COMMIT_RECLAIM, OverCommit: &cofferv1.OverCommit{AmountMinor: 1000},
		})
		w.ok(w.client.Reserve(ctx, reserve(b, "late", 200)))
		w.expire(16 * time.Minute)
		w.ok(w.client.Reserve(ctx, reserve(b, "released", 200)))
		w.ok(w.client.Release(ctx, &cofferv1.ReleaseRequest{OrderId: "released", BenefitKey: "coupon:A"}))
		w.ok(w.client.Reserve(ctx, reserve(b, "refunded", 200)))
		w.ok(w.client.Commit(ctx, commit("refunded")))
		w.ok(w.client.Reverse(ctx, &cofferv1.ReverseRequest{OrderId: "refunded", BenefitKey: "coupon:A", RefundId: "r1", AmountMinor: 200}))
		w.ok(w.client.Reserve(ctx, reserve(b, "metered", 100)))
		w.ok(w.client.Reserve(ctx, reserve(b, "big", 650)))
		w.expect(b, 1000, 250, 750, 200, 200)
		// 250 are left; each of these wants 200.
		calls := []func() (*cofferv1.Outcome, error){
			func() (*cofferv1.Outcome, error) { return w.client.Reserve(ctx, reserve(b, "new", 200)) },
			func() (*cofferv1.Outcome, error) { return w.client.Commit(ctx, commit("late")) },
			func() (*cofferv1.Outcome, error) {
				return w.client.Reclaim(ctx, &cofferv1.ReclaimRequest{OrderId: "released", BenefitKey: "coupon:A"})
			},
			func() (*cofferv1.Outcome, error) {
				return w.client.Reinstate(ctx, &cofferv1.ReinstateRequest{OrderId: "refunded", BenefitKey: "coupon:A", RefundId: "r1"})
			},
			func() (*cofferv1.Outcome, error) {
				return w.client.Commit(ctx, &cofferv1.CommitRequest{OrderId: "metered", BenefitKey: "coupon:A", AmountMinor: 300})
			},
		}
		_, errs := together(len(calls), func(i int) (*cofferv1.Outcome, error) { return calls[i]() })
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				w.refused(err, ledger.InsufficientBudget)
			}
		}
		if won != 1 {
			t.Errorf("%d of 5 got the money, want 1", won)
		}
		got := w.balances(b)
		if got.GetAvailableMinor() != 50 || got.GetReservedMinor()+got.GetCommittedMinor()-got.GetReversedMinor() != 950 {
			t.Errorf("balances %v, want 50 available and 950 held or spent", got)
		}
	})
}

// S3: expiry was stored and returned, but nothing ever swept it.
func TestOverdueReservationsReturnTheirMoney(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 1000, nil)
		for i := range 10 {
			w.ok(w.client.Reserve(ctx, reserve(b, fmt.Sprint("o", i), 100)))
		}
		w.refused(lastError(w.client.Reserve(ctx, reserve(b, "late", 1))), ledger.InsufficientBudget)
		w.ok(w.client.Extend(ctx, &cofferv1.ExtendRequest{OrderId: "o0", BenefitKey: "coupon:A", Ttl: durationpb.New(time.Hour)}))
		w.expire(14 * time.Minute)
		w.expect(b, 1000, 0, 1000, 0, 0)
		w.expire(2 * time.Minute)
		w.expect(b, 1000, 900, 100, 0, 0)
		if n := w.entries(b)[cofferv1.EntryType_ENTRY_TYPE_EXPIRE]; n != 9 {
			t.Errorf("%d EXPIRE entries, want 9", n)
		}
		w.expire(time.Hour)
		w.expect(b, 1000, 1000, 0, 0, 0)
		w.expire(time.Hour) // sweeping again changes nothing
		if n := w.entries(b)[cofferv1.EntryType_ENTRY_TYPE_EXPIRE]; n != 10 {
			t.Errorf("%d EXPIRE entries, want 10", n)
		}
	})
}

func lastError[T any](_ T, err error) error { return err }

// S4: a confirm that came after the sweep was thrown away, yet answered as
// success. The policy decides, and the answer says which.
func TestLateCommitIsNeverSilentlyLost(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		reclaim := w.budget("reclaim", 4, 500, &cofferv1.BudgetPolicy{LateCommit: cofferv1.LateCommit_LATE_COMMIT_RECLAIM})
		reject := w.budget("reject", 4, 500, nil)
		byCase := w.budget("case", 4, 500, &cofferv1.BudgetPolicy{LateCommit: cofferv1.LateCommit_LATE_COMMIT_CASE})
		for _, b := range []string{reclaim, reject, byCase} {
			w.ok(w.client.Reserve(ctx, reserve(b, b, 300)))
		}
		w.ok(w.client.Reserve(ctx, reserve(reclaim, "no room", 200)))
		w.expire(16 * time.Minute)
		o := w.ok(w.client.Commit(ctx, commit(reclaim)))
		if !o.GetLate() || o.GetState() != cofferv1.ReservationState_RESERVATION_STATE_COMMITTED || o.GetCommittedMinor() != 300 {
			t.Errorf("late commit answered %v", o)
		}
		w.expect(reclaim, 500, 200, 0, 300, 0)
		w.ok(w.client.Reserve(ctx, reserve(reclaim, "o9", 1)))
		d := w.refused(lastError(w.client.Commit(ctx, commit("no room"))), ledger.InsufficientBudget)
		if d.GetRequestedMinor() != 200 || d.GetAvailableMinor() != 199 {
			t.Errorf("refusal says %d of %d", d.GetRequestedMinor(), d.GetAvailableMinor())
		}
		d = w.refused(lastError(w.client.Commit(ctx, commit(reject))), ledger.LateCommitRejected)
		if d.GetState() != "EXPIRED" {
			t.Errorf("refusal says state %s", d.GetState())
		}
		w.refused(lastError(w.client.Commit(ctx, commit(byCase))), ledger.LateCommitCase)
		w.refused(lastError(w.client.Commit(ctx, commit(byCase))), ledger.LateCommitCase)
		cases, err := w.client.ListCases(ctx, &cofferv1.ListCasesRequest{})
		if err != nil || len(cases.GetCases()) != 1 || cases.GetCases()[0].GetOrderId() != byCase || cases.GetCases()[0].GetAmountMinor() != 300 {
			t.Errorf("cases %v, %v; want one of 300 for order %q", cases.GetCases(), err, byCase)
		}
		// The person decides that it was paid.
		w.ok(w.client.Reclaim(ctx, &cofferv1.ReclaimRequest{OrderId: byCase, BenefitKey: "coupon:A"}))
		w.expect(byCase, 500, 200, 0, 300, 0)
	})
}

// S5: the same refund could be sent twice, and two partial refunds together
// exceeded the payment.
func TestRefundsNeverExceedThePayment(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 1000, nil)
		w.ok(w.client.Reserve(ctx, reserve(b, "o1", 100)))
		w.ok(w.client.Commit(ctx, commit("o1")))
		refund := func(id string, amount int64) (*cofferv1.Outcome, error) {
			return w.client.Reverse(ctx, &cofferv1.ReverseRequest{OrderId: "o1", BenefitKey: "coupon:A", RefundId: id, AmountMinor: amount})
		}
		_, errs := together(2, func(i int) (*cofferv1.Outcome, error) { return refund(fmt.Sprint("r", i), 60) })
		bad := errs[0]
		if bad == nil {
			bad = errs[1]
		}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("of two refunds of 60 out of 100, one must be refused: %v", errs)
		}
		if d := w.refused(bad, ledger.RefundExceedsCommit); d.GetLimit() != "40" || d.GetValue() != "60" {
			t.Errorf("refusal says value %s, limit %s", d.GetValue(), d.GetLimit())
		}
		w.sameAnswers(together(20, func(int) (*cofferv1.Outcome, error) { return refund("rest", 40) }))
		w.expect(b, 1000, 1000, 0, 100, 100)
		if n := w.entries(b)[cofferv1.EntryType_ENTRY_TYPE_REVERSE]; n != 2 {
			t.Errorf("%d REVERSE entries, want 2", n)
		}
	})
}

// S6: two partial commits in parallel read the same remainder.
func TestPartialCommitsNeverExceedTheHold(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 1000, nil)
		w.ok(w.client.Reserve(ctx, reserve(b, "o1", 100)))
		part := func(id string, amount int64) (*cofferv1.Outcome, error) {
			return w.client.Commit(ctx, &cofferv1.CommitRequest{OrderId: "o1", BenefitKey: "coupon:A", AmountMinor: amount, Partial: true, PaymentId: id})
		}
		_, errs := together(2, func(i int) (*cofferv1.Outcome, error) { return part(fmt.Sprint("p", i), 60) })
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("of two commits of 60 out of 100, one must be refused: %v", errs)
		}
		w.expect(b, 1000, 900, 40, 60, 0)
		w.ok(part("p2", 40))
		w.expect(b, 1000, 900, 0, 100, 0)
	})
}

// S7: expiry lived in a cache's queue; the cache was lost.
func TestLostExpiryIndexIsRebuilt(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 1000, nil)
		for i := range 10 {
			w.ok(w.client.Reserve(ctx, reserve(b, fmt.Sprint("o", i), 50)))
		}
		w.ok(w.client.Commit(ctx, commit("o0")))
		w.dropExpiryIndex()
		w.expire(time.Hour)
		w.expect(b, 1000, 500, 450, 50, 0) // the index is gone: nothing expires
		scanned, written, err := w.client.RebuildExpiry(ctx, nil)
		if err != nil || scanned != 10 || written == 0 {
			t.Fatalf("rebuild scanned %d and wrote %d: %v", scanned, written, err)
		}
		w.expire(time.Minute)
		w.expect(b, 1000, 950, 0, 50, 0)
	})
}

// dropExpiryIndex clears the table X under the world's prefix, as a lost cache
// would.
func (w *world) dropExpiryIndex() {
	w.Helper()
	prefix := append(bytes.Clone(w.prefix), "\x02X\x00"...)
	_, err := kv.Transact(context.Background(), w.engine, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		rows, _, err := tx.Range(kv.PrefixRange(prefix), kv.RangeOptions{}).Wait()
		if err == nil && len(rows) == 0 {
			return errors.New("there is no expiry index to drop")
		}
		tx.ClearRange(kv.PrefixRange(prefix))
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

// S10: a key reused with another amount got the first answer.
func TestReusedKeyNamesTheDifferingFields(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 1000, nil)
		other := w.budget("autumn", 4, 1000, nil)
		w.ok(w.client.Reserve(ctx, reserve(b, "o1", 100)))
		for _, tc := range []struct {
			change func(*cofferv1.ReserveRequest)
			fields []string
		}{
			{func(r *cofferv1.ReserveRequest) { r.AmountMinor = 101 }, []string{"amount_minor"}},
			{func(r *cofferv1.ReserveRequest) { r.Budget = other }, []string{"budget"}},
			{func(r *cofferv1.ReserveRequest) { r.Ttl = durationpb.New(time.Hour); r.AmountMinor = 5 }, []string{"amount_minor", "ttl_ms"}},
		} {
			req := reserve(b, "o1", 100)
			tc.change(req)
			d := w.refused(lastError(w.client.Reserve(ctx, req)), ledger.IdempotencyConflict)
			if !slices.Equal(d.GetDifferingFields(), tc.fields) {
				t.Errorf("differing fields %q, want %q", d.GetDifferingFields(), tc.fields)
			}
		}
		w.expect(b, 1000, 900, 100, 0, 0)
		w.expect(other, 1000, 1000, 0, 0, 0)
	})
}

// S12: a client library retried with a fresh request id and reserved twice.
func TestFreshRequestIDReservesOnce(t *testing.T) {
	onEngine(t, func(w *world) {
		ctx := context.Background()
		b := w.budget("spring", 4, 1000, nil)
		w.sameAnswers(together(10, func(i int) (*cofferv1.Outcome, error) {
			req := reserve(b, "o1", 100)
			req.CorrelationId = fmt.Sprint("request-", i)
			return w.client.Reserve(ctx, req)
		}))
		w.expect(b, 1000, 900, 100, 0, 0)
	})
}

// S13: a thousand callers with one key at once.
func TestThousandCallersWithOneKey(t *testing.T) {
	onEngine(t, func(w *world) {
		b := w.budget("hot", 16, 1_000_000, nil)
		w.sameAnswers(together(1000, func(int) (*cofferv1.Outcome, error) {
			return w.client.Reserve(context.Background(), reserve(b, "o1", 100))
		}))
		w.expect(b, 1_000_000, 999_900, 100, 0, 0)
		if n := w.entries(b)[cofferv1.EntryType_ENTRY_TYPE_RESERVE]; n != 1 {
			t.Errorf("%d RESERVE entries, want 1", n)
		}
		events, err := w.client.ExplainOrder(context.Background(), "o1", "coupon:A")
		if err != nil || len(events.GetTimeline()) != 1 {
			t.Errorf("timeline %v, %v; want one event", events.GetTimeline(), err)
		}
	})
}

// S14: vouchers of amount 0 and orders with 29 vouchers exist in real data.
func TestRealVoucherShapes(t *testing.T) {
	onEngine(t, func(w *world) {
		b := w.budget("vouchers", 4, 1_000_000, nil)
		var cmds []*cofferv1.Command
		total := int64(0)
		for i := range 29 {
			req := reserve(b, "many", int64(i)*37)
			req.BenefitKey = fmt.Sprint("voucher:", i+1)
			total += req.GetAmountMinor()
			cmds = append(cmds, &cofferv1.Command{Command: &cofferv1.Command_Reserve{Reserve: req}})
		}
		results, err := w.client.Execute(context.Background(), cmds)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if d := r.GetError().GetDetail(); i == 0 {
				if d.GetReason() != string(ledger.InvalidArgument) || d.GetField() != "commands[0].amount_minor" || d.GetValue() != "0" || d.GetLimit() == "" {
					t.Errorf("amount 0 answered %v", r)
				}
			} else if r.GetOutcome().GetState() != cofferv1.ReservationState_RESERVATION_STATE_RESERVED {
				t.Errorf("voucher %d answered %v", i+1, r)
			}
		}
		w.expect(b, 1_000_000, 1_000_000-total, total, 0, 0)
	})
}
