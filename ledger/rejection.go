package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Code is the machine-readable reason of a refused command.
type Code string

// The reasons. Their table is codeTable; a test proves that every one has a
// row.
const (
	InvalidArgument        Code = "INVALID_ARGUMENT"
	CurrencyMismatch       Code = "CURRENCY_MISMATCH"
	TTLTooLong             Code = "TTL_TOO_LONG"
	AmountOverflow         Code = "AMOUNT_OVERFLOW"
	DuplicateInBatch       Code = "DUPLICATE_IN_BATCH"
	BudgetNotFound         Code = "BUDGET_NOT_FOUND"
	BudgetMismatch         Code = "BUDGET_MISMATCH"
	BudgetFrozenCode       Code = "BUDGET_FROZEN"
	BudgetClosedCode       Code = "BUDGET_CLOSED"
	BudgetIllegalState     Code = "BUDGET_ILLEGAL_STATE"
	InsufficientBudget     Code = "INSUFFICIENT_BUDGET"
	ReservationNotFound    Code = "RESERVATION_NOT_FOUND"
	IdempotencyConflict    Code = "IDEMPOTENCY_CONFLICT"
	IllegalState           Code = "ILLEGAL_STATE"
	CancelledBeforeReserve Code = "CANCELLED_BEFORE_RESERVE"
	Voided                 Code = "VOIDED"
	AttemptHoldsMoney      Code = "ATTEMPT_HOLDS_MONEY"
	AttemptSuperseded      Code = "ATTEMPT_SUPERSEDED"
	OverCommitRefused      Code = "OVER_COMMIT"
	LateCommitRejected     Code = "LATE_COMMIT"
	LateCommitCase         Code = "LATE_COMMIT_CASE"
	RefundExceedsCommit    Code = "REFUND_EXCEEDS_COMMITTED"
	RefundNotFound         Code = "REFUND_NOT_FOUND"
	QuoteMissing           Code = "QUOTE_MISSING"
	QuoteLineNotFound      Code = "QUOTE_LINE_NOT_FOUND"
	BudgetKindMismatch     Code = "BUDGET_KIND"
	JobCharged             Code = "JOB_CHARGED"
	JobDelivered           Code = "JOB_DELIVERED"
	DebtCapReached         Code = "DEBT_CAP"
	NotDue                 Code = "NOT_DUE"
	OperationLimit         Code = "OPERATION_LIMIT"
	CutoffInFuture         Code = "CUTOFF_IN_FUTURE"
	BadPageToken           Code = "BAD_PAGE_TOKEN"
	Overloaded             Code = "OVERLOADED"
	Draining               Code = "DRAINING"
	Unavailable            Code = "UNAVAILABLE"
	OutcomeUnknown         Code = "OUTCOME_UNKNOWN"
	Fenced                 Code = "FENCED"
	Corrupt                Code = "CORRUPT"
	Internal               Code = "INTERNAL"
)

// Reasons of queues, facts, events and nodes.
const (
	JobNotFound      Code = "JOB_NOT_FOUND"
	JobIllegalState  Code = "JOB_ILLEGAL_STATE"
	LeaseLost        Code = "LEASE_LOST"
	LeaseLimit       Code = "LEASE_LIMIT"
	QueueFull        Code = "QUEUE_FULL"
	FactNotFound     Code = "FACT_NOT_FOUND"
	FactIllegalState Code = "FACT_ILLEGAL_STATE"
	FactLimit        Code = "FACT_LIMIT"
	BadCursor        Code = "BAD_CURSOR"
	EventsTrimmed    Code = "EVENTS_TRIMMED"
	SinkNotFound     Code = "SINK_NOT_FOUND"
	SinkChanged      Code = "SINK_CHANGED"
	SinkLimit        Code = "SINK_LIMIT"
	ParkedNotFound   Code = "PARKED_NOT_FOUND"
	NodeNotFound     Code = "NODE_NOT_FOUND"
)

// Reasons of a server that knows its callers.
const (
	Unauthenticated  Code = "UNAUTHENTICATED"
	PermissionDenied Code = "PERMISSION_DENIED"
)

// Class groups codes by what the caller can do about them. The RPC layer maps
// each class to a wire code.
type Class uint8

// Classes of codes.
const (
	ClassInvalid   Class = iota + 1 // the request can never succeed as it is
	ClassNotFound                   // what it names does not exist
	ClassConflict                   // another request has the same key
	ClassState                      // the current state forbids it, until a command changes that
	ClassExhausted                  // too much at once: a limit that time alone lifts
	ClassRetry                      // certainly not done; the same request may be sent again
	ClassUnknown                    // may have been done: send the same request again, or Resolve
	ClassStranger                   // the server does not know who calls, and looked at nothing else
	ClassDenied                     // the caller may not do this; nothing else was looked at
	ClassDefect                     // a fault of the ledger; tell its operators
)

