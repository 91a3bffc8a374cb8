package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

func factID(event string) fact.ID { return fact.ID{Tenant: "t1", Source: "shop", Event: event} }

// told stores a fact of order o and brings it into a state.
func (b *bench) told(event string, st fact.State, effects ...fact.Effect) {
	b.t.Helper()
	ctx := context.Background()
	f := fact.Fact{ID: factID(event), Kind: fact.PaymentSucceeded, Order: "o", Ref: event}.Normalize()
	got, err := b.SubmitFacts(ctx, []fact.Fact{f}, fact.DefaultSchedule())
	if err != nil || got[0].Err != nil {
		b.t.Fatal(err, got)
	}
	if st == fact.Pending {
		return
	}
	v := fact.Verdict{ID: f.ID, Version: got[0].Version, State: st, Reason: "so it is", Effects: effects}
	if st == fact.Resolved {
		v.State = fact.Exception
	}
	if n, err := b.MarkFacts(ctx, "o", []fact.Verdict{v}, fact.DefaultSchedule()); err != nil || n != 1 {
		b.t.Fatal(err, n)
	}
	if st == fact.Resolved {
		if _, _, err := b.ResolveFact(ctx, f.ID, "by hand"); err != nil {
			b.t.Fatal(causes(err))
		}
	}
}

// workStory leaves jobs and facts in each of their states, in two tenants.
func workStory(b *bench) {
	ctx := context.Background()
	dead := func(id string) {
		j := b.lease(mail, 1)[0]
		if j.Key.ID != id {
			b.t.Fatalf("leased %s, want %s", j.Key.ID, id)
		}
		if _, err := b.FailJob(ctx, j.Key, j.Token, "broken", true); err != nil {
			b.t.Fatal(causes(err))
		}
	}
	b.enqueue(queued("dead"))
	dead("dead")
	b.enqueue(queued("gone"))
	dead("gone")
	if _, err := b.DiscardJob(ctx, jobKey("gone"), "not wanted"); err != nil {
		b.t.Fatal(causes(err))
	}
	b.enqueue(queued("done"))
	j := b.lease(mail, 1)[0]
	if _, err := b.CompleteJob(ctx, j.Key, j.Token); err != nil {
		b.t.Fatal(causes(err))
	}
	b.enqueue(queued("held"))
	b.lease(mail, 1)
	other := queued("other")
	other.Key.Tenant = "t2"
	b.enqueue(queued("ready"))
	b.enqueue(other)

	b.ok(create("spring", 1, ledger.Policy{}), onBudget(ledger.OpFund, "spring", "f1", 1000),
		reserve("spring", "o", 100), on(ledger.OpCommit, "o", "paid", 60))
	res, err := b.Reservation(ctx, orderKey("o"))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	paid := fact.Effect{Op: ledger.OpCommit, Benefit: "coupon", Attempt: 1, Outcome: res.Attempts[0].Receipts[1].Outcome}
	b.told("paid", fact.Applied, paid)
	b.told("waits", fact.Pending)
	b.told("wrong", fact.Exception)
	b.told("settled", fact.Resolved)
}

