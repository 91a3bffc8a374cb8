package work

import (
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Bounds of the queue.
const (
	// MaxPayload is the largest payload of a job, in bytes.
	MaxPayload = 64 << 10
	// MaxBatch is the most jobs one call may enqueue or lease, and
	// MaxBatchBytes the most bytes of payload it may enqueue.
	MaxBatch      = 100
	MaxBatchBytes = 512 << 10
	// MaxError and MaxReason are the longest texts kept, in bytes; a longer
	// error is cut, a longer reason refused.
	MaxError  = 1024
	MaxReason = 512
	// MaxToken is the longest lease token.
	MaxToken = 64
)

// Bounds and defaults of policies and leases.
const (
	DefaultMaxAttempts = 10
	LimitMaxAttempts   = 1000
	DefaultBase        = time.Second
	DefaultMax         = 5 * time.Minute
	MinBackoff         = time.Millisecond
	LimitBackoff       = 24 * time.Hour
	DefaultKeep        = 7 * 24 * time.Hour
	MinKeep            = time.Minute
	LimitKeep          = 90 * 24 * time.Hour
	LimitDelay         = 30 * 24 * time.Hour
	DefaultLease       = 30 * time.Second
	MinLease           = 100 * time.Millisecond
	LimitLease         = time.Hour
)

// Key names a job.
type Key struct{ Tenant, Queue, ID string }

// String is "queue/id", without the tenant.
func (k Key) String() string { return k.Queue + "/" + k.ID }

// Policy says how often and how fast a job is tried again.
type Policy struct {
	// MaxAttempts is how many attempts may end without success before the
	// job is a dead letter. 0 means DefaultMaxAttempts.
	MaxAttempts uint32
	// Base and Max shape the backoff, in whole milliseconds. 0 means
	// DefaultBase and DefaultMax.
	Base, Max time.Duration
	// Keep is how long a finished job's row stays, and with it the answer to
	// a repeated Enqueue. 0 means DefaultKeep.
	Keep time.Duration
}

func (p Policy) normalize() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.Base == 0 {
		p.Base = DefaultBase
	}
	if p.Max == 0 {
		p.Max = max(DefaultMax, p.Base)
	}
	if p.Keep == 0 {
		p.Keep = DefaultKeep
	}
	p.Base, p.Max, p.Keep = p.Base.Truncate(time.Millisecond), p.Max.Truncate(time.Millisecond), p.Keep.Truncate(time.Millisecond)
	return p
}

// State is the state of a job.
type State uint8

// Job states; doc.go has the diagram.
const (
	Ready     State = iota + 1 // due at Due
	Leased                     // a worker has it until Due
	Done                       // completed; the row goes at Due
	Dead                       // a dead letter: waits for a person
	Discarded                  // given up by a person; the row goes at Due
)

var stateNames = [...]string{"", "READY", "LEASED", "DONE", "DEAD", "DISCARDED"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "UNKNOWN"
}

// Valid reports whether the state is one of the above.
func (s State) Valid() bool { return s > 0 && int(s) < len(stateNames) }

// Open reports whether the job still counts against the tenant's queue length.
func (s State) Open() bool { return s == Ready || s == Leased || s == Dead }

// End is how a lease ended.
type End uint8

// Ends of a lease.
const (
	NotEnded End = iota
	Completed
	Failed
	Returned
	Lapsed // it ran out
)

var endNames = [...]string{"", "was completed", "failed", "was returned", "ran out"}

func (e End) String() string {
	if int(e) < len(endNames) {
		return endNames[e]
	}
	return "unknown"
}

// Valid reports whether the end is one of the above.
func (e End) Valid() bool { return int(e) < len(endNames) }

// Request is what Enqueue asks for. All of it but Correlation is the request's
// identity: the same key with other values is a conflict.
type Request struct {
	Key     Key
	Payload []byte
	Policy  Policy
	// Delay is how long the job is not due after it was enqueued.
	Delay       time.Duration
	Correlation string
}

// Job is the row of one job.
type Job struct {
	Request
	State State
	// Attempt is how many attempts ended without success, since the job was
	// enqueued or replayed last.
	Attempt uint32
	// Due depends on the state: not before, lease until, removed at. Zero for
	// a dead letter.
	Due time.Time
	// Created and Ended: when it was enqueued, and when it became done, dead
	// or discarded.
	Created, Ended time.Time
	// Token and Worker of the lease that holds it.
	Token, Worker string
	// LastToken is the lease that ended last, and LastEnd how.
	LastToken string
	LastEnd   End
	LastError string
	// Reason of a discard.
	Reason string
	// Leases, Deaths and Replays count over the job's life.
	Leases, Deaths, Replays uint32
}

