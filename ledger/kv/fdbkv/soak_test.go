//go:build fdb && linux

package fdbkv

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// resident is the memory of this process, in bytes.
func resident(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// The client library's memory is freed by finalizers, so by Go's garbage
// collector, which does not see it: in a process with a large heap it runs
// rarely. The memory of the process stays bounded all the same.
func TestSoakMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("runs many transactions")
	}
	const rounds, perRound, workers = 5, 8000, 32
	const bound = 96 << 20
	s, err := Open(t.Context(), Options{ClusterFile: cluster(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	prefix := fmt.Appendf(nil, "soak/%016x/", rand.Uint64())
	// As a node with caches would have: the collector waits for as much again.
	ballast := bytes.Repeat([]byte{1}, 256<<20)
	runtime.GC()
	value := bytes.Repeat([]byte{7}, 400)
	one := func(i int) error {
		_, err := kv.Transact(context.Background(), s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			var reads [8]kv.Value
			for j := range reads {
				reads[j] = tx.Get(fmt.Appendf(bytes.Clone(prefix), "%05d", (i*7+j)%2000))
			}
			rows := tx.Snapshot().Range(kv.PrefixRange(prefix), kv.RangeOptions{Limit: 5})
			for _, r := range reads {
				if _, _, err := r.Wait(); err != nil {
					return err
				}
			}
			if _, _, err := rows.Wait(); err != nil {
				return err
			}
			tx.Set(fmt.Appendf(bytes.Clone(prefix), "%05d", i%2000), value)
			return nil
		})
		return err
	}
	var sizes []int
	for round := range rounds {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := w; i < perRound; i += workers {
					if err := one(i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		sizes = append(sizes, resident(t))
		t.Logf("after %d transactions: %d MiB resident, %d MiB of them ballast", (round+1)*perRound, sizes[round]>>20, len(ballast)>>20)
	}
	if grown := sizes[rounds-1] - sizes[0]; grown > bound {
		t.Errorf("from the first round to the last the process grew by %d MiB (allowed: %d)", grown>>20, bound>>20)
	}
	if total := sizes[rounds-1] - len(ballast); total > 3*bound {
		t.Errorf("the process has %d MiB beside the ballast (allowed: %d)", total>>20, 3*bound>>20)
	}
	runtime.KeepAlive(ballast)
	_, err = kv.Transact(context.Background(), s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.PrefixRange(prefix))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
