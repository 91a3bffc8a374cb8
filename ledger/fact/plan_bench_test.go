package fact

import (
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// The largest order there may be: as many facts as one may have, about as many
// benefits as one is looked at.
func BenchmarkPlanOfLargestOrder(b *testing.B) {
	v := View{Now: t0, Budgets: map[ledger.BudgetID]*ledger.Budget{}}
	var lines []Line
	for i := range MaxLines {
		lines = append(lines, Line{Benefit: fmt.Sprint("b", i), Attempt: 1, Amount: 1})
		v.Reservations = append(v.Reservations, ledger.Reservation{
			Key:      ledger.OrderKey{Tenant: "t", Order: "o", Benefit: lines[i].Benefit},
			Attempts: []ledger.Attempt{{Number: 1, State: ledger.StateReserved}},
		})
	}
	for i := range MaxPerOrder {
		f := says([]Kind{RefundSucceeded, RefundCancelled}[i%2], "r", lines...)
		f.Event = fmt.Sprint(i)
		for j := range f.Lines {
			f.Lines[j].Attempt = uint32(1 + i%2)
		}
		v.Facts = append(v.Facts, Row{Fact: f, State: Pending, Version: 1, Deadline: t0.Add(time.Hour)})
	}
	for b.Loop() {
		Plan(&v)
	}
}
