package ledger

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of identifiers and counts. Every list and string that reaches the
// ledger has one.
const (
	// MaxIDBytes is the longest identifier (order, benefit, budget key, …).
	MaxIDBytes = 128
	// MaxBuckets is the largest number of buckets of a budget.
	MaxBuckets = 256
	// Unallocated is the index of a budget's extra bucket that no order is
	// routed to: it takes reversals after the budget was closed.
	Unallocated = MaxBuckets
	// MaxSum bounds each of a bucket's sums, so that the sums of a whole
	// budget always fit an int64.
	MaxSum = math.MaxInt64 / (MaxBuckets + 1)
	// MaxAttempts is how many attempts one benefit of one order may have.
	MaxAttempts = 16
	// MaxReceipts is how many receipts one attempt may hold before only the
	// way back is left: final commit, release, reclaim, the refund of all the
	// rest, and reinstatements. Those may use as many again.
	MaxReceipts = 64
	// MaxRepeats is how many of them Extend and partial Commit may leave.
	MaxRepeats = 32
	// MaxRowReceipts bounds the receipts of all attempts of one benefit, and
	// with them the size of its row.
	MaxRowReceipts = 3 * MaxReceipts
)

// What the idempotency keys of the node's own commands on budgets begin with.
// Nobody else's may: a key that was taken before would refuse the node's command.
const (
	KeyIntegrity = "integrity:"
	KeyRebalance = "rebalance:"
	KeyAdapt     = "adapt:"
)

// CheckCallersKey refuses an idempotency key that only the node itself may use.
func CheckCallersKey(key string) *Rejection {
	for _, own := range [...]string{KeyIntegrity, KeyRebalance, KeyAdapt} {
		if strings.HasPrefix(key, own) {
			return invalid("idempotency_key", clip(key), fmt.Sprintf("a key that does not begin with %s, %s or %s", KeyIntegrity, KeyRebalance, KeyAdapt),
				"begins like a key of the node's own commands")
		}
	}
	return nil
}

// BudgetID names a budget: unique per tenant, funder and key. The funder may
// be empty (the tenant itself pays).
type BudgetID struct {
	Tenant, Funder, Key string
}

// String is the form people use, "key" or "funder/key", without the tenant.
func (b BudgetID) String() string {
	if b.Funder == "" {
		return b.Key
	}
	return b.Funder + "/" + b.Key
}

// ParseBudget reads the form that String writes.
func ParseBudget(tenant, s string) BudgetID {
	if funder, key, ok := strings.Cut(s, "/"); ok {
		return BudgetID{Tenant: tenant, Funder: funder, Key: key}
	}
	return BudgetID{Tenant: tenant, Key: s}
}

// IsZero reports whether no budget is named.
func (b BudgetID) IsZero() bool { return b.Key == "" }

// BucketID names one bucket of a budget.
type BucketID struct {
	Budget BudgetID
	Index  uint16
}

// String is "budget#index".
func (b BucketID) String() string {
	if b.Index == Unallocated {
		return b.Budget.String() + "#unallocated"
	}
	return fmt.Sprintf("%s#%d", b.Budget, b.Index)
}

// OrderKey names one benefit of one order: the subject of a reservation.
type OrderKey struct {
	Tenant, Order, Benefit string
}

// String is "order/benefit", without the tenant.
func (k OrderKey) String() string { return k.Order + "/" + k.Benefit }

// EveryTenant stands for all tenants where callers are let in, and so is the name
// of no new one: no budget or wallet is made for it. It is an identifier as any
// other else, so that what was stored under it before stays within reach.
const EveryTenant = "*"

// CheckTenant rejects what is no name for a new tenant.
func CheckTenant(field, s string) *Rejection {
	if s == EveryTenant {
		return invalid(field, `"*"`, "the name of one tenant", "stands for every tenant")
	}
	return checkID(field, s)
}

// CheckID rejects an identifier that no command may carry: the same rule for
// jobs, facts and what else is named by callers.
func CheckID(field, s string) *Rejection { return checkID(field, s) }

// CheckOptionalID is CheckID for an identifier that may be left out.
func CheckOptionalID(field, s string) *Rejection { return checkOptionalID(field, s) }

// checkID rejects an identifier that is empty, too long, not UTF-8 or that
// holds a control character.
func checkID(field, s string) *Rejection {
	switch {
	case s == "":
		return invalid(field, s, "1 to 128 bytes", "must not be empty")
	case len(s) > MaxIDBytes:
		return invalid(field, fmt.Sprintf("%.32q… (%d bytes)", s, len(s)), "128 bytes", "is too long")
	case !utf8.ValidString(s):
		return invalid(field, fmt.Sprintf("%q", s), "UTF-8", "is not valid UTF-8")
	}
	for _, r := range s {
		if isControl(r) {
			return invalid(field, fmt.Sprintf("%q", s), "no control characters", "holds a control character")
		}
	}
	return nil
}

// isControl is true also of what turns the direction of text, or ends a line.
func isControl(r rune) bool {
	if r < utf8.RuneSelf { // nearly all are, and none of the tables has such
		return unicode.IsControl(r)
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

func checkOptionalID(field, s string) *Rejection {
	if s == "" {
		return nil
	}
	return checkID(field, s)
}

// check validates a budget's name, which callers write as one field. Neither
// part may hold a slash.
func (b BudgetID) check(field string) *Rejection {
	if r := checkID("tenant", b.Tenant); r != nil {
		return r
	}
	if r := checkOptionalID(field, b.Funder); r != nil {
		return r
	}
	if r := checkID(field, b.Key); r != nil {
		return r
	}
	if strings.Contains(b.Funder, "/") || strings.Contains(b.Key, "/") {
		return invalid(field, b.String(), "at most one slash, between funder and key", "holds a slash inside a part")
	}
	return nil
}

func (k OrderKey) check() *Rejection {
	if r := checkID("tenant", k.Tenant); r != nil {
		return r
	}
	if r := checkID(k.field(), k.Order); r != nil {
		return r
	}
	return checkID("benefit_key", k.Benefit)
}
