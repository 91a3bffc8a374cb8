package rpc

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// wireCodes is the table from domain errors to wire codes. doc.go says why
// OUTCOME_UNKNOWN, OVERLOADED and a lack of money stand where they do.
var wireCodes = map[ledger.Class]connect.Code{
	ledger.ClassInvalid:   connect.CodeInvalidArgument,
	ledger.ClassNotFound:  connect.CodeNotFound,
	ledger.ClassConflict:  connect.CodeAlreadyExists,
	ledger.ClassState:     connect.CodeFailedPrecondition,
	ledger.ClassExhausted: connect.CodeResourceExhausted,
	ledger.ClassRetry:     connect.CodeUnavailable,
	ledger.ClassUnknown:   connect.CodeDeadlineExceeded,
	ledger.ClassStranger:  connect.CodeUnauthenticated,
	ledger.ClassDenied:    connect.CodePermissionDenied,
	ledger.ClassDefect:    connect.CodeInternal,
}

// codeOf is the wire code of a refusal. Corruption is the one defect with a
// code of its own, so that alerts can tell it from a bug.
func codeOf(c ledger.Code) connect.Code {
	if c == ledger.Corrupt {
		return connect.CodeDataLoss
	}
	if code, ok := wireCodes[c.Info().Class]; ok {
		return code
	}
	return connect.CodeInternal
}

// detailOf is a refusal as it goes over the wire. The cause stays here.
func detailOf(r *ledger.Rejection) *cofferv1.ErrorDetail {
	d := &cofferv1.ErrorDetail{
		Reason: string(r.Code), Message: text(r.Message), Next: r.Code.Info().Next,
		Field: text(r.Field), Value: text(r.Value), Limit: text(r.Limit),
		DifferingFields: r.Fields, State: r.State, Attempt: r.Attempt,
		RequestedMinor: r.Requested, AvailableMinor: r.Available, Replayed: r.Replayed,
	}
	if r.RetryAfter > 0 {
		d.RetryDelay = durationpb.New(r.RetryAfter)
	}
	return d
}

// text makes a string fit for a protobuf message, whatever bytes were sent.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// rejectionOf finds the refusal in an error; an error that is none becomes a
// defect with the error as its cause.
func rejectionOf(err error) *ledger.Rejection {
	var r *ledger.Rejection
	if errors.As(err, &r) {
		return r
	}
	return &ledger.Rejection{Code: ledger.Internal, Message: "the server failed", Cause: err}
}

// wireError turns what a handler returned into what the caller gets. A refusal
// keeps its reason and details; the transport's own errors pass; of anything
// else only the kind is told.
func wireError(ctx context.Context, err error) *connect.Error {
	var r *ledger.Rejection
	var own *connect.Error
	switch {
	case errors.As(err, &r):
	case errors.As(err, &own) && !own.IsRemote():
		return own
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, "the call was cancelled").WithCause(err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return connect.NewError(connect.CodeDeadlineExceeded, "the call's deadline has passed").WithCause(err)
	default:
		r = rejectionOf(err)
	}
	e := connect.NewError(codeOf(r.Code), text(r.Error())).WithCause(err)
	detail, packErr := connectproto.NewErrorDetail(detailOf(r))
	if packErr != nil {
		return e.WithCause(errors.Join(err, packErr))
	}
	return e.WithDetail(detail)
}

// commandError is a refusal inside a batch.
func commandError(r *ledger.Rejection) *cofferv1.CommandError {
	return &cofferv1.CommandError{Code: codeOf(r.Code).String(), Detail: detailOf(r)}
}

// within names the field of a refusal as part of the i-th command of a batch.
// It works on a copy: refusals may be shared.
func within(field string, r *ledger.Rejection) *ledger.Rejection {
	inner := *r
	switch {
	case inner.Field == "":
	case strings.HasPrefix(inner.Field, "commands["):
	default:
		inner.Field = field + "." + inner.Field
	}
	return &inner
}
