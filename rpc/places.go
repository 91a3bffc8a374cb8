package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
	"github.com/coffer-ledger/coffer/shard/places"
)

// doors are the places of calls: one kind for those that bring commands, which
// wait in the executor for their places there, one for each kind of those that
// last, and one for all others, which go to the store at once. So neither tenants
// nor kinds of calls keep each other out. A call about all tenants counts as one of
// a tenant without a name: who looks after a node must get in also where the tenant
// that the call names has its part. The service for other nodes has no door: what
// comes there was let in by another node.
type doors struct {
	others *places.Places
	of     map[string]*places.Places // by procedure
}

// commandProcedures are the calls whose work the executor does.
var commandProcedures = []string{
	cofferv1connect.BudgetServiceCreateBudgetProcedure,
	cofferv1connect.BudgetServiceFundBudgetProcedure,
	cofferv1connect.BudgetServiceDefundBudgetProcedure,
	cofferv1connect.BudgetServiceFreezeBudgetProcedure,
	cofferv1connect.BudgetServiceUnfreezeBudgetProcedure,
	cofferv1connect.BudgetServiceCloseBudgetProcedure,
	cofferv1connect.BudgetServiceReshardBudgetProcedure,
	cofferv1connect.CreditServiceCreateWalletProcedure,
	cofferv1connect.CreditServiceGrantProcedure,
	cofferv1connect.CreditServiceChargeProcedure,
	cofferv1connect.CreditServiceRefundProcedure,
	cofferv1connect.CreditServiceReclaimProcedure,
	cofferv1connect.CreditServiceHoldProcedure,
	cofferv1connect.CreditServiceSettleProcedure,
	cofferv1connect.CreditServiceReleaseHoldProcedure,
	cofferv1connect.ReservationServiceReserveProcedure,
	cofferv1connect.ReservationServiceCommitProcedure,
	cofferv1connect.ReservationServiceExtendProcedure,
	cofferv1connect.ReservationServiceReleaseProcedure,
	cofferv1connect.ReservationServiceReclaimProcedure,
	cofferv1connect.ReservationServiceReverseProcedure,
	cofferv1connect.ReservationServiceReinstateProcedure,
	cofferv1connect.ReservationServiceResolveProcedure,
	cofferv1connect.ReservationServiceExecuteProcedure,
}

func newDoors(cfg Config, reg prometheus.Registerer) *doors {
	f := promauto.With(reg)
	door := func(kind, things string, n int, retry time.Duration) *places.Places {
		p := places.New(places.Config{Name: "open", Things: things, Places: int64(n), Retry: retry})
		label := prometheus.Labels{"kind": kind}
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coffer_rpc_places_taken", Help: "Calls open now, by kind.", ConstLabels: label,
		}, func() float64 { return float64(p.Taken()) })
		f.NewCounterFunc(prometheus.CounterOpts{
			Name: "coffer_rpc_tenant_limited_total", Help: "Calls refused because their tenant had its part of the node's places, by kind.", ConstLabels: label,
		}, func() float64 { return float64(p.Held()) })
		return p
	}
	const soon, later = 100 * time.Millisecond, time.Second
	events := door("event_stream", "event streams", cfg.MaxEventStreams, later)
	work := door("work_stream", "work streams", cfg.MaxWorkStreams, later)
	scans := door("scan", "replays, verifications and audits", cfg.MaxScans, later)
	commands := door("command", "calls with commands", cfg.MaxCommandCalls, soon)
	d := &doors{
		others: door("other", "calls", cfg.MaxCalls, soon),
		of: map[string]*places.Places{
			cofferv1connect.EventServiceSubscribeProcedure:        events,
			cofferv1connect.QueueServiceWorkProcedure:             work,
			cofferv1connect.LedgerServiceReplayProcedure:          scans,
			cofferv1connect.LedgerServiceVerifyChainProcedure:     scans,
			cofferv1connect.OperatorServiceAuditProcedure:         scans,
			cofferv1connect.OperatorServiceRebuildExpiryProcedure: scans,
		},
	}
	for _, procedure := range commandProcedures {
		d.of[procedure] = commands
	}
	return d
}

// door is that of a procedure.
func (d *doors) door(procedure string) *places.Places {
	if p := d.of[procedure]; p != nil {
		return p
	}
	return d.others
}

// interceptor gives each call a place until it ends, or refuses it before its
// message is read.
func (d *doors) interceptor(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		door, tenant := d.door(spec.Procedure), tenantOf(ctx)
		if permissions[spec.Procedure].everywhere {
			tenant = ""
		}
		share, r := door.Take(tenant, 1)
		if r != nil {
			return r
		}
		defer door.Give(share, 1)
		return next(ctx, spec, stream)
	}
}
