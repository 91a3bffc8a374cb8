package fact

import (
	"fmt"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Bounds of facts.
const (
	// MaxLines is the most benefits one fact may name, and the most
	// reservations of an order that are looked at. A fact about others, or
	// about all of an order that has more, is an exception. With names as long
	// as names may be, a fact of so many with what it did fits one value of the
	// store.
	MaxLines = 128
	// MaxPerOrder is the most facts one order may have.
	MaxPerOrder = 256
	// MaxBatch is the most facts one call may submit.
	MaxBatch = 100
	// MaxReason is the longest reason of a resolution, in bytes.
	MaxReason = 512
)

// Kind is what happened.
type Kind uint8

// The kinds.
const (
	PaymentSucceeded Kind = iota + 1
	PaymentFailed
	OrderCancelled
	RefundSucceeded
	RefundCancelled
	JobSucceeded
	JobFailed
)

var kindNames = [...]string{
	"", "PAYMENT_SUCCEEDED", "PAYMENT_FAILED", "ORDER_CANCELLED", "REFUND_SUCCEEDED", "REFUND_CANCELLED", "JOB_SUCCEEDED", "JOB_FAILED",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "UNKNOWN"
}

// Valid reports whether the kind is one of the above.
func (k Kind) Valid() bool { return k > 0 && int(k) < len(kindNames) }

// job: the fact is about a job, which is an order with the one benefit
// ledger.JobBenefit.
func (k Kind) job() bool { return k == JobSucceeded || k == JobFailed }

// ID names a fact.
type ID struct{ Tenant, Source, Event string }

// String is "source/event", without the tenant.
func (id ID) String() string { return id.Source + "/" + id.Event }

// Validate refuses a name with a malformed part.
func (id ID) Validate() *ledger.Rejection {
	if r := ledger.CheckID("tenant", id.Tenant); r != nil {
		return r
	}
	if r := ledger.CheckID("source", id.Source); r != nil {
		return r
	}
	if len(id.Source)+len("fact:") > ledger.MaxIDBytes {
		return invalid("source", fmt.Sprintf("%d bytes", len(id.Source)), fmt.Sprintf("%d bytes", ledger.MaxIDBytes-len("fact:")), "is too long")
	}
	return ledger.CheckID("event_id", id.Event)
}

// Line is one benefit a fact is about.
type Line struct {
	Benefit string
	// Attempt 0 means 1, as in commands.
	Attempt uint32
	// Amount in minor units: required for a refund, optional for a payment (0
	// is all that is held), not allowed otherwise.
	Amount int64
}

// Fact is what a source says. All of it but Correlation is its content.
type Fact struct {
	ID
	Kind Kind
	// Order is the order, or the job.
	Order string
	// Ref is the payment's or the refund's id; required for a refund.
	Ref string
	// Attempt of the job, or of the benefits where no line names one. 0 means
	// 1.
	Attempt uint32
	// Lines are the benefits; none for a job, and for the others none means
	// all the order has.
	Lines []Line
	// Currency, if not empty, must be that of every reservation touched.
	Currency    string
	Correlation string
}

// State is the state of a fact.
type State uint8

// Fact states; doc.go has the diagram.
const (
	Pending State = iota + 1
	Applied
	Exception
	Resolved
)

var stateNames = [...]string{"", "PENDING", "APPLIED", "EXCEPTION", "RESOLVED"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "UNKNOWN"
}

// Valid reports whether the state is one of the above.
func (s State) Valid() bool { return s > 0 && int(s) < len(stateNames) }

// Open reports whether the fact may still be applied.
func (s State) Open() bool { return s == Pending || s == Exception }

// Effect is one thing a fact did, or found done.
type Effect struct {
	Op      ledger.Op
	Benefit string
	Attempt uint32
	// Outcome is the command's answer, as its receipt has it.
	Outcome ledger.Outcome
}

// Row is a fact as it is stored.
type Row struct {
	Fact
	State State
	// Version counts the row's changes.
	Version uint32
	// Reason says why the fact is not applied, or what applied it without a
	// command. For an exception it is the evidence, with the code of the
	// refusal where there was one.
	Reason string
	Code   ledger.Code
	// Received, Settled: when it came, and when it left PENDING for good.
	Received, Settled time.Time
	// Deadline is when a fact that still waits becomes an exception, and Due
	// when it is looked at next; zero once it does not wait.
	Deadline, Due time.Time
	// Tries is how often it was looked at in vain.
	Tries   uint32
	Effects []Effect
	// Resolution is the reason a person gave.
	Resolution string
}

// Check returns what is wrong with a stored fact, or nil: figures that no
// sequence of steps leads to.
func (r *Row) Check() error {
	waits := r.State == Pending
	switch {
	case waits == r.Due.IsZero():
		return fmt.Errorf("it is %s and looked at next at %v", r.State, r.Due.UTC())
	case waits != r.Settled.IsZero():
		return fmt.Errorf("it is %s and left PENDING at %v", r.State, r.Settled.UTC())
	case r.State != Applied && r.Reason == "":
		return fmt.Errorf("it is %s without a reason", r.State)
	case (r.State == Resolved) != (r.Resolution != ""):
		return fmt.Errorf("it is %s with the resolution %q", r.State, r.Resolution)
	}
	return nil
}

// Normalize fills in defaults.
func (f Fact) Normalize() Fact {
	f.Attempt = max(f.Attempt, 1)
	if len(f.Lines) == 0 {
		f.Lines = nil
		return f
	}
	f.Lines = slices.Clone(f.Lines)
	for i := range f.Lines {
		if f.Lines[i].Attempt == 0 {
			f.Lines[i].Attempt = f.Attempt
		}
	}
	return f
}

// Validate refuses a fact that can never be right. It expects a normalized one.
func (f *Fact) Validate() *ledger.Rejection {
	if r := f.ID.Validate(); r != nil {
		return r
	}
	if !f.Kind.Valid() {
		return invalid("kind", fmt.Sprint(uint8(f.Kind)), "a known kind", "is unknown")
	}
	if r := ledger.CheckID("order_id", f.Order); r != nil {
		return r
	}
	if r := ledger.CheckOptionalID("correlation_id", f.Correlation); r != nil {
		return r
	}
	if f.Attempt > ledger.MaxAttempts {
		return attemptRange("attempt", f.Attempt)
	}
	if f.Currency != "" {
		if r := ledger.CheckUnit("currency", f.Currency); r != nil {
			return r
		}
	}
	rule := rules[f.Kind]
	if rule.ref {
		if r := ledger.CheckID("reference_id", f.Ref); r != nil {
			return r
		}
	} else if r := ledger.CheckOptionalID("reference_id", f.Ref); r != nil {
		return r
	}
	return f.validateLines(&rule)
}

func (f *Fact) validateLines(rule *rule) *ledger.Rejection {
	switch n := len(f.Lines); {
	case n > MaxLines:
		return invalid("lines", fmt.Sprint(n), fmt.Sprintf("0 to %d", MaxLines), "are too many")
	case n > 0 && f.Kind.job():
		return invalid("lines", fmt.Sprint(n), "none for a job", "have no meaning for "+f.Kind.String())
	case n == 0 && rule.amount == amountRequired:
		return invalid("lines", "0", "the benefits that the refund is for, each with its amount", "are missing")
	}
	seen := map[Line]bool{}
	for i, l := range f.Lines {
		at := fmt.Sprintf("lines[%d].", i)
		if r := ledger.CheckID(at+"benefit_key", l.Benefit); r != nil {
			return r
		}
		if l.Benefit == ledger.JobBenefit {
			return invalid(at+"benefit_key", clip(l.Benefit), "another key", "is reserved for jobs, which "+f.Kind.String()+" is not about")
		}
		if l.Attempt > ledger.MaxAttempts {
			return attemptRange(at+"attempt", l.Attempt)
		}
		switch {
		case l.Amount < 0, l.Amount == 0 && rule.amount == amountRequired:
			return invalid(at+"amount_minor", fmt.Sprint(l.Amount), "1 to 9223372036854775807 minor units", "must be positive")
		case l.Amount != 0 && rule.amount == amountNone:
			return invalid(at+"amount_minor", fmt.Sprint(l.Amount), "0", "has no meaning for "+f.Kind.String())
		}
		k := Line{Benefit: l.Benefit, Attempt: l.Attempt}
		if seen[k] {
			return invalid(at+"benefit_key", fmt.Sprintf("%.40q", l.Benefit), "one line for each benefit and attempt", "is named twice")
		}
		seen[k] = true
	}
	return nil
}

func attemptRange(field string, v uint32) *ledger.Rejection {
	return invalid(field, fmt.Sprint(v), fmt.Sprintf("1 to %d", ledger.MaxAttempts), "is out of range")
}

func invalid(field, value, limit, msg string) *ledger.Rejection {
	if value == "" {
		value = `""`
	}
	return &ledger.Rejection{Code: ledger.InvalidArgument, Field: field, Value: value, Limit: limit, Message: msg}
}

// Differing names the fields in which two facts of one name say different
// things.
func Differing(a, b *Fact) []string {
	var out []string
	add := func(name string, same bool) {
		if !same {
			out = append(out, name)
		}
	}
	add("kind", a.Kind == b.Kind)
	add("order_id", a.Order == b.Order)
	add("reference_id", a.Ref == b.Ref)
	add("attempt", a.Attempt == b.Attempt)
	add("currency", a.Currency == b.Currency)
	at := make(map[Line]int, len(a.Lines))
	for i, l := range a.Lines {
		at[Line{Benefit: l.Benefit, Attempt: l.Attempt}] = i
	}
	same := len(a.Lines) == len(b.Lines)
	for _, l := range b.Lines { // in any order
		i, ok := at[Line{Benefit: l.Benefit, Attempt: l.Attempt}]
		if same = same && ok; ok {
			add(fmt.Sprintf("lines[%d].amount_minor", i), a.Lines[i].Amount == l.Amount)
		}
	}
	add("lines", same)
	return out
}
