package work

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffer-ledger/coffer/ledger"
)

// Decision is what a command does to a job.
type Decision struct {
	Job Job
	// Replayed: it had been done before; nothing changes.
	Replayed bool
}

// Changed reports whether there is something to write.
func (d *Decision) Changed() bool { return !d.Replayed }

// Enqueue makes a job of a normalized, valid request. cur is the row that is
// there, nil for none.
func Enqueue(now time.Time, cur *Job, r Request) (Decision, *ledger.Rejection) {
	if cur == nil {
		return Decision{Job: Job{Request: r, State: Ready, Due: now.Add(r.Delay), Created: now}}, nil
	}
	if fields := differing(&cur.Request, &r); fields != nil {
		return Decision{}, &ledger.Rejection{
			Code: ledger.IdempotencyConflict, Fields: fields, State: cur.State.String(),
			Message: fmt.Sprintf("job %s was first enqueued with other values of %s", clip(r.Key.ID), strings.Join(fields, ", ")),
		}
	}
	return Decision{Job: *cur, Replayed: true}, nil
}

// differing names the fields in which a request is not the first one.
func differing(a, b *Request) []string {
	var out []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"payload", bytes.Equal(a.Payload, b.Payload)},
		{"policy.max_attempts", a.Policy.MaxAttempts == b.Policy.MaxAttempts},
		{"policy.backoff_base", a.Policy.Base == b.Policy.Base},
		{"policy.backoff_max", a.Policy.Max == b.Policy.Max},
		{"policy.keep", a.Policy.Keep == b.Policy.Keep},
		{"delay", a.Delay == b.Delay},
	} {
		if !f.same {
			out = append(out, f.name)
		}
	}
	return out
}

// Grant leases a job that is due. A token must never be used for two leases of
// one job. It reports false for a job that is not ready or not due: there is
// nothing to lease, which is no error.
func Grant(now time.Time, j Job, worker, token string, d time.Duration) (Job, bool) {
	if j.State != Ready || j.Due.After(now) {
		return j, false
	}
	j.State, j.Token, j.Worker, j.Due = Leased, token, worker, now.Add(d)
	j.Leases++
	return j, true
}

// Lapse ends a lease that ran out: one more attempt without success, and due at
// once. It reports false where there is no such lease.
func Lapse(now time.Time, j Job) (Job, bool) {
	if j.State != Leased || j.Due.After(now) {
		return j, false
	}
	j.LastError = fmt.Sprintf("the lease of worker %s ran out at %s", clip(j.Worker), j.Due.UTC().Format("2006-01-02T15:04:05.000Z"))
	return unsuccessful(now, end(j, Lapsed), now, false), true
}

// Extend gives a lease more time, counted from now; never less.
func Extend(now time.Time, j Job, token string, d time.Duration) (Decision, *ledger.Rejection) {
	if j.State != Leased || j.Token != token {
		return Decision{}, lost(&j, token)
	}
	if until := now.Add(d); until.After(j.Due) {
		j.Due = until
	}
	return Decision{Job: j}, nil
}

// Complete ends a job for good.
func Complete(now time.Time, j Job, token string) (Decision, *ledger.Rejection) {
	if d, r, over := ended(&j, token, Completed); over {
		return d, r
	}
	j = end(j, Completed)
	j.State, j.Ended, j.Due = Done, now, now.Add(j.Policy.Keep)
	return Decision{Job: j}, nil
}

// Fail counts an attempt and sets the job's next one, or makes it a dead letter:
// after the last attempt, or at once when trying again is pointless
// (permanent).
func Fail(now time.Time, j Job, token, reason string, permanent bool) (Decision, *ledger.Rejection) {
	if d, r, over := ended(&j, token, Failed); over {
		return d, r
	}
	j = end(j, Failed)
	j.LastError = Cut(reason, MaxError)
	wait := Backoff(j.Policy.Base, j.Policy.Max, j.Attempt, j.Key.Tenant, j.Key.Queue, j.Key.ID)
	return Decision{Job: unsuccessful(now, j, now.Add(wait), permanent)}, nil
}

// Return gives a job back as it was: no attempt is counted, it is due at once.
func Return(now time.Time, j Job, token string) (Decision, *ledger.Rejection) {
	if d, r, over := ended(&j, token, Returned); over {
		return d, r
	}
	j = end(j, Returned)
	j.State, j.Due = Ready, now
	return Decision{Job: j}, nil
}

