package ledger

import "time"

// Op is the kind of a command.
type Op uint8

// The commands. Those up to OpResolve work on one benefit of one order, those
// up to OpMove on a budget. Their numbers are stored.
const (
	OpReserve Op = iota + 1
	OpCommit
	OpExtend
	OpRelease
	OpExpire // internal: only the expiry scanner sends it
	OpReclaim
	OpReverse
	OpReinstate
	OpResolve
	OpCreate
	OpFund
	OpDefund
	OpFreeze
	OpUnfreeze
	OpClose
	OpReshard
	OpMove // internal: only the rebalancer sends it
)

// The commands on a job, which pays out of a wallet. A job also takes
// OpRelease, OpExtend, OpExpire and OpResolve. Their numbers leave room for
// more of the others.
const (
	OpCharge Op = iota + 32
	OpRefund
	OpReclaimCharge
	OpHold
	OpSettle
)

var opNames = [...]string{
	OpReserve: "RESERVE", OpCommit: "COMMIT", OpExtend: "EXTEND", OpRelease: "RELEASE", OpExpire: "EXPIRE",
	OpReclaim: "RECLAIM", OpReverse: "REVERSE", OpReinstate: "REINSTATE", OpResolve: "RESOLVE",
	OpCreate: "CREATE", OpFund: "FUND", OpDefund: "DEFUND", OpFreeze: "FREEZE", OpUnfreeze: "UNFREEZE", OpClose: "CLOSE", OpReshard: "RESHARD", OpMove: "MOVE",
	OpCharge: "CHARGE", OpRefund: "REFUND", OpReclaimCharge: "RECLAIM_CHARGE", OpHold: "HOLD", OpSettle: "SETTLE",
}

func (o Op) String() string {
	if o.Valid() {
		return opNames[o]
	}
	if o == 0 {
		return ""
	}
	return "UNKNOWN"
}

// Valid reports whether the op is one of the above.
func (o Op) Valid() bool { return int(o) < len(opNames) && opNames[o] != "" }

// OnBudget reports whether the command works on a budget and not on an order.
func (o Op) OnBudget() bool { return o >= OpCreate && o <= OpMove }

// Opens reports whether the command begins an attempt: it names the budget
// that pays, and with it the bucket.
func (o Op) Opens() bool { return o == OpReserve || o == OpCharge || o == OpHold }

// forJobs says whether the command works on a job; both: on either.
func (o Op) forJobs() (job, both bool) {
	switch o {
	case OpExtend, OpRelease, OpExpire, OpResolve:
		return true, true
	default:
		return o >= OpCharge && o <= OpSettle, false
	}
}

// Command is one request to change the ledger. Which fields count depends on
// Op; Validate refuses what is missing or out of bounds.
type Command struct {
	Op Op
	// Key is the subject of commands on an order.
	Key OrderKey
	// Attempt is part of the key; 0 means 1.
	Attempt uint32
	// ID tells commands of one kind on one attempt apart: payment id of
	// Commit (optional), refund id of Reverse and Reinstate (required),
	// operation id of Extend, Release and Reclaim (optional). On a budget it
	// is the idempotency key (required, but for Create).
	ID string
	// Budget is required for commands that open an attempt and for those on a
	// budget. Elsewhere it is optional: it saves a read, and is refused if it is not the
	// reservation's budget.
	Budget BudgetID
	// Amount in minor units. Commit: 0 means all that is held. Refund and
	// ReclaimCharge have none: it is what was charged.
	Amount   int64
	Currency string
	// TTL of Reserve, Hold and Extend, counted from when the server decides.
	TTL time.Duration
	// Partial keeps the rest of a Commit or Settle reserved.
	Partial bool
	// Quote is what Reserve's benefit was priced with; nil for none.
	Quote *Quote
	// Lines make Reverse refund units of the quote's lines; Amount is 0 then.
	Lines []RefundLine
	// Target is the kind of command whose outcome Resolve settles.
	Target Op
	// Kind, Buckets and Policy define the budget of Create; Buckets is also
	// how many Reshard leaves.
	Kind    BudgetKind
	Buckets int
	Policy  Policy
	// From and To are the buckets of Move.
	From, To uint16
	// Correlation is a tracing id; it carries no meaning for the ledger.
	Correlation string
	// Term, if not 0, is the term of the leader whose scanner sends the
	// command: it is refused with FENCED unless that term is the current one.
	// It is no part of the request.
	Term uint64
}

// Result is the answer to an accepted command.
type Result struct {
	Key     OrderKey
	Attempt uint32
	Budget  BudgetID
	Outcome Outcome
	// Replayed: the command had taken effect before; this is its first
	// answer and nothing was written.
	Replayed bool
	// Void answers Resolve: the command did not happen and never will.
	Void bool
	// Skipped answers Reserve under the SKIP_BENEFIT policy: the store could
	// not take it, nothing was reserved, go on without the benefit.
	Skipped bool
	// Receipt is set by Resolve when the command had an outcome.
	Receipt *Receipt
	// Definition and Totals answer commands on a budget.
	Definition *Budget
	Totals     Balances
}

// Normalize returns the command with defaults filled in and durations in
// whole milliseconds, the ledger's resolution.
func (c Command) Normalize() Command {
	c.TTL = c.TTL.Truncate(time.Millisecond)
	c.Policy.MaxLifetime = c.Policy.MaxLifetime.Truncate(time.Millisecond)
	if c.Attempt == 0 && !c.Op.OnBudget() {
		c.Attempt = 1
	}
	if c.Op == OpCreate {
		if c.Buckets == 0 {
			c.Buckets = 1
		}
		if c.Policy.MaxLifetime == 0 {
			c.Policy.MaxLifetime = DefaultMaxLifetime
		}
	}
	return c
}

// Reply is the answer to one command of many: a result, or the error that
// refused it (a *Rejection).
type Reply struct {
	Result Result
	Err    error
}
