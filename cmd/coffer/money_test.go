package main

import (
	"math"
	"strings"
	"testing"
)

func TestParseMajor(t *testing.T) {
	for _, tc := range []struct {
		in, cur string
		want    int64
		fault   string
	}{
		{"12.34", "BRL", 1234, ""},
		{"12.3", "BRL", 1230, ""},
		{"12", "BRL", 1200, ""},
		{"0.01", "BRL", 1, ""},
		{"1200", "JPY", 1200, ""},
		{"7", "CREDIT", 7, ""},
		{"1.234", "KWD", 1234, ""},
		{"92233720368547758.07", "BRL", math.MaxInt64, ""},
		{"92233720368547758.08", "BRL", 0, "is more than 92,233,720,368,547,758.07"},
		{"12.345", "BRL", 0, "has 3 decimals (allowed: BRL with up to 2 decimals, such as 12.34)"},
		{"12.5", "JPY", 0, "has 1 decimal (allowed: whole JPY, such as 12)"},
		{"0.00", "BRL", 0, ""},
		{"-1", "BRL", 0, "is not an amount"},
		{"-0.05", "BRL", 0, "is not an amount"},
		{"-", "BRL", 0, "is not an amount"},
		{"--1", "BRL", 0, "is not an amount"},
		{"-1e3", "BRL", 0, "is not an amount"},
		{"+1", "BRL", 0, "is not an amount"},
		{"1e3", "BRL", 0, "is not an amount"},
		{"1,000.00", "BRL", 0, "is not an amount"},
		{".5", "BRL", 0, "is not an amount"},
		{"5.", "BRL", 0, "is not an amount"},
		{"", "BRL", 0, "is not an amount"},
		{" 1", "BRL", 0, "is not an amount"},
		{"NaN", "BRL", 0, "is not an amount"},
	} {
		got, err := parseMajor("--amount", tc.in, tc.cur)
		switch {
		case tc.fault == "" && (err != nil || got != tc.want):
			t.Errorf("parseMajor(%q, %s) = %d, %v; want %d", tc.in, tc.cur, got, err, tc.want)
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault) || !strings.Contains(err.Error(), "--amount")):
			t.Errorf("parseMajor(%q, %s) = %d, %v; want an error with %q", tc.in, tc.cur, got, err, tc.fault)
		}
	}
}

func TestFormatMajor(t *testing.T) {
	for _, tc := range []struct {
		v         int64
		cur, want string
	}{
		{37943687, "BRL", "379,436.87"},
		{5, "BRL", "0.05"},
		{0, "BRL", "0.00"},
		{-123456, "BRL", "-1,234.56"},
		{1000, "JPY", "1,000"},
		{999, "CREDIT", "999"},
		{math.MinInt64, "BRL", "-92,233,720,368,547,758.08"},
	} {
		if got := formatMajor(tc.v, tc.cur); got != tc.want {
			t.Errorf("formatMajor(%d, %s) = %q, want %q", tc.v, tc.cur, got, tc.want)
		}
	}
}
