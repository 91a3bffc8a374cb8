package rpc

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Facts takes facts; intake.Intake is one. It must be safe for concurrent use.
type Facts interface {
	// Submit stores facts and settles their orders, one answer each.
	Submit(ctx context.Context, facts []fact.Fact) ([]store.Submitted, error)
	Get(ctx context.Context, id fact.ID) (*fact.Row, error)
	// Retry looks at a fact now.
	Retry(ctx context.Context, id fact.ID) (*fact.Row, error)
	// Resolve closes an exception; the flag says that it was closed before.
	Resolve(ctx context.Context, id fact.ID, reason string) (fact.Row, bool, error)
}

// FactLists lists facts; store.Store is one.
type FactLists interface {
	Facts(ctx context.Context, tenant string, state fact.State, p store.Page) (facts []fact.Row, next string, err error)
}

type factService struct {
	facts   Facts
	lists   FactLists
	metrics *metrics
}

func factIDOf(ctx context.Context, m interface {
	GetSource() string
	GetEventId() string
},
) fact.ID {
	return fact.ID{Tenant: tenantOf(ctx), Source: m.GetSource(), Event: m.GetEventId()}
}

func (s *factService) SubmitFacts(ctx context.Context, m *cofferv1.SubmitFactsRequest) (*cofferv1.SubmitFactsResponse, error) {
	facts := make([]fact.Fact, len(m.GetFacts()))
	for i, f := range m.GetFacts() {
		facts[i] = newFactOf(tenantOf(ctx), f)
	}
	got, err := s.facts.Submit(ctx, facts)
	if err != nil {
		return nil, err
	}
	res := &cofferv1.SubmitFactsResponse{Results: make([]*cofferv1.SubmitFactsResult, len(got))}
	for i := range got {
		res.Results[i] = submittedOf(&got[i])
		if d := res.Results[i].GetError(); d != nil {
			s.metrics.rejected(rejectionOf(got[i].Err))
			if d.Field != "" {
				d.Field = fmt.Sprintf("facts[%d].%s", i, d.Field)
			}
		}
	}
	return res, nil
}

func (s *factService) GetFact(ctx context.Context, m *cofferv1.GetFactRequest) (*cofferv1.GetFactResponse, error) {
	row, err := s.facts.Get(ctx, factIDOf(ctx, m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.GetFactResponse{Fact: factOf(row)}, nil
}

func (s *factService) ListFacts(ctx context.Context, m *cofferv1.ListFactsRequest) (*cofferv1.ListFactsResponse, error) {
	rows, next, err := s.lists.Facts(ctx, tenantOf(ctx), factStates.from(m.GetState()), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListFactsResponse{NextPageToken: next}
	for i := range rows {
		res.Facts = append(res.Facts, factOf(&rows[i]))
	}
	return res, nil
}

func (s *factService) RetryFact(ctx context.Context, m *cofferv1.RetryFactRequest) (*cofferv1.RetryFactResponse, error) {
	row, err := s.facts.Retry(ctx, factIDOf(ctx, m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.RetryFactResponse{Fact: factOf(row)}, nil
}

func (s *factService) ResolveFact(ctx context.Context, m *cofferv1.ResolveFactRequest) (*cofferv1.ResolveFactResponse, error) {
	row, replayed, err := s.facts.Resolve(ctx, factIDOf(ctx, m), m.GetReason())
	if err != nil {
		return nil, err
	}
	return &cofferv1.ResolveFactResponse{Fact: factOf(&row), Replayed: replayed}, nil
}
