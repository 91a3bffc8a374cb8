package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
)

// Sink hands events to one receiver. It is safe for concurrent use, but the
// order per key holds only among the events of one call: a caller that has
// several calls under way keeps a key in one of them.
type Sink interface {
	// Deliver sends the events, in order per key, and returns one error per
	// event; nil means that the receiver has it, as durably as its own rules
	// say. After an event failed, later events of its key are not sent and
	// have ErrHeld. A *Refused says that the receiver will not take this very
	// event; any other error that the event is to be sent again, not before
	// RetryAfter. An event whose error is not nil may have arrived all the
	// same. ctx bounds the call.
	Deliver(ctx context.Context, events []*event.Event) []error
	// Ping checks that the receiver can be reached and lets this sink in.
	Ping(ctx context.Context) error
	// Close ends connections. It waits for no delivery.
	Close() error
}

// ErrHeld is the error of an event that was not sent because one before it, of
// the same key, failed.
var ErrHeld = errors.New("held back: an earlier event of the same key was not delivered")

// Refused is the error of an event that its receiver will not take, however
// often it is sent.
type Refused struct {
	// Reason is what the receiver said, cut to MaxReason bytes.
	Reason string
}

// MaxReason bounds what is kept of a receiver's answer.
const MaxReason = 512

func (r *Refused) Error() string { return "refused by the receiver: " + r.Reason }

// Trouble is the error of a receiver that is not well, or not there.
type Trouble struct {
	Err error
	// After is how long the receiver asked to be left alone, 0 if it did not.
	After time.Duration
	// Unsent: the event was not even sent, because others had failed before it.
	Unsent bool
}

func (t *Trouble) Error() string {
	if t.After > 0 && !t.Unsent { // what is left of a wait changes all the time
		return fmt.Sprintf("%v (not again before %s)", t.Err, t.After)
	}
	return t.Err.Error()
}

func (t *Trouble) Unwrap() error { return t.Err }

// RetryAfter is how long an error asks to wait before the next try, 0 where it
// does not say.
func RetryAfter(err error) time.Duration {
	var t *Trouble
	if errors.As(err, &t) {
		return t.After
	}
	return 0
}

// Sent reports whether an event with this error was sent, so that the error may
// have to do with it.
func Sent(err error) bool {
	var t *Trouble
	return !errors.Is(err, ErrHeld) && !(errors.As(err, &t) && t.Unsent)
}

// Deps is what a sink takes from the node.
type Deps struct {
	// Private allows webhooks to addresses that are not public: loopback,
	// private and link-local ones. Whoever may configure a webhook could
	// reach the node's own network through it.
	Private bool
	// Source is that of pings, empty for event.DefaultSource.
	Source string
	// Tenant is the one whose sink it is, which a NATS ping has in its subject as
	// that tenant's events do.
	Tenant string
	// Dial replaces the network, for tests; nil: the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}
