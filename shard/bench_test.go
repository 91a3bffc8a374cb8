package shard

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// BenchmarkSingle reserves on disk, with fsync, from 64 callers of one command
// at a time on one bucket.
func BenchmarkSingle(b *testing.B) {
	e, id := onDisk(b, 1)
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := e.Do(context.Background(), order(id, n.Add(1))); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(e.count.commands.Load())/float64(e.count.batches.Load()), "commands/batch")
}

// onDisk gives an executor over a store on disk, with a budget.
func onDisk(b *testing.B, buckets int) (*Executor, ledger.BudgetID) {
	s, err := embedded.Open(embedded.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
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
	return e, id
}

func order(id ledger.BudgetID, n int64) ledger.Command {
	return ledger.Command{
		Op: ledger.OpReserve, Budget: id, Amount: 5, Currency: "BRL", TTL: time.Hour,
		Key: ledger.OrderKey{Tenant: tenant, Order: fmt.Sprintf("order-%012d", n), Benefit: "coupon:A"},
	}
}

// BenchmarkReserve reserves on disk, with fsync, from calls of 100 commands by
// callers at once.
func BenchmarkReserve(b *testing.B) {
	for _, buckets := range []int{1, 16} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			e, id := onDisk(b, buckets)
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
							cmds[i] = order(id, int64(base+c*batch+i))
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

// BenchmarkAdmit is what the door costs: the place of a lone command, and those
// of a call of a thousand.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("commands=%d", n), func(b *testing.B) {
			e, err := New(DefaultConfig(), nil)
			if err != nil {
				b.Fatal(err)
			}
			tasks := make([]task, n)
			for i := range tasks {
				tasks[i].cmd = reserve(budget("hot"), i, 5)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				g := &group{}
				for pb.Next() {
					if r := e.admit(g, tasks, false); r != nil {
						b.Error(r)
						return
					}
					e.settle(g.share, n)
				}
			})
		})
	}
}
