package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
)

// parseMajor reads an amount in major units, such as 12.34, as exact minor
// units of the currency. It takes digits and at most one point; no sign, no
// grouping, no exponent. Whether it may be 0 is the flag's range.
func parseMajor(field, s, currency string) (int64, error) {
	digits := ledger.Digits(currency)
	fault := func(why string) (int64, error) {
		return 0, fmt.Errorf("%s %.40q %s (allowed: %s)", field, s, why, majorForm(currency, digits))
	}
	whole, frac, point := strings.Cut(s, ".")
	if whole == "" || (point && frac == "") || !allDigits(whole) || !allDigits(frac) {
		return fault("is not an amount")
	}
	if len(frac) > digits {
		if len(frac) == 1 {
			return fault("has 1 decimal")
		}
		return fault(fmt.Sprintf("has %d decimals", len(frac)))
	}
	v, err := strconv.ParseInt(whole+frac+strings.Repeat("0", digits-len(frac)), 10, 64)
	if err != nil {
		return fault(fmt.Sprintf("is more than %s", formatMajor(math.MaxInt64, currency)))
	}
	return v, nil
}

func majorForm(currency string, digits int) string {
	if digits == 0 {
		return fmt.Sprintf("whole %s, such as 12", currency)
	}
	return fmt.Sprintf("%s with up to %d decimals, such as 12.%s", currency, digits, "3456"[:min(digits, 4)])
}

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// formatMajor writes minor units as major ones, grouped by thousands:
// 37943687 BRL is 379,436.87.
func formatMajor(v int64, currency string) string {
	digits := ledger.Digits(currency)
	sign := ""
	u := uint64(v)
	if v < 0 {
		sign, u = "-", -u
	}
	s := strconv.FormatUint(u, 10)
	if len(s) <= digits {
		s = strings.Repeat("0", digits-len(s)+1) + s
	}
	whole, frac := s[:len(s)-digits], s[len(s)-digits:]
	var b strings.Builder
	b.WriteString(sign)
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(whole[i])
	}
	if frac != "" {
		b.WriteByte('.')
		b.WriteString(frac)
	}
	return b.String()
}

// money is an amount with its currency, as tables show it.
func money(v int64, currency string) string {
	return strings.TrimSpace(formatMajor(v, currency) + " " + currency)
}
