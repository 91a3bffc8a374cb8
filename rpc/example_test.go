package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// An order with a coupon, from the hold to a refund. Each command may be sent
// again with the same values; it takes effect once.
func ExampleClient() {
	client := rpc.NewClient("http://127.0.0.1:7420", rpc.WithTenant("shop"))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	hold := &cofferv1.ReserveRequest{
		OrderId: "o-1001", BenefitKey: "coupon:SPRING", Budget: "SPRING",
		AmountMinor: 1250, Currency: "BRL", Ttl: durationpb.New(15 * time.Minute),
	}
	_, err := client.Reserve(ctx, hold)
	switch {
	case err == nil:
	case rpc.ReasonOf(err) == ledger.InsufficientBudget:
		fmt.Println("the budget is spent: sell without the coupon")
		return
	case errors.Is(err, rpc.ErrOutcomeUnknown):
		// It may have been reserved. Settle it: after this it either was, or
		// never will be.
		res, err := client.Resolve(ctx, &cofferv1.ResolveRequest{
			OrderId: "o-1001", BenefitKey: "coupon:SPRING", Operation: cofferv1.Operation_OPERATION_RESERVE,
		})
		fmt.Println(res.GetResolution(), err)
		return
	default:
		fmt.Println(err) // says which field, its limit, and what to do next
		return
	}

	paid, err := client.Commit(ctx, &cofferv1.CommitRequest{OrderId: "o-1001", BenefitKey: "coupon:SPRING", PaymentId: "pay-77"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(paid.GetState(), paid.GetCommittedMinor())

	refund, err := client.Reverse(ctx, &cofferv1.ReverseRequest{
		OrderId: "o-1001", BenefitKey: "coupon:SPRING", RefundId: "refund-5", AmountMinor: 500,
	})
	fmt.Println(refund.GetState(), err)
}
