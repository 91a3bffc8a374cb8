package store

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// Jobs and facts have no cut: each page of rows is read together with the rows
// that it should go with, in one transaction, and judged by that alone. So what
// is called a problem is one, whatever goes on meanwhile.

const (
	// judgedRows is the most rows of one page.
	judgedRows = 64
	// maxCounted bounds what is counted in one transaction. The counters of a
	// queue, or of facts, with more rows are not checked.
	maxCounted = 10_000
)

// finding is a problem that a transaction found.
type finding struct {
	check checkID
	text  string
}

type findings struct {
	list []finding
	n    map[checkID]uint64
}

func (f *findings) reset()            { f.list, f.n = f.list[:0], map[checkID]uint64{} }
func (f *findings) checked(c checkID) { f.n[c]++ }

func (f *findings) add(c checkID, format string, args ...any) {
	f.list = append(f.list, finding{c, fmt.Sprintf(format, args...)})
}

// tell reports what a transaction found, once it has ended.
func (a *audit) tell(f *findings) {
	for c, n := range f.n {
		a.count(n, c)
	}
	for _, it := range f.list {
		a.report(it.check, "%s", it.text)
	}
}

// judge reads a range page by page. A page, and all that look reads for it, is
// one transaction.
func (a *audit) judge(ctx context.Context, phase string, rng kv.Range, look func(r kv.Reader, rows []kv.KeyValue, f *findings) error) error {
	var f findings
	var done uint64
	limit := judgedRows / 4
	for {
		var last []byte
		var more bool
		n, size := 0, 0
		err := a.s.readTx(ctx, func(r kv.Reader) error {
			f.reset()
			last, n, size = nil, 0, 0
			rows, m, err := r.Range(rng, kv.RangeOptions{Limit: limit}).Wait()
			if err != nil || len(rows) == 0 {
				return err
			}
			for i := range rows {
				size += len(rows[i].Key) + len(rows[i].Value)
			}
			last, more, n = append(last, rows[len(rows)-1].Key...), m, len(rows)
			return look(r, rows, &f)
		})
		if err != nil {
			return err
		}
		a.tell(&f)
		if len(last) == 0 {
			return nil
		}
		done += uint64(n)
		a.progress(phase, done)
		if !more {
			return nil
		}
		rng.Begin = append(last, 0)
		limit = min(max(limit*scanBytes/max(size, 1), 1), 2*limit, judgedRows)
	}
}

// readJobs checks the queues: jobs against their places, places against their
// jobs, and counters against both.
func (a *audit) readJobs(ctx context.Context) error {
	if err := a.judge(ctx, "jobs", a.s.key(tableJob).all(), a.seeJobs); err != nil {
		return err
	}
	for _, table := range []string{tableDue, tableDead} {
		if err := a.judge(ctx, "queues", a.s.key(table).all(), a.seePlaces); err != nil {
			return err
		}
	}
	return a.countQueues(ctx)
}

