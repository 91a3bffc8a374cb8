package rpc

import (
	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Enums of the domain and of the schema are mapped by tables and never by
// number: each side may grow and renumber by itself. A test proves that the
// tables are complete.

// pairs maps wire values to domain values. Wire values that are not listed are
// the domain's zero value, the default.
type pairs[W, D comparable] []struct {
	wire W
	own  D
}

func (p pairs[W, D]) from(w W) (own D) {
	for _, e := range p {
		if e.wire == w {
			return e.own
		}
	}
	return own
}

func (p pairs[W, D]) to(own D) (w W) {
	for _, e := range p {
		if e.own == own {
			return e.wire
		}
	}
	return w
}

var lateCommits = pairs[cofferv1.LateCommit, ledger.LateCommit]{
	{cofferv1.LateCommit_LATE_COMMIT_REJECT, ledger.LateReject},
	{cofferv1.LateCommit_LATE_COMMIT_RECLAIM, ledger.LateReclaim},
	{cofferv1.LateCommit_LATE_COMMIT_CASE, ledger.LateCase},
}

var exhaustions = pairs[cofferv1.Exhaustion, ledger.Exhaustion]{
	{cofferv1.Exhaustion_EXHAUSTION_EXACT, ledger.Exact},
	{cofferv1.Exhaustion_EXHAUSTION_STRICT, ledger.Strict},
}

var onUnavailables = pairs[cofferv1.OnUnavailable, ledger.OnUnavailable]{
	{cofferv1.OnUnavailable_ON_UNAVAILABLE_FAIL_CLOSED, ledger.FailClosed},
	{cofferv1.OnUnavailable_ON_UNAVAILABLE_SKIP_BENEFIT, ledger.SkipBenefit},
}

var budgetStates = pairs[cofferv1.BudgetState, ledger.BudgetState]{
	{cofferv1.BudgetState_BUDGET_STATE_OPEN, ledger.BudgetOpen},
	{cofferv1.BudgetState_BUDGET_STATE_FROZEN, ledger.BudgetFrozen},
	{cofferv1.BudgetState_BUDGET_STATE_CLOSED, ledger.BudgetClosed},
}

var states = pairs[cofferv1.ReservationState, ledger.State]{
	{cofferv1.ReservationState_RESERVATION_STATE_NONE, ledger.StateNone},
	{cofferv1.ReservationState_RESERVATION_STATE_RESERVED, ledger.StateReserved},
	{cofferv1.ReservationState_RESERVATION_STATE_COMMITTED, ledger.StateCommitted},
	{cofferv1.ReservationState_RESERVATION_STATE_PARTLY_REVERSED, ledger.StatePartlyReversed},
	{cofferv1.ReservationState_RESERVATION_STATE_REVERSED, ledger.StateReversed},
	{cofferv1.ReservationState_RESERVATION_STATE_RELEASED, ledger.StateReleased},
	{cofferv1.ReservationState_RESERVATION_STATE_EXPIRED, ledger.StateExpired},
	{cofferv1.ReservationState_RESERVATION_STATE_REJECTED, ledger.StateRejected},
	{cofferv1.ReservationState_RESERVATION_STATE_CANCELLED, ledger.StateCancelled},
	{cofferv1.ReservationState_RESERVATION_STATE_VOID, ledger.StateVoid},
}

var operations = pairs[cofferv1.Operation, ledger.Op]{
	{cofferv1.Operation_OPERATION_RESERVE, ledger.OpReserve},
	{cofferv1.Operation_OPERATION_COMMIT, ledger.OpCommit},
	{cofferv1.Operation_OPERATION_EXTEND, ledger.OpExtend},
	{cofferv1.Operation_OPERATION_RELEASE, ledger.OpRelease},
	{cofferv1.Operation_OPERATION_RECLAIM, ledger.OpReclaim},
	{cofferv1.Operation_OPERATION_REVERSE, ledger.OpReverse},
	{cofferv1.Operation_OPERATION_REINSTATE, ledger.OpReinstate},
	{cofferv1.Operation_OPERATION_EXPIRE, ledger.OpExpire},
	{cofferv1.Operation_OPERATION_RESOLVE, ledger.OpResolve},
	{cofferv1.Operation_OPERATION_CHARGE, ledger.OpCharge},
	{cofferv1.Operation_OPERATION_REFUND, ledger.OpRefund},
	{cofferv1.Operation_OPERATION_RECLAIM_CHARGE, ledger.OpReclaimCharge},
	{cofferv1.Operation_OPERATION_HOLD, ledger.OpHold},
	{cofferv1.Operation_OPERATION_SETTLE, ledger.OpSettle},
}

var kinds = pairs[cofferv1.BudgetKind, ledger.BudgetKind]{
	{cofferv1.BudgetKind_BUDGET_KIND_PROMOTION, ledger.KindPromotion},
	{cofferv1.BudgetKind_BUDGET_KIND_WALLET, ledger.KindWallet},
}

var roundings = pairs[cofferv1.Rounding, ledger.Rounding]{
	{cofferv1.Rounding_ROUNDING_HALF_UP, ledger.RoundHalfUp},
	{cofferv1.Rounding_ROUNDING_HALF_EVEN, ledger.RoundHalfEven},
	{cofferv1.Rounding_ROUNDING_DOWN, ledger.RoundDown},
	{cofferv1.Rounding_ROUNDING_UP, ledger.RoundUp},
}

// jobStates names the states of a job; jobStateOf tells a delivered one.
var jobStates = pairs[cofferv1.JobState, ledger.State]{
	{cofferv1.JobState_JOB_STATE_NONE, ledger.StateNone},
	{cofferv1.JobState_JOB_STATE_HELD, ledger.StateReserved},
	{cofferv1.JobState_JOB_STATE_CHARGED, ledger.StateCommitted},
	{cofferv1.JobState_JOB_STATE_REFUNDED, ledger.StateReversed},
	{cofferv1.JobState_JOB_STATE_RELEASED, ledger.StateReleased},
	{cofferv1.JobState_JOB_STATE_EXPIRED, ledger.StateExpired},
	{cofferv1.JobState_JOB_STATE_REJECTED, ledger.StateRejected},
	{cofferv1.JobState_JOB_STATE_CANCELLED, ledger.StateCancelled},
	{cofferv1.JobState_JOB_STATE_VOID, ledger.StateVoid},
}

// opOf is the command an operation names; one outside the schema stays
// outside the domain, so that the domain refuses it.
func opOf(o cofferv1.Operation) ledger.Op {
	if op := operations.from(o); op != 0 || o == cofferv1.Operation_OPERATION_UNSPECIFIED {
		return op
	}
	return ^ledger.Op(0)
}

var entryTypes = pairs[cofferv1.EntryType, ledger.EntryType]{
	{cofferv1.EntryType_ENTRY_TYPE_RESERVE, ledger.EntryReserve},
	{cofferv1.EntryType_ENTRY_TYPE_COMMIT, ledger.EntryCommit},
	{cofferv1.EntryType_ENTRY_TYPE_EXTEND, ledger.EntryExtend},
	{cofferv1.EntryType_ENTRY_TYPE_RELEASE, ledger.EntryRelease},
	{cofferv1.EntryType_ENTRY_TYPE_EXPIRE, ledger.EntryExpire},
	{cofferv1.EntryType_ENTRY_TYPE_RECLAIM, ledger.EntryReclaim},
	{cofferv1.EntryType_ENTRY_TYPE_REVERSE, ledger.EntryReverse},
	{cofferv1.EntryType_ENTRY_TYPE_REINSTATE, ledger.EntryReinstate},
	{cofferv1.EntryType_ENTRY_TYPE_CREATE, ledger.EntryCreate},
	{cofferv1.EntryType_ENTRY_TYPE_FUND, ledger.EntryFund},
	{cofferv1.EntryType_ENTRY_TYPE_DEFUND, ledger.EntryDefund},
	{cofferv1.EntryType_ENTRY_TYPE_FREEZE, ledger.EntryFreeze},
	{cofferv1.EntryType_ENTRY_TYPE_UNFREEZE, ledger.EntryUnfreeze},
	{cofferv1.EntryType_ENTRY_TYPE_CLOSE, ledger.EntryClose},
	{cofferv1.EntryType_ENTRY_TYPE_MOVE_OUT, ledger.EntryMoveOut},
	{cofferv1.EntryType_ENTRY_TYPE_MOVE_IN, ledger.EntryMoveIn},
	{cofferv1.EntryType_ENTRY_TYPE_RESHARD, ledger.EntryReshard},
	{cofferv1.EntryType_ENTRY_TYPE_CHARGE, ledger.EntryCharge},
	{cofferv1.EntryType_ENTRY_TYPE_REFUND, ledger.EntryRefund},
	{cofferv1.EntryType_ENTRY_TYPE_HOLD, ledger.EntryHold},
	{cofferv1.EntryType_ENTRY_TYPE_SETTLE, ledger.EntrySettle},
}

var sinkStates = pairs[cofferv1.SinkState, store.SinkState]{
	{cofferv1.SinkState_SINK_STATE_RUNNING, store.SinkRunning},
	{cofferv1.SinkState_SINK_STATE_PAUSED, store.SinkPaused},
}
