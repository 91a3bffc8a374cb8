package rpc

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// wantBad asserts a refusal that names field, value and limit.
func wantBad(t *testing.T, err error, field, value, limit string) {
	t.Helper()
	e := refusal(t, err)
	d := e.Detail
	if e.Code != connect.CodeInvalidArgument || d.GetReason() != "INVALID_ARGUMENT" {
		t.Errorf("code %s, reason %s", e.Code, d.GetReason())
	}
	if d.GetField() != field || d.GetValue() != value || d.GetLimit() != limit {
		t.Errorf("field %q, value %q, limit %q; want %q, %q, %q", d.GetField(), d.GetValue(), d.GetLimit(), field, value, limit)
	}
	if d.GetMessage() == "" || d.GetNext() == "" {
		t.Errorf("message %q, next %q", d.GetMessage(), d.GetNext())
	}
	if !strings.Contains(e.Error(), field) || e.Attempts != 1 {
		t.Errorf("error %q, sent %d times", e, e.Attempts)
	}
}

var long = strings.Repeat("x", 129)

const (
	idLimit       = "1 to 128 bytes"
	amountLimit   = "1 to 9223372036854775807 minor units"
	currencyLimit = "an ISO 4217 code in use, such as BRL, or a custom unit of 4 to 12 characters A-Z, 0-9, _"
)

func TestBadReserves(t *testing.T) {
	cases := []struct {
		name                string
		change              func(*cofferv1.ReserveRequest)
		field, value, limit string
	}{
		{"no order", func(m *cofferv1.ReserveRequest) { m.OrderId = "" }, "order_id", `""`, idLimit},
		{"no benefit", func(m *cofferv1.ReserveRequest) { m.BenefitKey = "" }, "benefit_key", `""`, idLimit},
		{"no budget", func(m *cofferv1.ReserveRequest) { m.Budget = "" }, "budget", `""`, "1 to 257 bytes"},
		{"budget without key", func(m *cofferv1.ReserveRequest) { m.Budget = "acme/" }, "budget", "acme/", "at most one slash, between funder and key"},
		{"two slashes", func(m *cofferv1.ReserveRequest) { m.Budget = "a/b/c" }, "budget", "a/b/c", "at most one slash, between funder and key"},
		{
			"long order", func(m *cofferv1.ReserveRequest) { m.OrderId = long },
			"order_id", `"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"… (129 bytes)`, "128 bytes",
		},
		{"NUL", func(m *cofferv1.ReserveRequest) { m.BenefitKey = "a\x00b" }, "benefit_key", `"a\x00b"`, "no control characters"},
		{"newline", func(m *cofferv1.ReserveRequest) { m.OrderId = "a\nb" }, "order_id", `"a\nb"`, "no control characters"},
		{"zero amount", func(m *cofferv1.ReserveRequest) { m.AmountMinor = 0 }, "amount_minor", "0", amountLimit},
		{"negative amount", func(m *cofferv1.ReserveRequest) { m.AmountMinor = -7 }, "amount_minor", "-7", amountLimit},
		{"no code", func(m *cofferv1.ReserveRequest) { m.Currency = "X9Z" }, "currency", `"X9Z"`, currencyLimit},
		{"lower-case currency", func(m *cofferv1.ReserveRequest) { m.Currency = "brl" }, "currency", `"brl"`, currencyLimit},
		{"no currency", func(m *cofferv1.ReserveRequest) { m.Currency = "" }, "currency", `""`, "3 to 12 bytes"},
		{"no ttl", func(m *cofferv1.ReserveRequest) { m.Ttl = nil }, "ttl", "unset", `more than 0s; in JSON as seconds, such as "900s"`},
		{"zero ttl", func(m *cofferv1.ReserveRequest) { m.Ttl = durationpb.New(0) }, "ttl", "0s", "more than 0s"},
		{"negative ttl", func(m *cofferv1.ReserveRequest) { m.Ttl = durationpb.New(-time.Minute) }, "ttl", "-1m0s", "more than 0s"},
		{"tiny ttl", func(m *cofferv1.ReserveRequest) { m.Ttl = durationpb.New(5) }, "ttl", "0s", "1ms up to the budget's maximum lifetime"},
		{
			"ttl of 10,000 years", func(m *cofferv1.ReserveRequest) { m.Ttl = &durationpb.Duration{Seconds: 315_000_000_000} },
			"ttl", "315000000000s 0ns", "up to 9600h0m0s",
		},
		{
			"malformed ttl", func(m *cofferv1.ReserveRequest) { m.Ttl = &durationpb.Duration{Seconds: 1, Nanos: -5} },
			"ttl", "1s -5ns", "up to 9600h0m0s",
		},
		{
			"long correlation", func(m *cofferv1.ReserveRequest) { m.CorrelationId = long },
			"correlation_id", `"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"… (129 bytes)`, "128 bytes",
		},
	}
	w := newWorld(t)
	c := w.client(t, WithoutBatching())
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			m := reserveRequest()
			tc.change(m)
			_, err := c.Reserve(t.Context(), m)
			wantBad(t, err, tc.field, tc.value, tc.limit)
		})
		t.Run(tc.name+" in a batch", func(t *testing.T) {
			m := reserveRequest()
			tc.change(m)
			good := reserveRequest()
			good.OrderId = "good"
			before := len(w.exec.commands())
			results, err := c.Execute(t.Context(), []*cofferv1.Command{reserveCommand(good), reserveCommand(m)})
			if err != nil {
				t.Fatal(err)
			}
			if results[0].GetOutcome().GetOrderId() != "good" || len(w.exec.commands()) != before+1 {
				t.Errorf("the good neighbour: %v; %d ran", results[0], len(w.exec.commands())-before)
			}
			d := results[1].GetError().GetDetail()
			if results[1].GetError().GetCode() != "invalid_argument" || d.GetReason() != "INVALID_ARGUMENT" ||
				!strings.HasPrefix(d.GetField(), "commands[1]."+tc.field) || d.GetValue() == "" || d.GetLimit() == "" {
				t.Errorf("error is %v", results[1].GetError())
			}
		})
	}
	for _, ran := range w.exec.commands() {
		if ran.Key.Order != "good" {
			t.Errorf("a bad command ran: %+v", ran)
		}
	}
}

