package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	connectv1 "connectrpc.com/connect"
	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

func reserveRequest() *cofferv1.ReserveRequest {
	return &cofferv1.ReserveRequest{
		OrderId: "o-1", BenefitKey: "coupon:SPRING", Budget: "acme/spring", AmountMinor: 1250, Currency: "BRL",
		Ttl: durationpb.New(15 * time.Minute), CorrelationId: "trace-9",
	}
}

var protocols = map[string]Protocol{"connect": ProtocolConnect, "grpc": ProtocolGRPC, "grpc-web": ProtocolGRPCWeb}

func TestReserveOverEveryProtocol(t *testing.T) {
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.client(t, WithProtocol(p), WithTenant("shop"))
			o, err := c.Reserve(t.Context(), reserveRequest())
			if err != nil {
				t.Fatal(err)
			}
			if o.GetState() != cofferv1.ReservationState_RESERVATION_STATE_RESERVED || o.GetAmountMinor() != 1250 || o.GetHeldMinor() != 1250 ||
				o.GetAttempt() != 1 || o.GetBudget() != "acme/spring" || o.GetBucket() != 3 || o.GetEntrySeq() != 42 ||
				!o.GetExpireTime().AsTime().Equal(epoch.Add(15*time.Minute)) || !o.GetTime().AsTime().Equal(epoch) || o.GetReplayed() {
				t.Errorf("outcome is %v", o)
			}
			got := w.exec.commands()[0]
			want := ledger.Command{
				Op: ledger.OpReserve, Key: ledger.OrderKey{Tenant: "shop", Order: "o-1", Benefit: "coupon:SPRING"}, Attempt: 1,
				Budget: ledger.BudgetID{Tenant: "shop", Funder: "acme", Key: "spring"}, Amount: 1250, Currency: "BRL",
				TTL: 15 * time.Minute, Correlation: "trace-9",
			}
			if got.Op != want.Op || got.Key != want.Key || got.Budget != want.Budget || got.Amount != want.Amount || got.TTL != want.TTL ||
				got.Currency != want.Currency || got.Correlation != want.Correlation || got.Attempt != 1 {
				t.Errorf("command is %+v, want %+v", got, want)
			}
		})
	}
}

func TestRefusalOverEveryProtocol(t *testing.T) {
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exec.do = func(ledger.Command) (ledger.Result, error) {
				return ledger.Result{}, &ledger.Rejection{Code: ledger.IllegalState, State: "RELEASED", Attempt: 1, Message: "is over"}
			}
			_, err := w.client(t, WithProtocol(p)).Reserve(t.Context(), reserveRequest())
			e := refusal(t, err)
			if e.Code != connect.CodeFailedPrecondition || e.Reason() != ledger.IllegalState || e.Detail.GetState() != "RELEASED" || e.Unknown {
				t.Errorf("error is %+v", e)
			}
		})
	}
}

// Proxies and HTTP clients repeat 429 and 503 by themselves: no refusal that
// stays may have such a status, whatever the refusal.
func TestStatusOfRefusals(t *testing.T) {
	want := map[ledger.Code]int{
		ledger.InsufficientBudget: http.StatusBadRequest, ledger.DebtCapReached: http.StatusBadRequest,
		ledger.OperationLimit: http.StatusBadRequest, ledger.BudgetNotFound: http.StatusNotFound,
		ledger.IdempotencyConflict: http.StatusConflict, ledger.QueueFull: http.StatusTooManyRequests,
		ledger.Overloaded: http.StatusServiceUnavailable, ledger.OutcomeUnknown: http.StatusGatewayTimeout,
	}
	w := newWorld(t)
	for code, want := range want {
		w.exec.do = func(ledger.Command) (ledger.Result, error) { return ledger.Result{}, &ledger.Rejection{Code: code} }
		status, _ := post(t, w.url+reservePath, `{"orderId":"o","benefitKey":"b","budget":"B","amountMinor":"1","currency":"BRL","ttl":"9s"}`, nil)
		if status != want {
			t.Errorf("%s has status %d, want %d", code, status, want)
		}
	}
}

// post is what curl does.
func post(t *testing.T, target, body string, header http.Header) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	return roundTrip(t, req)
}

func roundTrip(t *testing.T, req *http.Request) (status int, answer map[string]any) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&answer); err != nil {
		t.Fatalf("answer %q: %v", raw, err)
	}
	return res.StatusCode, answer
}

const reservePath = "/coffer.v1.ReservationService/Reserve"