// Normalize fills in defaults and cuts times to the ledger's resolution.
func (r Request) Normalize() Request {
	r.Policy = r.Policy.normalize()
	r.Delay = r.Delay.Truncate(time.Millisecond)
	return r
}

// Validate refuses a request that can never be right. It expects a normalized
// one.
func (r *Request) Validate() *ledger.Rejection {
	if rej := r.Key.Validate(); rej != nil {
		return rej
	}
	if rej := ledger.CheckOptionalID("correlation_id", r.Correlation); rej != nil {
		return rej
	}
	if n := len(r.Payload); n > MaxPayload {
		return invalid("payload", fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d bytes", MaxPayload), "is too large")
	}
	p := &r.Policy
	switch {
	case p.MaxAttempts > LimitMaxAttempts:
		return invalid("policy.max_attempts", fmt.Sprint(p.MaxAttempts), fmt.Sprintf("1 to %d", LimitMaxAttempts), "is out of range")
	case p.Base < MinBackoff || p.Base > LimitBackoff:
		return between("policy.backoff_base", p.Base, MinBackoff, LimitBackoff)
	case p.Max < p.Base || p.Max > LimitBackoff:
		return between("policy.backoff_max", p.Max, p.Base, LimitBackoff)
	case p.Keep < MinKeep || p.Keep > LimitKeep:
		return between("policy.keep", p.Keep, MinKeep, LimitKeep)
	case r.Delay < 0 || r.Delay > LimitDelay:
		return between("delay", r.Delay, 0, LimitDelay)
	}
	return nil
}

// Validate refuses a key with a malformed part.
func (k Key) Validate() *ledger.Rejection {
	if r := k.Place().Validate(); r != nil {
		return r
	}
	return ledger.CheckID("job_id", k.ID)
}

// Place is the queue the job is in.
func (k Key) Place() Place { return Place{Tenant: k.Tenant, Queue: k.Queue} }

// Place names a queue of a tenant.
type Place struct{ Tenant, Queue string }

// Validate refuses a queue's name with a malformed part.
func (p Place) Validate() *ledger.Rejection {
	if r := ledger.CheckID("tenant", p.Tenant); r != nil {
		return r
	}
	return ledger.CheckID("queue", p.Queue)
}

// CheckLease refuses the length of a lease that is out of bounds.
func CheckLease(d time.Duration) *ledger.Rejection {
	if d < MinLease || d > LimitLease {
		return between("lease", d, MinLease, LimitLease)
	}
	return nil
}

// Check returns what is wrong with a stored job, or nil: figures that no
// sequence of commands leads to.
func (j *Job) Check() error {
	holds, settled := j.State == Leased, j.State == Done || j.State == Dead || j.State == Discarded
	dead := uint32(0)
	if j.State == Dead || j.State == Discarded {
		dead = 1
	}
	switch {
	case holds != (j.Token != "") || holds != (j.Worker != ""):
		return fmt.Errorf("it is %s, with a lease %q of worker %q", j.State, j.Token, j.Worker)
	case (j.State == Dead) != j.Due.IsZero():
		return fmt.Errorf("it is %s and due at %v", j.State, j.Due.UTC())
	case settled != !j.Ended.IsZero():
		return fmt.Errorf("it is %s and ended at %v", j.State, j.Ended.UTC())
	case j.Attempt > j.Policy.MaxAttempts || ((j.State == Ready || holds) && j.Attempt == j.Policy.MaxAttempts):
		return fmt.Errorf("it is %s after %d of %d attempts", j.State, j.Attempt, j.Policy.MaxAttempts)
	case j.Attempt > j.Leases:
		return fmt.Errorf("it had %d attempts and %d leases", j.Attempt, j.Leases)
	case j.Deaths != j.Replays+dead:
		return fmt.Errorf("it is %s after %d deaths and %d replays", j.State, j.Deaths, j.Replays)
	case (j.State == Done) != (j.LastEnd == Completed):
		return fmt.Errorf("it is %s, and its last lease ended so: %q", j.State, j.LastEnd)
	case (j.State == Discarded) != (j.Reason != ""):
		return fmt.Errorf("it is %s for the reason %q", j.State, j.Reason)
	}
	return nil
}

func invalid(field, value, limit, msg string) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.InvalidArgument, Field: field, Value: value, Limit: limit, Message: msg}
}

func between(field string, d, low, high time.Duration) *ledger.Rejection {
	return invalid(field, d.String(), low.String()+" to "+high.String(), "is out of range")
}
