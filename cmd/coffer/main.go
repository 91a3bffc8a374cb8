package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// spareProcs is how many processors Go's scheduler has beyond those of the
// machine, where GOMAXPROCS does not say otherwise. A goroutine that waits for
// the disk keeps the one it ran on: the runtime looks only every ten
// milliseconds for such to take back, a sync of the log lasts a fifth of one,
// and there is one after the other. So one is for the log, and two are for
// writing tables out and merging them. On two cores that is a tenth more calls,
// and half the p99.
const spareProcs = 3

func main() {
	if os.Getenv("GOGC") == "" {
		tuneHeap()
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareProcs)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one has its default effect: the
	// process ends at once. The store needs no clean shutdown.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(code)
}
