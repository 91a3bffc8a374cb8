package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readLedger replays every bucket up to its cut.
func (a *audit) readLedger(ctx context.Context) error {
	var entries, blocks uint64
	for _, k := range a.order {
		w := a.s.newWalker(k.ID, a.report)
		w.floor = k.budget.Policy.Floor()
		w.entry = func(e *rawEntry) { a.seeEntry(k, e) }
		w.sealed = func(h *blockHeader, first uint64) { a.seeBlock(k, first, h.count) }
		err := w.walk(ctx, k.Seq, func() { a.progress("ledger", entries+w.entries) })
		if err != nil {
			return err
		}
		w.finish(&k.Bucket)
		entries += w.entries
		blocks += w.blocks
	}
	a.progress("ledger", entries)
	if a.exact {
		return nil
	}
	a.rep.Blocks, a.rep.Entries = blocks, entries
	a.count(uint64(len(a.order)), checkReplay)
	a.count(entries, checkAfter, checkLegal, checkAddUp, checkDense)
	a.count(blocks, checkChain, checkTime, checkReadable, checkOutbox)
	a.judgeBudgets()
	return nil
}

// judgeBudgets compares each budget's entries with its row.
func (a *audit) judgeBudgets() {
	for id, b := range a.budgets {
		if b.created != 1 {
			a.report(checkBudgetState, "budget %s has %d CREATE entries", id, b.created)
		}
		if b.state != b.State {
			a.report(checkBudgetState, "the entries of budget %s lead to state %s, its row says %s", id, b.state, b.State)
		}
		if b.epoch != b.Epoch {
			a.report(checkDefinition, "the entries of budget %s of tenant %s lead to routing epoch %d with %d buckets and %d retired, its row says %d with %d and %d",
				id, id.Tenant, b.epoch.Number, b.epoch.Buckets, b.epoch.Retired, b.Epoch.Number, b.Epoch.Buckets, b.Epoch.Retired)
		}
		if b.moved != 0 {
			a.report(checkMoves, "the moves within budget %s add up to %d", id, b.moved)
		}
	}
}

func (a *audit) seeBlock(k *bucketAudit, first, count uint64) {
	if first <= k.trimmed {
		return
	}
	fp := a.fp.start('B').u(k.hash).u(first).sum()
	if a.pointers.add(left, fp) {
		a.pointers.keep(left, fp, matchItem{weight: count, peer: k.ID, first: first, text: fmt.Sprintf("block %d of bucket %s has no outbox pointer", first, k.ID)})
	}
}

// seeEntry takes in one entry at or below the cut.
func (a *audit) seeEntry(k *bucketAudit, e *rawEntry) {
	switch {
	case e.kind == ledger.EntryMoveIn || e.kind == ledger.EntryMoveOut:
		a.seeMove(k, e)
	case e.kind.OfBudget():
		a.seeControl(k, e)
	case len(e.order) == 0:
		a.report(checkTransition, "entry %d of bucket %s is a %s without an order", e.seq, k.ID, e.kind)
	default:
		a.seeTransition(k, e)
	}
}

// seeTransition takes in the entry of a command on an order.
func (a *audit) seeTransition(k *bucketAudit, e *rawEntry) {
	var peer uint64
	if e.place != nil {
		peer = placeHash(a.fp.seeds[0], k.ID.Budget.Tenant, e.place)
	}
	fp := a.fp.start('T').u(k.hash).u(e.seq).u(uint64(e.kind)).bytes(e.order).bytes(e.benefit).u(uint64(e.attempt)).
		balances(&e.delta).u(e.refersTo).bytes(e.cause).u(peer).sum()
	if a.transitions.add(left, fp) {
		a.transitions.keep(left, fp, matchItem{text: fmt.Sprintf("entry %d of bucket %s (%s of %s/%s, attempt %d, change %s) has no receipt that says so",
			e.seq, k.ID, e.kind, e.order, e.benefit, e.attempt, sums(e.delta))})
	}
	a.seeOverdraft(k, e)
	a.seeEvent(k, e, e.eventSeq)
	if e.place == nil {
		return
	}
	// The sink's entry is the reservation's next event; that it is there, and
	// says so, is what matching the two ends of the move proves.
	a.seeEvent(k, e, e.eventSeq+1)
	if e.kind != ledger.EntryReverse && e.kind != ledger.EntryReinstate {
		a.report(checkMoves, "entry %d of bucket %s is a %s and names another bucket", e.seq, k.ID, e.kind)
		return
	}
	a.seeEnd(&a.moves, k, e, peer, uint64(e.kind), e.eventSeq+1)
}

// seeOverdraft checks that no new commitment went below the overdraft; only
// what is owed for delivered work may.
func (a *audit) seeOverdraft(k *bucketAudit, e *rawEntry) {
	switch e.kind {
	case ledger.EntryCharge, ledger.EntryHold, ledger.EntrySettle:
	default:
		return
	}
	if limit := k.budget.Policy.Overdraft; e.delta.Available < 0 && e.after.Available < -limit {
		a.report(checkLegal, "after entry %d of bucket %s, a %s, available is %d; its overdraft is %d", e.seq, k.ID, e.kind, e.after.Available, limit)
	}
}

