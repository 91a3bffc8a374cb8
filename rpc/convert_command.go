package rpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// From messages to commands. Nothing is judged here but what a Go type cannot
// hold; the domain validates the command.

func commandOf(tenant string, m *cofferv1.Command) (ledger.Command, *ledger.Rejection) {
	switch c := m.GetCommand().(type) {
	case *cofferv1.Command_Reserve:
		return reserveOf(tenant, c.Reserve)
	case *cofferv1.Command_Commit:
		return commitOf(tenant, c.Commit), nil
	case *cofferv1.Command_Extend:
		return extendOf(tenant, c.Extend)
	case *cofferv1.Command_Release:
		return releaseOf(tenant, c.Release), nil
	case *cofferv1.Command_Reclaim:
		return reclaimOf(tenant, c.Reclaim), nil
	case *cofferv1.Command_Reverse:
		return reverseOf(tenant, c.Reverse), nil
	case *cofferv1.Command_Reinstate:
		return reinstateOf(tenant, c.Reinstate), nil
	case *cofferv1.Command_Resolve:
		return resolveOf(tenant, c.Resolve), nil
	case *cofferv1.Command_Charge:
		return chargeOf(tenant, c.Charge), nil
	case *cofferv1.Command_Refund:
		return jobCommand(ledger.OpRefund, tenant, c.Refund), nil
	case *cofferv1.Command_ReclaimCharge:
		return jobCommand(ledger.OpReclaimCharge, tenant, c.ReclaimCharge), nil
	case *cofferv1.Command_Hold:
		return holdOf(tenant, c.Hold)
	case *cofferv1.Command_Settle:
		return settleOf(tenant, c.Settle), nil
	case *cofferv1.Command_ReleaseHold:
		return releaseHoldOf(tenant, c.ReleaseHold), nil
	default:
		return ledger.Command{}, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "command", Value: "unset",
			Limit: "reserve, commit, extend, release, reclaim, reverse, reinstate, resolve, charge, refund, reclaim_charge, hold, settle or release_hold", Message: "names no command",
		}
	}
}

// onOrder is what all requests on an order's benefit have.
type onOrder interface {
	GetOrderId() string
	GetBenefitKey() string
	GetAttempt() uint32
	GetBudget() string
}

func orderCommand(op ledger.Op, tenant string, m onOrder) ledger.Command {
	c := ledger.Command{
		Op: op, Key: ledger.OrderKey{Tenant: tenant, Order: m.GetOrderId(), Benefit: m.GetBenefitKey()}, Attempt: m.GetAttempt(),
	}
	c.Budget = optionalBudget(tenant, m.GetBudget())
	return c
}

// optionalBudget reads the name of a budget that may be left out. "funder/",
// which names none, stays a name, and an illegal one.
func optionalBudget(tenant, s string) ledger.BudgetID {
	if s == "" {
		return ledger.BudgetID{}
	}
	id := ledger.ParseBudget(tenant, s)
	if id.IsZero() {
		return ledger.BudgetID{Tenant: tenant, Key: s}
	}
	return id
}

func reserveOf(tenant string, m *cofferv1.ReserveRequest) (ledger.Command, *ledger.Rejection) {
	c := orderCommand(ledger.OpReserve, tenant, m)
	c.Budget.Tenant = tenant // also of a budget that was left out: it is the key that is missing
	c.Amount, c.Currency, c.Correlation = m.GetAmountMinor(), m.GetCurrency(), m.GetCorrelationId()
	c.Quote = quoteOf(m.GetQuote())
	var r *ledger.Rejection
	c.TTL, r = durationOf("ttl", m.GetTtl())
	return c, r
}

func commitOf(tenant string, m *cofferv1.CommitRequest) ledger.Command {
	c := orderCommand(ledger.OpCommit, tenant, m)
	c.ID, c.Amount, c.Partial, c.Correlation = m.GetPaymentId(), m.GetAmountMinor(), m.GetPartial(), m.GetCorrelationId()
	return c
}

func extendOf(tenant string, m *cofferv1.ExtendRequest) (ledger.Command, *ledger.Rejection) {
	c := orderCommand(ledger.OpExtend, tenant, m)
	c.ID, c.Correlation = m.GetOperationId(), m.GetCorrelationId()
	var r *ledger.Rejection
	c.TTL, r = durationOf("ttl", m.GetTtl())
	return c, r
}

