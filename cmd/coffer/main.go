package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// gcPercent is how far the heap grows beyond what lives before it is
// collected, where GOGC does not say otherwise. What lives is a few megabytes
// (data is in the engine, outside of the heap), so the runtime's own 100 would
// collect many times a second, and each time callers wait for it.
const gcPercent = 800

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one has its default effect: the
	// process ends at once. The store needs no clean shutdown.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(code)
}