// seeJobs judges jobs by themselves, and whether each stands where its state
// says.
func (a *audit) seeJobs(r kv.Reader, rows []kv.KeyValue, f *findings) error {
	type place struct {
		job work.Job
		key key
		row kv.Value
	}
	var places []place
	counters := map[string]kv.Value{}
	for _, row := range rows {
		_, sub, err := a.s.inJobTable(row.Key)
		if err == nil && sub != jobRows {
			continue // a counter
		}
		f.checked(checkReadable)
		f.checked(checkJobs)
		k, err := a.s.readJobKey(row.Key)
		if err != nil {
			f.add(checkReadable, "job key %x cannot be read", row.Key)
			continue
		}
		j, err := decodeJob(k, row.Value)
		if err != nil {
			f.add(checkReadable, "job %s of tenant %s cannot be read: %v", k, k.Tenant, err)
			continue
		}
		if err := j.Check(); err != nil {
			f.add(checkJobs, "job %s of tenant %s: %v", k, k.Tenant, err)
		}
		at := a.s.deadKey(j.Ended, k)
		if l, ok := lane(j.State); ok {
			at = a.s.dueKey(l, j.Due, k)
		}
		places = append(places, place{j, at, r.Get(at)})
		if n := string(a.s.jobCountKey(k.Place(), j.State)); counters[n] == nil {
			counters[n] = r.Get([]byte(n))
		}
	}
	for i := range places {
		p := &places[i]
		k := p.job.Key
		if _, ok, err := p.row.Wait(); err != nil {
			return err
		} else if !ok {
			f.add(checkJobs, "job %s of tenant %s is %s and has no place in the index: nobody finds it", k, k.Tenant, p.job.State)
		}
		n := string(a.s.jobCountKey(k.Place(), p.job.State))
		if counters[n] == nil {
			continue
		}
		v, _, err := counters[n].Wait()
		if err != nil {
			return err
		}
		if decodeCount(v) <= 0 {
			f.add(checkCounters, "queue %s of tenant %s counts %d jobs that are %s and has at least one", k.Queue, k.Tenant, decodeCount(v), p.job.State)
		}
		delete(counters, n) // once a page
	}
	return nil
}

// seePlaces judges whether each row of the due-index and of the dead letters
// has the job, or the fact, that stands there.
func (a *audit) seePlaces(r kv.Reader, rows []kv.KeyValue, f *findings) error {
	var facts []kv.KeyValue
	var keys []work.Key
	var jobs []kv.Value
	var at []kv.KeyValue
	for _, row := range rows {
		k, isFact, ok := a.s.jobPlaced(row.Key)
		if isFact {
			facts = append(facts, row)
		}
		if !ok {
			f.checked(checkReadable)
			f.add(checkReadable, "due-index key %x cannot be read", row.Key)
		}
		if !ok || k == (work.Key{}) {
			continue
		}
		f.checked(checkJobs)
		keys, jobs, at = append(keys, k), append(jobs, r.Get(a.s.jobKey(k))), append(at, row)
	}
	for i, k := range keys {
		j, err := a.s.jobIn(k, jobs[i])
		switch {
		case isCorrupt(err):
			continue // the jobs' own page says so
		case err != nil:
			return err
		case j == nil:
			f.add(checkJobs, "a place in the index names job %s of tenant %s, which does not exist", k, k.Tenant)
		case !a.s.standsAt(j, at[i].Key):
			f.add(checkJobs, "job %s of tenant %s is %s and has another place in the index, too", k, k.Tenant, j.State)
		}
	}
	return a.seeDueFacts(r, facts, f)
}

// jobPlaced is the job that a row of the due-index or of the dead letters
// names; none for a signal and for a fact.
func (s *Store) jobPlaced(k []byte) (job work.Key, isFact, ok bool) {
	if job, err := s.readDeadKey(k); err == nil {
		return job, false, true
	}
	r := s.read(k, tableDue)
	switch l := r.uint(); l {
	case laneSignal:
		return job, false, r.err == nil
	case laneFact:
		return job, true, r.err == nil
	default:
		p, _, r := s.readDue(l, k)
		job = work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: r.str()}
		return job, false, r.end() == nil && l <= laneKept
	}
}

// standsAt reports whether a key of the index is the job's own.
func (s *Store) standsAt(j *work.Job, k []byte) bool {
	at := s.deadKey(j.Ended, j.Key)
	if l, ok := lane(j.State); ok {
		at = s.dueKey(l, j.Due, j.Key)
	}
	return string(at) == string(k)
}

