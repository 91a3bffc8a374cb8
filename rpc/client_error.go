package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// ErrOutcomeUnknown is matched by the error of a command that may or may not
// have taken effect. Send the same command again, or settle it with
// [Client.Resolve].
var ErrOutcomeUnknown = errors.New("the outcome is unknown: send the same command again, or resolve it")

// Error is what a call failed with.
type Error struct {
	// Code is the wire code.
	Code connect.Code
	// Detail says why the server refused; nil when no server of ours
	// answered, such as when there is no connection.
	Detail *cofferv1.ErrorDetail
	// Attempts is how often the call was sent.
	Attempts int
	// Unknown: the command may have taken effect.
	Unknown bool
	// Cause is the error of the last attempt.
	Cause error
	// Before is the error of the attempt before it, where the call's own time
	// ran out during the last one: that the time is over says little of why
	// the call failed.
	Before error
}

// Error gives the server's words where it answered.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Cause != nil {
		b.WriteString(message(e.Cause))
	} else {
		b.WriteString(e.Code.String())
	}
	if e.Before != nil {
		b.WriteString("; before that: ")
		b.WriteString(message(e.Before))
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (sent %d times)", e.Attempts)
	}
	if e.Unknown && e.Reason() != ledger.OutcomeUnknown {
		b.WriteString("; ")
		b.WriteString(ErrOutcomeUnknown.Error())
	}
	return b.String()
}

// message is an attempt's error without the wire code in front of it.
func message(err error) string {
	var wire *connect.Error
	if errors.As(err, &wire) && wire.Message() != "" {
		return wire.Message()
	}
	return err.Error()
}

// Unwrap returns the errors of the last attempts: Cause and Before.
func (e *Error) Unwrap() []error {
	if e.Before == nil {
		return []error{e.Cause}
	}
	return []error{e.Cause, e.Before}
}

// Is matches ErrOutcomeUnknown, and a *ledger.Rejection of the same code.
func (e *Error) Is(target error) bool {
	if target == ErrOutcomeUnknown {
		return e.Unknown
	}
	r, ok := target.(*ledger.Rejection)
	return ok && e.Detail != nil && r.Code == e.Reason()
}

// Reason is the machine-readable reason, empty when no server of ours
// answered.
func (e *Error) Reason() ledger.Code { return ledger.Code(e.Detail.GetReason()) }

// ReasonOf is the reason in an error of a Client, empty when there is none.
func ReasonOf(err error) ledger.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason()
	}
	return ""
}

// verdict is what the error of one attempt means for the call.
type verdict struct {
	err *Error
	// again: sending the same call once more is safe and may help.
	again bool
	// unknown: this attempt may have taken effect.
	unknown bool
	// caller: it is about the caller or the server, and nothing that was sent.
	caller bool
}

// judge sorts the error of one attempt. alive: the call's own context has not
// ended, so a deadline that passed was the attempt's.
func judge(err error, alive bool) verdict {
	e := &Error{Code: connect.CodeOf(err), Cause: err}
	var wire *connect.Error
	if errors.As(err, &wire) {
		for _, d := range wire.Details() {
			if m, packErr := connectproto.UnmarshalErrorDetail(d); packErr == nil {
				if detail, ok := m.(*cofferv1.ErrorDetail); ok {
					e.Detail = detail
				}
			}
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		e.Code = connect.CodeDeadlineExceeded
	} else if errors.Is(err, context.Canceled) {
		e.Code = connect.CodeCanceled
	}
	if e.Detail != nil {
		return judgeReason(e)
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) || errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, errRedirected) {
		return verdict{err: e, caller: true} // nothing was sent, or taken, and it will be the same again
	}
	switch e.Code {
	case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeNotFound, connect.CodePermissionDenied,
		connect.CodeUnauthenticated, connect.CodeFailedPrecondition, connect.CodeAlreadyExists, connect.CodeOutOfRange,
		connect.CodeResourceExhausted:
		return verdict{err: e, caller: e.Code == connect.CodeUnauthenticated} // refused on the way: by a proxy, or before it was sent
	default:
		return verdict{err: e, again: alive, unknown: !neverSent(err)}
	}
}

func judgeReason(e *Error) verdict {
	switch e.Reason().Info().Class {
	case ledger.ClassRetry:
		return verdict{err: e, again: true}
	case ledger.ClassUnknown:
		return verdict{err: e, again: true, unknown: true}
	case ledger.ClassDefect:
		// Corruption is found before anything is written; any other defect
		// may have struck after the commit.
		return verdict{err: e, unknown: e.Reason() != ledger.Corrupt}
	case ledger.ClassStranger, ledger.ClassDenied:
		return verdict{err: e, caller: true}
	default:
		return verdict{err: e}
	}
}

// neverSent reports whether no connection came about, or the command did not
// leave this client.
func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.Is(err, errNotSent) || errors.As(err, &dns) || (errors.As(err, &op) && op.Op == "dial")
}