// Replay makes a dead letter a job again, with all its attempts, under the same
// key. Replaying one again that is no longer dead for that reason does nothing.
func Replay(now time.Time, j Job) (Decision, *ledger.Rejection) {
	switch {
	case j.State == Dead:
	case j.Replays > 0 && j.Replays == j.Deaths:
		return Decision{Job: j, Replayed: true}, nil
	default:
		return Decision{}, illegal(&j, "replayed")
	}
	j.State, j.Due, j.Attempt, j.Ended = Ready, now, 0, time.Time{}
	j.Replays++
	return Decision{Job: j}, nil
}

// Discard gives a dead letter up, and says why.
func Discard(now time.Time, j Job, reason string) (Decision, *ledger.Rejection) {
	if r := CheckReason(reason); r != nil {
		return Decision{}, r
	}
	switch {
	case j.State == Dead:
	case j.State == Discarded && j.Reason == reason:
		return Decision{Job: j, Replayed: true}, nil
	case j.State == Discarded:
		return Decision{}, &ledger.Rejection{
			Code: ledger.IdempotencyConflict, Fields: []string{"reason"}, State: j.State.String(),
			Message: fmt.Sprintf("job %s was discarded for another reason", clip(j.Key.ID)),
		}
	default:
		return Decision{}, illegal(&j, "discarded")
	}
	j.State, j.Reason, j.Ended, j.Due = Discarded, reason, now, now.Add(j.Policy.Keep)
	return Decision{Job: j}, nil
}

// CheckReason refuses a reason that says nothing, or too much.
func CheckReason(s string) *ledger.Rejection {
	switch {
	case strings.TrimSpace(s) == "":
		return invalid("reason", fmt.Sprintf("%q", s), fmt.Sprintf("1 to %d bytes", MaxReason), "must not be empty")
	case len(s) > MaxReason:
		return invalid("reason", fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("1 to %d bytes", MaxReason), "is too long")
	case !utf8.ValidString(s):
		return invalid("reason", fmt.Sprintf("%.40q", s), "UTF-8", "is not valid UTF-8")
	}
	return nil
}

// unsuccessful counts an attempt.
func unsuccessful(now time.Time, j Job, next time.Time, last bool) Job {
	j.Attempt++
	if !last && j.Attempt < j.Policy.MaxAttempts {
		j.State, j.Due = Ready, next
		return j
	}
	j.State, j.Due, j.Ended = Dead, time.Time{}, now
	j.Deaths++
	return j
}

func end(j Job, how End) Job {
	j.LastToken, j.LastEnd = j.Token, how
	j.Token, j.Worker = "", ""
	return j
}

// ended answers a token that does not hold the lease: its first answer if it
// ended the lease in the same way, else a refusal. over is false while it holds
// the lease.
func ended(j *Job, token string, how End) (d Decision, r *ledger.Rejection, over bool) {
	switch {
	case j.State == Leased && j.Token == token:
		return d, nil, false
	case token != "" && j.LastToken == token && j.LastEnd == how:
		return Decision{Job: *j, Replayed: true}, nil, true
	}
	return d, lost(j, token), true
}

func lost(j *Job, token string) *ledger.Rejection {
	msg := "is not the lease that holds the job"
	if token != "" && token == j.LastToken {
		msg = "names a lease that is over: it " + j.LastEnd.String()
	}
	return &ledger.Rejection{Code: ledger.LeaseLost, Field: "lease_token", Value: clip(token), State: j.State.String(), Message: msg}
}

func illegal(j *Job, what string) *ledger.Rejection {
	return &ledger.Rejection{
		Code: ledger.JobIllegalState, State: j.State.String(),
		Message: fmt.Sprintf("only a dead letter can be %s; job %s is %s", what, clip(j.Key.ID), j.State),
	}
}

// Missing is the answer to a job that is not there, and to one of another
// tenant.
func Missing(k Key) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.JobNotFound, Field: "job_id", Value: clip(k.ID), Message: "is not in queue " + clip(k.Queue)}
}

// Cut bounds a text, at the end of a character, and makes it valid UTF-8.
func Cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func clip(s string) string { return fmt.Sprintf("%.40q", s) }
