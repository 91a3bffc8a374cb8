package rpc

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/shard"
)

// Loads tells what this node did to the buckets of a budget, by index;
// shard.Executor is one.
type Loads interface {
	Loads(id ledger.BudgetID) map[uint16]shard.BucketLoad
}

func (s *budgetService) ReshardBudget(ctx context.Context, m *cofferv1.ReshardBudgetRequest) (*cofferv1.ReshardBudgetResponse, error) {
	c := budgetCommand(ledger.OpReshard, tenantOf(ctx), m)
	c.Buckets = int(m.GetBuckets())
	b, replayed, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return &cofferv1.ReshardBudgetResponse{Budget: b, Replayed: replayed}, nil
}

func (s *budgetService) GetBuckets(ctx context.Context, m *cofferv1.GetBucketsRequest) (*cofferv1.GetBucketsResponse, error) {
	id := ledger.ParseBudget(tenantOf(ctx), m.GetBudget())
	if r := checkBudget(id); r != nil {
		return nil, r
	}
	v, err := s.reads.Budget(ctx, id)
	if err != nil {
		return nil, err
	}
	var loads map[uint16]shard.BucketLoad
	if s.loads != nil {
		loads = s.loads.Loads(id)
	}
	return bucketStatuses(v, loads), nil
}

func bucketStatuses(v *store.BudgetView, loads map[uint16]shard.BucketLoad) *cofferv1.GetBucketsResponse {
	res := &cofferv1.GetBucketsResponse{Budget: budgetOf(&v.Budget, v.Total), Buckets: make([]*cofferv1.BucketStatus, len(v.Buckets))}
	balances := bucketsOf(v)
	var living []int64
	for i := range v.Buckets {
		b := &v.Buckets[i]
		l := loads[b.ID.Index]
		st := &cofferv1.BucketStatus{
			Balances: balances[i], RatePerSecond: l.Rate, Queued: uint32(l.Queued),
			Commands: l.Commands, Batches: l.Batches, Conflicts: l.Conflicts, Retries: l.Retries,
		}
		if v.Total.Available > 0 {
			st.Share = float64(b.Available) / float64(v.Total.Available)
		}
		if int(b.ID.Index) < v.Budget.Buckets() {
			living = append(living, b.Available)
		}
		res.Buckets[i] = st
	}
	res.Skew = shard.Skew(living)
	return res
}
