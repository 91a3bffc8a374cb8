package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/node"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// server is a connection to a server, for one tenant.
type server struct {
	*rpc.Client
	url, ca    string
	currencies map[string]string
	// known is the currency of what the command works on, once it is known;
	// minor keeps amounts in errors as they are, for programs.
	known   string
	minor   bool
	timeout time.Duration
	inFlags func(error, *cofferv1.ErrorDetail) error
}

// defaultTenant is the tenant where neither a flag nor a token says otherwise.
const defaultTenant = "default"

// tenantName names the tenant in a sentence, once there is a client.
func (c *cli) tenantName() string {
	if c.Tenant == "" {
		return "the token's tenant (default, if it is for all)"
	}
	return "tenant " + c.Tenant
}

// dial makes a client of the server. It opens no connection yet.
func (c *cli) dial(opts ...rpc.Option) (*server, error) {
	u, err := url.Parse(c.Server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, usagef("--server is %.80q (allowed: a URL such as http://%s)", c.Server, node.DefaultListen)
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	switch {
	case token == "" && c.Insecure:
		return nil, idleFlag("insecure", "with a token")
	case token != "" && !c.Insecure && rpc.PlainToken(c.Server):
		return nil, usagef("--server is %.80q and there is a token, which would be sent in plain text (allowed: https://, this machine, or --insecure where something else encrypts)", c.Server)
	case token != "":
		opts = append(opts, rpc.WithToken(token), rpc.WithPlainToken())
	case c.Tenant == "":
		c.Tenant = defaultTenant
	}
	demands, err := c.trust.config(c, c.Server)
	if err != nil {
		return nil, err
	}
	opts = append([]rpc.Option{rpc.WithTenant(c.Tenant), rpc.WithTLS(demands)}, opts...)
	return &server{Client: rpc.NewClient(c.Server, opts...), url: c.Server, ca: c.CA, currencies: map[string]string{}, minor: c.JSON, timeout: c.Timeout, inFlags: c.inFlags}, nil
}

// explain says in an error what to do when no server answers, and shows the
// amounts in what a server says in major units.
func (s *server) explain(err error) error {
	var e *rpc.Error
	var op *net.OpError
	untrusted := s.untrusted(err)
	switch {
	case err == nil:
		return nil
	case untrusted != nil:
		return untrusted
	case !errors.As(err, &e):
		return err
	case e.Detail != nil:
		return s.inFlags(s.inMajor(err, e.Detail), e.Detail)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("the server at %s speaks no TLS: %w; name it with http://", s.url, http.ErrSchemeMismatch)
	case strings.HasPrefix(s.url, "http:") && strings.Contains(err.Error(), "400 Bad Request"): // Go's answer to plain text
		return fmt.Errorf("%s: %w; if that server speaks TLS, name it with https://", s.url, err)
	case errors.As(err, &op) && op.Op == "dial":
		said := fmt.Sprintf("no server answers at %s: %v; start one with \"coffer dev\" or \"coffer serve\", or name another with --server", s.url, op)
		if e.Unknown { // it answered no more, but one of the attempts before had reached it
			said += "; " + rpc.ErrOutcomeUnknown.Error()
		}
		return reworded{err, said}
	case e.Code == connect.CodeDeadlineExceeded && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer in %s; --timeout gives it longer: %w", s.url, s.timeout, err)
	case e.Code == connect.CodeUnimplemented:
		return fmt.Errorf("%s: %w; see that --server is the base URL of a Coffer server, such as http://%s, and no older one", s.url, err, node.DefaultListen)
	}
	return fmt.Errorf("%s: %w", s.url, err)
}

// unsent explains the error of a read that a command needs before it is sent.
// Where no server answered, it says that the command was not sent: the caller
// need not ask what became of it.
func (s *server) unsent(what string, err error) error {
	explained := s.explain(err)
	var e *rpc.Error
	var op *net.OpError
	if (errors.As(err, &e) && e.Detail != nil) || (errors.As(err, &op) && op.Op == "dial") {
		return explained // the server's own words, or that there is none
	}
	return fmt.Errorf("the command was not sent, since %s could not be read: %w", what, explained)
}

// call bounds one call.
func (c *cli) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.Timeout)
}

// withServer runs a command against the server, within its time.
func (c *cli) withServer(run func(context.Context, *server) error) error {
	s, err := c.dial()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := c.call()
	defer cancel()
	return run(ctx, s)
}

// onServer makes one call and says what its error means.
func onServer[T any](c *cli, call func(context.Context, *server) (T, error)) (res T, err error) {
	err = c.withServer(func(ctx context.Context, s *server) error {
		res, err = call(ctx, s)
		return s.explain(err)
	})
	return res, err
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
		return in.minor("")
	}
	a, err := s.attempt(ctx, b)
	if err != nil {
		return 0, s.unsent(b.reservation(), err)
	}
	switch {
	case a == nil:
		return 0, b.absent()
	case a.GetCurrency() == "":
		return 0, fmt.Errorf("attempt %d of benefit %s of order %s is %s and has no currency; give the amount with --minor, or check the attempt",
			b.Attempt, b.Benefit, b.Order, stateName(a.GetState()))
	}
	return in.minor(a.GetCurrency())
}

// attempt is the reservation that an order command works on, nil where there
// is none.
func (s *server) attempt(ctx context.Context, b benefit) (*cofferv1.Reservation, error) {
	res, err := s.GetReservation(ctx, b.Order, b.Benefit)
	if err != nil {
		return nil, err
	}
	for _, a := range res {
		if a.Attempt == b.Attempt {
			s.known = a.Currency
			return a, nil
		}
	}
	return nil, nil
}

// refused explains the error of an order command. It asks for the currency of
// the reservation if an amount has to be shown in it.
func (s *server) refused(ctx context.Context, b benefit, err error) error {
	var e *rpc.Error
	if errors.As(err, &e) && s.known == "" && !s.minor && hasAmounts(e.Detail) {
		_, _ = s.attempt(ctx, b) // without it the amounts stay as they are
	}
	return s.explain(err)
}

// inMajor is a server's refusal with its amounts in major units, where the
// currency is known.
func (s *server) inMajor(err error, d *cofferv1.ErrorDetail) error {
	if s.minor || s.known == "" || !hasAmounts(d) {
		return err
	}
	major := func(text string) string {
		if strings.Contains(text, "minor units") {
			return text
		}
		all := wholeNumber.ReplaceAllStringFunc(text, func(n string) string {
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return n
			}
			return formatMajor(v, s.known)
		})
		return all + " " + s.known
	}
	text := err.Error()
	if field, ok := strings.CutSuffix(d.GetField(), "_minor"); ok {
		text = strings.Replace(text, d.GetField()+" "+d.GetValue()+" ", field+" "+major(d.GetValue())+" ", 1)
	}
	text = strings.Replace(text, "(allowed: "+d.GetLimit()+")", "(allowed: "+major(d.GetLimit())+")", 1)
	return reworded{err, text}
}

// hasAmounts reports whether a refusal names amounts in minor units.
func hasAmounts(d *cofferv1.ErrorDetail) bool {
	return strings.HasSuffix(d.GetField(), "_minor") || (d.GetReason() == string(ledger.InsufficientBudget) && d.GetLimit() != "")
}

var wholeNumber = regexp.MustCompile(`-?\b\d+\b`)

// reworded is an error in other words.
type reworded struct {
	error
	text string
}

// Error gives the words.
func (e reworded) Error() string { return e.text }

// Unwrap returns the error as it was.
func (e reworded) Unwrap() error { return e.error }

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
