package event

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
)

// Bounds of a filter.
const (
	MaxFilterBudgets = 64
	MaxFilterTypes   = 64
)

// Filter says which events a reader wants: those of one tenant, and of it those
// that every list which is not empty has.
type Filter struct {
	Tenant  string
	Budgets []ledger.BudgetID
	// Types are types, or beginnings of types that end in ".*", such as
	// coffer.reservation.*.
	Types []string
	// Internal asks for events of the control plane, too.
	Internal bool
}

// Validate checks the filter as a caller gave it.
func (f *Filter) Validate() *ledger.Rejection {
	bad := func(field, value, limit, msg string) *ledger.Rejection {
		return &ledger.Rejection{Code: ledger.InvalidArgument, Field: field, Value: value, Limit: limit, Message: msg}
	}
	if len(f.Budgets) > MaxFilterBudgets {
		return bad("budgets", fmt.Sprint(len(f.Budgets)), fmt.Sprint(MaxFilterBudgets), "are too many")
	}
	if len(f.Types) > MaxFilterTypes {
		return bad("types", fmt.Sprint(len(f.Types)), fmt.Sprint(MaxFilterTypes), "are too many")
	}
	for i, b := range f.Budgets {
		field := fmt.Sprintf("budgets[%d]", i)
		if r := ledger.CheckID(field, b.Key); r != nil {
			return r
		}
		if r := ledger.CheckOptionalID(field, b.Funder); r != nil {
			return r
		}
	}
	for i, t := range f.Types {
		prefix, open := strings.CutSuffix(t, "*")
		known := KnownType(t)
		if open && strings.HasSuffix(prefix, ".") {
			known = slices.ContainsFunc(Types(), func(name string) bool { return strings.HasPrefix(name, prefix) })
		}
		if !known {
			return bad(fmt.Sprintf("types[%d]", i), fmt.Sprintf("%.80q", t), "a type of the schema, or its beginning with .*", "is no event type")
		}
	}
	return nil
}

// WantsBucket reports whether events of a bucket can pass at all.
func (f *Filter) WantsBucket(b ledger.BucketID) bool {
	return b.Budget.Tenant == f.Tenant && (len(f.Budgets) == 0 || slices.Contains(f.Budgets, b.Budget))
}

// Wants reports whether an event passes.
func (f *Filter) Wants(e *Event) bool {
	if !f.WantsBucket(e.Bucket) || e.Internal() && !f.Internal {
		return false
	}
	if len(f.Types) == 0 {
		return true
	}
	name := e.Type()
	return slices.ContainsFunc(f.Types, func(t string) bool {
		prefix, open := strings.CutSuffix(t, "*")
		return t == name || open && strings.HasPrefix(name, prefix)
	})
}