func TestCurlWithJSON(t *testing.T) {
	w := newWorld(t)
	status, answer := post(t, w.url+reservePath,
		`{"order_id":"o-1","benefit_key":"b","budget":"spring","amount_minor":1250,"currency":"BRL","ttl":"900s"}`, nil)
	o, _ := answer["outcome"].(map[string]any)
	if status != http.StatusOK || o["state"] != "RESERVATION_STATE_RESERVED" || o["amountMinor"] != "1250" || o["expireTime"] != "2026-03-01T12:15:00Z" {
		t.Errorf("status %d, answer %v", status, answer)
	}
	if got := w.exec.commands()[0].Key.Tenant; got != "default" {
		t.Errorf("tenant is %q", got)
	}
}

func TestCurlGetsAReadableError(t *testing.T) {
	w := newWorld(t)
	status, answer := post(t, w.url+reservePath, `{"orderId":"o-1","benefitKey":"b","budget":"s","currency":"BRL","ttl":"900s"}`, nil)
	details, _ := answer["details"].([]any)
	if status != http.StatusBadRequest || answer["code"] != "invalid_argument" || len(details) != 1 {
		t.Fatalf("status %d, answer %v", status, answer)
	}
	first, _ := details[0].(map[string]any)
	debug, _ := first["debug"].(map[string]any)
	if first["type"] != "coffer.v1.ErrorDetail" || debug["field"] != "amount_minor" || debug["value"] != "0" ||
		debug["limit"] != "1 to 9223372036854775807 minor units" || debug["reason"] != "INVALID_ARGUMENT" {
		t.Errorf("detail is %v", first)
	}
	if n := len(w.exec.commands()); n != 0 {
		t.Errorf("%d commands ran", n)
	}
}

func TestReadsAnswerHTTPGet(t *testing.T) {
	w := newWorld(t)
	q := url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {`{"budget":"spring"}`}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/coffer.v1.BudgetService/GetBudget?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := roundTrip(t, req)
	b, _ := answer["budget"].(map[string]any)
	if status != http.StatusOK || b["state"] != "BUDGET_STATE_FROZEN" || b["currency"] != "BRL" {
		t.Errorf("status %d, answer %v", status, answer)
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t)
	hc := newHTTPClient(ProtocolGRPC, nil)
	t.Cleanup(hc.CloseIdleConnections)
	c := grpchealth.NewClient(hc, w.url, connectv1.WithGRPC())
	for _, service := range append([]string{""}, services...) {
		res, err := c.Check(t.Context(), &grpchealth.CheckRequest{Service: service})
		if err != nil || res.Status != grpchealth.StatusServing {
			t.Errorf("service %q: %v, %v", service, res, err)
		}
	}
	if _, err := c.Check(t.Context(), &grpchealth.CheckRequest{Service: "no.such.Service"}); connectv1.CodeOf(err) != connectv1.CodeNotFound {
		t.Errorf("unknown service: %v", err)
	}
	w.ready = false
	if res, err := c.Check(t.Context(), &grpchealth.CheckRequest{}); err != nil || res.Status != grpchealth.StatusNotServing {
		t.Errorf("not ready: %v, %v", res, err)
	}
	status, answer := post(t, w.url+"/grpc.health.v1.Health/Check", `{}`, nil)
	if status != http.StatusOK || answer["status"] != "SERVING_STATUS_NOT_SERVING" {
		t.Errorf("by JSON: %d %v", status, answer)
	}
}

func TestReflection(t *testing.T) {
	w := newWorld(t)
	hc := newHTTPClient(ProtocolGRPC, nil)
	t.Cleanup(hc.CloseIdleConnections)
	c := grpcreflect.NewClient(connect.NewClient(connecthttp.NewTransport(hc, w.url, connecthttp.WithGRPC())))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := c.NewStream(ctx)
	defer func() { _ = stream.Close() }()
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range services {
		if !slices.ContainsFunc(names, func(n protoreflect.FullName) bool { return string(n) == want }) {
			t.Errorf("services %v lack %s", names, want)
		}
	}
	files, err := stream.FileContainingSymbol("coffer.v1.ReservationService")
	if err != nil || !strings.HasSuffix(files[0].GetName(), "reservation.proto") {
		t.Errorf("files %v: %v", files, err)
	}
}

func TestUnknownMethodAndPath(t *testing.T) {
	w := newWorld(t)
	status, answer := post(t, w.url+"/coffer.v1.ReservationService/Steal", `{}`, nil)
	if status != http.StatusNotImplemented || answer["code"] != "unimplemented" {
		t.Errorf("status %d, answer %v", status, answer)
	}
}
