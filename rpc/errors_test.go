package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

func TestEveryLedgerCodeHasAWireCode(t *testing.T) {
	want := map[ledger.Code]connect.Code{
		ledger.InvalidArgument: connect.CodeInvalidArgument, ledger.DuplicateInBatch: connect.CodeInvalidArgument,
		ledger.BudgetNotFound: connect.CodeNotFound, ledger.ReservationNotFound: connect.CodeNotFound,
		ledger.IdempotencyConflict: connect.CodeAlreadyExists, ledger.IllegalState: connect.CodeFailedPrecondition,
		ledger.InsufficientBudget: connect.CodeFailedPrecondition, ledger.OperationLimit: connect.CodeFailedPrecondition,
		ledger.DebtCapReached: connect.CodeFailedPrecondition, ledger.FactLimit: connect.CodeFailedPrecondition, ledger.SinkLimit: connect.CodeFailedPrecondition,
		ledger.QueueFull: connect.CodeResourceExhausted, ledger.LeaseLimit: connect.CodeResourceExhausted,
		ledger.Overloaded: connect.CodeUnavailable, ledger.Draining: connect.CodeUnavailable, ledger.Unavailable: connect.CodeUnavailable,
		ledger.Unauthenticated: connect.CodeUnauthenticated, ledger.PermissionDenied: connect.CodePermissionDenied,
		ledger.OutcomeUnknown: connect.CodeDeadlineExceeded, ledger.Corrupt: connect.CodeDataLoss, ledger.Internal: connect.CodeInternal,
	}
	for _, info := range ledger.Codes() {
		if _, ok := wireCodes[info.Class]; !ok {
			t.Errorf("%s: class %d has no wire code", info.Code, info.Class)
		}
		if code, ok := want[info.Code]; ok && codeOf(info.Code) != code {
			t.Errorf("%s is %s on the wire, want %s", info.Code, codeOf(info.Code), code)
		}
	}
	if got := codeOf("NO_SUCH_CODE"); got != connect.CodeInternal {
		t.Errorf("an unknown code is %s, want internal", got)
	}
}

func TestWireErrorCarriesAllDetailsAndNoCause(t *testing.T) {
	r := &ledger.Rejection{
		Code: ledger.InsufficientBudget, Field: "amount_minor", Value: "500", Limit: "120", Message: "exceeds what \xff is there",
		State: "RESERVED", Attempt: 2, Requested: 500, Available: 120, RetryAfter: 250 * time.Millisecond, Replayed: true,
		Fields: []string{"ttl_ms"}, Cause: errors.New("secret disk path"),
	}
	e := wireError(context.Background(), r)
	if e.Code() != connect.CodeFailedPrecondition {
		t.Errorf("code is %s", e.Code())
	}
	if strings.Contains(e.Message(), "secret") || !strings.Contains(e.Message(), "INSUFFICIENT_BUDGET: amount_minor 500") {
		t.Errorf("message is %q", e.Message())
	}
	m, err := connectproto.UnmarshalErrorDetail(e.Details()[0])
	if err != nil {
		t.Fatal(err)
	}
	d, _ := m.(*cofferv1.ErrorDetail)
	if d.GetReason() != "INSUFFICIENT_BUDGET" || d.GetField() != "amount_minor" || d.GetValue() != "500" || d.GetLimit() != "120" ||
		d.GetState() != "RESERVED" || d.GetAttempt() != 2 || d.GetRequestedMinor() != 500 || d.GetAvailableMinor() != 120 ||
		d.GetRetryDelay().AsDuration() != 250*time.Millisecond || !d.GetReplayed() || d.GetDifferingFields()[0] != "ttl_ms" ||
		d.GetNext() == "" || d.GetMessage() != "exceeds what \uFFFD is there" {
		t.Errorf("detail is %v", d)
	}
}

func TestWireErrorHidesWhatIsNoRefusal(t *testing.T) {
	e := wireError(context.Background(), errors.New("open /var/lib/secret: permission denied"))
	if e.Code() != connect.CodeInternal || strings.Contains(e.Error(), "secret") {
		t.Errorf("error is %v", e)
	}
	if len(e.Details()) != 1 {
		t.Errorf("%d details, want 1", len(e.Details()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if e := wireError(ctx, ctx.Err()); e.Code() != connect.CodeCanceled {
		t.Errorf("a cancelled call is %s", e.Code())
	}
	if e := wireError(context.Background(), context.Canceled); e.Code() != connect.CodeInternal {
		t.Errorf("a cancellation of our own is %s, want internal", e.Code())
	}
	remote := connect.NewError(connect.CodeNotFound, "another server's words").WithRemote()
	if e := wireError(context.Background(), remote); e.Code() != connect.CodeInternal {
		t.Errorf("a remote verdict is %s, want internal", e.Code())
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	err := Config{DefaultTenant: "a\x00b", MaxMessageBytes: 5}.Validate()
	for _, want := range []string{"default_tenant", "control character", "max_message_bytes is 5 (allowed: 1024 to 67108864)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	cfg := DefaultConfig()
	cfg.DefaultTenant = "*"
	if err := cfg.Validate(); err == nil || err.Error() != `default_tenant "*" stands for every tenant (allowed: the name of one tenant)` {
		t.Errorf("every tenant as the default one: %v", err)
	}
	if _, err := NewServer(DefaultConfig(), Deps{}); err == nil || !strings.Contains(err.Error(), "no executor") {
		t.Errorf("a server without an executor: %v", err)
	}
}
