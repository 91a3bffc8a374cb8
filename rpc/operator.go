package rpc

import (
	"context"
	"time"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// progressEvery spaces the progress messages of one stream.
const progressEvery = 200 * time.Millisecond

type operatorService struct {
	maintain Maintainer
	status   func(ctx context.Context) Status
	cluster  Cluster
}

// pace says when the next progress message is due: at once for the first of a
// phase, then not more often than progressEvery.
type pace struct {
	phase string
	last  time.Time
}

func (p *pace) due(phase string) bool {
	now := time.Now()
	if phase == p.phase && now.Sub(p.last) < progressEvery {
		return false
	}
	p.phase, p.last = phase, now
	return true
}

// stopped is why the work ended: because its caller left, if that is so.
func stopped(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (s *operatorService) Audit(ctx context.Context, _ *cofferv1.AuditRequest, stream cofferv1connect.OperatorServiceAuditServerStream) error {
	ctx, stop := context.WithCancelCause(ctx) // a caller that left stops the work
	defer stop(nil)
	var p pace
	report, err := s.maintain.Audit(ctx, func(phase string, done uint64) {
		if !p.due(phase) {
			return
		}
		event := &cofferv1.AuditResponse_Progress{Progress: &cofferv1.AuditProgress{Phase: phase, Done: done}}
		if err := stream.Send(&cofferv1.AuditResponse{Event: event}); err != nil {
			stop(err)
		}
	})
	if err != nil {
		return stopped(ctx, err)
	}
	return stream.Send(&cofferv1.AuditResponse{Event: &cofferv1.AuditResponse_Report{Report: reportOf(report)}})
}

func (s *operatorService) RebuildExpiry(
	ctx context.Context, _ *cofferv1.RebuildExpiryRequest, stream cofferv1connect.OperatorServiceRebuildExpiryServerStream,
) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var p pace
	var scanned, written uint64
	err := s.maintain.RebuildExpiry(ctx, func(s, w uint64) {
		scanned, written = s, w
		if !p.due("rebuild") {
			return
		}
		if err := stream.Send(&cofferv1.RebuildExpiryResponse{ReservationsScanned: s, RowsWritten: w}); err != nil {
			stop(err)
		}
	})
	if err != nil {
		return stopped(ctx, err)
	}
	return stream.Send(&cofferv1.RebuildExpiryResponse{ReservationsScanned: scanned, RowsWritten: written, Done: true})
}

func (s *operatorService) GetStatus(ctx context.Context, _ *cofferv1.GetStatusRequest) (*cofferv1.GetStatusResponse, error) {
	st := s.status(ctx)
	return &cofferv1.GetStatusResponse{
		Version: st.Version, NodeId: st.NodeID, Store: st.Store, Draining: st.Draining, QueuedCommands: st.QueuedCommands,
		OldestOverdueSeconds: st.OldestOverdue.Seconds(), LastExpiryPassSeconds: st.LastExpiryPass.Seconds(),
	}, nil
}
