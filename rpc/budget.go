package rpc

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type budgetService struct {
	exec  Executor
	reads Reader
	loads Loads // nil: no loads are told
}

// do runs a command on a budget and gives the budget as it left it.
func (s *budgetService) do(ctx context.Context, c ledger.Command) (*cofferv1.Budget, bool, error) {
	if r := ledger.CheckCallersKey(c.ID); r != nil {
		return nil, false, r
	}
	res, err := s.exec.Do(ctx, c)
	if err != nil {
		return nil, false, err
	}
	if res.Definition == nil {
		return nil, false, &ledger.Rejection{Code: ledger.Internal, Message: "the command left no budget"}
	}
	return budgetOf(res.Definition, res.Totals), res.Replayed, nil
}

func (s *budgetService) CreateBudget(ctx context.Context, m *cofferv1.CreateBudgetRequest) (*cofferv1.CreateBudgetResponse, error) {
	c, r := createOf(tenantOf(ctx), m)
	if r != nil {
		return nil, r
	}
	b, replayed, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.CreateBudgetResponse{Budget: b, Replayed: replayed}, nil
}

func (s *budgetService) GetBudget(ctx context.Context, m *cofferv1.GetBudgetRequest) (*cofferv1.GetBudgetResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetBudget())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	v, err := s.reads.Budget(ctx, id)
	if err != nil {
		return nil, err
	}
	return &cofferv1.GetBudgetResponse{Budget: budgetOf(&v.Budget, v.Total), Buckets: bucketsOf(v)}, nil
}

func (s *budgetService) ListBudgets(ctx context.Context, m *cofferv1.ListBudgetsRequest) (*cofferv1.ListBudgetsResponse, error) {
	views, next, err := s.reads.Budgets(ctx, tenantOf(ctx), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListBudgetsResponse{Budgets: make([]*cofferv1.Budget, len(views)), NextPageToken: next}
	for i := range views {
		res.Budgets[i] = budgetOf(&views[i].Budget, views[i].Total)
	}
	return res, nil
}

func (s *budgetService) FundBudget(ctx context.Context, m *cofferv1.FundBudgetRequest) (*cofferv1.FundBudgetResponse, error) {
	c := budgetCommand(ledger.OpFund, tenantOf(ctx), m)
	c.Amount, c.Currency = m.GetAmountMinor(), m.GetCurrency()
	b, replayed, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.FundBudgetResponse{Budget: b, Replayed: replayed}, nil
}

func (s *budgetService) DefundBudget(ctx context.Context, m *cofferv1.DefundBudgetRequest) (*cofferv1.DefundBudgetResponse, error) {
	c := budgetCommand(ledger.OpDefund, tenantOf(ctx), m)
	c.Amount, c.Currency = m.GetAmountMinor(), m.GetCurrency()
	b, replayed, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.DefundBudgetResponse{Budget: b, Replayed: replayed}, nil
}

func (s *budgetService) FreezeBudget(ctx context.Context, m *cofferv1.FreezeBudgetRequest) (*cofferv1.FreezeBudgetResponse, error) {
	b, replayed, err := s.do(ctx, budgetCommand(ledger.OpFreeze, tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.FreezeBudgetResponse{Budget: b, Replayed: replayed}, nil
}

func (s *budgetService) UnfreezeBudget(ctx context.Context, m *cofferv1.UnfreezeBudgetRequest) (*cofferv1.UnfreezeBudgetResponse, error) {
	b, replayed, err := s.do(ctx, budgetCommand(ledger.OpUnfreeze, tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.UnfreezeBudgetResponse{Budget: b, Replayed: replayed}, nil
}

func (s *budgetService) CloseBudget(ctx context.Context, m *cofferv1.CloseBudgetRequest) (*cofferv1.CloseBudgetResponse, error) {
	b, replayed, err := s.do(ctx, budgetCommand(ledger.OpClose, tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.CloseBudgetResponse{Budget: b, Replayed: replayed}, nil
}
