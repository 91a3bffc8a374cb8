package rpc

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Each command on a job has one form, whether it comes by itself or in a batch.
func TestJobCommandsKeepEveryField(t *testing.T) {
	key := ledger.JobKey("shop", "j")
	acme := ledger.BudgetID{Tenant: "shop", Key: "acme"}
	charge := &cofferv1.ChargeRequest{JobId: "j", Attempt: 2, Wallet: "acme", AmountMinor: 5, Currency: "CREDIT", CorrelationId: "t"}
	refund := &cofferv1.RefundRequest{JobId: "j", Wallet: "acme", CorrelationId: "t"}
	reclaim := &cofferv1.CreditServiceReclaimRequest{JobId: "j"}
	hold := &cofferv1.HoldRequest{JobId: "j", Wallet: "acme", AmountMinor: 5, Currency: "CREDIT", Ttl: durationpb.New(time.Minute)}
	settle := &cofferv1.SettleRequest{JobId: "j", AmountMinor: 4, Partial: true, OperationId: "s"}
	release := &cofferv1.ReleaseHoldRequest{JobId: "j", OperationId: "r"}
	want := []ledger.Command{
		{Op: ledger.OpCharge, Key: key, Attempt: 2, Budget: acme, Amount: 5, Currency: "CREDIT", Correlation: "t"},
		{Op: ledger.OpRefund, Key: key, Attempt: 1, Budget: acme, Correlation: "t"},
		{Op: ledger.OpReclaimCharge, Key: key, Attempt: 1},
		{Op: ledger.OpHold, Key: key, Attempt: 1, Budget: acme, Amount: 5, Currency: "CREDIT", TTL: time.Minute},
		{Op: ledger.OpSettle, Key: key, Attempt: 1, Amount: 4, Partial: true, ID: "s"},
		{Op: ledger.OpRelease, Key: key, Attempt: 1, ID: "r"},
	}
	for name, send := range map[string]func(context.Context, *Client) error{
		"methods": func(ctx context.Context, c *Client) error {
			_, e1 := c.Charge(ctx, charge)
			_, e2 := c.Refund(ctx, refund)
			_, e3 := c.ReclaimCharge(ctx, reclaim)
			_, e4 := c.Hold(ctx, hold)
			_, e5 := c.Settle(ctx, settle)
			_, e6 := c.ReleaseHold(ctx, release)
			return errors.Join(e1, e2, e3, e4, e5, e6)
		},
		"execute": func(ctx context.Context, c *Client) error {
			res, err := c.Execute(ctx, []*cofferv1.Command{
				{Command: &cofferv1.Command_Charge{Charge: charge}},
				{Command: &cofferv1.Command_Refund{Refund: refund}},
				{Command: &cofferv1.Command_ReclaimCharge{ReclaimCharge: reclaim}},
				{Command: &cofferv1.Command_Hold{Hold: hold}},
				{Command: &cofferv1.Command_Settle{Settle: settle}},
				{Command: &cofferv1.Command_ReleaseHold{ReleaseHold: release}},
			})
			for _, r := range res {
				if r.GetOutcome() == nil {
					t.Errorf("%v", r)
				}
			}
			return err
		},
	} {
		for _, opts := range [][]Option{{WithTenant("shop")}, {WithTenant("shop"), WithoutBatching()}} {
			w := newWorld(t)
			if err := send(t.Context(), w.client(t, opts...)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, got := range w.exec.commands() {
				got = got.Normalize()
				if !reflect.DeepEqual(got, want[i]) {
					t.Errorf("%s: command %d is\n%+v, want\n%+v", name, i, got, want[i])
				}
			}
		}
	}
}

func TestQuoteKeepsEveryField(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	_, err := c.Reserve(t.Context(), &cofferv1.ReserveRequest{
		OrderId: "o", BenefitKey: "b", Budget: "spring", AmountMinor: 12, Currency: "BRL", Ttl: durationpb.New(time.Minute),
		Quote: &cofferv1.Quote{
			QuoteId: "q", Rounding: cofferv1.Rounding_ROUNDING_HALF_EVEN,
			Lines:   []*cofferv1.QuoteLine{{LineId: "A", Quantity: 3, AmountMinor: 12}},
			Funders: []*cofferv1.QuoteFunder{{FunderId: "brand", Weight: 60}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Reverse(t.Context(), &cofferv1.ReverseRequest{OrderId: "o", BenefitKey: "b", RefundId: "r", Lines: []*cofferv1.RefundLine{{LineId: "A", Quantity: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	got := w.exec.commands()
	want := &ledger.Quote{
		ID: "q", Rounding: ledger.RoundHalfEven, Lines: []ledger.QuoteLine{{ID: "A", Quantity: 3, Amount: 12}},
		Funders: []ledger.Funder{{ID: "brand", Weight: 60}},
	}
	if !reflect.DeepEqual(got[0].Quote, want) || !reflect.DeepEqual(got[1].Lines, []ledger.RefundLine{{ID: "A", Quantity: 2}}) {
		t.Errorf("%+v, %+v", got[0].Quote, got[1].Lines)
	}
	// A name that is not UTF-8 spoils no batch.
	bad := &cofferv1.Command{Command: &cofferv1.Command_Reverse{Reverse: &cofferv1.ReverseRequest{Lines: []*cofferv1.RefundLine{{LineId: "\xff"}}}}}
	if _, ok := shareable(bad); ok {
		t.Error("a line that is not UTF-8 is sent with others")
	}
}

func TestCreateWallet(t *testing.T) {
	w := newWorld(t)
	res, err := w.client(t).CreateWallet(t.Context(), &cofferv1.CreateWalletRequest{
		Wallet: "acme", Currency: "CREDIT", Policy: &cofferv1.WalletPolicy{OverdraftMinor: 5, DebtCapMinor: 50, OverCommit: &cofferv1.OverCommit{Percent: 10}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := w.exec.commands()[0]
	if c.Kind != ledger.KindWallet || c.Buckets != 1 || c.Policy.Overdraft != 5 || c.Policy.DebtCap != 50 || c.Policy.LateCommit != ledger.LateReclaim || c.Policy.OverCommit.Percent != 10 {
		t.Errorf("%+v", c)
	}
	if p := res.GetWallet().GetPolicy(); p.GetDebtCapMinor() != 50 || p.GetLateSettle() != cofferv1.LateCommit_LATE_COMMIT_RECLAIM {
		t.Errorf("%v", p)
	}
}

func TestWalletViews(t *testing.T) {
	b := &ledger.Budget{ID: ledger.BudgetID{Tenant: "t", Key: "acme"}, Kind: ledger.KindWallet, Currency: "CREDIT", State: ledger.BudgetOpen, Policy: ledger.Policy{Overdraft: 5, DebtCap: 50}}
	got := walletOf(b, ledger.Balances{Funded: 100, Available: -20, Reserved: 30, Committed: 120, Reversed: 30})
	if got.GetBalanceMinor() != -20 || got.GetDebtMinor() != 20 || got.GetSpendableMinor() != 0 || got.GetHeldMinor() != 30 || got.GetSpentMinor() != 90 || got.GetGrantedMinor() != 100 {
		t.Errorf("%v", got)
	}
	row := store.EntryView{Time: epoch, Entry: ledger.Entry{
		Seq: 4, Type: ledger.EntryRefund, Order: "j", Attempt: 1, Delta: ledger.Balances{Available: 30}, After: ledger.Balances{Available: 10}, RefersTo: 3,
	}}
	st := statementOf(&store.StatementView{Wallet: *b, Cutoff: epoch, Opening: ledger.Balances{Available: -20}, Closing: ledger.Balances{Available: 10}, Rows: []store.EntryView{row}}, "next")
	want := &cofferv1.StatementResponse{
		Wallet: "acme", Currency: "CREDIT", CutoffTime: timestamppb.New(epoch), OpeningBalanceMinor: -20, ClosingBalanceMinor: 10, NextPageToken: "next",
		Rows: []*cofferv1.StatementRow{{
			Time: timestamppb.New(epoch), Type: cofferv1.EntryType_ENTRY_TYPE_REFUND, JobId: "j", Attempt: 1, AmountMinor: 30, BalanceMinor: 10, EntrySeq: 4, RefersTo: 3,
		}},
	}
	if !proto.Equal(st, want) {
		t.Errorf("%v, want %v", st, want)
	}
	delivered := ledger.Attempt{Number: 1, State: ledger.StateCommitted, Receipts: []ledger.Receipt{{Op: ledger.OpCharge}, {Op: ledger.OpReclaimCharge}}}
	res := &ledger.Reservation{Key: ledger.JobKey("t", "j"), Attempts: []ledger.Attempt{delivered, {Number: 2, State: ledger.StateRejected}}}
	if jobs := jobsOf(res); len(jobs) != 2 || jobs[0].GetState() != cofferv1.JobState_JOB_STATE_DELIVERED || jobs[1].GetState() != cofferv1.JobState_JOB_STATE_REJECTED || jobs[0].GetJobId() != "j" {
		t.Errorf("%v", jobs)
	}
}
