package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// naiveJob is what a queue should have of a job.
type naiveJob struct {
	state  string
	failed int
	due    time.Time // of a lease, or not before
	token  string
}

// Random operations on a queue, with workers that die, stale tokens and the
// clock in between: every job is where a naive model says, nobody holds a job
// that another holds, and the index and counters agree with the rows.
func TestQueueFollowsModel(t *testing.T) {
	ctx := context.Background()
	const attempts = 3
	b := newBench(t)
	run := 0
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		p := work.Place{Tenant: "t1", Queue: fmt.Sprint("q", run)}
		jobs := map[string]*naiveJob{}
		var tokens []string
		end := func(m *naiveJob, dead bool, next time.Time) {
			m.token = ""
			if m.failed++; dead || m.failed >= attempts {
				m.state = "DEAD"
				return
			}
			m.state, m.due = "READY", next
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				steps++
				for id, m := range jobs {
					j, err := b.QueueJob(ctx, work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: id})
					if err != nil {
						rt.Fatalf("%v", err)
					}
					if j.State.String() != m.state || int(j.Attempt) != m.failed || j.Token != m.token {
						rt.Fatalf("job %s is %s after %d attempts under %q, the model says %+v", id, j.State, j.Attempt, j.Token, *m)
					}
				}
			},
			"enqueue": func(rt *rapid.T) {
				id := name.Draw(rt, "job")
				r := work.Request{Key: work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: id}, Policy: work.Policy{MaxAttempts: attempts}}.Normalize()
				got := b.enqueue(r)[0]
				if got.Err != nil || got.Replayed != (jobs[id] != nil) {
					rt.Fatalf("%+v", got)
				}
				if jobs[id] == nil {
					jobs[id] = &naiveJob{state: "READY", due: b.now()}
				}
			},
			"lease": func(rt *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(rt, "n")
				got, err := b.Lease(ctx, p, n, 30*time.Second, "w")
				if err != nil {
					rt.Fatalf("%v", err)
				}
				given := map[string]work.Job{}
				for _, j := range got {
					given[j.Key.ID] = j
				}
				lapsed := 0
				for _, m := range jobs { // a call looks at no more run-out leases than it wants jobs
					if m.state == "LEASED" && !m.due.After(b.now()) {
						lapsed++
					}
				}
				due := 0
				for id, m := range jobs {
					j, leased := given[id]
					if m.state == "LEASED" && !m.due.After(b.now()) && (leased || lapsed <= n) {
						end(m, false, b.now())
					} else if m.state == "LEASED" && !m.due.After(b.now()) { // beyond the n it looked at
						if row, _ := b.QueueJob(ctx, work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: id}); row.State == work.Dead {
							end(m, false, b.now())
						}
					}
					if m.state == "READY" && !m.due.After(b.now()) {
						due++
					}
					if !leased {
						continue
					}
					if m.state != "READY" || m.due.After(b.now()) {
						rt.Fatalf("job %s is leased in state %s, due %s", id, m.state, m.due)
					}
					m.state, m.due, m.token = "LEASED", b.now().Add(30*time.Second), j.Token
					tokens = append(tokens, j.Token)
				}
				if len(got) < n && lapsed <= n && len(got) < due {
					rt.Fatalf("%d leased of %d due, %d asked for", len(got), due, n)
				}
			},
			"end": func(rt *rapid.T) {
				if len(tokens) == 0 {
					return
				}
				id, token := name.Draw(rt, "job"), rapid.SampledFrom(tokens).Draw(rt, "token")
				k := work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: id}
				m := jobs[id]
				var d work.Decision
				var err error
				how := rapid.SampledFrom([]string{"complete", "fail", "permanent", "return", "extend"}).Draw(rt, "how")
				switch how {
				case "complete":
					d, err = b.CompleteJob(ctx, k, token)
				case "fail", "permanent":
					d, err = b.FailJob(ctx, k, token, "x", how == "permanent")
				case "return":
					d, err = b.ReturnJob(ctx, k, token)
				case "extend":
					d, err = b.ExtendJob(ctx, k, token, time.Minute)
				}
				switch {
				case m == nil:
					wantCode(t, ledger.JobNotFound, err)
				case m.state != "LEASED" || m.token != token:
					if err == nil && !d.Replayed {
						rt.Fatalf("%s with a token that does not hold job %s: %+v", how, id, d)
					}
				case err != nil || d.Replayed:
					rt.Fatalf("%s: %+v %v", how, d, err)
				case how == "complete":
					m.state, m.token = "DONE", ""
				case how == "fail", how == "permanent":
					end(m, how == "permanent", d.Job.Due)
				case how == "return":
					m.state, m.token, m.due = "READY", "", b.now()
				default:
					m.due = d.Job.Due
				}
			},
			"replay": func(rt *rapid.T) {
				id := name.Draw(rt, "job")
				d, err := b.ReplayJob(ctx, work.Key{Tenant: p.Tenant, Queue: p.Queue, ID: id})
				if m := jobs[id]; m != nil && m.state == "DEAD" {
					if err != nil || d.Replayed {
						rt.Fatalf("%+v %v", d, err)
					}
					m.state, m.failed, m.due = "READY", 0, b.now()
				} else if err == nil && !d.Replayed {
					rt.Fatalf("replayed a job that is no dead letter: %+v", d)
				}
			},
			"sweep": func(rt *rapid.T) {
				if _, err := b.LapseJobs(ctx, p, 100); err != nil {
					rt.Fatalf("%v", err)
				}
				for _, m := range jobs {
					if m.state == "LEASED" && !m.due.After(b.now()) {
						end(m, false, b.now())
					}
				}
			},
			"clock": func(rt *rapid.T) { b.advance(time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second) },
		})
	})
	b.checkWork()
	t.Logf("%d steps", steps)
}
