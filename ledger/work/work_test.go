package work

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func request() Request {
	return Request{Key: Key{Tenant: "t", Queue: "mail", ID: "j1"}, Payload: []byte("hello")}.Normalize()
}

func enqueued(t *testing.T) Job {
	t.Helper()
	d, r := Enqueue(t0, nil, request())
	if r != nil || d.Replayed {
		t.Fatalf("%+v, %v", d, r)
	}
	return d.Job
}

func refused(t *testing.T, r *ledger.Rejection, want ledger.Code) *ledger.Rejection {
	t.Helper()
	if r == nil || r.Code != want {
		t.Fatalf("got %v, want %s", r, want)
	}
	return r
}

func leased(t *testing.T, j Job, at time.Time, token string) Job {
	t.Helper()
	j, ok := Grant(at, j, "w", token, 30*time.Second)
	if !ok {
		t.Fatalf("job in state %s, due %s, is not leased at %s", j.State, j.Due, at)
	}
	return j
}

// The backoff doubles from base to max, and waits between half of that and all
// of it. The values are part of the contract: a job waits the same on every
// node, and again after an upgrade.
func TestBackoffValues(t *testing.T) {
	var got []time.Duration
	for n := range uint32(12) {
		c := Ceiling(time.Second, 5*time.Minute, n)
		d := Backoff(time.Second, 5*time.Minute, n, "t", "mail", "j1")
		if d < c/2 || d > c || d > 5*time.Minute {
			t.Errorf("attempt %d waits %s, want %s to %s", n, d, c/2, c)
		}
		got = append(got, d)
	}
	want := []time.Duration{
		987 * time.Millisecond, 1092 * time.Millisecond, 2053 * time.Millisecond, 4180 * time.Millisecond,
		9569 * time.Millisecond, 24364 * time.Millisecond, 38070 * time.Millisecond, 115127 * time.Millisecond,
		237007 * time.Millisecond, 220146 * time.Millisecond, 163043 * time.Millisecond, 178322 * time.Millisecond,
	}
	if !slices.Equal(got, want) {
		t.Errorf("waits %v, want %v", got, want)
	}
	var ceilings []time.Duration
	for _, n := range []uint32{0, 1, 2, 3, 8, 9, 62, 63, 64, 1000, 1 << 31} {
		ceilings = append(ceilings, Ceiling(time.Second, 5*time.Minute, n))
	}
	if want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 256 * time.Second,
		5 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute,
	}; !slices.Equal(ceilings, want) {
		t.Errorf("ceilings %v, want %v", ceilings, want)
	}
}

// Jobs that failed together come back apart.
func TestBackoffSpreads(t *testing.T) {
	const jobs, parts = 4000, 8
	var hits [parts]int
	for i := range jobs {
		d := Backoff(time.Minute, time.Hour, 0, "t", "q", strings.Repeat("x", i%50)+string(rune('a'+i%26))+time.Duration(i).String())
		part := int((d - 30*time.Second) * parts / (30*time.Second + 1))
		hits[part]++
	}
	for i, n := range hits {
		if n < jobs/parts*3/4 || n > jobs/parts*5/4 {
			t.Errorf("part %d of the jitter has %d of %d jobs", i, n, jobs)
		}
	}
}

func TestBackoffNeverLeavesItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Range(int64(MinBackoff), int64(LimitBackoff)).Draw(rt, "base")).Truncate(time.Millisecond)
		limit := time.Duration(rapid.Int64Range(int64(base), int64(LimitBackoff)).Draw(rt, "max")).Truncate(time.Millisecond)
		n := rapid.Uint32().Draw(rt, "attempt")
		d := Backoff(base, limit, n, rapid.String().Draw(rt, "name"))
		if d < time.Millisecond || d > limit || d < Ceiling(base, limit, n)/2-time.Millisecond {
			rt.Fatalf("%s", d)
		}
	})
}