// CodeInfo is one row of the table of codes.
type CodeInfo struct {
	Code  Code
	Class Class
	// Recorded: a Reserve refused for this reason is stored and stays
	// refused for ever.
	Recorded bool
	// Next tells the caller what to do.
	Next string
}

var codeTable = []CodeInfo{
	{InvalidArgument, ClassInvalid, false, "correct the named field"},
	{CurrencyMismatch, ClassInvalid, false, "send the budget's currency"},
	{TTLTooLong, ClassInvalid, false, "send a shorter ttl, or create the budget with a longer maximum lifetime"},
	{AmountOverflow, ClassInvalid, false, "send a smaller amount"},
	{DuplicateInBatch, ClassInvalid, false, "send each key once per batch"},
	{BudgetNotFound, ClassNotFound, false, "create the budget or wallet, or check its name and the tenant"},
	{BudgetMismatch, ClassInvalid, false, "leave the budget out, or name the one the reservation was made on"},
	{BudgetFrozenCode, ClassState, true, "wait until it is unfrozen, then send the next attempt"},
	{BudgetClosedCode, ClassState, true, "use another one"},
	{BudgetIllegalState, ClassState, false, "look at it (coffer budget get, coffer wallet get)"},
	{InsufficientBudget, ClassState, true, "go on without it, ask for less, or fund it first; a reserve, charge or hold then needs the next attempt"},
	{ReservationNotFound, ClassNotFound, false, "reserve (or charge) first, or check order, benefit, attempt and tenant"},
	{IdempotencyConflict, ClassConflict, false, "send the same values, or use another key, name or attempt"},
	{IllegalState, ClassState, false, "look at the reservation (coffer order get) or job (coffer job get)"},
	{CancelledBeforeReserve, ClassState, false, "send the next attempt if the order is alive again"},
	{Voided, ClassState, false, "use the next attempt or a new id"},
	{AttemptHoldsMoney, ClassState, false, "settle the attempt that holds the benefit first"},
	{AttemptSuperseded, ClassState, false, "use an attempt number above every earlier one"},
	{OverCommitRefused, ClassState, false, "commit at most the limit"},
	{LateCommitRejected, ClassState, false, "reclaim it if the order was paid"},
	{LateCommitCase, ClassState, false, "a case was opened, a person decides (coffer ledger cases)"},
	{RefundExceedsCommit, ClassState, false, "refund at most what is committed and not yet refunded"},
	{RefundNotFound, ClassNotFound, false, "check the refund id"},
	{QuoteMissing, ClassState, false, "refund by amount: the benefit was reserved without a quote"},
	{QuoteLineNotFound, ClassNotFound, false, "check the line id; order explain lists the quote's lines"},
	{BudgetKindMismatch, ClassInvalid, false, "name a wallet for jobs, a promotion budget for benefits of orders"},
	{JobCharged, ClassState, false, "a job is charged once: reclaim takes a refund back; another piece of work is another job"},
	{JobDelivered, ClassState, false, "leave the charge; grant the customer credits if the work is to cost nothing"},
	{DebtCapReached, ClassState, false, "fund the wallet, then send the same command again; a case was opened for a person to see (coffer ledger cases)"},
	{NotDue, ClassState, false, "wait for the expiry"},
	{OperationLimit, ClassState, false, "this reservation has used up its operations of this kind; settle it"},
	{CutoffInFuture, ClassInvalid, false, "send a cutoff that has passed, or none for now"},
	{BadPageToken, ClassInvalid, false, "start again without a page token"},
	{JobNotFound, ClassNotFound, false, "check queue, job id and tenant; a finished job is kept for its policy's keep and then forgotten"},
	{JobIllegalState, ClassState, false, "look at the job (coffer queue get)"},
	{LeaseLost, ClassState, false, "stop working on the job: it belongs to another lease, or has ended; lease again"},
	{LeaseLimit, ClassExhausted, false, "complete, fail or return leases first"},
	{QueueFull, ClassExhausted, false, "wait until jobs are done, settle the dead letters, or raise the limit"},
	{FactNotFound, ClassNotFound, false, "check source, event id and tenant"},
	{FactIllegalState, ClassState, false, "look at the fact (coffer fact get)"},
	{FactLimit, ClassState, false, "this order has as many facts as one order may have; look at them, and settle the rest by commands"},
	{BadCursor, ClassInvalid, false, "use the id of an event of this store, or subscribe from the beginning"},
	{EventsTrimmed, ClassState, false, "begin with the oldest event that is kept, and take what was missed from the ledger"},
	{SinkNotFound, ClassNotFound, false, "check the sink's name and the tenant"},
	{SinkChanged, ClassState, false, "read the sink again and repeat the change on what it is now"},
	{SinkLimit, ClassState, false, "delete a sink that is not needed"},
	{ParkedNotFound, ClassNotFound, false, "list the sink's parked keys again; it may have been retried or skipped"},
	{NodeNotFound, ClassNotFound, false, "coffer cluster status lists the nodes"},
	{Unauthenticated, ClassStranger, false, "send a token that is in the server's file, as Authorization: Bearer TOKEN (coffer: --token-file or COFFER_TOKEN)"},
	{PermissionDenied, ClassDenied, false, "use a token with that role and tenant; coffer token new makes one"},
	{Overloaded, ClassRetry, false, "wait for the retry delay, then send the same request"},
	{Draining, ClassRetry, false, "send the same request to another node"},
	{Unavailable, ClassRetry, false, "send the same request again"},
	{OutcomeUnknown, ClassUnknown, false, "send the same request again, or resolve its key"},
	{Fenced, ClassState, false, "stop scanning: another node leads by now"},
	{Corrupt, ClassDefect, false, "run coffer audit; do not repair by hand"},
	{Internal, ClassDefect, false, "see the server's log"},
}

