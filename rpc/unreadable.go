package rpc

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coffer-ledger/coffer/ledger"
)

// What the reader of JSON says of what does not fit. Its words are not promised;
// where they change, the refusal names the message alone.
var (
	badValue     = regexp.MustCompile(`invalid value for (\w+) field (\w+): (.+)$`)
	badWellKnown = regexp.MustCompile(`invalid google\.protobuf\.(Duration|Timestamp) value (.+)$`)
	badNumber    = regexp.MustCompile(`unexpected token (-?\d.*)$`)
	position     = regexp.MustCompile(`\(line (\d+:\d+)\)`)
)

// allowed says what a field takes, by the kind that the reader names.
var allowed = map[string]string{
	"int32": "a whole number", "int64": "a whole number up to 9223372036854775807; amounts are in minor units", "uint32": "a whole number from 0",
	"uint64": "a whole number from 0", "string": "a text in quotes", "bool": "true or false", "enum": "one of its names", "bytes": "base64 in quotes",
	"Duration": `seconds, such as "900s"`, "Timestamp": `RFC 3339, such as "2026-05-31T12:00:00Z"`,
}

// unreadable refuses a message of the given name that could not be read, for
// the reason that the reader gave.
func unreadable(name, reason string) *ledger.Rejection {
	reason = strings.ReplaceAll(reason, "\u00a0", " ") // the reader puts it in at random
	reason = strings.TrimPrefix(strings.TrimPrefix(reason, "unmarshal message: "), "proto: ")
	r := &ledger.Rejection{
		Code: ledger.InvalidArgument, Field: "message", Value: name, Limit: "a valid " + name,
		Message: "cannot be read: " + short(reason, 200),
	}
	where := "cannot be read"
	if m := position.FindStringSubmatch(reason); m != nil {
		where += ", at line " + m[1]
	}
	if m := badValue.FindStringSubmatch(reason); m != nil && allowed[m[1]] != "" {
		r.Field, r.Value, r.Limit, r.Message = snake(m[2]), short(m[3], 40), allowed[m[1]], where
		if m[1] == "enum" {
			r.Limit = cmp.Or(namesOf(name, m[2]), r.Limit)
		}
	} else if m := badWellKnown.FindStringSubmatch(reason); m != nil {
		r.Field, r.Value, r.Limit, r.Message = strings.ToLower(m[1]), short(m[2], 40), allowed[m[1]], where
	} else if m := unknownField.FindStringSubmatch(reason); m != nil {
		r.Field, r.Value, r.Message = "field", short(`"`+m[1]+`"`, 40), where+": "+name+" has no such field there"
		r.Limit = cmp.Or(fieldsLike(name, m[1]), "a field of "+name)
	} else if badNumber.MatchString(reason) {
		r.Limit += `, in which times are texts, such as "900s"`
	}
	return r
}

// short bounds what a refusal repeats of what it refuses.
func short(v string, most int) string {
	if len(v) <= most {
		return v
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(v[cut]) {
		cut--
	}
	return v[:cut] + "…"
}

// snake turns a name of JSON into the schema's.
func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('_')
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}
