package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// newValidator compiles the rules of every request message now, so that a
// rule that does not compile stops the start and not the first call.
func newValidator() (protovalidate.Validator, error) {
	var inputs []protoreflect.MessageDescriptor
	for _, f := range []protoreflect.FileDescriptor{
		cofferv1.File_coffer_v1_budget_proto, cofferv1.File_coffer_v1_reservation_proto,
		cofferv1.File_coffer_v1_credit_proto,
		cofferv1.File_coffer_v1_ledger_proto, cofferv1.File_coffer_v1_operator_proto,
		cofferv1.File_coffer_v1_queue_proto, cofferv1.File_coffer_v1_fact_proto,
	} {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				inputs = append(inputs, methods.Get(j).Input())
			}
		}
	}
	return protovalidate.New(protovalidate.WithMessageDescriptors(inputs...), protovalidate.WithFailFast())
}

// validateInterceptor checks each request message against the schema's rules,
// and gives what cannot be read or is refused the form of a refusal.
func validateInterceptor(v protovalidate.Validator, maxBytes int) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			return next(ctx, spec, &validatedStream{ServerStream: stream, validator: v, maxBytes: maxBytes})
		}
	}
}

type validatedStream struct {
	connect.ServerStream
	validator protovalidate.Validator
	maxBytes  int
}

// Receive reads and checks one message.
func (s *validatedStream) Receive(msg any) error {
	if err := s.ServerStream.Receive(msg); err != nil {
		return s.unreadable(msg, err)
	}
	m, ok := msg.(proto.Message)
	if !ok {
		return nil
	}
	err := s.validator.Validate(m)
	var invalid *protovalidate.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && len(invalid.Violations) > 0:
		return violation(invalid.Violations[0])
	default:
		return fmt.Errorf("validating %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
}

// unreadable explains why a message could not be read, where the caller is at
// fault. Other errors of the transport pass.
func (s *validatedStream) unreadable(msg any, err error) error {
	var refusal *ledger.Rejection
	var own *connect.Error
	if errors.Is(err, io.EOF) || errors.As(err, &refusal) || !errors.As(err, &own) {
		return err
	}
	name := "message"
	if m, ok := msg.(proto.Message); ok {
		name = string(m.ProtoReflect().Descriptor().FullName())
	}
	switch own.Code() {
	case connect.CodeInvalidArgument, connect.CodeInternal: // the latter for the frame around a message
		r := unreadable(name, own.Message())
		r.Cause = err
		return r
	case connect.CodeResourceExhausted:
		return &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "message", Value: name, Limit: fmt.Sprintf("%d bytes", s.maxBytes),
			Message: "is too large: " + own.Message(), Cause: err,
		}
	default:
		return err
	}
}

// violation words a broken rule as the domain words its refusals.
func violation(v *protovalidate.Violation) *ledger.Rejection {
	r := &ledger.Rejection{
		Code: ledger.InvalidArgument, Field: protovalidate.FieldPathString(v.Proto.GetField()),
		Message: v.Proto.GetMessage(), Limit: v.Proto.GetRuleId(),
	}
	if r.Field == "" {
		r.Field = "message"
	}
	fd := v.FieldDescriptor
	if fd == nil {
		r.Value = "invalid"
		return r
	}
	r.Value = valueText(fd, v.FieldValue)
	rules, err := protovalidate.ResolveFieldRules(fd)
	if err != nil || rules == nil {
		return r
	}
	switch {
	case v.Proto.GetRuleId() == "required":
		r.Message, r.Limit = "is required", "must be set"
		if m := fd.Message(); m != nil && m.FullName() == "google.protobuf.Duration" {
			r.Limit = `more than 0s; in JSON as seconds, such as "900s"`
		}
	case rules.HasString():
		lengthText(r, v.FieldValue.String(), rules.GetString().GetMinLen(), rules.GetString().GetMaxBytes())
	case rules.HasInt64():
		r.Message, r.Limit = "must be positive", "1 to 9223372036854775807 minor units"
		if rules.GetInt64().HasGte() {
			r.Message, r.Limit = "is negative", "0 to 9223372036854775807 minor units"
		}
	case rules.HasInt32():
		r.Message, r.Limit = "is out of range", fmt.Sprintf("%d to %d", rules.GetInt32().GetGte(), rules.GetInt32().GetLte())
	case rules.HasUint32():
		r.Message, r.Limit = "is out of range", fmt.Sprintf("%d to %d", rules.GetUint32().GetGte(), rules.GetUint32().GetLte())
		if fd.FullName() == "coffer.v1.CreateBudgetRequest.buckets" {
			r.Limit = fmt.Sprintf("1 to %d; 0 means 1", rules.GetUint32().GetLte())
		}
	case rules.HasRepeated():
		itemsText(r, v.FieldValue.List().Len(), rules.GetRepeated().GetMinItems(), rules.GetRepeated().GetMaxItems())
	case rules.HasEnum():
		r.Message, r.Limit = "is unknown", enumNames(fd.Enum(), rules.GetEnum().GetIn())
	case rules.HasDuration():
		r.Message, r.Limit = "must be positive", "more than 0s"
		if d := rules.GetDuration(); d.HasGte() && d.HasLte() {
			r.Message, r.Limit = "is out of range", fmt.Sprintf("%s to %s", d.GetGte().AsDuration(), d.GetLte().AsDuration())
		}
	}
	return r
}

func lengthText(r *ledger.Rejection, s string, minLen, maxBytes uint64) {
	switch {
	case s == "":
		r.Message, r.Limit = "must not be empty", fmt.Sprintf("%d to %d bytes", minLen, maxBytes)
	case uint64(len(s)) > maxBytes:
		r.Message, r.Limit = "is too long", fmt.Sprintf("%d bytes", maxBytes)
	default:
		r.Message, r.Limit = "is too short", fmt.Sprintf("%d to %d bytes", minLen, maxBytes)
	}
}

func itemsText(r *ledger.Rejection, n int, minItems, maxItems uint64) {
	if n == 0 {
		r.Message, r.Limit = "must not be empty", fmt.Sprintf("%d to %d", minItems, maxItems)
		return
	}
	r.Message, r.Limit = "are too many", fmt.Sprint(maxItems)
}

// enumNames lists the values allowed: those of in, or all but the first.
func enumNames(e protoreflect.EnumDescriptor, in []int32) string {
	var names []string
	if len(in) == 0 {
		for i := 1; i < e.Values().Len(); i++ {
			names = append(names, string(e.Values().Get(i).Name()))
		}
	}
	for _, n := range in {
		if v := e.Values().ByNumber(protoreflect.EnumNumber(n)); v != nil {
			names = append(names, string(v.Name()))
		}
	}
	return strings.Join(names, ", ")
}

// valueText is a field's value as a refusal shows it, bounded in length.
func valueText(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case !v.IsValid():
		return "unset"
	case fd.IsList():
		return fmt.Sprint(v.List().Len())
	case fd.Kind() == protoreflect.StringKind:
		if s := v.String(); len(s) > ledger.MaxIDBytes {
			return fmt.Sprintf("%.32q… (%d bytes)", s, len(s))
		}
		return fmt.Sprintf("%q", v.String())
	case fd.Kind() == protoreflect.EnumKind:
		if d := fd.Enum().Values().ByNumber(v.Enum()); d != nil {
			return string(d.Name())
		}
		return fmt.Sprint(v.Enum())
	case fd.Kind() == protoreflect.MessageKind:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
			return durationText(d)
		}
		return "invalid"
	}
	return fmt.Sprint(v.Interface())
}
