package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// ring is a set of tokens that tests change while a server uses it.
type ring struct {
	t       testing.TB
	entries []access.Entry
	set     atomic.Pointer[access.Set]
}

func (r *ring) tokens() *access.Set { return r.set.Load() }

// add makes a token.
func (r *ring) add(id, tenant string, roles access.Roles, notAfter time.Time) string {
	r.t.Helper()
	token, sum, err := access.New(id)
	if err != nil {
		r.t.Fatal(err)
	}
	r.entries = append(r.entries, access.Entry{ID: id, Tenant: tenant, Roles: roles, Sum: sum, NotAfter: notAfter})
	r.load()
	return token
}

func (r *ring) load() {
	r.t.Helper()
	text := "tokens:\n"
	if len(r.entries) == 0 {
		text = "tokens: []\n"
	}
	for i := range r.entries {
		text += r.entries[i].YAML(2)
	}
	set, err := access.Parse([]byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	r.set.Store(set)
}

// revoke takes a token out.
func (r *ring) revoke(id string) {
	r.t.Helper()
	var left []access.Entry
	for _, e := range r.entries {
		if e.ID != id {
			left = append(left, e)
		}
	}
	r.entries = left
	r.load()
}

// guarded is a world with tokens.
func guarded(t *testing.T) (*world, *ring) {
	t.Helper()
	r := &ring{t: t}
	return newWorldWith(t, func(d *Deps) { d.Tokens = r.tokens }), r
}

// What admits nobody is refused before the payload is read, with a reason, and
// without what was sent; the log has the token's id and never its secret.
func TestUnauthenticated(t *testing.T) {
	w, r := guarded(t)
	good := r.add("checkout", "shop", access.Service, time.Time{})
	gone := r.add("old", "shop", access.Service, time.Now().Add(-time.Minute))
	secret := good[len(good)-43:]
	for name, c := range map[string]struct {
		values []string
		words  string
	}{
		"none":           {nil, `Authorization "" must be sent as a header (allowed: Bearer coffer_ID_SECRET); send a token`},
		"two":            {[]string{"Bearer " + good, "Bearer " + good}, "Authorization 2 times is given more than once"},
		"empty":          {[]string{""}, "has no token that this server knows"},
		"no scheme":      {[]string{good}, "has no token that this server knows"},
		"another scheme": {[]string{"Basic " + good}, "has no token that this server knows"},
		"no token":       {[]string{"Bearer "}, "has no token that this server knows"},
		"a space more":   {[]string{"Bearer  " + good}, "has no token that this server knows"},
		"cut":            {[]string{"Bearer " + good[:len(good)-1]}, "has no token that this server knows"},
		"another secret": {[]string{"Bearer coffer_checkout_" + strings.Repeat("x", 43)}, "has no token that this server knows"},
		"another id":     {[]string{"Bearer coffer_old_" + secret}, "has no token that this server knows"},
		"unknown id":     {[]string{"Bearer coffer_nobody_" + secret}, "has no token that this server knows"},
		"expired":        {[]string{"Bearer " + gone}, "Authorization of token old has expired at 20"},
	} {
		h := http.Header{"Authorization": c.values}
		status, answer := post(t, w.url+cofferv1connect.ReservationServiceReserveProcedure, `{"nonsense`, h)
		text, _ := answer["message"].(string)
		if status != http.StatusUnauthorized || answer["code"] != "unauthenticated" || !strings.HasPrefix(text, "UNAUTHENTICATED: ") || !strings.Contains(text, c.words) {
			t.Errorf("%s: %d, %v", name, status, answer)
		}
		if strings.Contains(text, secret) || strings.Contains(text, gone) {
			t.Errorf("%s: the refusal has the secret: %s", name, text)
		}
	}
	for _, scheme := range []string{"Bearer ", "bearer "} {
		status, answer := post(t, w.url+cofferv1connect.ReservationServiceReleaseProcedure, `{"orderId":"o","benefitKey":"b"}`, http.Header{"Authorization": {scheme + good}})
		if status != http.StatusOK {
			t.Errorf("%q: %d, %v", scheme, status, answer)
		}
	}
	for _, c := range w.exec.commands() {
		if c.Op != ledger.OpRelease || c.Key.Tenant != "shop" {
			t.Errorf("ran %+v", c)
		}
	}
	logs := w.logs.String()
	if !strings.Contains(logs, `"token":"checkout"`) || !strings.Contains(logs, `"token":"old"`) || !strings.Contains(logs, `"reason":"UNAUTHENTICATED"`) {
		t.Errorf("the log does not name the tokens:\n%s", logs)
	}
	for _, s := range []string{secret, gone[len(gone)-43:], "coffer_checkout_", strings.Repeat("x", 43)} {
		if strings.Contains(logs, s) {
			t.Errorf("the log has %q:\n%s", s, logs)
		}
	}
}

// A token's tenant wins: the header may repeat it and name no other.
func TestTenantOfToken(t *testing.T) {
	w, r := guarded(t)
	shop, all := r.add("shop", "shop", access.Service, time.Time{}), r.add("all", "*", access.Operator, time.Time{})
	release := &cofferv1.ReleaseRequest{OrderId: "o", BenefitKey: "b"}
	for _, c := range []struct{ token, header, tenant string }{
		{shop, "", "shop"}, {shop, "shop", "shop"}, {all, "", "default"}, {all, "other", "other"},
	} {
		if _, err := w.client(t, WithToken(c.token), WithTenant(c.header)).Release(t.Context(), release); err != nil {
			t.Fatal(err)
		}
		ran := w.exec.commands()
		if got := ran[len(ran)-1].Key.Tenant; got != c.tenant {
			t.Errorf("header %q: tenant %s, want %s", c.header, got, c.tenant)
		}
	}
	n := len(w.exec.commands())
	stranger := w.client(t, WithToken(shop), WithTenant("other"))
	_, err := stranger.Release(t.Context(), release)
	if e := refusal(t, err); e.Code != connect.CodePermissionDenied || e.Reason() != ledger.PermissionDenied || e.Detail.GetField() != TenantHeader ||
		e.Detail.GetValue() != `"other"` || e.Detail.GetLimit() != `"shop", or no such header` || e.Detail.GetNext() == "" {
		t.Errorf("another tenant: %v", e.Detail)
	}
	_, err = stranger.Execute(t.Context(), []*cofferv1.Command{{Command: &cofferv1.Command_Release{Release: release}}})
	if e := refusal(t, err); e.Reason() != ledger.PermissionDenied || e.Unknown {
		t.Errorf("another tenant's batch: %v", e)
	}
	_, err = stranger.GetBudget(t.Context(), "spring")
	if e := refusal(t, err); e.Reason() != ledger.PermissionDenied {
		t.Errorf("another tenant's budget: %v", e)
	}
	if len(w.exec.commands()) != n || len(w.store.tenants) != 0 {
		t.Errorf("ran %+v, read %v", w.exec.commands()[n:], w.store.tenants)
	}
	_, err = w.client(t, WithToken(shop)).FundBudget(t.Context(), &cofferv1.FundBudgetRequest{Budget: "spring", AmountMinor: 1, Currency: "BRL", IdempotencyKey: "k"})
	if e := refusal(t, err); e.Error() != "PERMISSION_DENIED: role service of token shop may not call /coffer.v1.BudgetService/FundBudget (allowed: operator); use a token with that role and tenant; coffer token new makes one" {
		t.Errorf("another role: %v", e)
	}
	_, err = w.client(t, WithToken(r.add("boss", "shop", access.Operator, time.Time{}))).GetStatus(t.Context())
	if e := refusal(t, err); e.Reason() != ledger.PermissionDenied || e.Detail.GetField() != "tenant" || e.Detail.GetLimit() != `a token for every tenant, "*"` {
		t.Errorf("all tenants: %v", e)
	}
}

// The log says who did what operators alone may, at a level that is on by default.
func TestOperatorsAreLogged(t *testing.T) {
	r := &ring{t: t}
	logs := &syncBuffer{}
	w := newWorldWith(t, func(d *Deps) { d.Tokens, d.Log = r.tokens, zerolog.New(logs).Level(zerolog.InfoLevel) })
	c := w.client(t, WithToken(r.add("ops", "*", access.Operator, time.Time{})), WithTenant("shop"))
	if _, err := c.FreezeBudget(t.Context(), &cofferv1.FreezeBudgetRequest{Budget: "spring", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reserve(t.Context(), reserveRequest()); err != nil {
		t.Fatal(err)
	}
	want := `{"level":"info","procedure":"/coffer.v1.BudgetService/FreezeBudget","token":"ops","tenant":"shop","message":"operator calls"}` + "\n"
	if got := logs.String(); got != want {
		t.Errorf("log %s, want %s", got, want)
	}
}

// A token that was taken out admits nobody any more, and ends its streams with
// their next message; another one of the same id is another token.
func TestRevoked(t *testing.T) {
	r := &ring{t: t}
	told, revoked := make(chan struct{}), make(chan struct{})
	w := newWorldWith(t, func(d *Deps) { d.Tokens = r.tokens })
	w.store.audit = func(ctx context.Context, progress func(string, uint64)) (*store.AuditReport, error) {
		progress("entries", 1)
		close(told)
		select {
		case <-revoked:
		case <-ctx.Done():
		}
		progress("events", 1)
		return &store.AuditReport{}, nil
	}
	c := w.client(t, WithToken(r.add("night", "*", access.Auditor, time.Time{})))
	ended := make(chan error, 1)
	go func() {
		_, err := c.Audit(t.Context(), nil)
		ended <- err
	}()
	<-told
	r.revoke("night")
	again := r.add("night", "*", access.Auditor, time.Time{})
	close(revoked)
	if e := refusal(t, <-ended); e.Reason() != ledger.Unauthenticated {
		t.Errorf("the stream ended with %v", e)
	}
	if _, err := c.GetStatus(t.Context()); refusal(t, err).Reason() != ledger.Unauthenticated {
		t.Errorf("the old token: %v", err)
	}
	if _, err := w.client(t, WithToken(again)).GetStatus(t.Context()); err != nil {
		t.Errorf("the new token: %v", err)
	}
}

// subscribed is an EventService that does as a test says.
type subscribed func(send func() error) error

func (s subscribed) Subscribe(_ context.Context, _ *cofferv1.SubscribeRequest, to cofferv1connect.EventServiceSubscribeServerStream) error {
	return s(func() error { return to.Send(&cofferv1.SubscribeResponse{}) })
}

// A stream brings what one tenant has, so it ends, too, when its token becomes
// another tenant's.
func TestStreamsEndWithTheirTenant(t *testing.T) {
	for _, was := range []string{"shop", access.EveryTenant} {
		r := &ring{t: t}
		token := r.add("reader", was, access.Auditor, time.Time{})
		moved := func(tenant string) {
			r.entries[0].Tenant = tenant
			r.load()
		}
		s, sent := connect.NewServer(accessInterceptor(r.tokens, "", zerolog.Nop())), 0
		cofferv1connect.RegisterEventServiceHandler(s, subscribed(func(send func() error) error {
			for _, now := range []string{was, access.EveryTenant, "shop", "other"} {
				moved(now)
				if err := send(); err != nil {
					return err
				}
				sent++
			}
			return nil
		}))
		info := &connect.CallInfo{}
		info.RequestHeader().Set(authorization, bearer+token)
		info.RequestHeader().Set(TenantHeader, "shop")
		err := s.Call(t.Context(), cofferv1connect.EventServiceSubscribeProcedure, info, &asked{})
		var rej *ledger.Rejection
		if !errors.As(err, &rej) || rej.Code != ledger.PermissionDenied || rej.Field != TenantHeader || rej.Value != `"shop"` || sent != 3 {
			t.Errorf("of %q: after %d messages the stream ended with %v", was, sent, err)
		}
	}
}

// asked is a stream with one request, whose answers go nowhere.
type asked struct {
	deaf
	read bool
}

func (o *asked) Receive(any) error {
	if o.read {
		return io.EOF
	}
	o.read = true
	return nil
}

// Health is open, reflection takes any token, and metrics one that may see all
// tenants' figures.
func TestBesideTheAPI(t *testing.T) {
	w, r := guarded(t)
	ask := func(h http.Handler, path, contentType, token string) int {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}"))
		req.Header.Set("Content-Type", contentType)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec.Code
	}
	if status, answer := post(t, w.url+"/grpc.health.v1.Health/Check", `{}`, nil); status != http.StatusOK {
		t.Errorf("health: %d, %v", status, answer)
	}
	metrics := GuardMetrics(r.tokens, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	shop := r.add("shop", "shop", access.Any, time.Time{})
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, "x": http.StatusUnauthorized, shop: http.StatusForbidden,
		r.add("all", "*", access.Service, time.Time{}):   http.StatusForbidden,
		r.add("watch", "*", access.Monitor, time.Time{}): http.StatusOK,
	} {
		if got := ask(metrics, "/metrics", "text/plain", token); got != want {
			t.Errorf("metrics with %.12q: %d, want %d", token, got, want)
		}
	}
	if got := ask(GuardMetrics(nil, metrics), "/metrics", "text/plain", shop); got != http.StatusForbidden {
		t.Errorf("without tokens: %d", got)
	}
	s, err := NewServer(DefaultConfig(), allServices(r))
	if err != nil {
		t.Fatal(err)
	}
	reflected := func(token string) string {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", http.NoBody)
		req.ProtoMajor = 2
		req.Header.Set("Content-Type", "application/grpc")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, req)
		return rec.Result().Trailer.Get("Grpc-Status") + rec.Header().Get("Grpc-Status")
	}
	if a, b := reflected(""), reflected(shop); a != "16" || b != "0" {
		t.Errorf("reflection answers strangers with status %s, and others with %s", a, b)
	}
}

// A server with tokens takes commands of other nodes only if it can tell them
// from strangers.
func TestNodesAndTokens(t *testing.T) {
	r := &ring{t: t}
	deps := allServices(r)
	deps.Peers = &Peers{Here: &fakeExec{}, Run: 5}
	if _, err := NewServer(DefaultConfig(), deps); err == nil || !strings.Contains(err.Error(), "no way to tell other nodes from strangers") {
		t.Errorf("got %v", err)
	}
	exec, node := &fakeExec{}, false
	deps.Peers = &Peers{Here: exec, Run: 5, Allow: func(*http.Request) bool { return node }}
	s, err := NewServer(DefaultConfig(), deps)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	defer srv.Close()
	p := NewPeerClient("n1", nil)
	defer p.Close()
	cmds := []ledger.Command{{Op: ledger.OpRelease, Key: ledger.OrderKey{Tenant: "shop", Order: "o", Benefit: "b"}, Attempt: 1}}
	if _, err := p.Forward(t.Context(), srv.URL, 5, cmds); err == nil || len(exec.commands()) != 0 {
		t.Errorf("a stranger: %v", err)
	}
	node = true
	if got, err := p.Forward(t.Context(), srv.URL, 5, cmds); err != nil || got[0].Err != nil || len(exec.commands()) != 1 {
		t.Errorf("a node, without a token: %+v, %v", got, err)
	}
}
