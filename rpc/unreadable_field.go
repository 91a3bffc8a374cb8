package rpc

import (
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// unknownField is what the reader of JSON says of a name that the schema does
// not have at that place.
var unknownField = regexp.MustCompile(`unknown field "(.+)"$`)

// fieldsLike names what may have been meant by a field that the message of the
// given name does not have: fields in it, however deep, whose name contains the
// other one or is part of it. Where there is none, it names all of the message's
// own fields, and nothing where those are only the way to others.
func fieldsLike(message, unknown string) string {
	md := messageNamed(message)
	if md == nil {
		return ""
	}
	plain := strings.ToLower(strings.ReplaceAll(unknown, "_", ""))
	var like []string
	eachField(md, map[protoreflect.FullName]bool{}, func(fd protoreflect.FieldDescriptor) {
		name := fd.JSONName()
		n := strings.ToLower(name)
		near := len(plain) > 2 && (strings.Contains(n, plain) || strings.Contains(plain, n))
		if near && !slices.Contains(like, name) && len(like) < maxFieldsLike {
			like = append(like, name)
		}
	})
	if len(like) > 0 {
		return strings.Join(like, ", ")
	}
	own := md.Fields()
	if own.Len() < 2 {
		return ""
	}
	for i := range min(own.Len(), maxFieldsListed) {
		like = append(like, own.Get(i).JSONName())
	}
	return strings.Join(like, ", ")
}

// namesOf are the names of the enum that a field takes, which is in the message
// or in one that it contains; empty where there is no such field.
func namesOf(message, jsonName string) (names string) {
	md := messageNamed(message)
	if md == nil {
		return ""
	}
	eachField(md, map[protoreflect.FullName]bool{}, func(fd protoreflect.FieldDescriptor) {
		if names == "" && fd.JSONName() == jsonName && fd.Enum() != nil {
			names = enumNames(fd.Enum(), nil)
		}
	})
	return names
}

// messageNamed is the schema's message of that name, nil where there is none.
func messageNamed(name string) protoreflect.MessageDescriptor {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	md, ok := d.(protoreflect.MessageDescriptor)
	if err != nil || !ok {
		return nil
	}
	return md
}

// Bounds of what a refusal names.
const (
	maxFieldsLike   = 4
	maxFieldsListed = 20
)

// eachField visits the fields of a message and of all messages in it, each
// message once.
func eachField(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool, visit func(protoreflect.FieldDescriptor)) {
	if seen[md.FullName()] {
		return
	}
	seen[md.FullName()] = true
	fields := md.Fields()
	for i := range fields.Len() {
		visit(fields.Get(i))
	}
	for i := range fields.Len() {
		if inner := fields.Get(i).Message(); inner != nil && inner.ParentFile().Package() == md.ParentFile().Package() {
			eachField(inner, seen, visit)
		}
	}
}
