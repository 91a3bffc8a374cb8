package rpc

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// creditService is wallets and jobs: other names for budgets and orders, and
// the same commands underneath.
type creditService struct {
	exec  Executor
	reads Reader
	jobs  reservationService
}

// wallet runs a command on a wallet and gives the wallet as it left it.
func (s *creditService) wallet(ctx context.Context, c ledger.Command) (*cofferv1.Wallet, bool, error) {
	res, err := s.exec.Do(ctx, c)
	if err != nil {
		return nil, false, err
	}
	if res.Definition == nil {
		return nil, false, &ledger.Rejection{Code: ledger.Internal, Message: "the command left no wallet"}
	}
	return walletOf(res.Definition, res.Totals), res.Replayed, nil
}

func (s *creditService) CreateWallet(ctx context.Context, m *cofferv1.CreateWalletRequest) (*cofferv1.CreateWalletResponse, error) {
	c, r := createWalletOf(tenantOf(ctx), m)
	if r != nil {
		return nil, r
	}
	w, replayed, err := s.wallet(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.CreateWalletResponse{Wallet: w, Replayed: replayed}, nil
}

// Grant funds a wallet. That it is one is looked up first: a budget's kind
// never changes.
func (s *creditService) Grant(ctx context.Context, m *cofferv1.GrantRequest) (*cofferv1.GrantResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetWallet())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	if r := ledger.CheckCallersKey(m.GetIdempotencyKey()); r != nil {
		return nil, r
	}
	if _, err := s.reads.Wallet(ctx, id); err != nil {
		return nil, err
	}
	w, replayed, err := s.wallet(ctx, ledger.Command{Op: ledger.OpFund, Budget: id, ID: m.GetIdempotencyKey(), Amount: m.GetAmountMinor(), Currency: m.GetCurrency()})
	if err != nil {
		return nil, err
	}
	return &cofferv1.GrantResponse{Wallet: w, Replayed: replayed}, nil
}

func (s *creditService) GetWallet(ctx context.Context, m *cofferv1.GetWalletRequest) (*cofferv1.GetWalletResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetWallet())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	v, err := s.reads.Wallet(ctx, id)
	if err != nil {
		return nil, err
	}
	return &cofferv1.GetWalletResponse{Wallet: walletOf(&v.Budget, v.Total)}, nil
}

func (s *creditService) ListWallets(ctx context.Context, m *cofferv1.ListWalletsRequest) (*cofferv1.ListWalletsResponse, error) {
	views, next, err := s.reads.Wallets(ctx, tenantOf(ctx), store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	res := &cofferv1.ListWalletsResponse{Wallets: make([]*cofferv1.Wallet, len(views)), NextPageToken: next}
	for i := range views {
		res.Wallets[i] = walletOf(&views[i].Budget, views[i].Total)
	}
	return res, nil
}

func (s *creditService) Statement(ctx context.Context, m *cofferv1.StatementRequest) (*cofferv1.StatementResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetWallet())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	from, r := timeOf("from_time", m.GetFromTime())
	if r != nil {
		return nil, r
	}
	cutoff, r := timeOf("cutoff_time", m.GetCutoffTime())
	if r != nil {
		return nil, r
	}
	v, next, err := s.reads.Statement(ctx, id, from, cutoff, store.Page{Size: int(m.GetPageSize()), Token: m.GetPageToken()})
	if err != nil {
		return nil, err
	}
	return statementOf(v, next), nil
}

func (s *creditService) Charge(ctx context.Context, m *cofferv1.ChargeRequest) (*cofferv1.ChargeResponse, error) {
	o, err := s.jobs.do(ctx, chargeOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.ChargeResponse{Outcome: o}, nil
}

func (s *creditService) Refund(ctx context.Context, m *cofferv1.RefundRequest) (*cofferv1.RefundResponse, error) {
	o, err := s.jobs.do(ctx, jobCommand(ledger.OpRefund, tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.RefundResponse{Outcome: o}, nil
}

func (s *creditService) Reclaim(ctx context.Context, m *cofferv1.CreditServiceReclaimRequest) (*cofferv1.CreditServiceReclaimResponse, error) {
	o, err := s.jobs.do(ctx, jobCommand(ledger.OpReclaimCharge, tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.CreditServiceReclaimResponse{Outcome: o}, nil
}

func (s *creditService) Hold(ctx context.Context, m *cofferv1.HoldRequest) (*cofferv1.HoldResponse, error) {
	c, r := holdOf(tenantOf(ctx), m)
	if r != nil {
		return nil, r
	}
	o, err := s.jobs.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.HoldResponse{Outcome: o}, nil
}

func (s *creditService) Settle(ctx context.Context, m *cofferv1.SettleRequest) (*cofferv1.SettleResponse, error) {
	o, err := s.jobs.do(ctx, settleOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.SettleResponse{Outcome: o}, nil
}

func (s *creditService) ReleaseHold(ctx context.Context, m *cofferv1.ReleaseHoldRequest) (*cofferv1.ReleaseHoldResponse, error) {
	o, err := s.jobs.do(ctx, releaseHoldOf(tenantOf(ctx), m))
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReleaseHoldResponse{Outcome: o}, nil
}

func (s *creditService) GetJob(ctx context.Context, m *cofferv1.GetJobRequest) (*cofferv1.GetJobResponse, error) {
	key := ledger.JobKey(tenantOf(ctx), m.GetJobId())
	if r := checkKey(key); r != nil {
		return nil, r
	}
	row, err := s.reads.Job(ctx, key.Tenant, key.Order)
	if err != nil {
		return nil, err
	}
	told, err := s.reads.Explain(ctx, key.Tenant, key.Order, key.Benefit)
	if err != nil {
		return nil, err
	}
	return &cofferv1.GetJobResponse{Attempts: jobsOf(row), Timeline: timelineOf(told)}, nil
}
