package main

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/rpc"
)

// webhookKey is the id of the key that --webhook makes. The receiver has to
// know it by the same one.
const webhookKey = "1"

// showSecret prints the key of a webhook that was made, and what else the
// receiver's address asks for.
func (c *cli) showSecret(s *sinkSettings, secret string) {
	c.notef("key id %s, secret %s: the receiver needs both; the secret is shown this once\n", webhookKey, secret)
	if notPublic(s.Webhook) {
		c.notef("the address is not public: the server delivers there only with relay.private_webhooks, as \"coffer dev\" does\n")
	}
}

// notPublic reports whether a URL names this machine or a private network by
// itself. A name may lead there as well; that is for the server to see.
func notPublic(webhook string) bool {
	u, err := url.Parse(webhook)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return strings.EqualFold(u.Hostname(), "localhost")
	}
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
}

// exists is the error of a sink that is there already, where its configuration
// is one that --webhook makes: its secret is new each time, so the same values
// cannot be sent again.
func (s *sinkSettings) exists(sink string, err error) error {
	var e *rpc.Error
	if s.Webhook == "" || !errors.As(err, &e) || e.Detail.GetReason() != string(ledger.IdempotencyConflict) {
		return err
	}
	others := ""
	if fields := slices.DeleteFunc(slices.Clone(e.Detail.GetDifferingFields()), func(f string) bool { return f == "config" }); len(fields) > 0 {
		others = fmt.Sprintf(", with other values of %s, which an update leaves", strings.Join(fields, ", "))
	}
	return reworded{err, fmt.Sprintf("%s: sink %s exists%s; \"coffer events sinks update %s --webhook %s\" gives it this URL and a new secret", ledger.IdempotencyConflict, sink, others, sink, s.Webhook)}
}
