package main

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// webhookKey is the id of the key that --webhook makes. The receiver has to
// know it by the same one.
const webhookKey = "1"

// showSink prints a sink that was made or changed, and the key of its webhook
// where that has a new secret. answer is what the server said.
func (c *cli) showSink(s *sinkSettings, answer proto.Message, sink *cofferv1.Sink, secret string) error {
	switch {
	case !c.JSON:
		c.sinkTable([]*cofferv1.Sink{sink})
	case secret == "":
		return c.printMessage(answer)
	default:
		if err := c.printMessageWith(answer, "webhookKey", map[string]string{"id": webhookKey, "secret": secret}); err != nil {
			return err
		}
	}
	if secret == "" {
		return nil
	}
	c.notef("key id %s, secret %s: the receiver needs both; the secret is shown this once\n", webhookKey, secret)
	if notPublic(s.Webhook) {
		c.notef("the address is not public: the server delivers there only with relay.private_webhooks, as \"coffer dev\" does\n")
	}
	return nil
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
