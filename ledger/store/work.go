package store

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// WorkLimits bound the queues of one tenant. They keep a store usable and are
// not exact: callers at the same moment may pass one by as many as they are,
// because exactness would make every enqueue of a tenant wait for the others.
type WorkLimits struct {
	// OpenJobs is the most jobs of a tenant, over all its queues, that are
	// ready, leased or dead letters.
	OpenJobs int64
	// Leases is the most jobs of one queue that are leased at once.
	Leases int64
}

// DefaultWorkLimits are the limits where Options name none.
func DefaultWorkLimits() WorkLimits { return WorkLimits{OpenJobs: 1_000_000, Leases: 10_000} }

// Enqueued is what became of one job of an Enqueue.
type Enqueued struct {
	work.Decision
	Err error
}

// Enqueue makes jobs in one transaction; each is accepted or refused by itself.
// Requests must be normalized and valid, of one queue, and at most
// work.MaxBatch with work.MaxBatchBytes of payload. A job that is there already
// is answered with its row as it is now.
func (s *Store) Enqueue(ctx context.Context, reqs []work.Request) ([]Enqueued, error) {
	now := s.now()
	var out []Enqueued
	written := map[work.Key]bool{} // by an attempt that may have landed
	err := s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		out = make([]Enqueued, len(reqs))
		rows := make([]kv.Value, len(reqs))
		for i := range reqs {
			rows[i] = tx.Get(s.jobKey(reqs[i].Key))
		}
		open, err := s.count(tx, s.openJobsKey(reqs[0].Key.Tenant))
		if err != nil {
			return err
		}
		seen := map[work.Key]*work.Job{}
		for i := range reqs {
			cur, err := s.jobIn(reqs[i].Key, rows[i])
			if err != nil {
				return err
			}
			if earlier := seen[reqs[i].Key]; earlier != nil {
				cur = earlier
			}
			if out[i], err = s.enqueue(tx, now, cur, reqs[i], open); err != nil {
				return err
			}
			d := &out[i]
			if d.Err == nil && d.Changed() {
				open++
				seen[reqs[i].Key] = &d.Job
				written[reqs[i].Key] = true
			} else if a.MayHaveCommitted && written[reqs[i].Key] && cur != seen[reqs[i].Key] {
				d.Replayed = false // the row is this call's own
				seen[reqs[i].Key] = &d.Job
			}
		}
		return nil
	})
	return out, err
}

func (s *Store) enqueue(tx kv.Tx, now time.Time, cur *work.Job, r work.Request, open int64) (Enqueued, error) {
	if limit := s.opt.Work.OpenJobs; cur == nil && open >= limit {
		return Enqueued{Err: &ledger.Rejection{
			Code: ledger.QueueFull, Field: "queue", Value: fmt.Sprintf("%.40q", r.Key.Queue), Limit: fmt.Sprintf("%d open jobs of a tenant", limit),
			Message: fmt.Sprintf("cannot take a job while %d of the tenant are open", open), RetryAfter: time.Second,
		}}, nil
	}
	d, rej := work.Enqueue(now, cur, r)
	if rej != nil {
		return Enqueued{Err: rej}, nil //nolint:nilerr // the refusal is the job's own answer
	}
	if d.Changed() {
		s.putJob(tx, nil, &d.Job)
	}
	return Enqueued{Decision: d}, nil
}

// CompleteJob, FailJob, ReturnJob and ExtendJob are what the holder of a lease
// may do; ReplayJob and DiscardJob what a person may do with a dead letter. The
// same call again gives the first answer.

// CompleteJob ends a job for good.
func (s *Store) CompleteJob(ctx context.Context, k work.Key, token string) (work.Decision, error) {
	return s.changeJob(ctx, k, func(now time.Time, j work.Job) (work.Decision, *ledger.Rejection) {
		return work.Complete(now, j, token)
	})
}

// FailJob counts an attempt and sets the next one, or makes a dead letter.
func (s *Store) FailJob(ctx context.Context, k work.Key, token, reason string, permanent bool) (work.Decision, error) {
	return s.changeJob(ctx, k, func(now time.Time, j work.Job) (work.Decision, *ledger.Rejection) {
		return work.Fail(now, j, token, reason, permanent)
	})
}

// ReturnJob gives a job back as it was.
func (s *Store) ReturnJob(ctx context.Context, k work.Key, token string) (work.Decision, error) {
	return s.changeJob(ctx, k, func(now time.Time, j work.Job) (work.Decision, *ledger.Rejection) { return work.Return(now, j, token) })
}

