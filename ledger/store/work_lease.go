package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// Lease leases up to n (at most work.MaxBatch) jobs of a queue that are due, the
// longest due first, to a worker for d. Leases that ran out are ended first and
// their jobs are due again. No job due is an empty answer and no error.
//
// All jobs of one call carry one token, drawn at random before the transaction,
// so that a call whose commit was unknown finds its own leases again.
func (s *Store) Lease(ctx context.Context, p work.Place, n int, d time.Duration, worker string) ([]work.Job, error) {
	gate := s.gates.of(p)
	select {
	case gate <- struct{}{}:
		defer func() { <-gate }()
	case <-ctx.Done():
		return nil, infra(ctx.Err())
	}
	l := lease{s: s, place: p, n: min(n, work.MaxBatch), d: d, worker: worker, token: rand.Text(), now: s.now()}
	err := s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		if a.MayHaveCommitted {
			if landed, err := l.landed(tx); landed || err != nil {
				return err
			}
		}
		return l.run(tx)
	})
	if err != nil {
		return nil, err
	}
	return l.jobs, nil
}

// leaseGates let one Lease of a queue run at a time in this process: they all
// want the same rows, and would only make each other's transactions fail.
// Between processes the transactions decide.
type leaseGates [64]chan struct{}

func newLeaseGates() *leaseGates {
	var g leaseGates
	for i := range g {
		g[i] = make(chan struct{}, 1)
	}
	return &g
}

func (g *leaseGates) of(p work.Place) chan struct{} {
	return g[ledger.Hash64(0, p.Tenant, p.Queue)%uint64(len(g))]
}

// lease is one call of Lease.
type lease struct {
	s      *Store
	place  work.Place
	n      int
	d      time.Duration
	worker string
	token  string
	now    time.Time
	jobs   []work.Job
	tried  []work.Key // leased by an earlier attempt
}

// landed looks whether an earlier attempt took effect, and gives what it
// leased.
func (l *lease) landed(tx kv.Tx) (bool, error) {
	var found []work.Job
	for _, k := range l.tried {
		j, err := l.s.jobIn(k, tx.Get(l.s.jobKey(k)))
		if err != nil {
			return false, err
		}
		if j != nil && j.State == work.Leased && j.Token == l.token {
			found = append(found, *j)
		}
	}
	if len(found) == 0 {
		return false, nil
	}
	l.jobs = found
	return true, nil
}

func (l *lease) run(tx kv.Tx) error {
	l.jobs = nil
	held, err := l.s.count(tx, l.s.jobCountKey(l.place, work.Leased))
	if err != nil {
		return err
	}
	lapsed, err := l.s.dueJobs(tx, laneLeased, l.place, l.now, l.n)
	if err != nil {
		return err
	}
	for i := range lapsed {
		if next, ok := work.Lapse(l.now, lapsed[i]); ok {
			held--
			l.grant(tx, &lapsed[i], next)
		}
	}
	if len(l.jobs) == l.n {
		return nil
	}
	ready, err := l.s.dueJobs(tx, laneReady, l.place, l.now, l.n-len(l.jobs))
	if err != nil {
		return err
	}
	if limit := l.s.opt.Work.Leases; len(ready) > 0 && held+int64(len(l.jobs)+len(ready)) > limit {
		ready = ready[:max(0, min(int64(len(ready)), limit-held-int64(len(l.jobs))))]
		if len(ready) == 0 && len(l.jobs) == 0 {
			return &ledger.Rejection{
				Code: ledger.LeaseLimit, Field: "queue", Value: fmt.Sprintf("%.40q", l.place.Queue), Limit: fmt.Sprintf("%d leases at once", limit),
				Message: fmt.Sprintf("has %d jobs leased", held), RetryAfter: time.Second,
			}
		}
	}
	for i := range ready {
		l.grant(tx, &ready[i], ready[i])
	}
	return nil
}

