package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Bounds of the heap, where GOGC does not say otherwise.
const (
	// heapGrowth is by how many bytes the heap grows before it is collected, or
	// by what lives if that is more. What lives is a few megabytes in most
	// processes, and the runtime's own rule, to collect when they have doubled,
	// would do so many times a second: callers wait for each. A percentage that
	// suits them would be a disaster where much lives: in a build without cgo
	// the engine's cache and tables do, which are outside of the heap else.
	heapGrowth = 256 << 20
	// leastLive keeps the percentage of a heap that is all but empty sane.
	leastLive = 8 << 20
)

// gcPercent is the GOGC that lets a heap in which so many bytes live grow by
// heapGrowth, or to twice its size.
func gcPercent(live uint64) int {
	return int(max(100, 100*heapGrowth/max(live, leastLive))) //nolint:gosec // at most 3200
}

// tuneHeap keeps the growth of the heap: it sets GOGC anew after each
// collection, from what that found alive.
func tuneHeap() {
	// Unreachable at once, so each collection finds it, and its finalizer puts
	// it there again.
	runtime.SetFinalizer(&collected{}, (*collected).seen)
	debug.SetGCPercent(gcPercent(0))
}

// collected is found by each collection. It is too large to share its memory
// with others, which would keep it alive.
type collected struct{ _ [32]byte }

func (c *collected) seen() {
	retune()
	runtime.SetFinalizer(c, (*collected).seen)
}

// retune sets GOGC by what the last collection found alive. That stops the
// world for a moment, so small changes are left.
func retune() {
	// GOGC is a percentage of these together.
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	want := gcPercent(s[0].Value.Uint64() + s[1].Value.Uint64() + s[2].Value.Uint64())
	have := int(s[3].Value.Uint64()) //nolint:gosec // a percentage
	if diff := want - have; 10*max(diff, -diff) > have {
		debug.SetGCPercent(want)
	}
}
