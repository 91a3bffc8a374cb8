package store

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// maxJobScan bounds the rows one page of a filtered list looks at; a page that
// finds too little ends early and has a token.
const maxJobScan = 2000

// maxPageBytes bounds the payload of one page of jobs.
const maxPageBytes = 1 << 20

// QueueStats are the figures of one queue.
type QueueStats struct {
	work.Place
	// Jobs by state. Ready ones may be due later.
	Ready, Leased, Dead, Done, Discarded int64
	// OldestDue is the earliest time a ready job is due; zero if there is
	// none.
	OldestDue time.Time
}

// QueueJob reads one job of a queue.
func (s *Store) QueueJob(ctx context.Context, k work.Key) (*work.Job, error) {
	var j *work.Job
	err := s.readTx(ctx, func(r kv.Reader) (err error) {
		if j, err = s.jobIn(k, r.Get(s.jobKey(k))); err == nil && j == nil {
			return work.Missing(k)
		}
		return err
	})
	return j, err
}

// QueueJobs lists a queue's jobs by id; those of one state if it is not zero.
func (s *Store) QueueJobs(ctx context.Context, p work.Place, state work.State, page Page) (jobs []work.Job, next string, err error) {
	list := "jobs/" + p.Tenant + "\x00" + p.Queue
	from, size, err := s.open(page, list, s.jobsOf(p).all())
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		jobs, next = nil, ""
		rng, looked, weight := from, 0, 0
		for {
			rows, more, err := r.Range(rng, kv.RangeOptions{Limit: 100}).Wait()
			if err != nil {
				return err
			}
			for _, row := range rows {
				k, err := s.readJobKey(row.Key)
				if err != nil {
					return corrupt("job key", err)
				}
				j, err := decodeJob(k, row.Value)
				if err != nil {
					return corrupt("job "+k.String(), err)
				}
				looked++
				if state == 0 || j.State == state {
					jobs = append(jobs, j)
					weight += len(j.Payload)
				}
				if len(jobs) == size || looked >= maxJobScan || weight >= maxPageBytes {
					next = s.token(list, row.Key)
					return nil
				}
				rng.Begin = append(append([]byte(nil), row.Key...), 0)
			}
			if !more {
				return nil
			}
		}
	})
	return jobs, next, err
}

// DeadJobs lists a queue's dead letters, the oldest first.
func (s *Store) DeadJobs(ctx context.Context, p work.Place, page Page) (jobs []work.Job, next string, err error) {
	list := "dead/" + p.Tenant + "\x00" + p.Queue
	from, size, err := s.open(page, list, s.deadOf(p).all())
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		jobs, next = nil, ""
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: size}).Wait()
		if err != nil {
			return err
		}
		weight := 0
		for i, row := range rows {
			k, err := s.readDeadKey(row.Key)
			if err != nil {
				return corrupt("dead letter key", err)
			}
			j, err := s.jobIn(k, r.Get(s.jobKey(k)))
			if err != nil {
				return err
			}
			if j == nil {
				continue
			}
			jobs = append(jobs, *j)
			if weight += len(j.Payload); weight >= maxPageBytes && i < len(rows)-1 {
				next = s.token(list, row.Key)
				return nil
			}
		}
		if more {
			next = s.token(list, rows[len(rows)-1].Key)
		}
		return nil
	})
	return jobs, next, err
}

// Queues lists a tenant's queues by name, with their figures. A queue is there
// once a job was.
func (s *Store) Queues(ctx context.Context, tenant string, page Page) (stats []QueueStats, next string, err error) {
	list := "queues/" + tenant
	from, size, err := s.open(page, list, s.jobCountsOf(tenant).all())
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		stats, next = nil, ""
		rng := from
		for len(stats) < size {
			rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
			if err != nil || len(rows) == 0 {
				return err
			}
			p, _, err := s.readJobCount(rows[0].Key)
			if err != nil {
				return corrupt("counter key", err)
			}
			st, last, err := s.queueStats(r, p)
			if err != nil {
				return err
			}
			stats = append(stats, st)
			rng.Begin = append(append([]byte(nil), last...), 0)
			next = s.token(list, last)
		}
		rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
		if len(rows) == 0 {
			next = ""
		}
		return err
	})
	if len(stats) < max(size, 1) {
		next = ""
	}
	return stats, next, err
}

// queueStats reads a queue's counters and the last counter's key.
func (s *Store) queueStats(r kv.Reader, p work.Place) (QueueStats, []byte, error) {
	st := QueueStats{Place: p}
	rows, _, err := r.Range(s.jobCountsOf(p.Tenant).str(p.Queue).all(), kv.RangeOptions{Limit: 16}).Wait()
	if err != nil {
		return st, nil, err
	}
	var last []byte
	for _, row := range rows {
		_, state, err := s.readJobCount(row.Key)
		if err != nil {
			return st, nil, corrupt("counter key", err)
		}
		last = append(last[:0], row.Key...)
		n := decodeCount(row.Value)
		switch state {
		case work.Ready:
			st.Ready = n
		case work.Leased:
			st.Leased = n
		case work.Dead:
			st.Dead = n
		case work.Done:
			st.Done = n
		case work.Discarded:
			st.Discarded = n
		}
	}
	due, _, err := r.Range(s.lanePlace(laneReady, p).all(), kv.RangeOptions{Limit: 1}).Wait()
	if err != nil {
		return st, nil, err
	}
	if len(due) > 0 {
		_, st.OldestDue, _ = s.readDue(laneReady, due[0].Key)
	}
	return st, last, nil
}

// Queue gives the figures of one queue; all zero where no job ever was.
func (s *Store) Queue(ctx context.Context, p work.Place) (QueueStats, error) {
	var st QueueStats
	err := s.readTx(ctx, func(r kv.Reader) (err error) {
		st, _, err = s.queueStats(r, p)
		return err
	})
	return st, err
}