func TestAttemptsThenDead(t *testing.T) {
	r := request()
	r.Policy.MaxAttempts = 3
	d, _ := Enqueue(t0, nil, r)
	j, now := d.Job, t0
	for n := range uint32(3) {
		j = leased(t, j, now, string(rune('a'+n)))
		if _, ok := Grant(now, j, "other", "z", time.Second); ok {
			t.Error("a leased job is leased again")
		}
		d, rej := Fail(now, j, string(rune('a'+n)), "boom", false)
		if rej != nil {
			t.Fatal(rej)
		}
		j = d.Job
		if n < 2 {
			want := now.Add(Backoff(r.Policy.Base, r.Policy.Max, n, "t", "mail", "j1"))
			if j.State != Ready || j.Attempt != n+1 || !j.Due.Equal(want) || j.LastError != "boom" {
				t.Errorf("after attempt %d: %+v, want it due at %s", n, j, want)
			}
			if _, ok := Grant(j.Due.Add(-time.Millisecond), j, "w", "early", time.Second); ok {
				t.Error("leased before its time")
			}
			now = j.Due
		}
	}
	if j.State != Dead || j.Attempt != 3 || j.Deaths != 1 || !j.Due.IsZero() || !j.Ended.Equal(now) {
		t.Errorf("after the last attempt: %+v", j)
	}
	if _, ok := Grant(now.Add(time.Hour), j, "w", "y", time.Second); ok {
		t.Error("a dead letter is leased")
	}
}

func TestPermanentFailure(t *testing.T) {
	j := leased(t, enqueued(t), t0, "a")
	d, r := Fail(t0, j, "a", strings.Repeat("é", 2000), true)
	if r != nil || d.Job.State != Dead || d.Job.Attempt != 1 || len(d.Job.LastError) != MaxError {
		t.Errorf("%v, %+v", r, d.Job)
	}
}

// A lease that runs out counts as an attempt and is due at once; until somebody
// notices, its holder may still end it.
func TestLapse(t *testing.T) {
	j := leased(t, enqueued(t), t0, "a")
	late := j.Due.Add(time.Second)
	if _, ok := Lapse(j.Due.Add(-time.Millisecond), j); ok {
		t.Error("lapsed before its time")
	}
	if d, r := Complete(late, j, "a"); r != nil || d.Job.State != Done {
		t.Errorf("completing late: %v", r)
	}
	back, ok := Lapse(late, j)
	if !ok || back.State != Ready || back.Attempt != 1 || !back.Due.Equal(late) || !strings.Contains(back.LastError, `the lease of worker "w" ran out at 2026-03-01T12:00:30.000Z`) {
		t.Errorf("lapsed: %v %+v", ok, back)
	}
	for name, rej := range map[string]*ledger.Rejection{
		"complete": second(Complete(late, back, "a")), "fail": second(Fail(late, back, "a", "x", false)),
		"return": second(Return(late, back, "a")), "extend": second(Extend(late, back, "a", time.Minute)),
	} {
		if r := refused(t, rej, ledger.LeaseLost); !strings.Contains(r.Message, "names a lease that is over: it ran out") {
			t.Errorf("%s: %v", name, r)
		}
	}
	back.Policy.MaxAttempts = 1
	j.Policy.MaxAttempts = 1
	if dead, ok := Lapse(late, j); !ok || dead.State != Dead {
		t.Errorf("the last attempt lapsed: %+v", dead)
	}
}

func second(_ Decision, r *ledger.Rejection) *ledger.Rejection { return r }

