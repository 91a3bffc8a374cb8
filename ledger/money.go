package ledger

import (
	"math"
	"strings"

	"golang.org/x/text/currency"
)

// add returns a+b, or false when the sum does not fit an int64.
func add(a, b int64) (int64, bool) {
	if (b > 0 && a > math.MaxInt64-b) || (b < 0 && a < math.MinInt64-b) {
		return 0, false
	}
	return a + b, true
}

// checkAmount rejects amounts that are not positive.
func checkAmount(field string, v int64) *Rejection {
	if v <= 0 {
		return invalid(field, itoa(v), "1 to 9223372036854775807 minor units", "must be positive")
	}
	return nil
}

// CheckCurrency rejects a currency that is neither an ISO 4217 code nor a
// custom one. Custom units have 4 to 12 upper-case letters, digits or
// underscores and start with a letter (CREDIT, POINTS), so that they cannot be
// mistaken for a mistyped ISO code.
func CheckCurrency(field, c string) *Rejection {
	const limit = "an ISO 4217 code, or a custom unit of 4 to 12 characters A-Z, 0-9, _"
	if len(c) == 3 && strings.ToUpper(c) == c {
		if _, err := currency.ParseISO(c); err == nil {
			return nil
		}
		return invalid(field, c, limit, "is not a known currency")
	}
	if len(c) < 4 || len(c) > 12 || c[0] < 'A' || c[0] > 'Z' {
		return invalid(field, clip(c), limit, "is not a known currency")
	}
	for i := 1; i < len(c); i++ {
		if ch := c[i]; (ch < 'A' || ch > 'Z') && (ch < '0' || ch > '9') && ch != '_' {
			return invalid(field, clip(c), limit, "is not a known currency")
		}
	}
	return nil
}

// Digits is the number of decimal places of a currency's minor unit: 2 for
// BRL, 0 for JPY. Custom units count in whole units.
func Digits(c string) int {
	u, err := currency.ParseISO(c)
	if err != nil || len(c) != 3 {
		return 0
	}
	scale, _ := currency.Standard.Rounding(u)
	return scale
}
