package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/coffer-ledger/coffer/node"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// server is a connection to a server, for one tenant.
type server struct {
	*rpc.Client
	url        string
	currencies map[string]string
}

// dial makes a client of the server. It opens no connection yet.
func (c *cli) dial(opts ...rpc.Option) (*server, error) {
	u, err := url.Parse(c.Server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, usagef("--server is %.80q (allowed: a URL such as http://%s)", c.Server, node.DefaultListen)
	}
	if c.Timeout <= 0 {
		return nil, usagef("--timeout is %s (allowed: more than 0)", c.Timeout)
	}
	opts = append([]rpc.Option{rpc.WithTenant(c.Tenant)}, opts...)
	return &server{Client: rpc.NewClient(c.Server, opts...), url: c.Server, currencies: map[string]string{}}, nil
}

// explain says in an error what to do when no server answers.
func (s *server) explain(err error) error {
	var e *rpc.Error
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e) || e.Detail != nil:
		return err
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("no server answers at %s: %w; start one with \"coffer dev\" or \"coffer serve\", or name another with --server", s.url, op)
	}
	return fmt.Errorf("%s: %w", s.url, err)
}

// call bounds one call.
func (c *cli) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.Timeout)
}

// currency is a budget's currency, empty where it cannot be told: it only
// serves to show amounts.
func (s *server) currency(ctx context.Context, budget string) string {
	if cur, ok := s.currencies[budget]; ok {
		return cur
	}
	res, err := s.GetBudget(ctx, budget)
	if err != nil {
		return ""
	}
	cur := res.Budget.GetCurrency()
	s.currencies[budget] = cur
	return cur
}

// minorOf is an amount in minor units of the currency a reservation has.
func (s *server) minorOf(ctx context.Context, b benefit, in moneyIn) (int64, error) {
	if in.Amount == "" {
		return in.Minor, nil
	}
	res, err := s.GetReservation(ctx, b.Order, b.Benefit)
	if err != nil {
		return 0, s.explain(err)
	}
	for _, a := range res {
		if a.Attempt == b.Attempt && a.Currency != "" {
			return in.minor(a.Currency)
		}
	}
	return 0, fmt.Errorf("order %s has no reservation of benefit %s in attempt %d; give the amount with --minor, or check the attempt", b.Order, b.Benefit, b.Attempt)
}

// sentence is a refusal in one line, after its reason.
func sentence(d *cofferv1.ErrorDetail, field string) string {
	var b strings.Builder
	if field != "" {
		fmt.Fprintf(&b, "%s %s ", field, d.GetValue())
	}
	b.WriteString(d.GetMessage())
	if d.GetLimit() != "" {
		fmt.Fprintf(&b, " (allowed: %s)", d.GetLimit())
	}
	return b.String()
}