// grant leases a job, or writes what became of it when it cannot be leased (its
// last lease made it a dead letter).
func (l *lease) grant(tx kv.Tx, old *work.Job, j work.Job) {
	next, ok := work.Grant(l.now, j, l.worker, l.token, l.d)
	l.s.putJob(tx, old, &next)
	if ok {
		l.jobs = append(l.jobs, next)
		if !slices.Contains(l.tried, next.Key) { // a later attempt leases mostly the same
			l.tried = append(l.tried, next.Key)
		}
	}
}

// dueJobs reads up to n jobs of a lane that are due. The index is read without a
// conflict and the rows with one: who else takes one of these jobs makes this
// transaction fail, who enqueues another one does not.
func (s *Store) dueJobs(tx kv.Tx, lane uint64, p work.Place, now time.Time, n int) ([]work.Job, error) {
	rows, _, err := tx.Snapshot().Range(s.dueBy(lane, p, now), kv.RangeOptions{Limit: n}).Wait()
	if err != nil {
		return nil, err
	}
	keys := make([]work.Key, len(rows))
	values := make([]kv.Value, len(rows))
	for i, row := range rows {
		_, _, r := s.readDue(lane, row.Key)
		keys[i] = work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: r.str()}
		if err := r.end(); err != nil {
			return nil, corrupt("due-index key", err)
		}
		values[i] = tx.Get(s.jobKey(keys[i]))
	}
	jobs := make([]work.Job, 0, len(rows))
	for i := range rows {
		j, err := s.jobIn(keys[i], values[i])
		if err != nil {
			return nil, err
		}
		if j == nil {
			return nil, corrupt("due-index", fmt.Errorf("it names job %s, which has no row", keys[i]))
		}
		jobs = append(jobs, *j)
	}
	return jobs, nil
}

// HeldJobs says which of the leases, by job, still hold: what a worker was given
// and has neither ended nor lost.
func (s *Store) HeldJobs(ctx context.Context, leases map[work.Key]string) (map[work.Key]bool, error) {
	held := map[work.Key]bool{}
	err := s.readTx(ctx, func(r kv.Reader) error {
		clear(held)
		values := make(map[work.Key]kv.Value, len(leases))
		for k := range leases {
			values[k] = r.Get(s.jobKey(k))
		}
		for k, v := range values {
			j, err := s.jobIn(k, v)
			if err != nil {
				return err
			}
			if j != nil && j.State == work.Leased && j.Token == leases[k] {
				held[k] = true
			}
		}
		return nil
	})
	return held, err
}

// WaitDue returns when a job of the queue may be due: one became ready, one
// that waited or a lease that ran out has come due, or limit has passed. It may
// return for nothing. A watch that cannot be had leaves the limit as the poll.
func (s *Store) WaitDue(ctx context.Context, p work.Place, limit time.Duration) error {
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changed <-chan struct{}
	if w, err := s.kv.Watch(wctx, s.workSignalKey(p)); err == nil {
		changed = w.Done()
	}
	next, ok, err := s.nextDue(ctx, p) // after the watch was made: nothing is missed
	if err != nil {
		return err
	}
	wait := limit
	if ok {
		wait = min(wait, next.Sub(s.now()))
	}
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-t.C:
	}
	return nil
}

// nextDue is when the first job of a queue is due: ready, or leased and out of
// time.
func (s *Store) nextDue(ctx context.Context, p work.Place) (next time.Time, ok bool, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		ok = false
		for _, lane := range []uint64{laneReady, laneLeased} {
			rows, _, err := r.Range(s.lanePlace(lane, p).all(), kv.RangeOptions{Limit: 1}).Wait()
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				continue
			}
			_, due, k := s.readDue(lane, rows[0].Key)
			if k.err != nil {
				return corrupt("due-index key", k.err)
			}
			if !ok || due.Before(next) {
				next, ok = due, true
			}
		}
		return nil
	})
	return next, ok, err
}
