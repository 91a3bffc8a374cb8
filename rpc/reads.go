package rpc

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type ledgerService struct{ reads Reader }

func (s *ledgerService) ListEntries(ctx context.Context, m *cofferv1.ListEntriesRequest) (*cofferv1.ListEntriesResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetBudget())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	var bucket *uint16
	if m.Bucket != nil {
		b := uint16(m.GetBucket()) // the schema bounds it
		bucket = &b
	}
	entries, next, err := s.reads.Entries(ctx, id, bucket, store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListEntriesResponse{Entries: make([]*cofferv1.Entry, len(entries)), NextPageToken: next}
	for i := range entries {
		res.Entries[i] = entryOf(&entries[i])
	}
	return res, nil
}

func (s *ledgerService) Replay(ctx context.Context, m *cofferv1.ReplayRequest) (*cofferv1.ReplayResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetBudget())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	cutoff, r := timeOf("cutoff_time", m.GetCutoffTime())
	if r != nil {
		return nil, r
	}
	replay, err := s.reads.Replay(ctx, id, cutoff)
	if err != nil {
		return nil, err
	}
	return replayOf(replay), nil
}

func (s *ledgerService) VerifyChain(ctx context.Context, m *cofferv1.VerifyChainRequest) (*cofferv1.VerifyChainResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetBudget())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	replay, err := s.reads.Replay(ctx, id, time.Time{})
	if err != nil {
		return nil, err
	}
	return chainOf(replay), nil
}

func (s *ledgerService) ExplainOrder(ctx context.Context, m *cofferv1.ExplainOrderRequest) (*cofferv1.ExplainOrderResponse, error) {
	key := ledger.OrderKey{Tenant: tenantOf(ctx), Order: m.GetOrderId(), Benefit: m.GetBenefitKey()}
	probe := key
	if probe.Benefit == "" {
		probe.Benefit = "-" // all benefits: there is no name to check
	}
	if r := checkKey(probe); r != nil {
		return nil, r
	}
	e, err := s.reads.Explain(ctx, key.Tenant, key.Order, key.Benefit)
	if err != nil {
		return nil, err
	}
	return explanationOf(e), nil
}

func (s *ledgerService) ListCases(ctx context.Context, m *cofferv1.ListCasesRequest) (*cofferv1.ListCasesResponse, error) {
	cases, next, err := s.reads.Cases(ctx, tenantOf(ctx), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListCasesResponse{Cases: make([]*cofferv1.Case, len(cases)), NextPageToken: next}
	for i := range cases {
		res.Cases[i] = caseOf(&cases[i])
	}
	return res, nil
}
