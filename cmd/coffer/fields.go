package main

import (
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// fieldFlags names the flags that the fields of requests come from: of several
// the one that the command has. A field that is not here has no flag, or one of
// its own name.
var fieldFlags = map[string][]string{
	"page_size": {"limit"}, "page_token": {"page"}, "cutoff_time": {"cutoff"}, "from_time": {"from"},
	"idempotency_key": {"key"}, "correlation_id": {"correlation"}, "payment_id": {"payment", "id"}, "refund_id": {"refund", "id"},
	"operation_id": {"operation", "id"}, "reference_id": {"reference"}, "max_jobs": {"max"}, "lease": {"for"}, "lease_token": {"token"},
	"lines": {"line"}, "types": {"type"}, "budgets": {"budget"}, "cursors": {"after"}, "amount_minor": {"amount"}, "line_id": {"line"},
}

// place is where in a request a field is: the messages around it, and its number
// in a list.
var place = regexp.MustCompile(`^(?:.*\.)?(\w+?)(?:\[\d+\])?$`)

// inFlags is a server's refusal that names the flag to correct, where the server
// could only name the field. Programs get it as it was.
func (c *cli) inFlags(err error, d *cofferv1.ErrorDetail) error {
	const named = "correct the named field"
	m := place.FindStringSubmatch(d.GetField())
	if c.JSON || m == nil || !strings.HasSuffix(err.Error(), named) {
		return err
	}
	for _, flag := range append(fieldFlags[m[1]], strings.ReplaceAll(m[1], "_", "-")) {
		if c.flags[flag] {
			return reworded{err, strings.TrimSuffix(err.Error(), named) + "correct --" + flag}
		}
	}
	return err
}

// flagsOf are the flags that a command has, whether they were given or not.
func flagsOf(k *kong.Context) map[string]bool {
	flags := map[string]bool{}
	for _, f := range k.Flags() {
		flags[f.Name] = true
	}
	return flags
}
