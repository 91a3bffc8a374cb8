package ledger

import (
	"testing"
	"time"
)

// BenchmarkDecide is the pure part of a command: what the state, the command
// and the time amount to.
func BenchmarkDecide(b *testing.B) {
	for _, name := range []string{"reserve", "replay", "commit"} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			c := Command{
				Op: OpReserve, Key: w.row.Key, Budget: w.budget.ID, Amount: 5, Currency: "BRL", TTL: 10 * time.Minute,
			}.Normalize()
			if name != "reserve" {
				w.do(Command{Op: OpReserve, Amount: 5})
			}
			if name == "commit" {
				c = Command{Op: OpCommit, Key: w.row.Key, ID: "p1"}.Normalize()
			}
			b.ReportAllocs()
			for b.Loop() {
				v := View{Now: w.now, Budget: &w.budget, Bucket: &w.bucket, Row: &w.row}
				if d := Decide(&v, &c); d.Rejection != nil || d.Result.Replayed != (name == "replay") {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}
