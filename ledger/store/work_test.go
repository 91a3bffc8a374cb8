package store

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

var mail = work.Place{Tenant: "t1", Queue: "mail"}

func jobKey(id string) work.Key { return work.Key{Tenant: "t1", Queue: "mail", ID: id} }

func queued(id string) work.Request {
	return work.Request{Key: jobKey(id), Payload: []byte("payload of " + id)}.Normalize()
}

func (b *bench) enqueue(reqs ...work.Request) []Enqueued {
	b.t.Helper()
	got, err := b.Enqueue(context.Background(), reqs)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return got
}

func (b *bench) lease(p work.Place, n int) []work.Job {
	b.t.Helper()
	jobs, err := b.Lease(context.Background(), p, n, 30*time.Second, "w1")
	if err != nil {
		b.t.Fatal(causes(err))
	}
	return jobs
}

func ids(jobs []work.Job) []string {
	out := make([]string, 0, len(jobs))
	for i := range jobs {
		out = append(out, jobs[i].Key.ID)
	}
	return out
}

func (b *bench) stats(p work.Place) QueueStats {
	b.t.Helper()
	st, err := b.Queue(context.Background(), p)
	if err != nil {
		b.t.Fatal(causes(err))
	}
	b.checkWork()
	return st
}

// checkWork compares every index and counter of the queues with the jobs.
func (b *bench) checkWork() {
	b.t.Helper()
	want := map[string]string{}
	counts := map[string]int64{}
	err := b.scan(context.Background(), b.key(tableJob).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			k, err := b.readJobKey(row.Key)
			if err != nil {
				counts[string(row.Key)] -= decodeCount(row.Value)
				continue
			}
			j, err := decodeJob(k, row.Value)
			if err != nil {
				return err
			}
			if l, ok := lane(j.State); ok {
				want[string(b.dueKey(l, j.Due, k))] = j.State.String()
			}
			if j.State == work.Dead {
				want[string(b.deadKey(j.Ended, k))] = "dead letter"
			}
			counts[string(b.jobCountKey(k.Place(), j.State))]++
			if j.State.Open() {
				counts[string(b.openJobsKey(k.Tenant))]++
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(causes(err))
	}
	for k, n := range counts {
		if n != 0 {
			b.t.Errorf("counter %q is off by %d", k, -n)
		}
	}
	for _, table := range []string{tableDue, tableDead} {
		err := b.scan(context.Background(), b.key(table).all(), func(rows []kv.KeyValue) error {
			for _, row := range rows {
				if r := b.read(row.Key, table); table == tableDue && (r.uint() == laneSignal || r.uint() == laneFact) {
					continue
				}
				if want[string(row.Key)] == "" {
					b.t.Errorf("index row %q belongs to no job", row.Key)
				}
				delete(want, string(row.Key))
			}
			return nil
		})
		if err != nil {
			b.t.Fatal(causes(err))
		}
	}
	for k, what := range want {
		b.t.Errorf("%s has no index row %q", what, k)
	}
}

func TestQueueLife(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	later := queued("later")
	later.Delay = time.Minute
	got := b.enqueue(queued("a"), queued("b"), later, queued("a"))
	if got[0].Replayed || got[1].Replayed || got[2].Replayed || !got[3].Replayed {
		t.Errorf("enqueue gives %+v", got)
	}
	other := queued("a")
	other.Payload = []byte("other")
	if r := wantCode(t, ledger.IdempotencyConflict, b.enqueue(other)[0].Err); !slices.Equal(r.Fields, []string{"payload"}) {
		t.Errorf("conflict names %v", r.Fields)
	}
	if st := b.stats(mail); st.Ready != 3 || !st.OldestDue.Equal(clockStart) {
		t.Errorf("stats %+v", st)
	}
	jobs := b.lease(mail, 10)
	if !slices.Equal(ids(jobs), []string{"a", "b"}) || string(jobs[0].Payload) != "payload of a" || jobs[0].Leases != 1 || jobs[0].Worker != "w1" {
		t.Fatalf("leased %+v", jobs)
	}
	if again := b.lease(mail, 10); len(again) != 0 {
		t.Errorf("leased twice: %v", ids(again))
	}
	tok := jobs[0].Token
	if d, err := b.CompleteJob(ctx, jobKey("a"), tok); err != nil || d.Job.State != work.Done || d.Replayed {
		t.Errorf("complete: %+v %v", d, err)
	}
	if d, err := b.CompleteJob(ctx, jobKey("a"), tok); err != nil || !d.Replayed {
		t.Errorf("complete again: %+v %v", d, err)
	}
	if d, err := b.FailJob(ctx, jobKey("b"), tok, "no route", false); err != nil || d.Job.State != work.Ready || d.Job.Attempt != 1 {
		t.Errorf("fail: %+v %v", d, err)
	}
	if got := b.enqueue(queued("a"))[0]; !got.Replayed || got.Job.State != work.Done {
		t.Errorf("enqueue of a done job: %+v", got)
	}
	_, err := b.CompleteJob(ctx, jobKey("nobody"), tok)
	wantCode(t, ledger.JobNotFound, err)
	_, err = b.ExtendJob(ctx, jobKey("b"), tok, time.Minute)
	wantCode(t, ledger.LeaseLost, err)
	if st := b.stats(mail); st.Ready != 2 || st.Done != 1 || st.Leased != 0 {
		t.Errorf("stats %+v", st)
	}
	b.advance(time.Minute)
	if jobs := b.lease(mail, 1); !slices.Equal(ids(jobs), []string{"b"}) {
		t.Errorf("the longest due is not first: %v", ids(jobs))
	}
	if jobs := b.lease(mail, 1); !slices.Equal(ids(jobs), []string{"later"}) {
		t.Errorf("then %v", ids(jobs))
	}
}

// A worker that dies in the middle of a job: its lease runs out, another worker
// gets the job, and what the first one says later is refused.
func TestWorkerDies(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	b.enqueue(queued("a"))
	dead := b.lease(mail, 1)[0]
	b.advance(29 * time.Second)
	if jobs := b.lease(mail, 1); len(jobs) != 0 {
		t.Fatalf("leased while another holds it: %v", ids(jobs))
	}
	if d, err := b.ExtendJob(ctx, dead.Key, dead.Token, 30*time.Second); err != nil || !d.Job.Due.Equal(b.now().Add(30*time.Second)) {
		t.Fatalf("extend: %+v, %v", d, err)
	}
	b.advance(30 * time.Second)
	next := b.lease(mail, 1)
	if len(next) != 1 || next[0].Attempt != 1 || next[0].Token == dead.Token || next[0].LastEnd != work.Lapsed {
		t.Fatalf("after the lease ran out: %+v", next)
	}
	for what, err := range map[string]error{
		"complete": last(b.CompleteJob(ctx, dead.Key, dead.Token)), "fail": last(b.FailJob(ctx, dead.Key, dead.Token, "x", false)),
		"extend": last(b.ExtendJob(ctx, dead.Key, dead.Token, time.Second)), "return": last(b.ReturnJob(ctx, dead.Key, dead.Token)),
	} {
		if r := wantCode(t, ledger.LeaseLost, err); r.State != "LEASED" {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if _, err := b.CompleteJob(ctx, next[0].Key, next[0].Token); err != nil {
		t.Error(err)
	}
	b.checkWork()
}

func last[T any](_ T, err error) error { return err }

// Nobody has to ask for a lease that ran out: the sweep ends it, and after the
// last attempt makes it a dead letter.
func TestSweeps(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	r := queued("a")
	r.Policy.MaxAttempts = 1
	b.enqueue(r, queued("b"), queued("c"))
	jobs := b.lease(mail, 3)
	if _, err := b.CompleteJob(ctx, jobKey("c"), jobs[2].Token); err != nil {
		t.Fatal(err)
	}
	if owners, err := b.DueOwners(ctx, LaneLeased, work.Place{}, 10); err != nil || len(owners) != 0 {
		t.Errorf("nothing ran out yet: %v %v", owners, err)
	}
	b.advance(30 * time.Second)
	owners, err := b.DueOwners(ctx, LaneLeased, work.Place{}, 10)
	if err != nil || len(owners) != 1 || owners[0].Place != mail {
		t.Fatalf("owners %v %v", owners, err)
	}
	if n, err := b.LapseJobs(ctx, mail, 10); err != nil || n != 2 {
		t.Errorf("lapsed %d, %v", n, err)
	}
	if st := b.stats(mail); st.Dead != 1 || st.Ready != 1 || st.Done != 1 || st.Leased != 0 {
		t.Errorf("stats %+v", st)
	}
	b.advance(work.DefaultKeep)
	if owners, err := b.DueOwners(ctx, LaneKept, work.Place{}, 10); err != nil || len(owners) != 1 {
		t.Fatalf("owners %v %v", owners, err)
	}
	if n, err := b.ForgetJobs(ctx, mail, 10); err != nil || n != 1 {
		t.Errorf("forgot %d, %v", n, err)
	}
	_, err = b.QueueJob(ctx, jobKey("c"))
	wantCode(t, ledger.JobNotFound, err)
	if st := b.stats(mail); st.Dead != 1 || st.Done != 0 {
		t.Errorf("stats %+v: a dead letter waits for a person", st)
	}
}

func TestDeadLetters(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	for _, id := range []string{"z", "a", "m"} {
		b.enqueue(queued(id))
		j := b.lease(mail, 1)[0]
		if _, err := b.FailJob(ctx, j.Key, j.Token, "broken "+id, true); err != nil {
			t.Fatal(err)
		}
		b.advance(time.Second)
	}
	dead, next, err := b.DeadJobs(ctx, mail, Page{Size: 2})
	if err != nil || !slices.Equal(ids(dead), []string{"z", "a"}) || next == "" || dead[0].LastError != "broken z" {
		t.Fatalf("dead letters %v, %q, %v", ids(dead), next, err)
	}
	if dead, next, err = b.DeadJobs(ctx, mail, Page{Size: 2, Token: next}); err != nil || !slices.Equal(ids(dead), []string{"m"}) || next != "" {
		t.Fatalf("second page %v, %q, %v", ids(dead), next, err)
	}
	if jobs := b.lease(mail, 10); len(jobs) != 0 {
		t.Errorf("dead letters are leased: %v", ids(jobs))
	}
	if d, err := b.ReplayJob(ctx, jobKey("a")); err != nil || d.Job.State != work.Ready {
		t.Fatalf("%+v %v", d, err)
	}
	if d, err := b.DiscardJob(ctx, jobKey("z"), "no longer wanted"); err != nil || d.Job.State != work.Discarded {
		t.Fatalf("%+v %v", d, err)
	}
	_, err = b.ReplayJob(ctx, jobKey("z"))
	wantCode(t, ledger.JobIllegalState, err)
	jobs := b.lease(mail, 10)
	if !slices.Equal(ids(jobs), []string{"a"}) || jobs[0].Attempt != 0 || string(jobs[0].Payload) != "payload of a" {
		t.Errorf("after the replay: %+v", jobs)
	}
	if got := b.enqueue(queued("z"))[0]; !got.Replayed || got.Job.State != work.Discarded {
		t.Errorf("a discarded job comes back: %+v", got)
	}
	if st := b.stats(mail); st.Dead != 1 || st.Discarded != 1 || st.Leased != 1 {
		t.Errorf("stats %+v", st)
	}
	list, _, err := b.QueueJobs(ctx, mail, work.Dead, Page{})
	if err != nil || !slices.Equal(ids(list), []string{"m"}) {
		t.Errorf("jobs that are dead: %v %v", ids(list), err)
	}
}