func (a *audit) seeEvent(k *bucketAudit, e *rawEntry, n uint32) {
	fp := a.fp.start('E').str(k.ID.Budget.Tenant).bytes(e.order).bytes(e.benefit).u(uint64(n)).sum()
	if a.events.add(left, fp) {
		a.events.keep(left, fp, matchItem{text: fmt.Sprintf("entry %d of bucket %s is event %d of %s/%s, which its reservation does not count",
			e.seq, k.ID, n, e.order, e.benefit)})
	}
}

// seeMove takes in one end of a move between buckets.
func (a *audit) seeMove(k *bucketAudit, e *rawEntry) {
	if e.place == nil {
		a.report(checkMoves, "entry %d of bucket %s is a %s that names no other bucket", e.seq, k.ID, e.kind)
		return
	}
	if (e.delta.Funded < 0) != (e.kind == ledger.EntryMoveOut) || e.delta.Available != e.delta.Funded {
		a.report(checkMoves, "entry %d of bucket %s is a %s with a change of %s", e.seq, k.ID, e.kind, sums(e.delta))
	}
	group := uint64(0)
	switch {
	case len(e.order) == 0:
		a.seeCause(k, e)
	case e.kind == ledger.EntryMoveIn:
		group = uint64(ledger.EntryReverse)
	default:
		group = uint64(ledger.EntryReinstate)
	}
	a.seeEnd(&a.moves, k, e, placeHash(a.fp.seeds[0], k.ID.Budget.Tenant, e.place), group, e.eventSeq)
}

// seeCause checks why money moved between two buckets of a budget: an order's
// command was short, or a MOVE or RESHARD said so.
func (a *audit) seeCause(k *bucketAudit, e *rawEntry) {
	if a.exact {
		return
	}
	cause := string(e.cause)
	if key, ok := strings.CutPrefix(cause, ledger.CauseReshard); ok {
		if !k.budget.resharded[key] { // bucket 0, which has the RESHARD, is read first
			a.report(checkBudgetReceipts, "entry %d of bucket %s is a %s of a RESHARD with key %s, which is not there", e.seq, k.ID, e.kind, key)
		}
		return
	}
	if key, ok := strings.CutPrefix(cause, ledger.CauseMove); ok {
		if e.kind == ledger.EntryMoveOut {
			k.budget.control.addTimes(a.controlPrint(e.kind, key), controlWeight(e))
		}
		return
	}
	if cause != ledger.CausePull {
		a.report(checkMoves, "entry %d of bucket %s is a %s that no command makes (cause %s)", e.seq, k.ID, e.kind, cause)
	}
}

// seeEnd takes in one end of a move: what leaves is left, what arrives is
// right, and both have the fingerprint of from, to, amount and cause.
func (a *audit) seeEnd(m *matcher, k *bucketAudit, e *rawEntry, peer, group uint64, event uint32) {
	fp, s := a.moveEnd(k, e, peer, group, event)
	if !a.exact && string(e.peerFunder) == k.ID.Budget.Funder && string(e.peerKey) == k.ID.Budget.Key {
		k.budget.moved += e.delta.Funded
	}
	if m.add(s, fp) {
		other := e.peer(k.ID.Budget.Tenant)
		m.keep(s, fp, matchItem{peer: other, text: fmt.Sprintf("entry %d of bucket %s (%s, funded %+d) has no other end in bucket %s",
			e.seq, k.ID, e.kind, e.delta.Funded, other)})
	}
}

func (a *audit) moveEnd(k *bucketAudit, e *rawEntry, peer, group uint64, event uint32) (fingerprint, side) {
	s, from, to, amount := right, peer, k.hash, e.delta.Funded
	if amount < 0 {
		s, from, to, amount = left, k.hash, peer, -amount
	}
	fp := a.fp.start('M').u(from).u(to).u(uint64(amount)).u(group).bytes(e.order).bytes(e.benefit).u(uint64(e.attempt)).
		bytes(e.cause).u(uint64(event)).sum()
	return fp, s
}

