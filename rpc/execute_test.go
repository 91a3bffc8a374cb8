package rpc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

func commitCommand(order, payment string) *cofferv1.Command {
	return &cofferv1.Command{Command: &cofferv1.Command_Commit{Commit: &cofferv1.CommitRequest{
		OrderId: order, BenefitKey: "b", PaymentId: payment,
	}}}
}

func resolveCommand(order string, op cofferv1.Operation) *cofferv1.Command {
	return &cofferv1.Command{Command: &cofferv1.Command_Resolve{Resolve: &cofferv1.ResolveRequest{
		OrderId: order, BenefitKey: "b", Operation: op,
	}}}
}

func TestExecuteAnswersEachCommandInOrder(t *testing.T) {
	w := newWorld(t)
	w.exec.do = func(c ledger.Command) (ledger.Result, error) {
		switch {
		case c.Key.Order == "poor":
			return ledger.Result{}, &ledger.Rejection{Code: ledger.InsufficientBudget, Field: "amount_minor", Value: "9", Limit: "3", Message: "exceeds"}
		case c.Key.Order == "broken":
			return ledger.Result{}, errors.New("disk on fire")
		case c.Op == ledger.OpResolve:
			return ledger.Result{Key: c.Key, Attempt: 1, Void: true, Outcome: ledger.Outcome{State: ledger.StateVoid}}, nil
		}
		return accepted(c), nil
	}
	results, err := w.client(t, WithMaxAttempts(1)).Execute(t.Context(), []*cofferv1.Command{
		commitCommand("rich", "p1"),
		commitCommand("poor", "p1"),
		{},
		commitCommand("broken", "p1"),
		resolveCommand("lost", cofferv1.Operation_OPERATION_COMMIT),
		{Command: &cofferv1.Command_Extend{Extend: &cofferv1.ExtendRequest{OrderId: "o", BenefitKey: "b", Ttl: &durationpb.Duration{Nanos: -1, Seconds: 2}}}},
		resolveCommand("odd", 99),
	})
	if err != nil {
		t.Fatal(err)
	}
	if o := results[0].GetOutcome(); o.GetOrderId() != "rich" || o.GetEntrySeq() != 42 {
		t.Errorf("0: %v", results[0])
	}
	want := func(i int, code string, reason ledger.Code, field string) {
		t.Helper()
		e := results[i].GetError()
		if e.GetCode() != code || e.GetDetail().GetReason() != string(reason) || e.GetDetail().GetField() != field {
			t.Errorf("%d: %v", i, results[i])
		}
	}
	want(1, "failed_precondition", ledger.InsufficientBudget, "commands[1].amount_minor")
	want(2, "invalid_argument", ledger.InvalidArgument, "commands[2]")
	want(3, "internal", ledger.Internal, "")
	want(5, "invalid_argument", ledger.InvalidArgument, "commands[5].ttl")
	want(6, "invalid_argument", ledger.InvalidArgument, "commands[6].operation")
	if results[4].GetResolution().GetResolution() != cofferv1.Resolution_RESOLUTION_VOID {
		t.Errorf("4: %v", results[4])
	}
	if strings.Contains(results[3].String(), "fire") {
		t.Errorf("the cause leaked: %v", results[3])
	}
}

