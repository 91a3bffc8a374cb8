package rpc

import (
	"context"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type reservationService struct {
	exec    Executor
	reads   Reader
	metrics *metrics
}

func (s *reservationService) do(ctx context.Context, c ledger.Command) (*cofferv1.Outcome, error) {
	res, err := s.exec.Do(ctx, c)
	if err != nil {
		return nil, err
	}
	if res.Skipped {
		s.metrics.skipped.Inc()
	}
	return resultOf(&res), nil
}

func (s *reservationService) Reserve(ctx context.Context, m *cofferv1.ReserveRequest) (*cofferv1.ReserveResponse, error) {
	c, r := reserveOf(tenantOf(ctx), m)
	if r != nil {
		return nil, r
	}
	o, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReserveResponse{Outcome: o}, nil
}

func (s *reservationService) Commit(ctx context.Context, m *cofferv1.CommitRequest) (*cofferv1.CommitResponse, error) {
	o, err := s.do(ctx, commitOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.CommitResponse{Outcome: o}, nil
}

func (s *reservationService) Extend(ctx context.Context, m *cofferv1.ExtendRequest) (*cofferv1.ExtendResponse, error) {
	c, r := extendOf(tenantOf(ctx), m)
	if r != nil {
		return nil, r
	}
	o, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.ExtendResponse{Outcome: o}, nil
}

func (s *reservationService) Release(ctx context.Context, m *cofferv1.ReleaseRequest) (*cofferv1.ReleaseResponse, error) {
	o, err := s.do(ctx, releaseOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReleaseResponse{Outcome: o}, nil
}

func (s *reservationService) Reclaim(ctx context.Context, m *cofferv1.ReclaimRequest) (*cofferv1.ReclaimResponse, error) {
	o, err := s.do(ctx, reclaimOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReclaimResponse{Outcome: o}, nil
}

func (s *reservationService) Reverse(ctx context.Context, m *cofferv1.ReverseRequest) (*cofferv1.ReverseResponse, error) {
	o, err := s.do(ctx, reverseOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReverseResponse{Outcome: o}, nil
}

func (s *reservationService) Reinstate(ctx context.Context, m *cofferv1.ReinstateRequest) (*cofferv1.ReinstateResponse, error) {
	o, err := s.do(ctx, reinstateOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReinstateResponse{Outcome: o}, nil
}

func (s *reservationService) Resolve(ctx context.Context, m *cofferv1.ResolveRequest) (*cofferv1.ResolveResponse, error) {
	res, err := s.exec.Do(ctx, resolveOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return resolutionOf(&res), nil
}

func (s *reservationService) GetReservation(
	ctx context.Context, m *cofferv1.GetReservationRequest,
) (*cofferv1.GetReservationResponse, error) {
	key := ledger.OrderKey{Tenant: tenantOf(ctx), Order: m.GetOrderId(), Benefit: m.GetBenefitKey()}
	if r := checkKey(key); r != nil {
		return nil, r
	}
	row, err := s.reads.Reservation(ctx, key)
	if err != nil {
		return nil, err
	}
	attempts := attemptsOf(row)
	if slices.ContainsFunc(row.Attempts, func(a ledger.Attempt) bool { return a.Quoted() }) {
		views, err := s.reads.Allocations(ctx, key)
		if err != nil {
			return nil, err
		}
		withAllocations(attempts, views)
	}
	return &cofferv1.GetReservationResponse{Attempts: attempts}, nil
}
