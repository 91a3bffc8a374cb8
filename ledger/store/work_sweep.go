package store

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// Owner is a queue that has something due, and since when.
type Owner struct {
	work.Place
	Due time.Time
}

// Lane names a part of the due-index that is swept.
type Lane uint64

// Lanes that need a sweep. Ready jobs are the workers' to find.
const (
	LaneLeased Lane = laneLeased // leases that ran out
	LaneKept   Lane = laneKept   // finished jobs whose time to be kept has passed
	LaneFacts  Lane = laneFact   // facts to be looked at again
)

// DueOwners finds the queues (for facts: the tenants) that have something due in
// a lane, from after on and then from the beginning, up to limit. It looks at
// one row of each, so a long backlog of one costs no more than a short one.
func (s *Store) DueOwners(ctx context.Context, l Lane, after work.Place, limit int) ([]Owner, error) {
	now := s.now()
	var out []Owner
	err := s.readTx(ctx, func(r kv.Reader) error {
		out = nil
		whole := s.laneOf(uint64(l)).all()
		turn := s.lanePlace(uint64(l), after).all().End
		for _, rng := range []kv.Range{{Begin: turn, End: whole.End}, {Begin: whole.Begin, End: turn}} {
			for looked := 0; len(out) < limit && looked < 4*limit; looked++ {
				rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					break
				}
				p, due, k := s.readDue(uint64(l), rows[0].Key)
				if k.err != nil {
					return corrupt("due-index key", k.err)
				}
				if !due.After(now) {
					out = append(out, Owner{Place: p, Due: due})
				}
				rng.Begin = s.lanePlace(uint64(l), p).all().End
			}
		}
		return nil
	})
	return out, err
}

// LapseJobs ends up to n leases of a queue that ran out.
func (s *Store) LapseJobs(ctx context.Context, p work.Place, n int) (lapsed int, err error) {
	now := s.now()
	err = s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		lapsed = 0
		jobs, err := s.dueJobs(tx, laneLeased, p, now, n)
		if err != nil {
			return err
		}
		for i := range jobs {
			if next, ok := work.Lapse(now, jobs[i]); ok {
				s.putJob(tx, &jobs[i], &next)
				lapsed++
			}
		}
		return nil
	})
	return lapsed, err
}

// ForgetJobs removes up to n finished jobs of a queue whose time has passed.
func (s *Store) ForgetJobs(ctx context.Context, p work.Place, n int) (removed int, err error) {
	now := s.now()
	err = s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		removed = 0
		jobs, err := s.dueJobs(tx, laneKept, p, now, n)
		if err != nil {
			return err
		}
		for i := range jobs {
			s.putJob(tx, &jobs[i], nil)
		}
		removed = len(jobs)
		return nil
	})
	return removed, err
}
