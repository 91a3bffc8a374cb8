package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// failer is an engine that can say that it has failed for good.
type failer interface {
	Failed() <-chan struct{}
	Failure() error
}

// watchEngine returns when the engine says that it has failed for good, such as
// after a disk fault. Then the node ends, and what starts it again recovers.
func watchEngine(ctx context.Context, engine kv.Store) error {
	e, ok := engine.(failer)
	if !ok {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-e.Failed():
		return storeFailed{e.Failure()}
	}
}

// readFaultsPause is the least time between two lines about reads that the disk
// does not answer.
const readFaultsPause = time.Minute

// logReadFaults logs what an engine that goes on tells of its disk. Callers are told
// to send again, which helps where the disk recovers; where it does not, nobody
// else would say so.
func logReadFaults(ctx context.Context, log zerolog.Logger, engine any) {
	e, ok := engine.(interface{ ReadFaults() <-chan error })
	if !ok {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-e.ReadFaults():
			log.Error().Err(err).Msg("the disk does not give a file of the store; what needs it is refused with UNAVAILABLE until it does: look at the disk")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(readFaultsPause):
		}
	}
}

// storeFailed is the failure of a store in words for a process that ends by it.
type storeFailed struct{ cause error }

// Error gives the reasons and what to do. The words that the engine has put
// around the reasons are for a process that goes on, and are left out.
func (e storeFailed) Error() string {
	s := "store failed: "
	if m, ok := e.cause.(interface{ Unwrap() []error }); ok {
		var reasons []string
		for _, r := range m.Unwrap() {
			reasons = append(reasons, r.Error())
		}
		s += strings.Join(reasons, ": ")
	} else {
		s += e.cause.Error()
	}
	if errors.Is(e.cause, kv.ErrDamaged) {
		return s
	}
	return s + "; what was acknowledged is on disk: make room there, or repair it, then start the node again"
}

// Unwrap returns the engine's failure.
func (e storeFailed) Unwrap() error { return e.cause }

// closeEngine adds to err what closing the engine met. A failed engine cannot be
// closed well; where err tells of the failure, that says nothing new.
func closeEngine(engine kv.Store, err error) error {
	cerr := engine.Close()
	var failed storeFailed
	if cerr == nil || errors.As(err, &failed) {
		return err
	}
	return errors.Join(err, fmt.Errorf("close store: %w", cerr))
}