func TestDuplicateInBatch(t *testing.T) {
	w := newWorld(t)
	first := reserveRequest()
	second := reserveRequest()
	second.Attempt, second.AmountMinor = 1, 99 // attempt 0 means 1: the same key
	other := reserveRequest()
	other.Attempt = 2
	results, err := w.client(t).Execute(t.Context(), []*cofferv1.Command{
		reserveCommand(first), commitCommand("o", "p1"), reserveCommand(second), commitCommand("o", "p2"), commitCommand("o", "p1"),
		reserveCommand(other), resolveCommand("o", cofferv1.Operation_OPERATION_COMMIT), resolveCommand("o", cofferv1.Operation_OPERATION_RESERVE),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		e := r.GetError()
		switch i {
		case 2, 4:
			first := map[int]int{2: 0, 4: 1}[i]
			d := e.GetDetail()
			if e.GetCode() != "invalid_argument" || d.GetReason() != "DUPLICATE_IN_BATCH" || d.GetField() != fmt.Sprintf("commands[%d]", i) ||
				d.GetMessage() != fmt.Sprintf("has the same key as commands[%d]", first) {
				t.Errorf("%d: %v", i, e)
			}
		default:
			if e != nil {
				t.Errorf("%d: %v", i, e)
			}
		}
	}
	if d := results[2].GetError().GetDetail(); d.GetValue() != `RESERVE "o-1" "coupon:SPRING" attempt 1` {
		t.Errorf("value is %q", d.GetValue())
	}
	if ran := w.exec.commands(); len(ran) != 6 || ran[0].Amount != 1250 {
		t.Errorf("%d ran: %+v", len(ran), ran)
	}
}

func TestClientExecuteSplitsAndRenumbers(t *testing.T) {
	w := newWorld(t)
	n := 2*MaxBatch + 5
	commands := make([]*cofferv1.Command, n)
	for i := range commands {
		commands[i] = commitCommand(fmt.Sprint("o", i), "p")
	}
	commands[MaxBatch+7] = commitCommand("", "p")
	commands[2*MaxBatch+3] = commitCommand(fmt.Sprint("o", 2*MaxBatch+1), "p")
	results, err := w.client(t).Execute(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	bad := results[MaxBatch+7].GetError().GetDetail()
	dup := results[2*MaxBatch+3].GetError().GetDetail()
	if bad.GetField() != "commands[1007].order_id" || dup.GetField() != "commands[2003]" || dup.GetMessage() != "has the same key as commands[2001]" {
		t.Errorf("fields %q, %q, message %q", bad.GetField(), dup.GetField(), dup.GetMessage())
	}
	if len(w.exec.commands()) != n-2 {
		t.Errorf("%d ran", len(w.exec.commands()))
	}
	for i, r := range results {
		if r.GetError() == nil && r.GetOutcome().GetOrderId() != commands[i].GetCommit().GetOrderId() {
			t.Fatalf("%d: %v", i, r)
		}
	}
}

func TestClientExecuteSendsAgainOnlyWhatWasNotDone(t *testing.T) {
	w := newWorld(t)
	var busy atomic.Int32
	busy.Store(2)
	w.exec.do = func(c ledger.Command) (ledger.Result, error) {
		switch {
		case c.Key.Order == "busy" && busy.Add(-1) >= 0:
			return ledger.Result{}, &ledger.Rejection{Code: ledger.Overloaded, Message: "busy", RetryAfter: 2 * time.Millisecond}
		case c.Key.Order == "lost":
			return ledger.Result{}, &ledger.Rejection{Code: ledger.OutcomeUnknown, Message: "lost"}
		case c.Key.Order == "no":
			return ledger.Result{}, &ledger.Rejection{Code: ledger.IllegalState, Message: "no"}
		}
		return accepted(c), nil
	}
	results, err := w.client(t, WithMaxAttempts(3)).Execute(t.Context(), []*cofferv1.Command{
		commitCommand("fine", ""), commitCommand("busy", ""), commitCommand("lost", ""), commitCommand("no", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for _, c := range w.exec.commands() {
		runs[c.Key.Order]++
	}
	if runs["fine"] != 1 || runs["busy"] != 3 || runs["lost"] != 3 || runs["no"] != 1 {
		t.Errorf("runs are %v", runs)
	}
	if results[1].GetOutcome().GetOrderId() != "busy" || results[2].GetError().GetDetail().GetReason() != "OUTCOME_UNKNOWN" ||
		results[3].GetError().GetDetail().GetReason() != "ILLEGAL_STATE" {
		t.Errorf("results are %v", results)
	}
}

// Answers that were lost and answers that say "busy" count together.
func TestClientExecuteBoundsAllAttempts(t *testing.T) {
	w := newWorld(t, losing(2))
	w.exec.do = func(ledger.Command) (ledger.Result, error) {
		return ledger.Result{}, &ledger.Rejection{Code: ledger.Overloaded, Message: "busy", RetryAfter: time.Microsecond}
	}
	results, err := w.client(t, WithMaxAttempts(4)).Execute(t.Context(), []*cofferv1.Command{commitCommand("o", "")})
	if err != nil || results[0].GetError().GetDetail().GetReason() != "OUTCOME_UNKNOWN" {
		t.Errorf("result %v, %v", results, err)
	}
	if n := len(w.exec.commands()); n != 4 {
		t.Errorf("sent %d times, want 4", n)
	}
}

func TestClientExecuteGivesAResultForEachCommandWhenItGivesUp(t *testing.T) {
	var calls atomic.Int32
	w := newWorld(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if calls.Add(1) > 1 {
				next.ServeHTTP(nowhere{header: http.Header{}}, r) // it runs, the answer is lost
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(rw, r)
		})
	})
	commands := make([]*cofferv1.Command, 2*MaxBatch+1)
	for i := range commands {
		commands[i] = commitCommand(fmt.Sprint("o", i), "")
	}
	results, err := w.client(t, WithMaxAttempts(2)).Execute(t.Context(), commands)
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("error is %v", err)
	}
	for i, want := range map[int]string{MaxBatch: "OUTCOME_UNKNOWN", 2*MaxBatch - 1: "OUTCOME_UNKNOWN", 2 * MaxBatch: "UNAVAILABLE"} {
		if got := results[i].GetError().GetDetail().GetReason(); got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	if results[0].GetOutcome() == nil || results[MaxBatch-1].GetOutcome() == nil {
		t.Errorf("the first batch: %v", results[0])
	}
	if got := results[2*MaxBatch].GetError().GetCode(); got != connect.CodeUnavailable.String() {
		t.Errorf("code is %q", got)
	}
}

// nowhere is a response that nobody reads.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}