// seeControl takes in an entry of a command on the budget itself.
func (a *audit) seeControl(k *bucketAudit, e *rawEntry) {
	if a.exact {
		return
	}
	if len(e.order) != 0 {
		a.report(checkTransition, "entry %d of bucket %s is a %s and names order %s", e.seq, k.ID, e.kind, e.order)
	}
	b := k.budget
	if e.kind != ledger.EntryCreate {
		b.control.addTimes(a.controlPrint(e.kind, string(e.cause)), controlWeight(e))
	}
	if e.kind == ledger.EntryFund || e.kind == ledger.EntryDefund {
		if (e.delta.Funded > 0) != (e.kind == ledger.EntryFund) || e.delta.Available != e.delta.Funded {
			a.report(checkBudgetReceipts, "entry %d of bucket %s is a %s with a change of %s", e.seq, k.ID, e.kind, sums(e.delta))
		}
		return
	}
	if e.delta != (ledger.Balances{}) {
		a.report(checkBudgetReceipts, "entry %d of bucket %s is a %s and changes %s", e.seq, k.ID, e.kind, sums(e.delta))
	}
	legal := k.ID.Index == 0
	switch e.kind {
	case ledger.EntryCreate:
		legal = legal && e.seq == 1
		b.created++
		b.state = ledger.BudgetOpen
		b.epoch = ledger.Epoch{Number: 1, Buckets: uint16(b.first)}
	case ledger.EntryReshard:
		legal = legal && b.state != ledger.BudgetClosed && a.seeReshard(b, e)
	case ledger.EntryFreeze:
		legal = legal && b.state == ledger.BudgetOpen
		b.state = ledger.BudgetFrozen
	case ledger.EntryUnfreeze:
		legal = legal && b.state == ledger.BudgetFrozen
		b.state = ledger.BudgetOpen
	case ledger.EntryClose:
		legal = legal && b.state != ledger.BudgetClosed
		b.state = ledger.BudgetClosed
	}
	if !legal {
		a.report(checkBudgetState, "entry %d of bucket %s is a %s that was not legal there", e.seq, k.ID, e.kind)
	}
}

// seeReshard follows the routing epochs. An entry that names its own budget's
// last bucket is the only legal one.
func (a *audit) seeReshard(b *budgetAudit, e *rawEntry) bool {
	n := e.peerIndex + 1
	if e.place == nil || e.peerIndex >= ledger.MaxBuckets || string(e.peerKey) != b.ID.Key || string(e.peerFunder) != b.ID.Funder || n == b.epoch.Buckets {
		return false
	}
	made := max(b.epoch.Buckets+b.epoch.Retired, n)
	b.epoch = ledger.Epoch{Number: b.epoch.Number + 1, Buckets: n, Retired: made - n}
	if b.resharded == nil {
		b.resharded = map[string]bool{}
	}
	b.resharded[string(e.cause)] = true
	return true
}

// controlOfEntry is the command on a budget that an entry belongs to: its kind,
// its key and what the entry adds to it.
func controlOfEntry(e *rawEntry) (kind ledger.EntryType, key string, weight int64, ok bool) {
	switch {
	case e.kind == ledger.EntryMoveOut && len(e.order) == 0:
		key, ok = strings.CutPrefix(string(e.cause), ledger.CauseMove)
	case e.kind.OfBudget() && e.kind != ledger.EntryCreate:
		key, ok = string(e.cause), true
	}
	return e.kind, key, controlWeight(e), ok
}

// controlPrint is the fingerprint of a command on a budget, without its
// amount: the amount is how often it counts.
func (a *audit) controlPrint(kind ledger.EntryType, id string) fingerprint {
	return a.fp.start('C').u(uint64(kind)).str(id).sum()
}

func controlWeight(e *rawEntry) int64 {
	switch e.kind {
	case ledger.EntryFund:
		return e.delta.Funded
	case ledger.EntryDefund, ledger.EntryMoveOut:
		return -e.delta.Funded
	case ledger.EntryReshard:
		return int64(e.peerIndex) + 1
	default:
		return 1
	}
}

// settleMoves looks for the other ends of moves whose cuts were taken at
// different moments: in the blocks of their buckets beyond the cut. A move is
// one transaction, so an end that exists now has its other end now.
func (a *audit) settleMoves(ctx context.Context) error {
	seen := map[ledger.BucketID]bool{}
	for _, it := range a.moves.unmatched() {
		if seen[it.peer] {
			continue
		}
		seen[it.peer] = true
		k := a.buckets[it.peer]
		if k == nil {
			k = &bucketAudit{Bucket: ledger.Bucket{ID: it.peer}, hash: a.hashPlace(it.peer)}
		}
		w := a.s.newWalker(k.ID, func(checkID, string, ...any) {})
		w.seq, w.lost = k.Seq, true
		w.entry = func(e *rawEntry) { a.settleEnd(k, e) }
		rng := kv.Range{Begin: append(a.s.blockKey(k.ID, k.Seq), 0), End: a.s.key(tableBlock).bucket(k.ID).all().End}
		err := a.s.scan(ctx, rng, func(rows []kv.KeyValue) error {
			for _, row := range rows {
				w.block(row.Key, row.Value)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) settleEnd(k *bucketAudit, e *rawEntry) {
	if e.place == nil || e.kind == ledger.EntryReshard {
		return
	}
	group, event := uint64(0), e.eventSeq
	switch {
	case e.kind == ledger.EntryReverse || e.kind == ledger.EntryReinstate:
		group, event = uint64(e.kind), e.eventSeq+1
	case len(e.order) > 0 && e.kind == ledger.EntryMoveIn:
		group = uint64(ledger.EntryReverse)
	case len(e.order) > 0:
		group = uint64(ledger.EntryReinstate)
	}
	fp, s := a.moveEnd(k, e, placeHash(a.fp.seeds[0], k.ID.Budget.Tenant, e.place), group, event)
	a.moves.settle(s, fp)
}
