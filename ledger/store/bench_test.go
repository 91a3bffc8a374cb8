package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// BenchmarkApply runs batches of reserves on one bucket in memory, without
// queues: load, decide, encode, hash and the engine's commit, but no disk.
func BenchmarkApply(bb *testing.B) {
	for _, size := range []int{1, 16, 128} {
		bb.Run(fmt.Sprintf("batch=%d", size), func(bb *testing.B) {
			b := newBench(bb)
			b.fill("spring", 1, 1)
			at := &ledger.BucketID{Budget: budgetID("spring")}
			cmds := make([]ledger.Command, size)
			n := 0
			bb.ReportAllocs()
			for bb.Loop() {
				for i := range cmds {
					n++
					cmds[i] = reserve("spring", fmt.Sprintf("o-%010d", n), 1).Normalize()
				}
				got, err := b.Apply(context.Background(), at, cmds)
				if err != nil {
					bb.Fatal(causes(err))
				}
				for _, g := range got {
					if g.Err != nil || g.Reroute != nil {
						bb.Fatalf("%v, %v", g.Err, g.Reroute)
					}
				}
			}
			bb.ReportMetric(float64(bb.Elapsed().Nanoseconds())/float64(n), "ns/command")
		})
	}
}