func TestAuditFindsPlantedFaultsOfWork(t *testing.T) {
	editJob := func(b *bench, id string, fn func(j *work.Job)) {
		j, err := b.QueueJob(context.Background(), jobKey(id))
		if err != nil {
			b.t.Fatal(causes(err))
		}
		fn(j)
		b.set(b.jobKey(j.Key), encodeJob(j))
	}
	row := func(b *bench, event string) *fact.Row {
		r, err := b.Fact(context.Background(), factID(event))
		if err != nil {
			b.t.Fatal(causes(err))
		}
		return r
	}
	edit := func(b *bench, event string, fn func(r *fact.Row)) {
		r := row(b, event)
		fn(r)
		b.set(b.factKey(r.Order, r.ID), encodeFact(r))
	}
	due := func(b *bench, l uint64) []byte { return b.rows(b.lanePlace(l, mail).all())[0].Key }
	for _, tc := range []struct {
		check, name, words string
		plant              func(b *bench)
	}{
		{"queue_jobs", "a ready job without a place", `job mail/ready of tenant t1 is READY and has no place`, func(b *bench) { b.drop(due(b, laneReady)) }},
		{"queue_jobs", "a lease without a place", `job mail/held of tenant t1 is LEASED and has no place`, func(b *bench) { b.drop(due(b, laneLeased)) }},
		{"queue_jobs", "a dead letter in no list", `job mail/dead of tenant t1 is DEAD and has no place`, func(b *bench) { b.drop(b.rows(b.deadOf(mail).all())[0].Key) }},
		{"queue_jobs", "a job that is gone", `names job mail/ready of tenant t1, which does not exist`, func(b *bench) { b.drop(b.jobKey(jobKey("ready"))) }},
		{"queue_jobs", "a second place", `job mail/held of tenant t1 is LEASED and has another place`, func(b *bench) {
			b.set(b.dueKey(laneReady, clockStart, jobKey("held")), nil)
		}},
		{"queue_jobs", "a dead letter twice", `job mail/dead of tenant t1 is DEAD and has another place`, func(b *bench) {
			b.set(b.deadKey(clockStart.Add(time.Hour), jobKey("dead")), nil)
		}},
		{"queue_jobs", "a lease that somebody holds of a ready job", `it is READY, with a lease "x"`, func(b *bench) {
			editJob(b, "ready", func(j *work.Job) { j.Token = "x" })
		}},
		{"queue_jobs", "more attempts than the policy has", `it is READY after 10 of 10 attempts`, func(b *bench) {
			editJob(b, "ready", func(j *work.Job) { j.Attempt, j.Leases = 10, 10 })
		}},
		{"queue_jobs", "a replay that nobody asked for", `it is DEAD after 1 deaths and 1 replays`, func(b *bench) {
			editJob(b, "dead", func(j *work.Job) { j.Replays++ })
		}},
		{"queue_jobs", "a discard without a reason", `it is DISCARDED for the reason ""`, func(b *bench) {
			editJob(b, "gone", func(j *work.Job) { j.Reason = "" })
		}},
		{"rows_readable", "a job of another form", `job mail/ready of tenant t1 cannot be read`, func(b *bench) { b.set(b.jobKey(jobKey("ready")), []byte{9}) }},
		{"work_counters", "a queue that counts too many", `queue mail of tenant t1 counts 2 jobs that are READY, its index has 1`, func(b *bench) {
			b.tamper(func(tx kv.Tx) { tx.Add(b.jobCountKey(mail, work.Ready), one) })
		}},
		{"work_counters", "a queue that forgot its leases", `queue mail of tenant t1 counts 0 jobs that are LEASED`, func(b *bench) { b.drop(b.jobCountKey(mail, work.Leased)) }},
		{"work_counters", "a queue without counters", `queue mail of tenant t1 counts 0 jobs that are DEAD and has at least one`, func(b *bench) {
			b.tamper(func(tx kv.Tx) { tx.ClearRange(b.jobCountsOf("t1").all()) })
		}},
		{"work_counters", "a tenant that counts too few", `tenant t2 counts 0 open jobs, its queues 1`, func(b *bench) { b.drop(b.openJobsKey("t2")) }},
		{"work_counters", "a gauge of facts", `2 facts are counted as PENDING, the lists have 1`, func(b *bench) {
			b.tamper(func(tx kv.Tx) { tx.Add(b.factGaugeKey(fact.Pending), one) })
		}},
		{"facts_kept", "a fact that was dropped", `the inbox has fact shop/wrong of tenant t1, which is not stored: it was dropped`, func(b *bench) {
			b.drop(b.factKey("o", factID("wrong")))
		}},
		{"facts_kept", "a fact that would be new again", `fact shop/paid of tenant t1 of order o is not in the inbox`, func(b *bench) { b.drop(b.inboxKey(factID("paid"))) }},
		{"facts_kept", "an inbox row of another order", `fact shop/paid of tenant t1 of order o is not in the inbox`, func(b *bench) {
			b.set(b.inboxKey(factID("paid")), encodeInbox("p"))
		}},
		{"facts_kept", "an exception that no list shows", `fact shop/wrong of tenant t1 is EXCEPTION and not in that list`, func(b *bench) {
			b.drop(b.factStateKey(row(b, "wrong")))
		}},
		{"facts_kept", "a fact in two lists", `fact shop/paid of tenant t1 is APPLIED and has another place in the list`, func(b *bench) {
			r := row(b, "paid")
			r.State = fact.Pending
			b.set(b.factStateKey(r), nil)
		}},
		{"facts_kept", "a fact that nobody looks at again", `fact shop/waits of tenant t1 waits and has no place in the due-index`, func(b *bench) {
			b.drop(b.factDueKey(row(b, "waits")))
		}},
		{"facts_kept", "a settled fact that is due", `fact shop/paid of tenant t1 is APPLIED and has another place in the due-index`, func(b *bench) {
			r := row(b, "paid")
			r.Due = clockStart
			b.set(b.factDueKey(r), nil)
		}},
		{"facts_kept", "a fact that waits for nothing", `fact shop/waits of tenant t1: it is PENDING without a reason`, func(b *bench) {
			edit(b, "waits", func(r *fact.Row) { r.Reason = "" })
		}},
		{"fact_effects", "a commit that never was", `fact shop/paid of tenant t1 says that it did COMMIT of o/coupon, attempt 1`, func(b *bench) {
			edit(b, "paid", func(r *fact.Row) { r.Effects[0].Outcome.Amount++ })
		}},
		{"fact_effects", "a reservation that never was", `fact shop/paid of tenant t1 says that it did COMMIT of o/gift, attempt 1`, func(b *bench) {
			edit(b, "paid", func(r *fact.Row) { r.Effects[0].Benefit = "gift" })
		}},
		{"rows_readable", "a fact of another form", `fact row`, func(b *bench) { b.set(b.factKey("o", factID("paid")), []byte{9}) }},
	} {
		t.Run(tc.check+"/"+tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			workStory(b)
			b.audit()
			tc.plant(b)
			rep, err := b.Audit(context.Background(), nil)
			if err != nil {
				t.Fatal(causes(err))
			}
			for _, c := range rep.Checks {
				if c.Name == tc.check && c.Problems > 0 && strings.Contains(strings.Join(c.Examples, "\n"), tc.words) {
					return
				}
			}
			t.Errorf("check %s does not say %q; the report: %s", tc.check, tc.words, failures(rep))
		})
	}
}