// What a token ended it may say again; any other token, and any other word, is
// refused.
func TestRepeats(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(Job, string) (Decision, *ledger.Rejection)
		after State
	}{
		"complete": {func(j Job, tok string) (Decision, *ledger.Rejection) { return Complete(t0, j, tok) }, Done},
		"fail":     {func(j Job, tok string) (Decision, *ledger.Rejection) { return Fail(t0, j, tok, "x", false) }, Ready},
		"return":   {func(j Job, tok string) (Decision, *ledger.Rejection) { return Return(t0, j, tok) }, Ready},
	} {
		t.Run(name, func(t *testing.T) {
			j := leased(t, enqueued(t), t0, "a")
			refused(t, second(tc.do(j, "b")), ledger.LeaseLost)
			refused(t, second(tc.do(j, "")), ledger.LeaseLost)
			d, r := tc.do(j, "a")
			if r != nil || d.Replayed || d.Job.State != tc.after {
				t.Fatalf("%v, %+v", r, d)
			}
			again, r := tc.do(d.Job, "a")
			if r != nil || !again.Replayed || again.Job.State != tc.after {
				t.Errorf("again: %v, %+v", r, again)
			}
			if name != "complete" {
				refused(t, second(Complete(t0, d.Job, "a")), ledger.LeaseLost)
				taken := leased(t, d.Job, d.Job.Due, "b")
				if again, r := tc.do(taken, "a"); r != nil || !again.Replayed || again.Job.Token != "b" {
					t.Errorf("while another holds it: %v, %+v", r, again)
				}
			}
		})
	}
	j := leased(t, enqueued(t), t0, "a")
	if d, r := Return(t0.Add(time.Second), j, "a"); r != nil || d.Job.Attempt != 0 || !d.Job.Due.Equal(t0.Add(time.Second)) {
		t.Errorf("returned: %v %+v", r, d.Job)
	}
}

func TestExtend(t *testing.T) {
	j := leased(t, enqueued(t), t0, "a")
	if d, r := Extend(t0.Add(10*time.Second), j, "a", time.Minute); r != nil || !d.Job.Due.Equal(t0.Add(70*time.Second)) {
		t.Errorf("%v %+v", r, d.Job)
	}
	if d, r := Extend(t0, j, "a", time.Second); r != nil || !d.Job.Due.Equal(j.Due) {
		t.Errorf("a shorter lease shortens: %v %+v", r, d.Job)
	}
	refused(t, second(Extend(t0, j, "b", time.Minute)), ledger.LeaseLost)
}

func TestReplayAndDiscard(t *testing.T) {
	j := enqueued(t)
	refused(t, second(Replay(t0, j)), ledger.JobIllegalState)
	refused(t, second(Discard(t0, j, "why")), ledger.JobIllegalState)
	d, _ := Fail(t0, leased(t, j, t0, "a"), "a", "x", true)
	dead := d.Job
	for _, reason := range []string{"", "  ", strings.Repeat("x", MaxReason+1), "\xff"} {
		refused(t, second(Discard(t0, dead, reason)), ledger.InvalidArgument)
	}
	d, r := Replay(t0.Add(time.Hour), dead)
	if r != nil || d.Job.State != Ready || d.Job.Attempt != 0 || d.Job.Replays != 1 || d.Job.Key != j.Key || !d.Job.Ended.IsZero() {
		t.Errorf("replayed: %v %+v", r, d.Job)
	}
	if again, r := Replay(t0, d.Job); r != nil || !again.Replayed {
		t.Errorf("replayed again: %v %+v", r, again)
	}
	d, r = Discard(t0, dead, "the customer left")
	if r != nil || d.Job.State != Discarded || d.Job.Reason != "the customer left" || !d.Job.Due.Equal(t0.Add(DefaultKeep)) {
		t.Errorf("discarded: %v %+v", r, d.Job)
	}
	if again, r := Discard(t0, d.Job, "the customer left"); r != nil || !again.Replayed {
		t.Errorf("discarded again: %v", r)
	}
	if r := refused(t, second(Discard(t0, d.Job, "other")), ledger.IdempotencyConflict); !slices.Equal(r.Fields, []string{"reason"}) {
		t.Errorf("fields %v", r.Fields)
	}
	refused(t, second(Replay(t0, d.Job)), ledger.JobIllegalState)
}

func TestEnqueueAgain(t *testing.T) {
	j := enqueued(t)
	done, _ := Complete(t0, leased(t, j, t0, "a"), "a")
	for _, cur := range []Job{j, done.Job} {
		r := request()
		r.Correlation = "another trace"
		if d, rej := Enqueue(t0, &cur, r); rej != nil || !d.Replayed || d.Job.State != cur.State {
			t.Errorf("again: %v %+v", rej, d)
		}
	}
	for field, change := range map[string]func(*Request){
		"payload":             func(r *Request) { r.Payload = []byte("hullo") },
		"policy.max_attempts": func(r *Request) { r.Policy.MaxAttempts = 3 },
		"policy.backoff_base": func(r *Request) { r.Policy.Base = 2 * time.Second },
		"policy.backoff_max":  func(r *Request) { r.Policy.Max = time.Hour },
		"policy.keep":         func(r *Request) { r.Policy.Keep = time.Hour },
		"delay":               func(r *Request) { r.Delay = time.Second },
	} {
		r := request()
		change(&r)
		_, rej := Enqueue(t0, &j, r)
		if rej := refused(t, rej, ledger.IdempotencyConflict); !slices.Equal(rej.Fields, []string{field}) {
			t.Errorf("%s: fields %v", field, rej.Fields)
		}
	}
}

