package store

import (
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Page asks for one page of a list.
type Page struct {
	// Size is the number of items; 0 means DefaultPageSize, and
	// MaxPageSize is the most.
	Size int
	// Token is the NextToken of the page before; empty for the first. A token
	// is bound to the list and the tenant it came from; any other is refused
	// with BAD_PAGE_TOKEN.
	Token string
}

// Bounds of a page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// BudgetView is a budget with its buckets, read in one transaction.
type BudgetView struct {
	ledger.Budget
	// Buckets are the routed buckets in order, then the retired ones, then the
	// unallocated one if it was ever used.
	Buckets []ledger.Bucket
	// Total is the sum over Buckets.
	Total ledger.Balances
}

// EntryView is an entry with the place and time it was written.
type EntryView struct {
	ledger.Entry
	Bucket ledger.BucketID
	Time   time.Time
}

// BucketReplay is the replay of one bucket.
type BucketReplay struct {
	Bucket ledger.BucketID
	// Seq is the last entry that counted, Entries how many did.
	Seq, Entries uint64
	Replayed     ledger.Balances
	// Stored are the balances of the bucket's row; HasStored is false for a
	// replay to a cutoff in the past.
	Stored    ledger.Balances
	HasStored bool
	// Blocks and Head describe the chain that was walked.
	Blocks uint64
	Head   [32]byte
	// Problem is empty when balances, sequence and chain all hold.
	Problem string
}

// Replay is the replay of a budget.
type Replay struct {
	Budget  ledger.Budget
	Cutoff  time.Time
	Buckets []BucketReplay
	Total   ledger.Balances
}

// OK reports whether nothing is wrong.
func (r *Replay) OK() bool {
	for i := range r.Buckets {
		if r.Buckets[i].Problem != "" {
			return false
		}
	}
	return true
}

// TimelineEvent is one thing that happened to an order.
type TimelineEvent struct {
	Time    time.Time
	Benefit string
	Attempt uint32
	Op      ledger.Op
	Text    string
	// Entry is nil for what moves nothing (refusals, voids, tombstones,
	// deliveries of what was charged).
	Entry *EntryView
	id    string // of the command
}

// Explanation is everything that happened to an order.
type Explanation struct {
	Order        string
	Reservations []ledger.Reservation
	// Allocations are those of the quoted attempts.
	Allocations []AllocationView
	Timeline    []TimelineEvent
}

// StatementView is one page of a wallet's statement. What is available is the
// balance; Rows carry it after each entry.
type StatementView struct {
	Wallet           ledger.Budget
	From, Cutoff     time.Time
	Opening, Closing ledger.Balances
	Rows             []EntryView
}

// AllocationView is who paid what of one quoted attempt, and what was refunded.
type AllocationView struct {
	Key     ledger.OrderKey
	Attempt uint32
	ledger.Allocation
	// Refunds are in the order of their ids; those that were undone are among
	// them.
	Refunds []RefundView
}

// RefundView is what one refund took from which line and funder.
type RefundView struct {
	ID string
	ledger.Split
}

// CaseView is a case with the state its reservation has now.
type CaseView struct {
	ledger.Case
	State ledger.State
}

// AuditCheck is one invariant and what checking it found.
type AuditCheck struct {
	Name, Statement   string
	Checked, Problems uint64
	// Examples are up to ten problems, each naming the row.
	Examples []string
}

// AuditReport is the result of an audit.
type AuditReport struct {
	Checks                                                         []AuditCheck
	Budgets, Buckets, Blocks, Entries, Reservations, Events, Cases uint64
	// Totals are the balances by currency.
	Totals map[string]ledger.Balances
}

// OK reports whether every check passed.
func (r *AuditReport) OK() bool {
	for i := range r.Checks {
		if r.Checks[i].Problems > 0 {
			return false
		}
	}
	return true
}
