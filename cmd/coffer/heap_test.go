package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 6400, 4 << 20: 6400, 8 << 20: 3200, 64 << 20: 400, 256 << 20: 100, 1 << 30: 100, 1 << 40: 100,
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