func releaseOf(tenant string, m *cofferv1.ReleaseRequest) ledger.Command {
	c := orderCommand(ledger.OpRelease, tenant, m)
	c.ID, c.Correlation = m.GetOperationId(), m.GetCorrelationId()
	return c
}

func reclaimOf(tenant string, m *cofferv1.ReclaimRequest) ledger.Command {
	c := orderCommand(ledger.OpReclaim, tenant, m)
	c.ID, c.Correlation = m.GetOperationId(), m.GetCorrelationId()
	return c
}

func reverseOf(tenant string, m *cofferv1.ReverseRequest) ledger.Command {
	c := orderCommand(ledger.OpReverse, tenant, m)
	c.ID, c.Amount, c.Correlation = m.GetRefundId(), m.GetAmountMinor(), m.GetCorrelationId()
	c.Lines = refundLinesOf(m.GetLines())
	return c
}

func reinstateOf(tenant string, m *cofferv1.ReinstateRequest) ledger.Command {
	c := orderCommand(ledger.OpReinstate, tenant, m)
	c.ID, c.Correlation = m.GetRefundId(), m.GetCorrelationId()
	return c
}

func resolveOf(tenant string, m *cofferv1.ResolveRequest) ledger.Command {
	c := orderCommand(ledger.OpResolve, tenant, m)
	c.ID, c.Target = m.GetId(), opOf(m.GetOperation())
	return c
}

// onBudget is what all requests on a budget have.
type onBudget interface {
	GetBudget() string
	GetIdempotencyKey() string
}

func budgetCommand(op ledger.Op, tenant string, m onBudget) ledger.Command {
	return ledger.Command{Op: op, Budget: ledger.ParseBudget(tenant, m.GetBudget()), ID: m.GetIdempotencyKey()}
}

func createOf(tenant string, m *cofferv1.CreateBudgetRequest) (ledger.Command, *ledger.Rejection) {
	c := ledger.Command{
		Op: ledger.OpCreate, Budget: ledger.ParseBudget(tenant, m.GetBudget()),
		Currency: m.GetCurrency(), Buckets: int(m.GetBuckets()),
	}
	p := m.GetPolicy()
	c.Policy = ledger.Policy{
		LateCommit: lateCommits.from(p.GetLateCommit()), Exhaustion: exhaustions.from(p.GetExhaustion()),
		OnUnavailable: onUnavailables.from(p.GetOnUnavailable()),
		OverCommit:    ledger.OverCommit{Percent: p.GetOverCommit().GetPercent(), Amount: p.GetOverCommit().GetAmountMinor()},
	}
	c.Policy.ReversalSink = optionalBudget(tenant, p.GetReversalSink())
	if p.GetMaxLifetime() == nil {
		return c, nil
	}
	var r *ledger.Rejection
	c.Policy.MaxLifetime, r = durationOf("policy.max_lifetime", p.GetMaxLifetime())
	return c, r
}

// durationOf reads a duration. None at all is zero; one that is malformed or
// that Go cannot hold is refused instead of being rounded.
func durationOf(field string, d *durationpb.Duration) (time.Duration, *ledger.Rejection) {
	if d == nil {
		return 0, nil
	}
	v := d.AsDuration()
	if d.CheckValid() != nil || v/time.Second != time.Duration(d.GetSeconds()) {
		return 0, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: field, Value: durationText(d),
			Limit: "up to " + ledger.MaxLifetimeLimit.String(), Message: "is not a legal duration",
		}
	}
	return v, nil
}

// durationText writes a duration, also one that is not legal.
func durationText(d *durationpb.Duration) string {
	if v := d.AsDuration(); d.CheckValid() == nil && v/time.Second == time.Duration(d.GetSeconds()) {
		return v.String()
	}
	return fmt.Sprintf("%ds %dns", d.GetSeconds(), d.GetNanos())
}

// timeOf reads an optional point in time; unset is the zero time.
func timeOf(field string, t *timestamppb.Timestamp) (time.Time, *ledger.Rejection) {
	if t == nil {
		return time.Time{}, nil
	}
	if t.CheckValid() != nil || t.GetSeconds() < 0 {
		return time.Time{}, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: field, Value: fmt.Sprintf("%ds %dns after 1970-01-01", t.GetSeconds(), t.GetNanos()),
			Limit: "1970-01-01T00:00:00Z to now", Message: "is out of range",
		}
	}
	return t.AsTime(), nil
}
