package rpc

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/ledger/work"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/shard"
)

func TestCommandsKeepEveryField(t *testing.T) {
	w := newWorld(t)
	c := w.client(t, WithTenant("shop"))
	ctx := t.Context()
	key := ledger.OrderKey{Tenant: "shop", Order: "o", Benefit: "b"}
	budget := ledger.BudgetID{Tenant: "shop", Funder: "acme", Key: "spring"}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Commit(ctx, &cofferv1.CommitRequest{
		OrderId: "o", BenefitKey: "b", Attempt: 2, Budget: "acme/spring", AmountMinor: 5, Partial: true, PaymentId: "p", CorrelationId: "t",
	}))
	must(c.Extend(ctx, &cofferv1.ExtendRequest{OrderId: "o", BenefitKey: "b", Ttl: durationpb.New(time.Minute), OperationId: "e"}))
	must(c.Release(ctx, &cofferv1.ReleaseRequest{OrderId: "o", BenefitKey: "b", OperationId: "r"}))
	must(c.Reclaim(ctx, &cofferv1.ReclaimRequest{OrderId: "o", BenefitKey: "b", OperationId: "c"}))
	must(c.Reverse(ctx, &cofferv1.ReverseRequest{OrderId: "o", BenefitKey: "b", RefundId: "f", AmountMinor: 3}))
	must(c.Reinstate(ctx, &cofferv1.ReinstateRequest{OrderId: "o", BenefitKey: "b", RefundId: "f"}))
	must(c.Resolve(ctx, &cofferv1.ResolveRequest{OrderId: "o", BenefitKey: "b", Operation: cofferv1.Operation_OPERATION_REVERSE, Id: "f"}))
	must(c.FundBudget(ctx, &cofferv1.FundBudgetRequest{Budget: "acme/spring", AmountMinor: 9, Currency: "BRL", IdempotencyKey: "k"}))
	must(c.DefundBudget(ctx, &cofferv1.DefundBudgetRequest{Budget: "acme/spring", AmountMinor: 9, Currency: "BRL", IdempotencyKey: "k"}))
	must(c.FreezeBudget(ctx, &cofferv1.FreezeBudgetRequest{Budget: "acme/spring", IdempotencyKey: "k"}))
	must(c.UnfreezeBudget(ctx, &cofferv1.UnfreezeBudgetRequest{Budget: "acme/spring", IdempotencyKey: "k"}))
	must(c.ReshardBudget(ctx, &cofferv1.ReshardBudgetRequest{Budget: "acme/spring", Buckets: 16, IdempotencyKey: "k"}))
	must(c.CloseBudget(ctx, &cofferv1.CloseBudgetRequest{Budget: "acme/spring", IdempotencyKey: "k"}))
	want := []ledger.Command{
		{Op: ledger.OpCommit, Key: key, Attempt: 2, Budget: budget, Amount: 5, Partial: true, ID: "p", Correlation: "t"},
		{Op: ledger.OpExtend, Key: key, Attempt: 1, TTL: time.Minute, ID: "e"},
		{Op: ledger.OpRelease, Key: key, Attempt: 1, ID: "r"},
		{Op: ledger.OpReclaim, Key: key, Attempt: 1, ID: "c"},
		{Op: ledger.OpReverse, Key: key, Attempt: 1, ID: "f", Amount: 3},
		{Op: ledger.OpReinstate, Key: key, Attempt: 1, ID: "f"},
		{Op: ledger.OpResolve, Key: key, Attempt: 1, ID: "f", Target: ledger.OpReverse},
		{Op: ledger.OpFund, Budget: budget, ID: "k", Amount: 9, Currency: "BRL"},
		{Op: ledger.OpDefund, Budget: budget, ID: "k", Amount: 9, Currency: "BRL"},
		{Op: ledger.OpFreeze, Budget: budget, ID: "k"},
		{Op: ledger.OpUnfreeze, Budget: budget, ID: "k"},
		{Op: ledger.OpReshard, Budget: budget, ID: "k", Buckets: 16},
		{Op: ledger.OpClose, Budget: budget, ID: "k"},
	}
	for i, got := range w.exec.commands() {
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("command %d is\n%+v, want\n%+v", i, got, want[i])
		}
	}
}

