package ledger

import (
	"math"
	"math/bits"
	"time"
)

// BudgetState is the life of a budget: OPEN ⇄ FROZEN, either → CLOSED.
type BudgetState uint8

// Budget states. FROZEN and CLOSED refuse new reservations; commits, releases
// and refunds of what is already reserved go on in every state.
const (
	BudgetOpen BudgetState = iota + 1
	BudgetFrozen
	BudgetClosed
)

func (s BudgetState) String() string {
	return [...]string{"", "OPEN", "FROZEN", "CLOSED"}[min(int(s), 3)]
}

// LateCommit decides what a Commit does that comes after Expire.
type LateCommit uint8

// Late-commit policies.
const (
	LateReject  LateCommit = iota // refuse
	LateReclaim                   // take the money from available again, refuse if it does not fit
	LateCase                      // refuse and open a case for a person
)

func (p LateCommit) String() string {
	return [...]string{"REJECT", "RECLAIM", "CASE"}[min(int(p), 2)]
}

// Exhaustion decides when a Reserve finds too little money.
type Exhaustion uint8

// Exhaustion policies.
const (
	Exact  Exhaustion = iota // only when the whole budget is short
	Strict                   // as soon as the order's bucket is short
)

func (p Exhaustion) String() string { return [...]string{"EXACT", "STRICT"}[min(int(p), 1)] }

// OnUnavailable decides what a Reserve answers when the store certainly did
// not take it.
type OnUnavailable uint8

// Unavailability policies.
const (
	FailClosed  OnUnavailable = iota // an error
	SkipBenefit                      // a typed "no benefit" answer
)

func (p OnUnavailable) String() string {
	return [...]string{"FAIL_CLOSED", "SKIP_BENEFIT"}[min(int(p), 1)]
}

// OverCommit bounds a Commit above the reserved amount: the difference may
// be at most Percent of the reserved amount or at most Amount minor units,
// whichever is larger. Zero refuses it.
type OverCommit struct {
	Percent int32
	Amount  int64
}

// Limit is the largest legal excess over reserved.
func (o OverCommit) Limit(reserved int64) int64 {
	hi, lo := bits.Mul64(uint64(reserved), uint64(o.Percent))
	if hi >= 100 {
		return math.MaxInt64
	}
	byPct, _ := bits.Div64(hi, lo, 100)
	return max(int64(min(byPct, math.MaxInt64)), o.Amount)
}

// DefaultMaxLifetime bounds a reservation's life where the budget's definition
// says nothing.
const DefaultMaxLifetime = 7 * 24 * time.Hour

// MaxLifetimeLimit is the longest lifetime a budget may allow.
const MaxLifetimeLimit = 400 * 24 * time.Hour

// Policy is the part of a budget's definition that decides hard cases.
type Policy struct {
	LateCommit    LateCommit
	Exhaustion    Exhaustion
	OnUnavailable OnUnavailable
	OverCommit    OverCommit
	// ReversalSink takes reversals after the budget was closed. Zero means
	// the budget's own unallocated bucket.
	ReversalSink BudgetID
	// MaxLifetime bounds expiry minus creation of a reservation, extensions
	// included.
	MaxLifetime time.Duration
	// Overdraft and DebtCap let a wallet's available go below zero, by so
	// many minor units at most; see credit.go.
	Overdraft, DebtCap int64
}

// Epoch is one generation of a budget's routing: new reservations go to one of
// Buckets buckets. Reservations keep the bucket they were made in.
type Epoch struct {
	Number  uint32
	Buckets uint16
	// Retired is how many buckets with higher indexes earlier epochs left. No
	// new reservation goes there, but theirs are settled there, and what they
	// give back counts as the budget's money.
	Retired uint16
}

// next is the epoch after e with another number of buckets.
func (e Epoch) next(buckets uint16) Epoch {
	made := max(e.Buckets+e.Retired, buckets)
	return Epoch{Number: e.Number + 1, Buckets: buckets, Retired: made - buckets}
}

// Budget is a budget's definition and state; its money is in its buckets.
type Budget struct {
	ID       BudgetID
	Kind     BudgetKind
	Currency string
	State    BudgetState
	Policy   Policy
	Epoch    Epoch
	Created  time.Time
	// Definition is the canonical form of the Create that made it, which
	// makes Create idempotent.
	Definition []byte
}

// Route names the bucket of a new reservation: a pure function of budget,
// routing epoch, order and benefit, so that a retry never changes bucket.
// The hash is reduced by multiplication (Lemire, "A fast alternative to the
// modulo reduction", 2016).
func (b *Budget) Route(k OrderKey) BucketID {
	id := BucketID{Budget: b.ID}
	if b.Epoch.Buckets <= 1 {
		return id
	}
	x := Hash64(uint64(b.Epoch.Number)<<32, b.ID.Tenant, b.ID.Funder, b.ID.Key, k.Order, k.Benefit)
	id.Index = uint16((x >> 32) * uint64(b.Epoch.Buckets) >> 32)
	return id
}

// Buckets is how many buckets an order may be routed to in the current epoch,
// without the retired ones and the unallocated one: those from 0 on.
func (b *Budget) Buckets() int { return int(b.Epoch.Buckets) }

// Made is how many buckets there are, with the retired ones and without the
// unallocated one.
func (b *Budget) Made() int { return int(b.Epoch.Buckets) + int(b.Epoch.Retired) }
