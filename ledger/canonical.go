package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// Versions of the canonical form. Version 2 appends the fields of canonicalAdded
// to those of its operation. A request that has all of them at their defaults is
// written in version 1: so a request has one form, whichever version first
// knew its fields, and receipts of any age compare with it byte by byte.
const (
	canonicalVersion   = 1
	canonicalVersionV2 = 2
)

// canonicalFields names, per operation and in order, the fields that carry
// meaning. Their values follow the version byte in the same order, each with
// its length in front. Correlation ids and the optional budget of later
// commands carry none.
var canonicalFields = map[Op][]string{
	OpReserve: {"budget", "amount_minor", "currency", "ttl_ms"},
	OpCommit:  {"amount_minor", "partial"},
	OpExtend:  {"ttl_ms"},
	OpReverse: {"amount_minor"},
	OpCreate: {
		"currency", "buckets", "policy.late_commit", "policy.exhaustion", "policy.on_unavailable",
		"policy.over_commit.percent", "policy.over_commit.amount_minor", "policy.reversal_sink", "policy.max_lifetime_ms",
	},
	OpFund:     {"operation", "budget", "amount_minor", "currency"},
	OpDefund:   {"operation", "budget", "amount_minor", "currency"},
	OpFreeze:   {"operation", "budget"},
	OpUnfreeze: {"operation", "budget"},
	OpClose:    {"operation", "budget"},
	OpReshard:  {"operation", "budget", "buckets"},
	OpMove:     {"operation", "budget", "amount_minor", "from", "to"},
	OpCharge:   {"wallet", "amount_minor", "currency"},
	OpHold:     {"wallet", "amount_minor", "currency", "ttl_ms"},
	OpSettle:   {"amount_minor", "partial"},
}

// addedField is a field that version 2 appended, and its value in a request of
// version 1.
type addedField struct{ name, def string }

var canonicalAdded = map[Op][]addedField{
	OpReserve: {{"quote.id", ""}, {"quote.rounding", ""}, {"quote.funders", ""}, {"quote.lines", ""}},
	OpReverse: {{"lines", ""}},
	OpCreate:  {{"kind", "PROMOTION"}, {"policy.overdraft_minor", "0"}, {"policy.debt_cap_minor", "0"}},
}

// added are the values of the appended fields, nil when all are at their
// defaults.
func (c *Command) added() []string {
	var values []string
	switch c.Op {
	case OpReserve:
		if c.Quote == nil {
			return nil
		}
		values = c.Quote.canonical()
	case OpReverse:
		values = []string{canonicalLines(c.Lines)}
	case OpCreate:
		values = []string{c.Kind.String(), itoa(c.Policy.Overdraft), itoa(c.Policy.DebtCap)}
	}
	for i, f := range canonicalAdded[c.Op] {
		if values[i] != f.def {
			return values
		}
	}
	return nil
}

// Canonical is the versioned canonical form of the command: what a receipt
// stores and what a repeated command is compared with.
func (c *Command) Canonical() []byte {
	b := make([]byte, 0, 64)
	b = append(b, canonicalVersion)
	added := c.added()
	if added != nil {
		b[0] = canonicalVersionV2
	}
	switch c.Op {
	case OpReserve, OpHold:
		b = appendField(b, c.Budget.String())
		b = appendInt(b, c.Amount)
		b = appendField(b, c.Currency)
		b = appendInt(b, c.TTL.Milliseconds())
	case OpCharge:
		b = appendField(b, c.Budget.String())
		b = appendInt(b, c.Amount)
		b = appendField(b, c.Currency)
	case OpCommit, OpSettle:
		b = appendInt(b, c.Amount)
		b = appendField(b, strconv.FormatBool(c.Partial))
	case OpExtend:
		b = appendInt(b, c.TTL.Milliseconds())
	case OpReverse:
		b = appendInt(b, c.Amount)
	case OpCreate:
		p := &c.Policy
		b = appendField(b, c.Currency)
		b = appendInt(b, int64(c.Buckets))
		b = appendField(b, p.LateCommit.String())
		b = appendField(b, p.Exhaustion.String())
		b = appendField(b, p.OnUnavailable.String())
		b = appendInt(b, int64(p.OverCommit.Percent))
		b = appendInt(b, p.OverCommit.Amount)
		b = appendField(b, p.ReversalSink.String())
		b = appendInt(b, p.MaxLifetime.Milliseconds())
	case OpFund, OpDefund:
		b = appendField(b, c.Op.String())
		b = appendField(b, c.Budget.String())
		b = appendInt(b, c.Amount)
		b = appendField(b, c.Currency)
	case OpReshard:
		b = appendField(b, c.Op.String())
		b = appendField(b, c.Budget.String())
		b = appendInt(b, int64(c.Buckets))
	case OpMove:
		b = appendField(b, c.Op.String())
		b = appendField(b, c.Budget.String())
		b = appendInt(b, c.Amount)
		b = appendInt(b, int64(c.From))
		b = appendInt(b, int64(c.To))
	case OpFreeze, OpUnfreeze, OpClose:
		b = appendField(b, c.Op.String())
		b = appendField(b, c.Budget.String())
	}
	for _, v := range added {
		b = appendField(b, v)
	}
	return b
}

func appendField(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendInt(b []byte, v int64) []byte {
	var tmp [20]byte
	s := strconv.AppendInt(tmp[:0], v, 10)
	b = append(b, byte(len(s))) // at most 20 digits: one byte is the uvarint
	return append(b, s...)
}

// differing names the fields in which two canonical forms of one operation
// differ, in the order of the operation's list. It is never empty for forms
// that are not equal.
func differing(op Op, stored, sent []byte) []string {
	if string(stored) == string(sent) {
		return nil
	}
	a, okA := fieldsOf(op, stored)
	b, okB := fieldsOf(op, sent)
	names := canonicalFields[op]
	for _, f := range canonicalAdded[op] {
		names = append(slices.Clip(names), f.name)
	}
	var diff []string
	for i, name := range names {
		if okA && okB && i < len(a) && i < len(b) && a[i] != b[i] {
			diff = append(diff, name)
		}
	}
	if len(diff) == 0 {
		diff = append(diff, "request")
	}
	return diff
}

// firstValues are the values that a stored request has in some fields, in
// words for an error; empty where one of them is not for people to read.
func firstValues(op Op, stored []byte, fields []string) string {
	all, ok := splitFields(stored)
	values := make([]string, len(fields))
	for i, f := range fields {
		at := slices.Index(canonicalFields[op], f)
		if !ok || at < 0 || at >= len(all) {
			return ""
		}
		values[i] = cmp.Or(all[at], "none")
	}
	return " (" + strings.Join(values, ", ") + ")"
}

// fieldsOf reads the values of a request of any version; those its version
// did not have are at their defaults.
func fieldsOf(op Op, b []byte) ([]string, bool) {
	fields, ok := splitFields(b)
	if ok && b[0] == canonicalVersion && len(fields) == len(canonicalFields[op]) {
		for _, f := range canonicalAdded[op] {
			fields = append(fields, f.def)
		}
	}
	return fields, ok
}

// splitFields reads the values of a canonical form.
func splitFields(b []byte) ([]string, bool) {
	if len(b) == 0 {
		return nil, false
	}
	b = b[1:]
	var out []string
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return out, false
		}
		out = append(out, string(b[w:w+int(n)]))
		b = b[w+int(n):]
	}
	return out, true
}

// RequestHash is SHA-256 over the canonical request, derived when asked for:
// the canonical form itself is what is stored and compared.
func (r *Receipt) RequestHash() [32]byte { return sha256.Sum256(r.Request) }
