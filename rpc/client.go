package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// Protocol is the wire protocol of a Client.
type Protocol uint8

// Protocols. Connect is the default; it is the fastest with Go on both sides.
const (
	ProtocolConnect Protocol = iota
	ProtocolGRPC
	ProtocolGRPCWeb
)

// Bounds of a client's patience, where no option says otherwise.
const (
	DefaultMaxAttempts    = 8
	DefaultAttemptTimeout = 5 * time.Second
	firstDelay            = 20 * time.Millisecond
	maxDelay              = 2 * time.Second
	// idleConnsPerHost lets a crowd of callers keep its connections.
	idleConnsPerHost = 256
)

// Client calls a Coffer server and repeats calls safely: a command that got
// no answer is sent again with the same key, which takes effect once however
// often it arrives. It is safe for concurrent use.
//
// Errors are *[Error]. When a command was given up without knowing whether it
// took effect, the error matches [ErrOutcomeUnknown]; [Client.Resolve] settles
// such a command.
type Client struct {
	budgets      cofferv1connect.BudgetServiceClient
	reservations cofferv1connect.ReservationServiceClient
	credits      cofferv1connect.CreditServiceClient
	ledger       cofferv1connect.LedgerServiceClient
	operator     cofferv1connect.OperatorServiceClient
	queue        cofferv1connect.QueueServiceClient
	facts        cofferv1connect.FactServiceClient
	events       cofferv1connect.EventServiceClient
	sinks        cofferv1connect.SinkServiceClient

	gather *gatherer // nil: each command is a call of its own
	opt    clientOptions
	base   string
}

type clientOptions struct {
	tenant         string
	token          string
	plainToken     bool
	protocol       Protocol
	http           *http.Client
	tls            *tls.Config
	maxAttempts    int
	attemptTimeout time.Duration
	firstDelay     time.Duration
	maxMessage     int
	unary          bool
}

// Option changes a Client.
type Option func(*clientOptions)

// WithTenant sends the tenant with every call. A token for one tenant needs none.
func WithTenant(tenant string) Option { return func(o *clientOptions) { o.tenant = tenant } }

// WithProtocol selects the wire protocol.
func WithProtocol(p Protocol) Option { return func(o *clientOptions) { o.protocol = p } }

// WithTLS sets what the client demands and shows where baseURL begins with
// https://, such as RootCAs for the certificates of an authority of your own.
// A client of WithHTTPClient has settings of its own.
func WithTLS(c *tls.Config) Option { return func(o *clientOptions) { o.tls = c } }

// WithHTTPClient uses c for all calls: the place for proxies, say. It must
// speak HTTP/2 for gRPC. Its Timeout must be zero; attempts have their own.
func WithHTTPClient(c *http.Client) Option { return func(o *clientOptions) { o.http = c } }

// WithMaxAttempts bounds how often a call is sent, the first time included.
// 1 never repeats.
func WithMaxAttempts(n int) Option { return func(o *clientOptions) { o.maxAttempts = max(n, 1) } }

// WithAttemptTimeout bounds one attempt. The context of a call bounds all of
// them together.
func WithAttemptTimeout(d time.Duration) Option {
	return func(o *clientOptions) { o.attemptTimeout = d }
}

// WithoutBatching sends each call as a request of its own. By default, what
// many callers give at once travels together in batches, single commands and
// calls of Execute with up to 16; no command waits for company. A batch belongs
// to no caller, so what a caller keeps in its context for the HTTP client (a
// span, say) does not reach it: use this option where that matters. A call with
// headers of its own (connect.NewClientContext) shares no batch either way.
func WithoutBatching() Option { return func(o *clientOptions) { o.unary = true } }

// NewClient makes a client of the server at baseURL, such as
// "http://localhost:7420". It opens no connection before the first call. Where
// baseURL is no such URL, no call is sent, and each ends with an error that says so.
func NewClient(baseURL string, opts ...Option) *Client {
	o := clientOptions{maxAttempts: DefaultMaxAttempts, attemptTimeout: DefaultAttemptTimeout, firstDelay: firstDelay, maxMessage: 64 << 20}
	for _, opt := range opts {
		opt(&o)
	}
	if o.http == nil {
		o.http = newHTTPClient(o.protocol, o.tls)
	}
	if o.token != "" {
		o.http = withoutRedirects(o.http)
	}
	return newClient(baseURL, o)
}