// What the audit looked at, by check: nothing of the story is left out.
func TestAuditCountsWork(t *testing.T) {
	b := newBench(t)
	workStory(b)
	got := map[string]uint64{}
	for _, c := range b.audit().Checks {
		got[c.Name] = c.Checked
	}
	// 6 jobs and as many places; 4 facts, 4 rows of lists, 1 of the due-index, 4
	// of the inbox; the counters of 2 tenants and 4 for each of 2 queues, 4 gauges.
	for name, want := range map[string]uint64{"queue_jobs": 12, "facts_kept": 13, "fact_effects": 1, "work_counters": 14} {
		if got[name] != want {
			t.Errorf("%s checked %d, want %d", name, got[name], want)
		}
	}
}

// Queues and facts are worked on while audits run; none may call anything a
// problem.
func TestAuditUnderWork(t *testing.T) {
	b := newBench(t)
	workStory(b)
	b.auditsWhile(10, func(w, i int) { b.workTraffic(context.Background(), fmt.Sprintf("w%d-%d", w, i)) })
	b.audit()
}

// workTraffic is one job's life, with another one's lease that runs out, and one
// fact's. A fault of a call is none here: the other worker may have been faster.
func (b *bench) workTraffic(ctx context.Context, id string) {
	p := work.Place{Tenant: "t1", Queue: "busy"}
	r := work.Request{Key: work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: id}, Policy: work.Policy{MaxAttempts: 2, Base: time.Millisecond, Keep: work.MinKeep}}.Normalize()
	_, _ = b.Enqueue(ctx, []work.Request{r})
	jobs, _ := b.Lease(ctx, p, 2, time.Second, "w")
	for i, j := range jobs {
		switch (len(id) + i) % 4 {
		case 0:
			_, _ = b.CompleteJob(ctx, j.Key, j.Token)
		case 1:
			_, _ = b.FailJob(ctx, j.Key, j.Token, "broken", true)
			_, _ = b.ReplayJob(ctx, j.Key)
		case 2:
			_, _ = b.ReturnJob(ctx, j.Key, j.Token)
		}
	}
	b.advance(2 * time.Second)
	_, _ = b.LapseJobs(ctx, p, 10)
	_, _ = b.ForgetJobs(ctx, p, 10)
	f := fact.Fact{ID: factID(id), Kind: fact.PaymentSucceeded, Order: id, Ref: id}.Normalize()
	got, err := b.SubmitFacts(ctx, []fact.Fact{f}, fact.DefaultSchedule())
	if err != nil {
		return
	}
	v := fact.Verdict{ID: f.ID, Version: got[0].Version, State: fact.Exception, Reason: "in vain"}
	_, _ = b.MarkFacts(ctx, id, []fact.Verdict{v}, fact.DefaultSchedule())
	_, _, _ = b.ResolveFact(ctx, f.ID, "by hand")
}
