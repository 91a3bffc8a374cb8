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

// doors are the places of calls: one kind for all that are short, and one for
// each kind of those that last, so that neither tenants nor kinds of calls keep
// each other out. The executor has a door of its own for commands, and the service
// for other nodes has none: what comes there was let in by another node.
type doors struct {
	calls *places.Places
	// last are those of procedures whose calls last.
	last map[string]*places.Places
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
		}, func() float64 { return float64(p.Stats().Held) })
		return p
	}
	events := door("event_stream", "event streams", cfg.MaxEventStreams, time.Second)
	work := door("work_stream", "work streams", cfg.MaxWorkStreams, time.Second)
	scans := door("scan", "replays, verifications and audits", cfg.MaxScans, time.Second)
	return &doors{
		calls: door("call", "calls", cfg.MaxCalls, 100*time.Millisecond),
		last: map[string]*places.Places{
			cofferv1connect.EventServiceSubscribeProcedure:        events,
			cofferv1connect.QueueServiceWorkProcedure:             work,
			cofferv1connect.LedgerServiceReplayProcedure:          scans,
			cofferv1connect.LedgerServiceVerifyChainProcedure:     scans,
			cofferv1connect.OperatorServiceAuditProcedure:         scans,
			cofferv1connect.OperatorServiceRebuildExpiryProcedure: scans,
		},
	}
}

// of is the door of a procedure.
func (d *doors) of(procedure string) *places.Places {
	if p := d.last[procedure]; p != nil {
		return p
	}
	return d.calls
}

// interceptor gives each call a place until it ends, or refuses it before its
// message is read.
func (d *doors) interceptor(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		door := d.of(spec.Procedure)
		share, r := door.Take(tenantOf(ctx), 1)
		if r != nil {
			return r
		}
		defer door.Give(share, 1)
		return next(ctx, spec, stream)
	}
}
