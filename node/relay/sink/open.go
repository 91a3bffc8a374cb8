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

// special are the ranges of the IANA's special-purpose registries that netip does
// not know for what they are, and that lead, or may lead, into a network of one's
// own; and those that hold an IPv4 address, behind which is every one of them
// again.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),      // this network
	netip.MustParsePrefix("100.64.0.0/10"),  // shared by a carrier's customers
	netip.MustParsePrefix("192.0.0.0/24"),   // assignments of protocols
	netip.MustParsePrefix("192.88.99.0/24"), // relays of 6to4
	netip.MustParsePrefix("198.18.0.0/15"),  // measurements
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved
	netip.MustParsePrefix("::/96"),          // IPv4-compatible
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b::/96"), // NAT64
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"),  // discarded
	netip.MustParsePrefix("2001::/32"), // Teredo
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("fec0::/10"), // site-local
}

func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a.WithZone("")) })
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