// ExtendJob gives a lease more time.
func (s *Store) ExtendJob(ctx context.Context, k work.Key, token string, d time.Duration) (work.Decision, error) {
	return s.changeJob(ctx, k, func(now time.Time, j work.Job) (work.Decision, *ledger.Rejection) {
		return work.Extend(now, j, token, d)
	})
}

// ReplayJob makes a dead letter a job again.
func (s *Store) ReplayJob(ctx context.Context, k work.Key) (work.Decision, error) {
	return s.changeJob(ctx, k, work.Replay)
}

// DiscardJob gives a dead letter up.
func (s *Store) DiscardJob(ctx context.Context, k work.Key, reason string) (work.Decision, error) {
	return s.changeJob(ctx, k, func(now time.Time, j work.Job) (work.Decision, *ledger.Rejection) {
		return work.Discard(now, j, reason)
	})
}

// changeJob runs one decision on one job.
func (s *Store) changeJob(ctx context.Context, k work.Key, decide func(time.Time, work.Job) (work.Decision, *ledger.Rejection)) (work.Decision, error) {
	now := s.now()
	var d work.Decision
	wrote := false
	err := s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		j, err := s.jobIn(k, tx.Get(s.jobKey(k)))
		if err != nil {
			return err
		}
		if j == nil {
			return work.Missing(k)
		}
		var rej *ledger.Rejection
		if d, rej = decide(now, *j); rej != nil {
			return rej
		}
		if d.Changed() {
			s.putJob(tx, j, &d.Job)
			wrote = true
		} else if a.MayHaveCommitted && wrote {
			d.Replayed = false // this call's own first answer
		}
		return nil
	})
	return d, err
}

// jobIn decodes a job's row, nil where there is none.
func (s *Store) jobIn(k work.Key, v kv.Value) (*work.Job, error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return nil, err
	}
	j, err := decodeJob(k, raw)
	if err != nil {
		return nil, corrupt("job "+k.String(), err)
	}
	return &j, nil
}

// lane is where a job of this state stands in the due-index; a dead letter
// stands nowhere, so nothing but a person finds it.
func lane(st work.State) (uint64, bool) {
	switch st {
	case work.Ready:
		return laneReady, true
	case work.Leased:
		return laneLeased, true
	case work.Done, work.Discarded:
		return laneKept, true
	case work.Dead:
	}
	return 0, false
}

// putJob writes a job with all that follows from it: its place in the
// due-index, the list of dead letters, the counters and the signal. old is the
// row that was read in this transaction, nil for none; next is nil when the row
// goes. So index and row never disagree.
func (s *Store) putJob(tx kv.Tx, old, next *work.Job) {
	var open int64
	var place work.Place
	if old != nil {
		place = old.Key.Place()
		if l, ok := lane(old.State); ok {
			tx.Clear(s.dueKey(l, old.Due, old.Key))
		}
		if old.State == work.Dead {
			tx.Clear(s.deadKey(old.Ended, old.Key))
		}
		if next == nil || next.State != old.State {
			tx.Add(s.jobCountKey(place, old.State), plus(-1))
		}
		if old.State.Open() {
			open--
		}
	}
	if next == nil {
		tx.Clear(s.jobKey(old.Key))
	} else {
		place = next.Key.Place()
		tx.Set(s.jobKey(next.Key), encodeJob(next))
		if l, ok := lane(next.State); ok {
			tx.Set(s.dueKey(l, next.Due, next.Key), nil)
		}
		if next.State == work.Dead {
			tx.Set(s.deadKey(next.Ended, next.Key), nil)
		}
		if old == nil || next.State != old.State {
			tx.Add(s.jobCountKey(place, next.State), plus(1))
		}
		if next.State.Open() {
			open++
		}
		if next.State == work.Ready {
			tx.Add(s.workSignalKey(place), one)
		}
	}
	if open != 0 {
		tx.Add(s.openJobsKey(place.Tenant), plus(open))
	}
}

// count reads a counter without a conflict with those who move it.
func (s *Store) count(tx kv.Tx, k key) (int64, error) {
	v, _, err := tx.Snapshot().Get(k).Wait()
	return decodeCount(v), err
}

// transact runs a read-write transaction, behind the fence where ctx has a
// term. Its error is a *ledger.Rejection.
func (s *Store) transact(ctx context.Context, fn func(kv.Tx, kv.Attempt) error) error {
	if _, err := kv.Transact(ctx, s.kv, s.opt.Tx, s.fence(ctx, fn)); err != nil {
		return infra(err)
	}
	return nil
}