func TestCreateBudget(t *testing.T) {
	w := newWorld(t)
	res, err := w.client(t).CreateBudget(t.Context(), &cofferv1.CreateBudgetRequest{
		Budget: "acme/spring", Currency: "CREDIT", Buckets: 16,
		Policy: &cofferv1.BudgetPolicy{
			LateCommit: cofferv1.LateCommit_LATE_COMMIT_CASE, Exhaustion: cofferv1.Exhaustion_EXHAUSTION_STRICT,
			OnUnavailable: cofferv1.OnUnavailable_ON_UNAVAILABLE_SKIP_BENEFIT,
			OverCommit:    &cofferv1.OverCommit{Percent: 10, AmountMinor: 500}, ReversalSink: "sink", MaxLifetime: durationpb.New(time.Hour),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := w.exec.commands()[0].Policy
	if p != (ledger.Policy{
		LateCommit: ledger.LateCase, Exhaustion: ledger.Strict, OnUnavailable: ledger.SkipBenefit,
		OverCommit: ledger.OverCommit{Percent: 10, Amount: 500}, MaxLifetime: time.Hour,
		ReversalSink: ledger.BudgetID{Tenant: "default", Key: "sink"},
	}) {
		t.Errorf("policy is %+v", p)
	}
	b := res.GetBudget()
	if b.GetBudget() != "acme/spring" || b.GetBuckets() != 16 || b.GetPolicy().GetLateCommit() != cofferv1.LateCommit_LATE_COMMIT_CASE ||
		b.GetPolicy().GetReversalSink() != "sink" || b.GetPolicy().GetMaxLifetime().AsDuration() != time.Hour {
		t.Errorf("budget is %v", b)
	}
}

// fakeLoads is what a node did to bucket 0.
type fakeLoads struct{}

func (fakeLoads) Loads(ledger.BudgetID) map[uint16]shard.BucketLoad {
	return map[uint16]shard.BucketLoad{0: {Commands: 90, Batches: 9, Conflicts: 2, Retries: 3, Rate: 12.5, Queued: 4}}
}

func TestBuckets(t *testing.T) {
	v := &store.BudgetView{Total: ledger.Balances{Funded: 200, Available: 100}}
	v.Budget = ledger.Budget{ID: ledger.BudgetID{Tenant: "default", Key: "spring"}, Currency: "BRL", State: ledger.BudgetOpen, Epoch: ledger.Epoch{Number: 3, Buckets: 2, Retired: 1}}
	for i, a := range []int64{60, 30, 10} {
		v.Buckets = append(v.Buckets, ledger.Bucket{ID: ledger.BucketID{Budget: v.Budget.ID, Index: uint16(i)}, Balances: ledger.Balances{Funded: a, Available: a}, Seq: 4})
	}
	v.Buckets = append(v.Buckets, ledger.Bucket{ID: ledger.BucketID{Budget: v.Budget.ID, Index: ledger.Unallocated}})
	got := bucketStatuses(v, fakeLoads{}.Loads(v.Budget.ID))
	if got.GetBudget().GetRoutingEpoch() != 3 || got.GetBudget().GetBuckets() != 2 || len(got.GetBuckets()) != 4 || math.Abs(got.GetSkew()-30./45) > 1e-9 {
		t.Errorf("%v", got)
	}
	k := got.GetBuckets()
	if f := k[0]; f.GetShare() != 0.6 || f.GetRatePerSecond() != 12.5 || f.GetQueued() != 4 || f.GetCommands() != 90 || f.GetBatches() != 9 || f.GetConflicts() != 2 || f.GetRetries() != 3 {
		t.Errorf("bucket 0 is %v", f)
	}
	for i, want := range []struct{ retired, unallocated bool }{{}, {}, {true, false}, {false, true}} {
		if b := k[i].GetBalances(); b.GetRetired() != want.retired || b.GetUnallocated() != want.unallocated {
			t.Errorf("bucket %d is %v", i, b)
		}
	}
	w := newWorld(t)
	res, err := w.client(t).GetBuckets(t.Context(), "spring")
	if err != nil || len(res.GetBuckets()) != 2 || res.GetBuckets()[0].GetShare() != 1 || res.GetBuckets()[0].GetCommands() != 0 {
		t.Errorf("without loads: %v, %v", res, err)
	}
	if _, err := w.client(t).GetBuckets(t.Context(), "none"); refusal(t, err).Detail.GetReason() != "BUDGET_NOT_FOUND" {
		t.Errorf("of no budget: %v", err)
	}
}

func TestReadViews(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	ctx := t.Context()
	b, err := c.GetBudget(ctx, "spring")
	if err != nil || b.GetBudget().GetBalances().GetReservedMinor() != 40 || len(b.GetBuckets()) != 2 || !b.GetBuckets()[1].GetUnallocated() ||
		b.GetBuckets()[0].GetLastSeq() != 7 {
		t.Errorf("budget %v: %v", b, err)
	}
	attempts, err := c.GetReservation(ctx, "o", "b")
	if err != nil || len(attempts) != 2 || attempts[0].GetAttempt() != 1 || attempts[0].GetReceipts()[0].GetRejection() != "INSUFFICIENT_BUDGET" ||
		len(attempts[0].GetReceipts()[0].GetRequestHash()) != 32 {
		t.Errorf("attempts %v: %v", attempts, err)
	}
	entries, err := c.ListEntries(ctx, &cofferv1.ListEntriesRequest{Budget: "spring", Bucket: proto.Uint32(256)})
	if err != nil || *w.store.bucket != 256 {
		t.Fatalf("entries: %v", err)
	}
	if e := entries.GetEntries()[0]; e.GetType() != cofferv1.EntryType_ENTRY_TYPE_MOVE_OUT || e.GetDelta().GetFundedMinor() != -5 || e.GetPeer() != "spring#1" {
		t.Errorf("entry is %v", e)
	}
	if _, err = c.ListEntries(ctx, &cofferv1.ListEntriesRequest{Budget: "spring"}); err != nil || w.store.bucket != nil {
		t.Errorf("all buckets: %v, %v", w.store.bucket, err)
	}
	replay, err := c.Replay(ctx, &cofferv1.ReplayRequest{Budget: "spring", CutoffTime: timestamppb.New(epoch)})
	if err != nil || replay.GetOk() || !w.store.cutoff.Equal(epoch) || replay.GetBuckets()[0].GetStored() != nil || replay.GetTotal().GetFundedMinor() != 3 {
		t.Errorf("replay %v: %v", replay, err)
	}
	chain, err := c.VerifyChain(ctx, "spring")
	if err != nil || chain.GetOk() || chain.GetBuckets()[0].GetBlocks() != 2 || chain.GetBuckets()[0].GetHeadHash()[0] != 0xab ||
		!w.store.cutoff.IsZero() || chain.GetBuckets()[0].GetProblem() == "" {
		t.Errorf("chain %v: %v", chain, err)
	}
	explained, err := c.ExplainOrder(ctx, "o", "")
	if err != nil || explained.GetTimeline()[0].GetOperation() != cofferv1.Operation_OPERATION_EXPIRE || len(explained.GetReservations()) != 2 {
		t.Errorf("explanation %v: %v", explained, err)
	}
	cases, err := c.ListCases(ctx, &cofferv1.ListCasesRequest{PageSize: 5})
	if err != nil || cases.GetCases()[0].GetState() != cofferv1.ReservationState_RESERVATION_STATE_EXPIRED {
		t.Errorf("cases %v: %v", cases, err)
	}
	status, err := c.GetStatus(ctx)
	if err != nil || status.GetNodeId() != "n1" || status.GetOldestOverdueSeconds() != 1.5 {
		t.Errorf("status %v: %v", status, err)
	}
}

func TestCutoffInTheFutureIsTheStoresToRefuse(t *testing.T) {
	w := newWorld(t)
	w.store.err = &ledger.Rejection{Code: ledger.CutoffInFuture, Field: "cutoff_time", Value: "2100-01-01", Limit: "now", Message: "has not passed"}
	_, err := w.client(t).Replay(t.Context(), &cofferv1.ReplayRequest{Budget: "spring", CutoffTime: timestamppb.New(epoch)})
	if e := refusal(t, err); e.Reason() != ledger.CutoffInFuture || e.Code != connect.CodeInvalidArgument || e.Detail.GetField() != "cutoff_time" {
		t.Errorf("error is %+v", e)
	}
}

func TestResolutions(t *testing.T) {
	outcome := ledger.Outcome{State: ledger.StateCommitted, Committed: 7, Seq: 3}
	for name, tc := range map[string]struct {
		result ledger.Result
		want   cofferv1.Resolution
	}{
		"void":     {ledger.Result{Void: true}, cofferv1.Resolution_RESOLUTION_VOID},
		"no trace": {ledger.Result{}, cofferv1.Resolution_RESOLUTION_VOID},
		"applied":  {ledger.Result{Receipt: &ledger.Receipt{Outcome: outcome}, Outcome: outcome}, cofferv1.Resolution_RESOLUTION_APPLIED},
		"refused": {
			ledger.Result{Receipt: &ledger.Receipt{Rejection: ledger.InsufficientBudget, Requested: 9, Available: 2}},
			cofferv1.Resolution_RESOLUTION_REJECTED,
		},
	} {
		got := resolutionOf(&tc.result)
		if got.GetResolution() != tc.want {
			t.Errorf("%s: %v", name, got)
		}
		if (got.GetRejection() != nil) != (name == "refused") {
			t.Errorf("%s has rejection %v", name, got.GetRejection())
		}
		if name == "refused" && (got.GetRejection().GetReason() != "INSUFFICIENT_BUDGET" || got.GetRejection().GetAvailableMinor() != 2 || got.GetRejection().GetLimit() != "2") {
			t.Errorf("rejection is %v", got.GetRejection())
		}
		if name == "applied" && (got.GetOutcome().GetCommittedMinor() != 7 || got.GetOutcome().GetEntrySeq() != 3) {
			t.Errorf("outcome is %v", got.GetOutcome())
		}
	}
}

func TestPanicFailsItsOwnCallAlone(t *testing.T) {
	w := newWorld(t)
	w.exec.do = func(c ledger.Command) (ledger.Result, error) {
		if c.Key.Order == "boom" {
			panic("secret state")
		}
		return accepted(c), nil
	}
	c := w.client(t)
	m := reserveRequest()
	m.OrderId = "boom"
	_, err := c.Reserve(t.Context(), m)
	if e := refusal(t, err); e.Code != connect.CodeInternal || e.Reason() != ledger.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
	if _, err := c.Reserve(t.Context(), reserveRequest()); err != nil {
		t.Errorf("the next call: %v", err)
	}
	logs := w.logs.String()
	if !strings.Contains(logs, "panic: secret state") || !strings.Contains(logs, "service_test.go") || !strings.Contains(logs, `"level":"error"`) {
		t.Errorf("log lacks the panic and its stack: %s", logs)
	}
}

func TestInfrastructureFailureIsLoggedOnceAndNotTold(t *testing.T) {
	w := newWorld(t)
	w.store.err = errors.New("open /var/secret: i/o error")
	_, err := w.client(t).GetBudget(t.Context(), "spring")
	if e := refusal(t, err); e.Code != connect.CodeInternal || strings.Contains(err.Error(), "secret") || e.Unknown {
		t.Errorf("error is %v", err)
	}
	var defects []string
	for line := range strings.Lines(w.logs.String()) {
		if strings.Contains(line, `"level":"error"`) {
			defects = append(defects, line)
		}
	}
	if len(defects) != 1 || !strings.Contains(defects[0], "/var/secret") || !strings.Contains(defects[0], "BudgetService/GetBudget") {
		t.Errorf("logged %q", defects)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	c := w.client(t, WithoutBatching())
	w.exec.do = func(k ledger.Command) (ledger.Result, error) {
		r := accepted(k)
		r.Skipped = k.Key.Order == "skip"
		return r, nil
	}
	skip := reserveRequest()
	skip.OrderId = "skip"
	if o, err := c.Reserve(t.Context(), skip); err != nil || !o.GetSkipped() {
		t.Fatalf("outcome %v: %v", o, err)
	}
	_, _ = c.Execute(t.Context(), []*cofferv1.Command{reserveCommand(reserveRequest()), {}, {}})
	_, _ = c.GetBudget(t.Context(), "none")
	want := `
# HELP coffer_rpc_rejections_total Refused calls and refused commands of batches, by reason.
# TYPE coffer_rpc_rejections_total counter
coffer_rpc_rejections_total{reason="BUDGET_NOT_FOUND"} 1
coffer_rpc_rejections_total{reason="INVALID_ARGUMENT"} 2
# HELP coffer_rpc_requests_total Calls answered, by procedure and wire code.
# TYPE coffer_rpc_requests_total counter
coffer_rpc_requests_total{code="not_found",procedure="/coffer.v1.BudgetService/GetBudget"} 1
coffer_rpc_requests_total{code="ok",procedure="/coffer.v1.ReservationService/Execute"} 1
coffer_rpc_requests_total{code="ok",procedure="/coffer.v1.ReservationService/Reserve"} 1
# HELP coffer_rpc_skipped_total Reserves answered without benefit because the store was unavailable.
# TYPE coffer_rpc_skipped_total counter
coffer_rpc_skipped_total 1
`
	if err := testutil.GatherAndCompare(w.reg, strings.NewReader(want),
		"coffer_rpc_requests_total", "coffer_rpc_rejections_total", "coffer_rpc_skipped_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(w.reg, "coffer_rpc_duration_seconds"); n != 3 {
		t.Errorf("%d latency series, want 3", n)
	}
}

func TestEnumTablesAreComplete(t *testing.T) {
	// check counts the wire values but the first, and wants each domain value
	// to survive the way out and back.
	check := func(name string, e protoreflect.EnumDescriptor, rows int) {
		t.Helper()
		if want := e.Values().Len() - 1; rows != want {
			t.Errorf("%s has %d rows, its enum %d values", name, rows, want)
		}
	}
	check("lateCommits", cofferv1.LateCommit(0).Descriptor(), len(lateCommits))
	check("exhaustions", cofferv1.Exhaustion(0).Descriptor(), len(exhaustions))
	check("onUnavailables", cofferv1.OnUnavailable(0).Descriptor(), len(onUnavailables))
	check("budgetStates", cofferv1.BudgetState(0).Descriptor(), len(budgetStates))
	check("states", cofferv1.ReservationState(0).Descriptor(), len(states))
	check("operations", cofferv1.Operation(0).Descriptor(), len(operations))
	check("entryTypes", cofferv1.EntryType(0).Descriptor(), len(entryTypes))
	check("sinkStates", cofferv1.SinkState(0).Descriptor(), len(sinkStates))
	check("queueJobStates", cofferv1.QueueJobState(0).Descriptor(), len(queueJobStates))
	check("factKinds", cofferv1.FactKind(0).Descriptor(), len(factKinds))
	check("factStates", cofferv1.FactState(0).Descriptor(), len(factStates))
	for s := work.Ready; s.Valid(); s++ {
		if w := queueJobStates.to(s); queueJobStates.from(w) != s || w.String() != "QUEUE_JOB_STATE_"+s.String() {
			t.Errorf("job state %s is %s on the wire", s, w)
		}
	}
	for k := fact.PaymentSucceeded; k.Valid(); k++ {
		if w := factKinds.to(k); factKinds.from(w) != k || w.String() != "FACT_KIND_"+k.String() {
			t.Errorf("fact kind %s is %s on the wire", k, w)
		}
	}
	for s := fact.Pending; s.Valid(); s++ {
		if w := factStates.to(s); factStates.from(w) != s || w.String() != "FACT_STATE_"+s.String() {
			t.Errorf("fact state %s is %s on the wire", s, w)
		}
	}
	for s := ledger.StateNone; s.Valid(); s++ {
		if w := states.to(s); states.from(w) != s || !strings.HasSuffix(w.String(), s.String()) {
			t.Errorf("state %s is %s on the wire", s, w)
		}
	}
	check("kinds", cofferv1.BudgetKind(0).Descriptor(), len(kinds))
	check("roundings", cofferv1.Rounding(0).Descriptor(), len(roundings))
	check("jobStates", cofferv1.JobState(0).Descriptor(), len(jobStates)+1) // DELIVERED is no state of the domain
	for e := ledger.EntryType(1); e < 64; e++ {
		if !e.Valid() {
			continue
		}
		if w := entryTypes.to(e); entryTypes.from(w) != e || w.String() != "ENTRY_TYPE_"+e.String() {
			t.Errorf("entry type %s is %s on the wire", e, w)
		}
	}
	for o := ledger.Op(1); o < 64; o++ {
		if !o.Valid() || o.OnBudget() {
			continue
		}
		if w := operations.to(o); operations.from(w) != o || w.String() != "OPERATION_"+o.String() {
			t.Errorf("operation %s is %s on the wire", o, w)
		}
	}
}

// The keys of the node's own commands are not for callers, who could stop it
// from freezing a budget or moving money by taking them first.
func TestKeysOfTheNodeAreItsOwn(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	for _, key := range []string{"integrity:1", "rebalance:", "adapt:0000000000000000:1"} {
		_, fund := c.FundBudget(t.Context(), &cofferv1.FundBudgetRequest{Budget: "spring", AmountMinor: 1, Currency: "BRL", IdempotencyKey: key})
		_, freeze := c.FreezeBudget(t.Context(), &cofferv1.FreezeBudgetRequest{Budget: "spring", IdempotencyKey: key})
		_, reshard := c.ReshardBudget(t.Context(), &cofferv1.ReshardBudgetRequest{Budget: "spring", Buckets: 2, IdempotencyKey: key})
		_, grant := c.Grant(t.Context(), &cofferv1.GrantRequest{Wallet: "acme", AmountMinor: 1, Currency: "BRL", IdempotencyKey: key})
		for name, err := range map[string]error{"fund": fund, "freeze": freeze, "reshard": reshard, "grant": grant} {
			d := refusal(t, err).Detail
			if d.GetReason() != "INVALID_ARGUMENT" || d.GetField() != "idempotency_key" || d.GetValue() != strconv.Quote(key) ||
				d.GetLimit() != "a key that does not begin with integrity:, rebalance: or adapt:" {
				t.Errorf("%s with key %s: %v", name, key, d)
			}
		}
	}
	if n := len(w.exec.commands()); n != 0 {
		t.Errorf("%d commands ran", n)
	}
	if _, err := c.FundBudget(t.Context(), &cofferv1.FundBudgetRequest{Budget: "spring", AmountMinor: 1, Currency: "BRL", IdempotencyKey: "rebalanced"}); err != nil {
		t.Error(err)
	}
}
