package ledger

import (
	"math"

	"github.com/bojanz/currency"
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

// CheckUnit refuses what no budget can have as its currency, whenever it was made:
// neither a code of three letters nor a custom unit. Custom units have 4 to 12
// upper-case letters, digits or underscores and start with a letter (CREDIT,
// POINTS), so that they cannot be mistaken for a mistyped code. It takes every
// code: ISO 4217 withdraws some, and a budget that has one goes on. Commands and
// facts need no more, since they are compared with their budget.
func CheckUnit(field, c string) *Rejection {
	if len(c) < 3 || len(c) > 12 {
		return unknownCurrency(field, c)
	}
	for i := range len(c) {
		letter := c[i] >= 'A' && c[i] <= 'Z'
		if !letter && (i == 0 || len(c) == 3 || (c[i] != '_' && (c[i] < '0' || c[i] > '9'))) {
			return unknownCurrency(field, c)
		}
	}
	return nil
}

// checkInUse refuses a code that a new budget can't have: one that ISO 4217 does
// not list for paying with. XXX, XTS, metals and withdrawn codes are none.
func checkInUse(field, c string) *Rejection {
	if len(c) == 3 && !currency.IsValid(c) {
		return unknownCurrency(field, c)
	}
	return nil
}

func unknownCurrency(field, c string) *Rejection {
	return invalid(field, clip(c), "an ISO 4217 code in use, such as BRL, or a custom unit of 4 to 12 characters A-Z, 0-9, _", "is not a known currency")
}

// Digits is the number of decimal places of a currency's minor unit by ISO 4217:
// 2 for BRL, 0 for JPY. Custom units count in whole units. A code that was
// withdrawn has 2, as nearly all had.
func Digits(c string) int {
	if len(c) != 3 {
		return 0
	}
	if d, ok := currency.GetDigits(c); ok {
		return int(d)
	}
	return 2
}