func reserveCommand(m *cofferv1.ReserveRequest) *cofferv1.Command {
	return &cofferv1.Command{Command: &cofferv1.Command_Reserve{Reserve: m}}
}

func TestBadInputElsewhere(t *testing.T) {
	w := newWorld(t)
	c := w.client(t, WithoutBatching())
	try := func(name string, err error, field, value, limit string) {
		t.Helper()
		t.Run(name, func(t *testing.T) { t.Helper(); wantBad(t, err, field, value, limit) })
	}
	ctx := t.Context()
	_, err := c.Reverse(ctx, &cofferv1.ReverseRequest{OrderId: "o", BenefitKey: "b", AmountMinor: 1})
	try("no refund id", err, "refund_id", `""`, idLimit)
	_, err = c.Commit(ctx, &cofferv1.CommitRequest{OrderId: "o", BenefitKey: "b", AmountMinor: -1})
	try("negative commit", err, "amount_minor", "-1", "0 to 9223372036854775807 minor units")
	_, err = c.Commit(ctx, &cofferv1.CommitRequest{OrderId: "o", BenefitKey: "b", Partial: true})
	try("partial commit of nothing", err, "amount_minor", "0", amountLimit)
	_, err = c.Extend(ctx, &cofferv1.ExtendRequest{OrderId: "o", BenefitKey: "b"})
	try("extend by nothing", err, "ttl", "unset", `more than 0s; in JSON as seconds, such as "900s"`)
	ops := "OPERATION_RESERVE, OPERATION_COMMIT, OPERATION_EXTEND, OPERATION_RELEASE, OPERATION_RECLAIM, OPERATION_REVERSE, OPERATION_REINSTATE, OPERATION_CHARGE, OPERATION_REFUND, OPERATION_RECLAIM_CHARGE, OPERATION_HOLD, OPERATION_SETTLE"
	_, err = c.Resolve(ctx, &cofferv1.ResolveRequest{OrderId: "o", BenefitKey: "b"})
	try("resolve of nothing", err, "operation", "OPERATION_UNSPECIFIED", ops)
	_, err = c.Resolve(ctx, &cofferv1.ResolveRequest{OrderId: "o", BenefitKey: "b", Operation: 99})
	try("resolve of an unknown operation", err, "operation", "99", ops)
	_, err = c.Resolve(ctx, &cofferv1.ResolveRequest{OrderId: "o", BenefitKey: "b", Operation: cofferv1.Operation_OPERATION_RESERVE, Id: "x"})
	try("resolve of a reserve with an id", err, "id", `"x"`, "empty for RESERVE")
	_, err = c.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: "b", Currency: "X9Z"})
	try("no currency", err, "currency", `"X9Z"`, currencyLimit)
	_, err = c.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: "b", Currency: "BRL", Buckets: 257})
	try("too many buckets", err, "buckets", "257", "1 to 256; 0 means 1")
	_, err = c.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: "b", Currency: "BRL", Policy: &cofferv1.BudgetPolicy{LateCommit: 9}})
	try("unknown policy", err, "policy.late_commit", "9", "LATE_COMMIT_REJECT, LATE_COMMIT_RECLAIM, LATE_COMMIT_CASE")
	_, err = c.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{
		Budget: "b", Currency: "BRL", Policy: &cofferv1.BudgetPolicy{OverCommit: &cofferv1.OverCommit{Percent: 1001}},
	})
	try("over-commit", err, "policy.over_commit.percent", "1001", "0 to 1000")
	_, err = c.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{
		Budget: "b", Currency: "BRL", Policy: &cofferv1.BudgetPolicy{MaxLifetime: durationpb.New(0)},
	})
	try("no lifetime", err, "policy.max_lifetime", "0s", "1s to 9600h0m0s")
	_, err = c.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: "b", Currency: "BRL", Policy: &cofferv1.BudgetPolicy{ReversalSink: "f/"}})
	try("a sink without key", err, "policy.reversal_sink", "f/", "at most one slash, between funder and key")
	_, err = c.FundBudget(ctx, &cofferv1.FundBudgetRequest{Budget: "b", Currency: "BRL", AmountMinor: 1})
	try("no idempotency key", err, "idempotency_key", `""`, idLimit)
	_, err = c.ListBudgets(ctx, &cofferv1.ListBudgetsRequest{PageSize: 1001})
	try("page size", err, "page_size", "1001", "0 to 1000")
	_, err = c.ListEntries(ctx, &cofferv1.ListEntriesRequest{Budget: "b", Bucket: proto.Uint32(257)})
	try("bucket", err, "bucket", "257", "0 to 256")
	_, err = c.GetReservation(ctx, "a\x00", "b")
	try("read with NUL", err, "order_id", `"a\x00"`, "no control characters")
	_, err = c.GetBudget(ctx, "a/b/c")
	try("read of a misnamed budget", err, "budget", "a/b/c", "at most one slash, between funder and key")
	_, err = c.ExplainOrder(ctx, long, "")
	try("explain", err, "order_id", `"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"… (129 bytes)`, "128 bytes")
	_, err = c.Replay(ctx, &cofferv1.ReplayRequest{Budget: "b", CutoffTime: &timestamppb.Timestamp{Seconds: -62135596800}})
	try("cutoff in the year 1", err, "cutoff_time", "-62135596800s 0ns after 1970-01-01", "1970-01-01T00:00:00Z to now")
	_, err = c.Replay(ctx, &cofferv1.ReplayRequest{Budget: "b", CutoffTime: &timestamppb.Timestamp{Seconds: 1, Nanos: -1}})
	try("malformed cutoff", err, "cutoff_time", "1s -1ns after 1970-01-01", "1970-01-01T00:00:00Z to now")
	if n := len(w.exec.commands()); n != 0 {
		t.Errorf("%d commands ran", n)
	}
}

