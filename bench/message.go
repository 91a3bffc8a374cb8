package bench

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// messageOf is a command as clients send it. A kind of command that no
// workload sends gives an empty message, which a server refuses.
func messageOf(c *ledger.Command) *cofferv1.Command {
	order, key, budget := c.Key.Order, c.Key.Benefit, c.Budget.String()
	switch c.Op {
	case ledger.OpReserve:
		return &cofferv1.Command{Command: &cofferv1.Command_Reserve{Reserve: &cofferv1.ReserveRequest{
			OrderId: order, BenefitKey: key, Budget: budget, AmountMinor: c.Amount, Currency: c.Currency, Ttl: durationpb.New(c.TTL),
		}}}
	case ledger.OpCommit:
		return &cofferv1.Command{Command: &cofferv1.Command_Commit{Commit: &cofferv1.CommitRequest{
			OrderId: order, BenefitKey: key, Budget: budget, AmountMinor: c.Amount,
		}}}
	case ledger.OpRelease:
		return &cofferv1.Command{Command: &cofferv1.Command_Release{Release: &cofferv1.ReleaseRequest{OrderId: order, BenefitKey: key, Budget: budget}}}
	case ledger.OpReverse:
		return &cofferv1.Command{Command: &cofferv1.Command_Reverse{Reverse: &cofferv1.ReverseRequest{
			OrderId: order, BenefitKey: key, Budget: budget, RefundId: c.ID, AmountMinor: c.Amount,
		}}}
	default:
		return &cofferv1.Command{}
	}
}
