package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/coffer-ledger/coffer/ledger/event"
)

// Open validates a configuration and makes its sink. It connects to nothing
// before the first Deliver or Ping.
func Open(c Config, d Deps) (Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	switch c.Kind {
	case KindWebhook:
		return newWebhook(c.Webhook, d)
	case KindNATS:
		return newNATS(c.NATS, d)
	case KindKafka:
		return newKafka(c.Kafka, d)
	default:
		return nil, fmt.Errorf("sink: kind %q has no driver", c.Kind)
	}
}

// or is d, or a default where it is 0.
func or(d Duration, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return time.Duration(d)
}

const (
	dialTimeout = 5 * time.Second
	keepAlive   = 30 * time.Second
)

// errPrivate is the error of an address that Deps.Private does not allow.
var errPrivate = errors.New("the address is not public, and this node delivers to public addresses alone (relay.private_webhooks allows others)")

// dialer is what all drivers connect with.
func (d Deps) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if d.Dial != nil {
		return d.Dial
	}
	n := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	if !d.Private {
		// Here, and not by name: the address is the one that is connected to.
		n.Control = func(_, address string, _ syscall.RawConn) error {
			if a, err := netip.ParseAddrPort(address); err != nil || !public(a.Addr()) {
				return errPrivate
			}
			return nil
		}
	}
	return n.DialContext
}

// shared is the address space of carriers (RFC 6598), translated that of NAT64
// (RFC 6052), behind which is every IPv4 address again.
var shared, translated = netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("64:ff9b::/96")

func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a) && !translated.Contains(a)
}

// lane is the events of one key, by their places in what Deliver was given.
type lane []int

// lanes groups events by key. Lanes stand in the order of their first events.
func lanes(events []*event.Event) []lane {
	var out []lane
	at := make(map[string]int)
	for i, e := range events {
		k := e.Key()
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}

// inRounds sends the first event of each key at once, then the second of those
// whose first was taken, and so on: for drivers that send many events at once
// and hear of each later. send returns one error for each event it was given.
func inRounds(ctx context.Context, events []*event.Event, send func(context.Context, []*event.Event) []error) []error {
	errs := make([]error, len(events))
	for round, left := 0, lanes(events); len(left) > 0; round++ {
		batch := make([]*event.Event, len(left))
		for i, l := range left {
			batch[i] = events[l[round]]
		}
		var sent []error
		if err := ctx.Err(); err == nil {
			sent = send(ctx, batch)
		} else {
			sent = slices.Repeat([]error{&Trouble{Err: err}}, len(batch))
		}
		var next []lane
		for i, err := range sent {
			l := left[i]
			errs[l[round]] = err
			if err != nil {
				hold(errs, l[round+1:])
			} else if round+1 < len(l) {
				next = append(next, l)
			}
		}
		left = next
	}
	return errs
}

func hold(errs []error, l lane) {
	for _, i := range l {
		errs[i] = ErrHeld
	}
}

// cut bounds what a receiver said, for people to read.
func cut(s string) string {
	if len(s) > MaxReason {
		s = s[:MaxReason]
	}
	return fmt.Sprintf("%.*q", MaxReason, s)
}