func newClient(baseURL string, o clientOptions) *Client {
	topts := []connecthttp.Option{connecthttp.WithReadMaxBytes(o.maxMessage)}
	switch o.protocol {
	case ProtocolGRPC:
		topts = append(topts, connecthttp.WithGRPC())
	case ProtocolGRPCWeb:
		topts = append(topts, connecthttp.WithGRPCWeb())
	case ProtocolConnect:
	}
	headers := []connect.ClientInterceptor{reachable(baseURL), sendTenant(o.tenant)}
	if o.token != "" {
		headers = append(headers, sendToken(&o, baseURL))
	}
	c := connect.NewClient(connecthttp.NewTransport(o.http, baseURL, topts...), headers...)
	client := &Client{
		budgets:      cofferv1connect.NewBudgetServiceClient(c),
		reservations: cofferv1connect.NewReservationServiceClient(c),
		credits:      cofferv1connect.NewCreditServiceClient(c),
		ledger:       cofferv1connect.NewLedgerServiceClient(c),
		operator:     cofferv1connect.NewOperatorServiceClient(c),
		queue:        cofferv1connect.NewQueueServiceClient(c),
		facts:        cofferv1connect.NewFactServiceClient(c),
		events:       cofferv1connect.NewEventServiceClient(c),
		sinks:        cofferv1connect.NewSinkServiceClient(c),
		opt:          o, base: baseURL,
	}
	if !o.unary {
		client.gather = &gatherer{most: maxFlights, execute: func(ctx context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
			return once(ctx, o.attemptTimeout, client.reservations.Execute, &cofferv1.ExecuteRequest{Commands: msgs})
		}}
	}
	return client
}

// newHTTPClient speaks HTTP/1.1 for Connect, where it is faster on the
// machines this was measured on, and HTTP/2 for gRPC, which needs it.
func newHTTPClient(p Protocol, c *tls.Config) *http.Client {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, Protocols: new(http.Protocols),
		MaxIdleConnsPerHost: idleConnsPerHost, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig: c.Clone(),
	}
	if p == ProtocolGRPC {
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
	}
	return &http.Client{Transport: t}
}

// reachable refuses calls to what is no base URL of a server: the transport
// would find out at each attempt, and could not tell that nothing was sent.
func reachable(baseURL string) connect.ClientInterceptor {
	u, err := url.Parse(baseURL)
	ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
	return func(next connect.ClientFunc) connect.ClientFunc {
		if ok {
			return next
		}
		return func(context.Context, connect.Spec) (connect.ClientStream, error) {
			return nil, notSent(connect.CodeInvalidArgument, fmt.Errorf(
				"the server's base URL is %.80q (allowed: http:// or https:// with a host, such as http://127.0.0.1:7420)", baseURL))
		}
	}
}

// sendTenant puts the tenant into each call's headers.
func sendTenant(tenant string) connect.ClientInterceptor {
	return func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			if tenant != "" {
				if !fitsHeader(tenant) {
					return nil, notSent(connect.CodeInvalidArgument, fmt.Errorf("tenant %.40q has a control character: no call can carry it", tenant))
				}
				if info, ok := connect.CallInfoForClientContext(ctx); ok {
					info.RequestHeader().Set(TenantHeader, tenant)
				}
			}
			return next(ctx, spec)
		}
	}
}

// ForTenant is the same client for another tenant. Both share connections.
func (c *Client) ForTenant(tenant string) *Client {
	o := c.opt
	o.tenant = tenant
	return newClient(c.base, o)
}

// Close drops idle connections. Calls under way go on.
func (c *Client) Close() { c.opt.http.CloseIdleConnections() }

// The generated clients send each call once and give the transport's errors.

// Budgets is the generated client of BudgetService.
func (c *Client) Budgets() cofferv1connect.BudgetServiceClient { return c.budgets }

// Reservations is the generated client of ReservationService.
func (c *Client) Reservations() cofferv1connect.ReservationServiceClient { return c.reservations }

// Ledger is the generated client of LedgerService.
func (c *Client) Ledger() cofferv1connect.LedgerServiceClient { return c.ledger }

// Operator is the generated client of OperatorService.
func (c *Client) Operator() cofferv1connect.OperatorServiceClient { return c.operator }

// Queue is the generated client of QueueService.
func (c *Client) Queue() cofferv1connect.QueueServiceClient { return c.queue }

// Facts is the generated client of FactService.
func (c *Client) Facts() cofferv1connect.FactServiceClient { return c.facts }

// Events is the generated client of EventService.
func (c *Client) Events() cofferv1connect.EventServiceClient { return c.events }

// Sinks is the generated client of SinkService.
func (c *Client) Sinks() cofferv1connect.SinkServiceClient { return c.sinks }