func TestMadeUpPageTokenIsTheStoresToRefuse(t *testing.T) {
	w := newWorld(t)
	_, err := w.client(t).ListBudgets(t.Context(), &cofferv1.ListBudgetsRequest{PageToken: "made-up", PageSize: 7})
	e := refusal(t, err)
	if e.Reason() != ledger.BadPageToken || e.Code != connect.CodeInvalidArgument || e.Detail.GetField() != "page_token" || e.Detail.GetValue() != "made-up" {
		t.Errorf("error is %+v", e.Detail)
	}
	if got := w.store.pages[0]; got.Size != 7 || got.Token != "made-up" {
		t.Errorf("page is %+v", got)
	}
}

func TestTenantHeader(t *testing.T) {
	w := newWorld(t)
	body := `{"budget":"spring"}`
	const path = "/coffer.v1.BudgetService/GetBudget"
	if status, _ := post(t, w.url+path, body, nil); status != http.StatusOK {
		t.Errorf("default tenant: %d", status)
	}
	status, answer := post(t, w.url+path, body, http.Header{TenantHeader: {"other"}})
	if status != http.StatusNotFound || answer["code"] != "not_found" {
		t.Errorf("another tenant's budget: %d %v", status, answer)
	}
	if got := w.store.tenants; len(got) != 2 || got[0] != "default" || got[1] != "other" {
		t.Errorf("tenants are %v", got)
	}
	for name, bad := range map[string][]string{"empty": {""}, "long": {long}, "not UTF-8": {"a\xff"}, "two": {"a", "b"}, "control": {"a\tb"}} {
		status, answer := post(t, w.url+path, body, http.Header{TenantHeader: bad})
		details, _ := answer["details"].([]any)
		if status != http.StatusBadRequest || len(details) != 1 {
			t.Errorf("%s: %d %v", name, status, answer)
			continue
		}
		first, _ := details[0].(map[string]any)
		if debug, _ := first["debug"].(map[string]any); debug["field"] != TenantHeader || debug["value"] == "" || debug["limit"] == "" {
			t.Errorf("%s: %v", name, debug)
		}
	}
	if len(w.store.tenants) != 2 {
		t.Errorf("a refused tenant was read: %v", w.store.tenants)
	}
	if _, r := tenantFrom(nil, ""); r == nil || r.Field != TenantHeader {
		t.Errorf("no tenant and no default: %v", r)
	}
}

