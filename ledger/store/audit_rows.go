package store

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readReservations checks every reservation row by itself and puts its
// receipts, as they were at the cut, beside the entries.
func (a *audit) readReservations(ctx context.Context) error {
	var n uint64
	err := a.s.scan(ctx, a.s.key(tableReservation).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			n++
			a.count(1, checkReadable, checkBelongs, checkState, checkHolder, checkUnique, checkLimits, checkEventSeq)
			if err := a.s.readReservation(row, a.shared, &a.row); err != nil {
				a.report(checkReadable, "reservation row %q cannot be read: %v", row.Key, unwrapped(err))
				continue
			}
			a.keepHolds(&a.row)
			if err := a.seeReservation(ctx, &a.row); err != nil {
				return err
			}
			if err := a.seeAllocations(ctx, &a.row); err != nil {
				return err
			}
		}
		a.progress("reservations", n)
		return a.holdsPage(ctx, rows)
	})
	if err != nil || a.exact {
		return err
	}
	a.rep.Reservations = n
	a.compareLegs()
	return nil
}

// compareLegs puts the sums over reservations beside the balances of each
// bucket's row.
func (a *audit) compareLegs() {
	for _, k := range a.order {
		a.count(1, checkLegSums)
		if k.legs.Reserved != k.Reserved || k.legs.Committed != k.Committed || k.legs.Reversed != k.Reversed {
			a.report(checkLegSums, "the reservations of bucket %s hold %d, committed %d, reversed %d; its row says %d, %d, %d",
				k.ID, k.legs.Reserved, k.legs.Committed, k.legs.Reversed, k.Reserved, k.Committed, k.Reversed)
		}
	}
}

// rowCut is what of a reservation was there at the cut.
type rowCut struct {
	events, newer uint32
	page          int // of the budgets' vectors; spread: of several
	spread        bool
	old           []oldEntry // its entries at or below the cut
}

type oldEntry struct {
	bucket *bucketAudit
	seq    uint64
	peer   *ledger.BucketID
}

func (a *audit) seeReservation(ctx context.Context, res *ledger.Reservation) error {
	cut := rowCut{page: -2, old: a.old[:0]}
	defer func() { a.old = cut.old }()
	for i := range res.Attempts {
		at := &res.Attempts[i]
		steps, problem := retrace(at, a.steps[:0])
		a.steps = steps
		if problem != "" {
			a.report(checkState, "reservation %s of tenant %s, attempt %d: %s", res.Key, res.Key.Tenant, at.Number, problem)
		}
		if !at.State.HasLeg() && len(steps) == 0 {
			continue
		}
		k, ok, err := a.bucketOf(ctx, at.Leg.Bucket)
		if err != nil {
			return err
		}
		if !ok {
			a.report(checkBelongs, "reservation %s of tenant %s, attempt %d is in bucket %s, which does not exist", res.Key, res.Key.Tenant, at.Number, at.Leg.Bucket)
		}
		newer := cut.newer
		a.seeSteps(res, k, steps, &cut)
		if ok && cut.newer > newer {
			a.seeNewer(res.Key, at.Leg.Bucket, k, steps)
		}
		a.checkAttempt(res, at, k)
	}
	a.checkRow(res, &cut)
	return a.seeEvents(ctx, res, &cut)
}

// seeSteps puts an attempt's receipts at or below the cut beside the entries,
// and what the last of them left into its bucket's sums.
func (a *audit) seeSteps(res *ledger.Reservation, k *bucketAudit, steps []step, cut *rowCut) {
	head, page := uint64(0), -1
	if k != nil {
		head, page = k.Seq, k.budget.page
	}
	if cut.page != -2 && cut.page != page {
		cut.spread = true
	}
	cut.page = page
	var last *ledger.Outcome
	for i := range steps {
		st := &steps[i]
		n := uint32(1)
		if st.entry.Peer != nil {
			n = 2
		}
		cut.events += n
		if st.entry.Seq > head {
			cut.newer += n
			continue
		}
		last = &st.receipt.Outcome
		cut.old = append(cut.old, oldEntry{k, st.entry.Seq, st.entry.Peer})
		a.seeStep(res, k, st)
	}
	if last != nil && !a.exact {
		k.legs.Reserved += last.Held
		k.legs.Committed += last.Committed
		k.legs.Reversed += last.Reversed
	}
}

// seeNewer takes in an attempt's receipts beyond the cut.
func (a *audit) seeNewer(order ledger.OrderKey, id ledger.BucketID, k *bucketAudit, steps []step) {
	for i := range steps {
		if en := &steps[i].entry; k == nil || en.Seq > k.Seq {
			a.receiptAbove(id, k, order, en)
		}
	}
}

