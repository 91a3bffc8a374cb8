package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// A flood of one tenant keeps nobody else waiting: another tenant's job is
// leased by its first call, found by the first sweep, and reads no more rows
// than without the flood.
func TestFloodStarvesNobody(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	quiet := work.Place{Tenant: "zz", Queue: "mail"}
	one := work.Request{Key: work.Key{Tenant: "zz", Queue: "mail", ID: "one"}}.Normalize()
	measure := func() int64 {
		b.enqueue(one)
		b.engine.reset()
		jobs := b.lease(quiet, 10)
		if len(jobs) != 1 {
			t.Fatalf("leased %v", ids(jobs))
		}
		reads := b.engine.reads.Load()
		if _, err := b.FailJob(ctx, jobs[0].Key, jobs[0].Token, "", true); err != nil {
			t.Fatal(err)
		}
		one.Key.ID += "+"
		return reads
	}
	alone := measure()
	for i := range 60 {
		reqs := make([]work.Request, 50)
		for k := range reqs {
			reqs[k] = queued(fmt.Sprintf("flood-%d-%d", i, k))
		}
		b.enqueue(reqs...)
	}
	if flooded := measure(); flooded != alone {
		t.Errorf("%d reads under a flood, %d without", flooded, alone)
	}
	b.enqueue(one)
	b.lease(quiet, 1)
	for range 30 {
		b.lease(mail, 100)
	}
	b.advance(time.Minute)
	owners, err := b.DueOwners(ctx, LaneLeased, work.Place{}, 10)
	if err != nil || len(owners) != 2 {
		t.Fatalf("owners %v %v", owners, err)
	}
	b.engine.reset()
	if owners, err = b.DueOwners(ctx, LaneLeased, mail, 1); err != nil || len(owners) != 1 || owners[0].Place != quiet {
		t.Errorf("after %v comes %v, %v", mail, owners, err)
	}
	b.checkWork()
}

func TestWorkLimits(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	b.opt.Work = WorkLimits{OpenJobs: 3, Leases: 2}
	got := b.enqueue(queued("a"), queued("b"), queued("a"), queued("c"), queued("d"))
	for i := range 4 {
		if got[i].Err != nil {
			t.Fatal(got[i].Err)
		}
	}
	if r := wantCode(t, ledger.QueueFull, got[4].Err); r.Limit != "3 open jobs of a tenant" || r.RetryAfter == 0 {
		t.Errorf("%+v", r)
	}
	if got := b.enqueue(queued("a"))[0]; got.Err != nil || !got.Replayed {
		t.Errorf("a repeat in a full queue: %+v", got)
	}
	elsewhere := work.Request{Key: work.Key{Tenant: "t2", Queue: "mail", ID: "a"}}.Normalize()
	if got := b.enqueue(elsewhere)[0]; got.Err != nil {
		t.Errorf("another tenant is refused: %v", got.Err)
	}
	jobs := b.lease(mail, 10)
	if len(jobs) != 2 {
		t.Fatalf("leased %v", ids(jobs))
	}
	_, err := b.Lease(ctx, mail, 1, time.Minute, "w2")
	wantCode(t, ledger.LeaseLimit, err)
	if _, err := b.CompleteJob(ctx, jobs[0].Key, jobs[0].Token); err != nil {
		t.Fatal(err)
	}
	if more := b.lease(mail, 10); len(more) != 1 {
		t.Errorf("leased %v", ids(more))
	}
	if got := b.enqueue(queued("d"))[0]; got.Err != nil {
		t.Errorf("there is room again: %v", got.Err)
	}
	b.checkWork()
}

// Whatever befalls the first commits: a job is enqueued once, leased once, and
// ended once, and the call's own answers are no replays.
func TestWorkUnknownOutcomes(t *testing.T) {
	ctx := context.Background()
	const conflict, landed, lost = embedded.FaultConflict, embedded.FaultUnknownLanded, embedded.FaultUnknownLost
	for _, fates := range [][]embedded.FaultKind{{conflict}, {landed}, {lost}, {lost, landed}, {conflict, landed}, {lost, conflict, landed}} {
		t.Run(fmt.Sprint(fates), func(t *testing.T) {
			b := newBench(t)
			b.nextFates(fates...)
			for i, got := range b.enqueue(queued("a"), queued("b"), queued("a")) {
				if got.Err != nil || got.Replayed != (i == 2) {
					t.Errorf("enqueue %d: %+v", i, got)
				}
			}
			b.nextFates(fates...)
			jobs := b.lease(mail, 10)
			if !slices.Equal(ids(jobs), []string{"a", "b"}) || jobs[0].Leases != 1 {
				t.Fatalf("leased %+v", jobs)
			}
			b.nextFates(fates...)
			if d, err := b.CompleteJob(ctx, jobs[0].Key, jobs[0].Token); err != nil || d.Replayed || d.Job.State != work.Done {
				t.Errorf("complete: %+v, %v", d, err)
			}
			b.nextFates(fates...)
			if d, err := b.FailJob(ctx, jobs[1].Key, jobs[1].Token, "x", true); err != nil || d.Replayed || d.Job.Attempt != 1 || d.Job.State != work.Dead {
				t.Errorf("fail: %+v, %v", d, err)
			}
			b.nextFates(fates...)
			if d, err := b.ReplayJob(ctx, jobs[1].Key); err != nil || d.Replayed || d.Job.Replays != 1 {
				t.Errorf("replay: %+v, %v", d, err)
			}
			if st := b.stats(mail); st.Ready != 1 || st.Done != 1 || st.Dead != 0 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// Many workers of two processes: every job goes to one of them.
func TestLeasesAreExclusive(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	other, err := Open(ctx, b.engine, Options{Writer: "n2", Now: b.time})
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 200
	for i := range jobs / 50 {
		reqs := make([]work.Request, 50)
		for k := range reqs {
			reqs[k] = queued(fmt.Sprintf("j%03d", i*50+k))
		}
		b.enqueue(reqs...)
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var wg sync.WaitGroup
	for _, st := range []*Store{b.Store, other, b.Store, other} {
		wg.Go(func() {
			for {
				got, err := st.Lease(ctx, mail, 7, time.Minute, "w")
				if err != nil {
					t.Error(causes(err))
					return
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, j := range got {
					taken[j.Key.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(taken) != jobs {
		t.Errorf("%d jobs were leased, want %d", len(taken), jobs)
	}
	for id, n := range taken {
		if n != 1 {
			t.Errorf("job %s was leased %d times", id, n)
		}
	}
	b.checkWork()
}

func TestQueuesList(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	for _, q := range []string{"b", "a", "c"} {
		b.enqueue(work.Request{Key: work.Key{Tenant: "t1", Queue: q, ID: "x"}}.Normalize())
	}
	b.enqueue(work.Request{Key: work.Key{Tenant: "t2", Queue: "other", ID: "x"}}.Normalize())
	var names []string
	p := Page{Size: 2}
	for range 3 {
		got, next, err := b.Queues(ctx, "t1", p)
		if err != nil {
			t.Fatal(causes(err))
		}
		for _, q := range got {
			names = append(names, q.Queue)
			if q.Ready != 1 {
				t.Errorf("%+v", q)
			}
		}
		if p.Token = next; next == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("queues %v", names)
	}
	_, _, err := b.QueueJobs(ctx, mail, 0, Page{Token: "made-up"})
	wantCode(t, ledger.BadPageToken, err)
}