// rawPost sends bytes that no client would.
func rawPost(t *testing.T, w *world, path, contentType string, body []byte) *Error {
	t.Helper()
	hc := &http.Client{Transport: rawBody{body: body, contentType: contentType}}
	c := NewClient(w.url, WithHTTPClient(hc), WithMaxAttempts(1))
	var err error
	if strings.HasSuffix(path, "Execute") {
		_, err = c.Reservations().Execute(t.Context(), &cofferv1.ExecuteRequest{})
	} else {
		_, err = c.Reservations().Reserve(t.Context(), &cofferv1.ReserveRequest{})
	}
	return judge(err, true).err
}

// rawBody replaces the body of every request.
type rawBody struct {
	body        []byte
	contentType string
}

func (r rawBody) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	out, err := http.NewRequestWithContext(req.Context(), req.Method, req.URL.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	out.Header = req.Header.Clone()
	out.Header.Set("Content-Type", r.contentType)
	tr := &http.Transport{DisableKeepAlives: true}
	return tr.RoundTrip(out)
}

func TestInvalidUTF8NamesTheField(t *testing.T) {
	w := newWorld(t)
	reserve := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "ok")
	reserve = protowire.AppendString(protowire.AppendTag(reserve, 2, protowire.BytesType), "a\xffb")
	check := func(e *Error, field string) {
		t.Helper()
		d := e.Detail
		if e.Code != connect.CodeInvalidArgument || d.GetField() != field || d.GetValue() != `"a\xffb"` || d.GetLimit() != "UTF-8" {
			t.Errorf("code %s, detail %v; want field %s", e.Code, d, field)
		}
	}
	check(rawPost(t, w, "Reserve", "application/proto", reserve), "benefit_key")

	wrap := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	good, err := proto.Marshal(reserveRequest())
	if err != nil {
		t.Fatal(err)
	}
	batch := append(wrap(1, wrap(1, good)), wrap(1, wrap(1, reserve))...)
	check(rawPost(t, w, "Execute", "application/proto", batch), "commands[1].benefit_key")
	check(rawPost(t, w, "Reserve", "application/json", []byte(`{"order_id":"o", "benefit_key": "a`+"\xff"+`b"}`)), "benefit_key")
	if n := len(w.exec.commands()); n != 0 {
		t.Errorf("%d commands ran", n)
	}
}

func TestUnreadableMessages(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct{ contentType, body, words, field, value string }{
		"not protobuf":      {"application/proto", "\xff\xff\xff", "cannot be read", "", ""},
		"not JSON":          {"application/json", "{", "cannot be read", "", ""},
		"wrong type":        {"application/json", `{"amount_minor":"many"}`, "cannot be read", "amount_minor", `"many"`},
		"major units":       {"application/json", `{"amountMinor":12.5}`, "cannot be read", "amount_minor", "12.5"},
		"amount over int64": {"application/json", `{"amount_minor":"9223372036854775808"}`, "cannot be read", "amount_minor", `"9223372036854775808"`},
		"nested":            {"application/json", `{"quote":{"lines":[{"quantity":"a"}]}}`, "cannot be read", "quantity", `"a"`},
		"duration":          {"application/json", `{"ttl":"15m"}`, "cannot be read", "duration", `"15m"`},
		"long value":        {"application/json", `{"attempt":"` + strings.Repeat("é", 40) + `"}`, "cannot be read", "attempt", `"` + strings.Repeat("é", 19) + "…"},
		"too large":         {"application/json", `{"order_id":"` + strings.Repeat("x", 4<<20) + `"}`, "is too large", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := rawPost(t, w, "Reserve", tc.contentType, []byte(tc.body))
			d := e.Detail
			field, value := cmp.Or(tc.field, "message"), cmp.Or(tc.value, "coffer.v1.ReserveRequest")
			if e.Code != connect.CodeInvalidArgument || d.GetField() != field || d.GetValue() != value ||
				d.GetLimit() == "" || !strings.Contains(d.GetMessage(), tc.words) {
				t.Errorf("code %s, detail %v", e.Code, d)
			}
		})
	}
}

