package store

import (
	"context"
	"fmt"
	"hash/maphash"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// An audit reads the whole store and checks every invariant of the ledger on
// it, while commands go on. It holds still nothing and locks nothing; what
// makes its verdicts exact is what it compares:
//
//	1  vector        budgets and bucket rows, a few budgets per transaction. A
//	                 bucket's row is a cut through its ledger: balances, number
//	                 of the last entry, hash of the last block.
//	2  ledger        the blocks up to each cut. They are immutable.
//	3  reservations  rows, read after the cuts. Receipts are only ever added, so
//	                 a row holds every receipt for an entry up to its bucket's
//	                 cut; newer ones are told apart by their number.
//	4  receipts, outbox, cases, allocations, expiry index: in the same way, after
//	   the cuts.
//	5  jobs and facts: each with the rows that go with it, in one transaction.
//	6  above: buckets that something newer than their cuts named, once more.
//
// Entries and receipts, blocks and pointers, the two ends of a move are
// compared as sets, by sums of 128-bit fingerprints over shards of the set: the
// memory is constant however long the ledger is. Where a shard's sums differ,
// an exact pass reads the same cut again and names the rows. See matcher.
//
// What one cut cannot decide (a move between budgets whose cuts were taken in
// different transactions, a command on a budget during the audit, a hold
// settled between two reads) is read once more, in an order in which the
// answer is certain, before it is called a problem.

// checkID names a check; the order is that of the report.
type checkID int

const (
	checkReadable checkID = iota
	checkBelongs
	checkLegal
	checkAddUp
	checkUnique
	checkLimits
	checkTransition
	checkAfter
	checkReplay
	checkDense
	checkChain
	checkTime
	checkOutbox
	checkOutboxOrder
	checkEventSeq
	checkState
	checkHolder
	checkLegSums
	checkMoves
	checkBudgetReceipts
	checkBudgetState
	checkDefinition
	checkCases
	checkExpiry
	checkLines
	checkSinks
	checkJobs
	checkFacts
	checkEffects
	checkCounters
	checkCount
)

var checkTable = [checkCount]struct{ name, statement string }{
	checkReadable:       {"rows_readable", "every stored row has a form that this version reads"},
	checkBelongs:        {"rows_belong", "every bucket, block, reservation, receipt and pointer belongs to a budget and bucket that exist, and every budget has all its buckets"},
	checkLegal:          {"balances_legal", "available, reserved, committed and reversed are never below zero (available of a wallet: only as far as its policy says) and reversed never exceeds committed, in every bucket and after every entry"},
	checkAddUp:          {"balances_add_up", "available + reserved + committed - reversed = funded, per bucket, per budget and after every entry"},
	checkUnique:         {"receipts_unique", "one receipt per operation and id of an attempt, one attempt per number"},
	checkLimits:         {"reservation_limits", "the commits of a reservation are at most what was reserved plus what over_commit allows, and its refunds at most what was committed"},
	checkTransition:     {"one_entry_per_transition", "each receipt that names an entry has exactly that entry, with its change, and each entry of an order has exactly one receipt"},
	checkAfter:          {"entry_balances", "the balances an entry carries are those before it plus its change"},
	checkReplay:         {"replay_equals_balances", "the entries of a bucket add up to its balances"},
	checkDense:          {"seq_dense", "the entries of a bucket are numbered from 1 without gaps, up to the number in its row"},
	checkChain:          {"chain_intact", "each block carries the hash of the block before it, and the bucket's row that of the last"},
	checkTime:           {"time_forward", "the blocks of a bucket never go back in time"},
	checkOutbox:         {"outbox_complete", "each block has exactly one outbox pointer, unless it was delivered and trimmed, and each pointer its block: an event exists if and only if its transition does"},
	checkOutboxOrder:    {"outbox_order", "the pointers of a bucket stand in its partition, in the order of its blocks"},
	checkEventSeq:       {"event_seq", "the entries of a reservation are numbered from 1 without gaps, as many as its row says"},
	checkState:          {"reservation_state", "the receipts of each attempt, followed from the first by the rules, lead to its state and amounts, and their outcomes follow from the requests they keep"},
	checkHolder:         {"one_attempt_holds", "at most one attempt of a benefit of an order holds money"},
	checkLegSums:        {"reservations_equal_buckets", "what reservations hold, committed and reversed adds up to the balances of their bucket"},
	checkMoves:          {"moves_conserve", "what leaves one bucket arrives in another: each end of a move has its other end, and moves within a budget add up to zero"},
	checkBudgetReceipts: {"budget_receipts", "each receipt of a command on a budget has its entries, and each such entry its receipt"},
	checkBudgetState:    {"budget_state", "the CREATE, FREEZE, UNFREEZE and CLOSE entries of a budget lead to its state"},
	checkDefinition:     {"budget_definition", "each budget's currency and policy are those it was created with, and its buckets and routing epoch those that its RESHARD entries lead to"},
	checkCases:          {"cases_match", "each case belongs to an attempt that says so, and each such attempt has its case"},
	checkExpiry:         {"expiry_index_complete", "each hold is named in an expiry row due within its bounds (remedy: coffer expiry rebuild)"},
	checkSinks:          {"sinks_complete", "no event was trimmed that a sink has not got"},
	checkLines:          {"refund_lines", "what a quoted benefit paid and refunded by line and funder follows from its quote and its refunds that were not undone, and adds up to what its reservation committed and reversed"},
	checkJobs:           {"queue_jobs", "each job of a queue stands where its state says, in the due-index or among the dead letters, and nowhere else, with figures that its commands lead to"},
	checkFacts:          {"facts_kept", "each fact that the inbox has is stored and each stored one in the inbox, and it stands in the list and the due-index where its state says, and nowhere else"},
	checkEffects:        {"fact_effects", "what a fact says it did is among the receipts of its reservation"},
	checkCounters:       {"work_counters", "the counters of queues, tenants and facts are what is there (of those with up to 10,000 rows)"},
}

// maxExamples is how many problems of one check are written out.
const maxExamples = 10

// audit is the state of one run.
type audit struct {
	s        *Store
	progress func(phase string, done uint64)
	rep      AuditReport
	checks   [checkCount]AuditCheck
	// exact: this is a second reading for the matchers; the checks have
	// spoken already.
	exact bool

	budgets map[ledger.BudgetID]*budgetAudit
	buckets map[ledger.BucketID]*bucketAudit
	order   []*bucketAudit // as their keys are ordered
	known   map[string]bool
	// above is what rows newer than the cuts name, in the order it was met.
	above  map[ledger.BucketID]*aboveCut
	aboves []*aboveCut

	fp fingerprinter
	// What each row is read into. Nothing of it outlives the row but what
	// shared holds.
	shared names
	row    ledger.Reservation
	steps  []step
	old    []oldEntry
	// transitions compares entries with receipts, events the numbers of
	// entries with those of reservations, moves the ends of moves, pointers
	// blocks with outbox pointers. Left is always what the ledger says.
	transitions, events, moves, pointers matcher

	open  openHolds
	cases map[caseID]bool // attempts that say they have one; true: seen
}

// budgetAudit is a budget at its cut.
type budgetAudit struct {
	ledger.Budget
	// page tells which budgets were read in the same transaction.
	page    int
	state   ledger.BudgetState // as its entries lead to
	created uint64             // CREATE entries
	first   int                // buckets it was created with
	moved   int64              // sum of the moves within the budget
	epoch   ledger.Epoch       // as its entries lead to
	// resharded are the keys of its RESHARD entries, which its moves may name.
	resharded map[string]bool
	// control sums its control entries, commands the receipts of them.
	control, commands fingerprint
}

// bucketAudit is a bucket at its cut.
type bucketAudit struct {
	ledger.Bucket
	budget *budgetAudit
	hash   uint64 // of its name, as placeHash makes it
	// legs are the sums over reservations at the cut.
	legs ledger.Balances
	// pointed is the first seq of the block the last pointer named, trimmed that
	// of the last block whose pointer was trimmed when the audit began.
	pointed, trimmed uint64
}

// Audit checks every invariant over all tenants and budgets, on a store that
// may be in use. progress, if not nil, is told of each phase and how many rows
// it has read. The error says that the audit could not be finished; what it
// found is in the report.
func (s *Store) Audit(ctx context.Context, progress func(phase string, done uint64)) (*AuditReport, error) {
	a := s.newAudit(progress)
	for _, phase := range []func(context.Context) error{
		a.readVector, a.readOrphans, a.readTrimmed, a.readLedger, a.readReservations, a.checkHolds, a.readReceipts, a.readOutbox, a.readCases, a.readAllocations, a.readJobs, a.readFacts, a.checkAbove, a.readSinks, a.compare,
	} {
		if err := phase(ctx); err != nil {
			return nil, err
		}
	}
	a.rep.Checks = a.checks[:]
	return &a.rep, nil
}

func (s *Store) newAudit(progress func(string, uint64)) *audit {
	a := &audit{
		s: s, progress: progress,
		budgets: map[ledger.BudgetID]*budgetAudit{}, buckets: map[ledger.BucketID]*bucketAudit{},
		shared: names{}, known: map[string]bool{}, cases: map[caseID]bool{}, above: map[ledger.BucketID]*aboveCut{},
	}
	if a.progress == nil {
		a.progress = func(string, uint64) {}
	}
	a.fp.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	a.rep.Totals = map[string]ledger.Balances{}
	for i := range a.checks {
		a.checks[i].Name, a.checks[i].Statement = checkTable[i].name, checkTable[i].statement
	}
	return a
}

// report counts a problem and keeps the first few in words.
func (a *audit) report(c checkID, format string, args ...any) {
	if a.exact {
		return
	}
	a.problem(c, fmt.Sprintf(format, args...))
}

func (a *audit) problem(c checkID, text string) {
	ch := &a.checks[c]
	ch.Problems++
	if len(ch.Examples) < maxExamples {
		ch.Examples = append(ch.Examples, text)
	}
}

// count says that a check was made n times.
func (a *audit) count(n uint64, checks ...checkID) {
	if a.exact {
		return
	}
	for _, c := range checks {
		a.checks[c].Checked += n
	}
}

// exists says whether a row is there now. It is asked for rows that were not
// there at the cut but that something newer names.
func (a *audit) exists(ctx context.Context, k key) (ok bool, err error) {
	if ok, seen := a.known[string(k)]; seen {
		return ok, nil
	}
	err = a.s.readTx(ctx, func(r kv.Reader) error {
		_, ok, err = r.Get(k).Wait()
		return err
	})
	if err == nil && len(a.known) < 1<<16 {
		a.known[string(k)] = ok
	}
	return ok, err
}
