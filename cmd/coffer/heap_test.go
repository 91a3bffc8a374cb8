package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 3200, 4 << 20: 3200, 8 << 20: 3200, 16 << 20: 1600, 64 << 20: 400, 256 << 20: 100, 1 << 30: 100, 1 << 40: 100,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d MiB alive GOGC is %d, want %d", live>>20, got, want)
		}
	}
}

// TestRetune: what lives in the process decides, as of its last collection.
func TestRetune(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	after := func(alive int) int {
		keep := make([]byte, alive)
		runtime.GC()
		retune()
		defer runtime.KeepAlive(keep)
		return percent()
	}
	with, without := after(64<<20), after(0)
	if with > 400 || with < 100 || without <= with {
		t.Errorf("GOGC is %d with 64 MiB more alive and %d without; want at most 400, and more without", with, without)
	}
}

// TestRetuneStacks: GOGC counts stacks too, so many of them must not let the
// heap grow by a multiple of heapGrowth.
func TestRetuneStacks(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	var deep, done sync.WaitGroup
	end := make(chan struct{})
	for range 2000 {
		deep.Add(1)
		done.Go(func() { dive(4, func() { deep.Done(); <-end }) })
	}
	deep.Wait()
	runtime.GC()
	retune()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	close(end)
	done.Wait()
	if goal, live := s[0].Value.Uint64(), s[1].Value.Uint64(); goal > 2*live+heapGrowth*3/2 {
		t.Errorf("the heap may grow to %d MiB with %d MiB alive", goal>>20, live>>20)
	}
}

// dive calls f with some KiB of stack in use.
func dive(depth int, f func()) {
	var room [2048]byte
	if depth == 0 {
		f()
	} else {
		dive(depth-1, f)
	}
	runtime.KeepAlive(&room)
}

// TestTuneHeap: a collection is enough to set GOGC anew, and so is the next.
func TestTuneHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	tuneHeap()
	for range 2 {
		debug.SetGCPercent(17)
		for percent() == 17 { // the finalizer has a goroutine of its own
			runtime.GC()
		}
	}
}

func percent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}