func TestRequestBounds(t *testing.T) {
	for field, change := range map[string]func(*Request){
		"tenant":              func(r *Request) { r.Key.Tenant = "" },
		"queue":               func(r *Request) { r.Key.Queue = strings.Repeat("q", 129) },
		"job_id":              func(r *Request) { r.Key.ID = "a\nb" },
		"correlation_id":      func(r *Request) { r.Correlation = "\xff" },
		"payload":             func(r *Request) { r.Payload = make([]byte, MaxPayload+1) },
		"policy.max_attempts": func(r *Request) { r.Policy.MaxAttempts = LimitMaxAttempts + 1 },
		"policy.backoff_base": func(r *Request) { r.Policy.Base = -time.Second },
		"policy.backoff_max":  func(r *Request) { r.Policy.Max = time.Millisecond },
		"policy.keep":         func(r *Request) { r.Policy.Keep = time.Second },
		"delay":               func(r *Request) { r.Delay = -1 * time.Second },
	} {
		r := request()
		change(&r)
		if rej := refused(t, r.Validate(), ledger.InvalidArgument); rej.Field != field || rej.Value == "" || rej.Limit == "" {
			t.Errorf("%s: %v", field, rej)
		}
	}
	r := request()
	if rej := r.Validate(); rej != nil || r.Policy != (Policy{DefaultMaxAttempts, DefaultBase, DefaultMax, DefaultKeep}) {
		t.Errorf("defaults: %v %+v", rej, r.Policy)
	}
	r = Request{Key: request().Key, Policy: Policy{Base: time.Hour}}.Normalize()
	if rej := r.Validate(); rej != nil || r.Policy.Max != time.Hour {
		t.Errorf("a long base: %v %+v", rej, r.Policy)
	}
	if !errors.Is(CheckLease(0), &ledger.Rejection{Code: ledger.InvalidArgument}) || CheckLease(MinLease) != nil || CheckLease(LimitLease+1) == nil {
		t.Error("bounds of leases")
	}
}

// A part of the whole is never smaller because somebody else wants more.
func TestShare(t *testing.T) {
	for _, tc := range []struct {
		want  []int
		n     int
		first int
		got   []int
	}{
		{[]int{1000000, 1}, 10, 0, []int{9, 1}},
		{[]int{5, 5, 5}, 6, 0, []int{2, 2, 2}},
		{[]int{5, 5, 5}, 7, 1, []int{2, 3, 2}},
		{[]int{1, 100, 2}, 50, 0, []int{1, 47, 2}},
		{[]int{0, 0}, 5, 0, []int{0, 0}},
		{[]int{3, 3}, 1, 1, []int{0, 1}},
		{nil, 5, 0, []int{}},
	} {
		if got := Share(tc.want, tc.n, tc.first); !slices.Equal(got, tc.got) {
			t.Errorf("Share(%v, %d, %d) is %v, want %v", tc.want, tc.n, tc.first, got, tc.got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 12).Draw(rt, "want")
		n := rapid.IntRange(0, 200).Draw(rt, "n")
		got := Share(want, n, rapid.IntRange(0, 20).Draw(rt, "first"))
		sum, all := 0, 0
		for i := range want {
			sum += got[i]
			all += want[i]
			for k := range want {
				if got[i] < want[i] && got[k] > got[i]+1 {
					rt.Fatalf("owner %d has %d of %d while owner %d has %d", i, got[i], want[i], k, got[k])
				}
			}
		}
		if sum != min(n, all) {
			rt.Fatalf("%d given, want %d", sum, min(n, all))
		}
	})
}