var codeIndex = func() map[Code]*CodeInfo {
	m := make(map[Code]*CodeInfo, len(codeTable))
	for i := range codeTable {
		m[codeTable[i].Code] = &codeTable[i]
	}
	return m
}()

// SendAgain reports that the same request may be sent again, and may fare better
// then: it was certainly not done, or nobody knows.
func (c Code) SendAgain() bool {
	class := c.Info().Class
	return class == ClassRetry || class == ClassUnknown
}

// Unjudged reports that the command was not looked at: what an earlier sending
// of it did is as open as before.
func (c Code) Unjudged() bool {
	switch c.Info().Class {
	case ClassRetry, ClassStranger, ClassDenied:
		return true
	default:
		return false
	}
}

// Info returns the row of a code. An unknown code is a defect.
func (c Code) Info() CodeInfo {
	if i, ok := codeIndex[c]; ok {
		return *i
	}
	return CodeInfo{Code: c, Class: ClassDefect, Next: "see the server's log"}
}

// Codes lists all rows, in the table's order.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codeTable...) }

// Rejection is the error of a refused command: why, and all the caller needs
// to go on.
type Rejection struct {
	Code Code
	// Field, Value and Limit name what was wrong with the request.
	Field, Value, Limit string
	// Message says it in words.
	Message string
	// Fields lists the fields that differ from the first request
	// (IDEMPOTENCY_CONFLICT).
	Fields []string
	// State is the current state of the reservation or budget, if that was
	// the reason; Attempt the attempt it belongs to.
	State   string
	Attempt uint32
	// Requested and Available are in minor units (INSUFFICIENT_BUDGET).
	Requested, Available int64
	// RetryAfter suggests when to try again.
	RetryAfter time.Duration
	// Replayed: the refusal was recorded before and is given again.
	Replayed bool
	// Cause is for logs, never for the wire.
	Cause error
}

// Error says code, field, value, limit and what to do next.
func (r *Rejection) Error() string {
	var b strings.Builder
	b.WriteString(string(r.Code))
	b.WriteString(": ")
	if r.Field != "" {
		fmt.Fprintf(&b, "%s %s ", r.Field, r.Value)
	}
	b.WriteString(r.Message)
	if r.Limit != "" {
		fmt.Fprintf(&b, " (allowed: %s)", r.Limit)
	}
	if n := r.Code.Info().Next; n != "" {
		b.WriteString("; ")
		b.WriteString(n)
	}
	return b.String()
}

// Unwrap returns the cause.
func (r *Rejection) Unwrap() error { return r.Cause }

// Is matches a rejection of the same code.
func (r *Rejection) Is(target error) bool {
	t, ok := target.(*Rejection)
	return ok && t.Code == r.Code
}

func invalid(field, value, limit, msg string) *Rejection {
	if value == "" {
		value = `""`
	}
	return &Rejection{Code: InvalidArgument, Field: field, Value: value, Limit: limit, Message: msg}
}

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

// clip bounds what of a bad value an error repeats.
func clip(s string) string { return fmt.Sprintf("%.40q", s) }
