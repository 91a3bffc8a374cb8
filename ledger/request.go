package ledger

import (
	"slices"
	"strconv"
)

// Amount is the amount_minor of the request that a receipt of FUND or DEFUND
// stores; false where the request has none.
func (r *BudgetReceipt) Amount() (int64, bool) {
	i := slices.Index(canonicalFields[r.Op], "amount_minor")
	fields, ok := splitFields(r.Request)
	if i < 0 || !ok || i >= len(fields) {
		return 0, false
	}
	v, err := strconv.ParseInt(fields[i], 10, 64)
	return v, err == nil
}

// Partial reports whether the request that a receipt of COMMIT stores kept the
// rest.
func (r *Receipt) Partial() bool {
	i := slices.Index(canonicalFields[r.Op], "partial")
	fields, ok := splitFields(r.Request)
	return i >= 0 && ok && i < len(fields) && fields[i] == "true"
}