// countQueues compares the counters of each queue with its index, and those of
// each tenant with its queues'.
func (a *audit) countQueues(ctx context.Context) error {
	var f findings
	next := a.s.key(tableJob).all()
	for {
		var tenant string
		err := a.s.readTx(ctx, func(r kv.Reader) (err error) {
			f.reset()
			tenant, err = a.firstTenant(r, next)
			if err != nil || tenant == "" {
				return err
			}
			return a.countTenant(r, tenant, &f)
		})
		if err != nil {
			return err
		}
		a.tell(&f)
		if tenant == "" {
			return nil
		}
		if err := a.countTenantQueues(ctx, tenant); err != nil {
			return err
		}
		next.Begin = a.s.key(tableJob).str(tenant).all().End
	}
}

func (a *audit) firstTenant(r kv.Reader, rng kv.Range) (string, error) {
	rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
	if err != nil || len(rows) == 0 {
		return "", err
	}
	tenant, _, err := a.s.inJobTable(rows[0].Key)
	if err != nil {
		return "", nil //nolint:nilerr // the jobs' pages say so
	}
	return tenant, nil
}

// countTenant compares what a tenant's queues count as open with the counter
// that bounds it.
func (a *audit) countTenant(r kv.Reader, tenant string, f *findings) error {
	counts := r.Range(a.s.jobCountsOf(tenant).all(), kv.RangeOptions{Limit: maxCounted})
	open := r.Get(a.s.openJobsKey(tenant))
	rows, more, err := counts.Wait()
	if err != nil || more {
		return err
	}
	sum := int64(0)
	for _, row := range rows {
		if _, st, err := a.s.readJobCount(row.Key); err == nil && st.Open() {
			sum += decodeCount(row.Value)
		}
	}
	v, _, err := open.Wait()
	if err != nil {
		return err
	}
	f.checked(checkCounters)
	if n := decodeCount(v); n != sum {
		f.add(checkCounters, "tenant %s counts %d open jobs, its queues %d", tenant, n, sum)
	}
	return nil
}

// countTenantQueues goes from queue to queue by their counters.
func (a *audit) countTenantQueues(ctx context.Context, tenant string) error {
	var f findings
	rng := a.s.jobCountsOf(tenant).all()
	for {
		var found bool
		var p work.Place
		err := a.s.readTx(ctx, func(r kv.Reader) error {
			f.reset()
			found = false
			rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
			if err != nil || len(rows) == 0 {
				return err
			}
			if p, _, err = a.s.readJobCount(rows[0].Key); err != nil {
				f.add(checkReadable, "counter key %x cannot be read", rows[0].Key)
				return nil //nolint:nilerr // a finding, not a fault
			}
			found = true
			return a.countQueue(r, p, &f)
		})
		if err != nil {
			return err
		}
		a.tell(&f)
		if !found {
			return nil
		}
		rng.Begin = a.s.jobCountsOf(tenant).str(p.Queue).all().End
	}
}

// countQueue counts a queue's places. Those of a done job and of a discarded
// one are alike.
func (a *audit) countQueue(r kv.Reader, p work.Place, f *findings) error {
	st, _, err := a.s.queueStats(r, p)
	if err != nil {
		return err
	}
	left := maxCounted
	for _, c := range []struct {
		what  string
		count int64
		rng   kv.Range
	}{
		{"READY", st.Ready, a.s.lanePlace(laneReady, p).all()},
		{"LEASED", st.Leased, a.s.lanePlace(laneLeased, p).all()},
		{"DEAD", st.Dead, a.s.deadOf(p).all()},
		{"DONE or DISCARDED", st.Done + st.Discarded, a.s.lanePlace(laneKept, p).all()},
	} {
		rows, _, err := r.Range(c.rng, kv.RangeOptions{Limit: left + 1}).Wait()
		if err != nil {
			return err
		}
		if left -= len(rows); left < 0 {
			return nil // too many to count in one transaction
		}
		f.checked(checkCounters)
		if int64(len(rows)) != c.count {
			f.add(checkCounters, "queue %s of tenant %s counts %d jobs that are %s, its index has %d", p.Queue, p.Tenant, c.count, c.what, len(rows))
		}
	}
	return nil
}
