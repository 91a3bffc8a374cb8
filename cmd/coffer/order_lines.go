package main

import (
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/encoding/protojson"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// maxQuoteBytes bounds a quote's file.
const maxQuoteBytes = 1 << 20

// readQuote reads the JSON form of a quote; nil without a file.
func readQuote(file string) (*cofferv1.Quote, error) {
	if file == "" {
		return nil, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("--quote: %w", err)
	}
	if info.Size() > maxQuoteBytes {
		return nil, usagef("--quote %s has %d bytes (allowed: up to %d)", file, info.Size(), maxQuoteBytes)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--quote: %w", err)
	}
	q := &cofferv1.Quote{}
	if err := protojson.Unmarshal(raw, q); err != nil {
		return nil, usagef("--quote %s is no quote: %v (its form is in \"coffer order reserve --help\")", file, err)
	}
	return q, nil
}

// allocationTable shows who paid what of a quoted benefit by line, and what was
// refunded.
func (c *cli) allocationTable(r *cofferv1.Reservation) {
	a, cur := r.GetAllocation(), r.GetCurrency()
	name := "quote"
	if a.GetQuoteId() != "" {
		name += " " + a.GetQuoteId()
	}
	c.printf("\n%s of %s, attempt %d\n\n", name, r.GetBenefitKey(), r.GetAttempt())
	t := c.table(table.Row{"line", "quantity", "refunded units", "funder", "weight", "paid", "refunded"}, "quantity", "refunded units", "weight", "paid", "refunded")
	for _, l := range a.GetLines() {
		for i, f := range l.GetFunders() {
			line, quantity, back, weight := "", "", "", ""
			if i == 0 {
				line, quantity, back = l.GetLineId(), fmt.Sprint(l.GetQuantity()), fmt.Sprint(l.GetRefundedQuantity())
			}
			if f.GetFunderId() != "" {
				weight = fmt.Sprint(f.GetWeight())
			}
			t.row(line, quantity, back, f.GetFunderId(), weight, formatMajor(f.GetPaidMinor(), cur), formatMajor(f.GetRefundedMinor(), cur))
		}
	}
	t.print()
}
