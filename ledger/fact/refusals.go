package fact

import (
	"fmt"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// passing are the refusals of a command that may pass by themselves: the state
// it needs may still come, money may come or come back, the store may answer
// again. JOB_DELIVERED is one: the next plan sees the delivery that the last one
// did not, and asks for no refund. All other refusals are final: what is sent
// again is refused again, until a person changes something.
var passing = map[ledger.Code]bool{
	ledger.IllegalState: true, ledger.ReservationNotFound: true, ledger.RefundNotFound: true, ledger.NotDue: true,
	ledger.JobDelivered: true, ledger.DebtCapReached: true,
	ledger.InsufficientBudget: true, ledger.RefundExceedsCommit: true, ledger.AttemptHoldsMoney: true, ledger.BudgetFrozenCode: true,
	ledger.Fenced:     true, // another node leads, and looks at the fact
	ledger.Overloaded: true, ledger.Draining: true, ledger.Unavailable: true, ledger.OutcomeUnknown: true, ledger.Internal: true,
}

// Passing reports whether a command refused for this reason may be accepted
// later, though nobody does anything about it.
func Passing(c ledger.Code) bool { return passing[c] }

// refusalText is a refusal without its advice, which is for callers of
// commands.
func refusalText(r *ledger.Rejection) string {
	s := string(r.Code) + ": " + r.Message
	if r.Limit != "" {
		s += fmt.Sprintf(" (allowed: %s)", r.Limit)
	}
	return s
}

// Schedule says when a fact that waits is looked at again, and when it has
// waited for too long.
type Schedule struct {
	// Deadline is how long after it was received.
	Deadline time.Duration
	// Base and Max shape the backoff between two looks, as a job's.
	Base, Max time.Duration
}

// DefaultSchedule looks again after about 1 s, 2 s, … 5 min, for a day.
func DefaultSchedule() Schedule {
	return Schedule{Deadline: 24 * time.Hour, Base: time.Second, Max: 5 * time.Minute}
}

// next is when to look again after so many looks in vain, at the deadline at
// the latest.
func (s Schedule) next(now time.Time, r *Row) time.Time {
	at := now.Add(work.Backoff(s.Base, s.Max, r.Tries, r.Tenant, r.Source, r.Event))
	if r.Deadline.After(now) && at.After(r.Deadline) {
		return r.Deadline
	}
	return at
}

// Submit makes a row of a fact, or finds that it is there. cur is the row of
// its name, nil for none.
func Submit(now time.Time, cur *Row, f Fact, s Schedule) (Row, bool, *ledger.Rejection) {
	if cur == nil {
		r := Row{Fact: f, State: Pending, Version: 1, Reason: "not looked at yet", Received: now, Deadline: now.Add(s.Deadline)}
		r.Due = s.next(now, &r)
		return r, false, nil
	}
	if fields := Differing(&cur.Fact, &f); fields != nil {
		return Row{}, false, &ledger.Rejection{
			Code: ledger.IdempotencyConflict, Fields: fields, State: cur.State.String(),
			Message: fmt.Sprintf("fact %s said something else of %s when it came first", clip(f.ID.String()), strings.Join(fields, ", ")),
		}
	}
	return *cur, true, nil
}

// Mark brings a row up to a verdict. It reports false when the row stays as it
// is: it has changed since the verdict's plan was made, it is settled, or
// nothing is new.
func Mark(now time.Time, r Row, v *Verdict, s Schedule) (Row, bool) {
	if r.Version != v.Version || !r.State.Open() {
		return r, false
	}
	if r.State == Exception && v.State == Pending {
		return r, false // it waits again, but a person has been told of it
	}
	old := r
	r.State, r.Reason, r.Code, r.Effects = v.State, v.Reason, v.Code, v.Effects
	switch v.State {
	case Pending:
		if old.Reason == r.Reason && len(old.Effects) == len(r.Effects) && old.Due.After(now) {
			return old, false // looked at before its time
		}
		r.Tries++
		r.Due = s.next(now, &r)
	default:
		if old.State == r.State && old.Reason == r.Reason && len(old.Effects) == len(r.Effects) {
			return old, false
		}
		r.Due, r.Settled = time.Time{}, now
	}
	r.Version++
	return r, true
}

// Resolve closes an exception: a person has settled it, and says how.
func Resolve(now time.Time, r Row, reason string) (Row, bool, *ledger.Rejection) {
	if rej := work.CheckReason(reason); rej != nil {
		return r, false, rej
	}
	switch {
	case r.State == Exception:
	case r.State == Resolved && r.Resolution == reason:
		return r, true, nil
	case r.State == Resolved:
		return r, false, &ledger.Rejection{
			Code: ledger.IdempotencyConflict, Fields: []string{"reason"}, State: r.State.String(),
			Message: fmt.Sprintf("fact %s was resolved for another reason", clip(r.ID.String())),
		}
	default:
		return r, false, &ledger.Rejection{
			Code: ledger.FactIllegalState, State: r.State.String(),
			Message: fmt.Sprintf("only an exception can be resolved; fact %s is %s", clip(r.ID.String()), r.State),
		}
	}
	r.State, r.Resolution, r.Settled = Resolved, reason, now
	r.Version++
	return r, false, nil
}

// Missing is the answer to a fact that is not there, and to one of another
// tenant.
func Missing(id ID) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.FactNotFound, Field: "event_id", Value: clip(id.Event), Message: "never came from source " + clip(id.Source)}
}

func clip(s string) string { return fmt.Sprintf("%.40q", s) }

func cut(s string, n int) string { return work.Cut(s, n) }
