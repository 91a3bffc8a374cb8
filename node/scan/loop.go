package scan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
)

// fenced reports whether an error says that another leader's term is current:
// then nothing that this scanner does takes effect any more.
func fenced(err error) bool { return errors.Is(err, &ledger.Rejection{Code: ledger.Fenced}) }

// newLoop makes a loop that does not run yet.
func newLoop(name string, interval, stallAfter time.Duration, pass func(context.Context) (bool, error), log zerolog.Logger) loop {
	return loop{name: name, interval: interval, stallAfter: stallAfter, pass: pass, log: log, passing: make(chan struct{}, 1)}
}

// loop makes passes, one at a time, and knows how they go.
type loop struct {
	name string // "expiry": as errors and the log call it
	// interval is the time from one pass to the next. A pass that leaves work
	// behind is followed at once.
	interval time.Duration
	// stallAfter is how long no pass may complete before the loop is not ready.
	stallAfter time.Duration
	// pass makes one pass. more says that it left work although nothing was
	// wrong.
	pass func(ctx context.Context) (more bool, err error)
	log  zerolog.Logger

	// passing has room for the one pass that runs.
	passing chan struct{}

	mu             sync.Mutex
	running        bool
	started        time.Time
	passed         time.Time // when the last complete pass began
	passes, failed uint64
}

// loopStatus is what a loop knows about itself.
type loopStatus struct {
	running        bool
	passes, failed uint64
	// sincePass is the time since the last complete pass began, or since the
	// loop began while there was none; zero while the loop does not run.
	sincePass time.Duration
}

// run makes passes until ctx ends, and then returns nil. A pass that fails is
// logged and tried again; it is the readiness of the node that tells. One that
// was fenced off ends run with its error. It may be called again after it has
// returned.
func (l *loop) run(ctx context.Context) error {
	l.begin()
	defer l.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		start := time.Now()
		more, err := l.safePass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if fenced(err) {
			return err
		}
		l.finish(start, err)
		wait := l.interval
		if more && err == nil {
			wait = 0
		}
		timer.Reset(wait)
	}
}

// once makes one pass by hand.
func (l *loop) once(ctx context.Context) error {
	start := time.Now()
	_, err := l.safePass(ctx)
	l.finish(start, err)
	return err
}

// safePass makes one pass, after any other one; a panic in it fails the pass
// and not the node.
func (l *loop) safePass(ctx context.Context) (more bool, err error) {
	select {
	case l.passing <- struct{}{}:
		defer func() { <-l.passing }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s pass: panic: %v", l.name, p)
		}
	}()
	return l.pass(ctx)
}

func (l *loop) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.started, l.passed = true, time.Now(), time.Time{}
}

func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
}

func (l *loop) finish(start time.Time, err error) {
	l.mu.Lock()
	if err != nil {
		l.failed++
	} else {
		l.passes++
		l.passed = start
	}
	l.mu.Unlock()
	if err != nil {
		l.log.Error().Err(err).Msg(l.name + " pass failed")
	}
}

func (l *loop) status() loopStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := loopStatus{running: l.running, passes: l.passes, failed: l.failed}
	switch {
	case !l.running:
	case !l.passed.IsZero():
		s.sincePass = time.Since(l.passed)
	case !l.started.IsZero():
		s.sincePass = time.Since(l.started)
	}
	return s
}

// ready is nil while the loop completes its passes, and where it does not run:
// scanners run on the leader alone.
func (l *loop) ready() error {
	if s := l.status(); s.sincePass > l.stallAfter {
		return fmt.Errorf("the %s scanner has completed no pass for %s (allowed: %s)",
			l.name, s.sincePass.Round(time.Millisecond), l.stallAfter)
	}
	return nil
}

// pause waits until n things were worth the time since start.
func pause(ctx context.Context, start time.Time, n, rate int) error {
	wait := time.Duration(n)*time.Second/time.Duration(rate) - time.Since(start)
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
