package shard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// BenchmarkReserve reserves on disk, with fsync, from calls of 100 commands by
// callers at once.
func BenchmarkReserve(b *testing.B) {
	for _, buckets := range []int{1, 16} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			s, err := embedded.Open(embedded.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			st, err := store.Open(context.Background(), s, store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			e, err := New(DefaultConfig(), st)
			if err != nil {
				b.Fatal(err)
			}
			id := budget("hot")
			for _, c := range []ledger.Command{
				{Op: ledger.OpCreate, Budget: id, Currency: "BRL", Buckets: buckets},
				{Op: ledger.OpFund, Budget: id, Amount: 1 << 50, Currency: "BRL", ID: "f"},
			} {
				if _, err := e.Do(context.Background(), c); err != nil {
					b.Fatal(err)
				}
			}
			const batch, callers = 100, 16
			b.ReportAllocs()
			start := time.Now()
			n := 0
			b.ResetTimer()
			errs := make(chan error, callers)
			for b.Loop() {
				base := n
				for c := range callers {
					go func() {
						cmds := make([]ledger.Command, batch)
						for i := range cmds {
							cmds[i] = ledger.Command{
								Op: ledger.OpReserve, Budget: id, Amount: 5, Currency: "BRL", TTL: time.Hour,
								Key: ledger.OrderKey{Tenant: tenant, Order: fmt.Sprintf("order-%012d", base+c*batch+i), Benefit: "coupon:A"},
							}
						}
						for _, r := range e.DoAll(context.Background(), cmds) {
							if r.Err != nil {
								errs <- r.Err
								return
							}
						}
						errs <- nil
					}()
				}
				for range callers {
					if err := <-errs; err != nil {
						b.Fatal(err)
					}
				}
				n += batch * callers
			}
			b.ReportMetric(float64(n)/time.Since(start).Seconds(), "commands/s")
			b.ReportMetric(float64(e.count.commands.Load())/float64(e.count.batches.Load()), "commands/batch")
		})
	}
}
