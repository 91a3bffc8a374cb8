package ledger

import (
	"slices"
	"strconv"
)

// Amount is the amount_minor of the request that a receipt of FUND, DEFUND or
// MOVE stores; false where the request has none.
func (r *BudgetReceipt) Amount() (int64, bool) { return numberIn(r.Op, r.Request, "amount_minor") }

// Buckets is the number of buckets that the request of a RESHARD's receipt asks
// for; false where the request has none.
func (r *BudgetReceipt) Buckets() (int64, bool) { return numberIn(r.Op, r.Request, "buckets") }

// FirstBuckets is the number of buckets the budget was created with, 0 where
// its definition cannot be read.
func (b *Budget) FirstBuckets() int {
	v, ok := numberIn(OpCreate, b.Definition, "buckets")
	if !ok || v < 1 || v > MaxBuckets {
		return 0
	}
	return int(v)
}

// numberIn reads one number of a canonical request.
func numberIn(op Op, request []byte, field string) (int64, bool) {
	i := slices.Index(canonicalFields[op], field)
	fields, ok := splitFields(request)
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