func (a *audit) seeStep(res *ledger.Reservation, k *bucketAudit, st *step) {
	var peer uint64
	if st.entry.Peer != nil {
		peer = a.hashPlace(*st.entry.Peer)
	}
	en := &st.entry
	fp := a.fp.start('T').u(k.hash).u(en.Seq).u(uint64(en.Type)).str(res.Key.Order).str(res.Key.Benefit).u(uint64(en.Attempt)).
		balances(&en.Delta).u(en.RefersTo).str(en.Cause).u(peer).sum()
	a.count(1, checkTransition)
	if a.transitions.add(right, fp) {
		a.transitions.keep(right, fp, matchItem{text: fmt.Sprintf("the receipt of %s%s of reservation %s of tenant %s, attempt %d, names entry %d of bucket %s (change %s), which is not what is there",
			st.receipt.Op, withID(st.receipt), res.Key, res.Key.Tenant, en.Attempt, en.Seq, k.ID, sums(en.Delta))})
	}
}

// checkAttempt checks the bounds of one attempt.
func (a *audit) checkAttempt(res *ledger.Reservation, at *ledger.Attempt, k *bucketAudit) {
	if a.exact || k == nil {
		return
	}
	l, p := &at.Leg, &k.budget.Policy
	if limit := p.OverCommit.Limit(l.Amount); l.Committed-l.Amount > limit {
		a.report(checkLimits, "reservation %s of tenant %s, attempt %d committed %d of %d; over_commit allows %d more",
			res.Key, res.Key.Tenant, at.Number, l.Committed, l.Amount, limit)
	}
	if l.Reversed > l.Committed || l.Reversed < 0 || l.Held < 0 || l.Lapsed < 0 {
		a.report(checkLimits, "reservation %s of tenant %s, attempt %d has held %d, lapsed %d, committed %d, reversed %d",
			res.Key, res.Key.Tenant, at.Number, l.Held, l.Lapsed, l.Committed, l.Reversed)
	}
	if l.Currency != k.budget.Currency {
		a.report(checkState, "reservation %s of tenant %s, attempt %d is in %s, its budget in %s", res.Key, res.Key.Tenant, at.Number, l.Currency, k.budget.Currency)
	}
}

// checkRow checks what holds over all attempts of a row.
func (a *audit) checkRow(res *ledger.Reservation, cut *rowCut) {
	if a.exact {
		return
	}
	holder := uint32(0)
	for i := range res.Attempts {
		at := &res.Attempts[i]
		if at.State.HoldsMoney() || at.Leg.Held > 0 || at.Leg.Committed > at.Leg.Reversed {
			if holder != 0 {
				a.report(checkHolder, "attempts %d and %d of reservation %s of tenant %s both hold money", holder, at.Number, res.Key, res.Key.Tenant)
			}
			holder = at.Number
		}
		if res.Attempt(at.Number) != at {
			a.report(checkUnique, "reservation %s of tenant %s has attempt %d twice", res.Key, res.Key.Tenant, at.Number)
		}
		for j := range at.Receipts {
			rc := &at.Receipts[j]
			if receiptOf(at, rc.Op, rc.ID) != rc {
				a.report(checkUnique, "reservation %s of tenant %s, attempt %d has two receipts of %s%s", res.Key, res.Key.Tenant, at.Number, rc.Op, withID(rc))
			}
		}
		if at.CaseOpened {
			a.expectCase(caseID{res.Key, at.Number})
		}
	}
	if cut.events != res.EventSeq {
		a.report(checkEventSeq, "reservation %s of tenant %s counts %d entries, its receipts name %d", res.Key, res.Key.Tenant, res.EventSeq, cut.events)
	}
}

// seeEvents puts the numbers of a reservation's entries at or below the cut
// beside those that the entries carry. They are the first ones, as long as one
// transaction took the cut of all its budgets. Where several did, entries in
// between may be cut off on one side and not on the other: then the entries
// themselves say which numbers are theirs.
func (a *audit) seeEvents(ctx context.Context, res *ledger.Reservation, cut *rowCut) error {
	if !cut.spread || cut.newer == 0 {
		for n := uint32(1); n <= cut.events-cut.newer; n++ {
			a.seeNumber(res, n)
		}
		return nil
	}
	for from := 0; from < len(cut.old); from += entriesPerTx {
		var want []*EntryView
		for _, o := range cut.old[from:min(from+entriesPerTx, len(cut.old))] {
			want = append(want, &EntryView{Bucket: o.bucket.ID, Entry: ledger.Entry{Seq: o.seq, Peer: o.peer}})
		}
		err := a.s.readTx(ctx, func(r kv.Reader) error { return a.s.entriesAt(r, want) })
		if isCorrupt(err) {
			continue // the entry is missing or unreadable: other checks say so
		}
		if err != nil {
			return err
		}
		for _, en := range want {
			a.seeNumber(res, en.EventSeq)
			if en.Peer != nil {
				a.seeNumber(res, en.EventSeq+1)
			}
		}
	}
	return nil
}

func (a *audit) seeNumber(res *ledger.Reservation, n uint32) {
	fp := a.fp.start('E').str(res.Key.Tenant).str(res.Key.Order).str(res.Key.Benefit).u(uint64(n)).sum()
	if a.events.add(right, fp) {
		a.events.keep(right, fp, matchItem{text: fmt.Sprintf("reservation %s of tenant %s counts an event %d that no entry is", res.Key, res.Key.Tenant, n)})
	}
}