// A name that the schema does not have is named by the refusal, with what may have
// been meant.
func TestUnknownFields(t *testing.T) {
	w := newWorld(t)
	for body, want := range map[string]struct{ call, field, limit string }{
		`{"order":"o"}`:                                 {"Reserve", "order", "orderId"},
		`{"amount":5}`:                                  {"Reserve", "amount", "amountMinor"},
		`{"amount_in_minor":5}`:                         {"Reserve", "amount_in_minor", "orderId, benefitKey, attempt, budget, amountMinor, currency, ttl, quote, correlationId"},
		`{"quote":{"lines":[{"line":"A"}]}}`:            {"Reserve", "line", "lines, lineId"},
		`{"commands":[{"reserve":{"benefit":"c"}}]}`:    {"Execute", "benefit", "benefitKey"},
		`{"commands":[{"reserve":{"expires_in":"1"}}]}`: {"Execute", "expires_in", "a field of coffer.v1.ExecuteRequest"},
	} {
		e := rawPost(t, w, want.call, "application/json", []byte(body))
		d := e.Detail
		said := `field "` + want.field + `" cannot be read, at line 1:` + strconv.Itoa(strings.LastIndex(body, `"`+want.field)+1) + `: coffer.v1.` + want.call + "Request has no such field there (allowed: " + want.limit + ")"
		if e.Code != connect.CodeInvalidArgument || d.GetField() != "field" || d.GetValue() != `"`+want.field+`"` || d.GetLimit() != want.limit || !strings.Contains(e.Error(), said) {
			t.Errorf("%s: %v, detail %v", body, e, d)
		}
	}
	if n := len(w.exec.commands()); n != 0 {
		t.Errorf("%d commands ran", n)
	}
}

// What does not fit a field is told without the reader's words: where it is, and
// what the field takes.
func TestValuesThatDoNotFit(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct{ call, body, said string }{
		{"Reserve", `{"amountMinor":1.5}`, "amount_minor 1.5 cannot be read, at line 1:16 (allowed: a whole number up to 9223372036854775807; amounts are in minor units)"},
		{"Reserve", `{"ttl":"15m"}`, `duration "15m" cannot be read, at line 1:8 (allowed: seconds, such as "900s")`},
		{"Reserve", `{"ttl":900}`, `syntax error (line 1:8): unexpected token 900 (allowed: a valid coffer.v1.ReserveRequest, in which times are texts, such as "900s")`},
		{"Execute", `{"commands":[{"resolve":{"operation":"RESERVE"}}]}`, `operation "RESERVE" cannot be read, at line 1:38 (allowed: OPERATION_RESERVE, `},
	} {
		e := rawPost(t, w, tc.call, "application/json", []byte(tc.body))
		if e.Code != connect.CodeInvalidArgument || !strings.Contains(e.Error(), tc.said) || strings.Contains(e.Error(), "proto:") {
			t.Errorf("%s: %v, want %s", tc.body, e, tc.said)
		}
	}
}

func TestThousandAndOneCommands(t *testing.T) {
	w := newWorld(t)
	batch := make([]*cofferv1.Command, MaxBatch+1)
	for i := range batch {
		batch[i] = reserveCommand(reserveRequest())
	}
	send := func(ctx context.Context, m *cofferv1.ExecuteRequest) error {
		_, err := w.client(t).Reservations().Execute(ctx, m)
		return judge(err, true).err
	}
	e := refusal(t, send(t.Context(), &cofferv1.ExecuteRequest{Commands: batch}))
	d := e.Detail
	if d.GetField() != "commands" || d.GetValue() != "1001" || d.GetLimit() != "1000" || d.GetMessage() != "are too many" {
		t.Errorf("detail is %v", d)
	}
	e = refusal(t, send(t.Context(), &cofferv1.ExecuteRequest{}))
	if d := e.Detail; d.GetField() != "commands" || d.GetValue() != "0" || d.GetLimit() != "1 to 1000" {
		t.Errorf("detail is %v", d)
	}
	if n := len(w.exec.commands()); n != 0 {
		t.Errorf("%d commands ran", n)
	}
}
