package store

import (
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// step is a receipt that names an entry, and the entry it must be.
type step struct {
	receipt *ledger.Receipt
	entry   ledger.Entry
}

// trace is an attempt on its way from the first receipt to the last. It knows
// the rules of the state machine by itself and shares no code with the
// decisions: an audit that asked Decide would believe it.
type trace struct {
	state                             ledger.State
	held, lapsed, committed, reversed int64
	commitSeq                         uint64
	expires                           time.Time
	delivered                         bool // a job's work was done
}

// retrace follows an attempt's receipts. It returns what entries they must
// have written, and the first thing that breaks the rules, if any. The changes
// of the entries come from the outcomes, so that one broken rule does not make
// every later entry look wrong. The steps go behind those in steps, which is
// empty.
func retrace(a *ledger.Attempt, steps []step) (_ []step, problem string) {
	var t trace
	note := func(format string, args ...any) {
		if problem == "" {
			problem = fmt.Sprintf(format, args...)
		}
	}
	for i := range a.Receipts {
		rc := &a.Receipts[i]
		o := &rc.Outcome
		if err := rc.CheckRequest(a); err != nil {
			note("its receipt of %s%s %v", rc.Op, withID(rc), err)
		}
		if o.Seq == 0 {
			if why := t.quiet(rc); why != "" {
				note("its receipt of %s%s %s", rc.Op, withID(rc), why)
			}
			continue
		}
		if o.Bucket != a.Leg.Bucket {
			note("its receipt of %s%s names bucket %s, the reservation is in %s", rc.Op, withID(rc), o.Bucket, a.Leg.Bucket)
		}
		if n := len(steps); n > 0 && o.Seq <= steps[n-1].entry.Seq {
			note("its receipt of %s%s names entry %d, the one before it entry %d", rc.Op, withID(rc), o.Seq, steps[n-1].entry.Seq)
		}
		st, why := t.follow(a, rc)
		if why != "" {
			note("its receipt of %s%s %s", rc.Op, withID(rc), why)
		}
		steps = append(steps, st)
	}
	if why := t.arrives(a); why != "" {
		note("%s", why)
	}
	return steps, problem
}

// quiet checks a receipt that names no entry: a refusal, a tombstone or an
// absence that was settled.
func (t *trace) quiet(rc *ledger.Receipt) string {
	switch {
	case rc.Void && rc.Op.Opens() && t.state == ledger.StateNone:
		t.state = ledger.StateVoid
	case rc.Void:
	case rc.Op == ledger.OpReclaimCharge && t.state == ledger.StateCommitted && rc.Outcome.Amount == 0:
		t.delivered = true
	case rc.Op.Opens() && rc.Rejection != "" && rc.Rejection.Info().Recorded && t.state == ledger.StateNone:
		t.state = ledger.StateRejected
	case rc.Op == ledger.OpRelease && t.state == ledger.StateNone:
		t.state = ledger.StateCancelled
	default:
		return "names no entry"
	}
	return ""
}

// follow takes the trace over one receipt.
func (t *trace) follow(a *ledger.Attempt, rc *ledger.Receipt) (step, string) {
	before := *t
	kind, why := t.move(a, rc)
	o := &rc.Outcome
	if why == "" && (t.state != o.State || t.held != o.Held || t.committed != o.Committed || t.reversed != o.Reversed) {
		why = fmt.Sprintf("should leave %s with held %d, committed %d, reversed %d, but says %s with %d, %d, %d",
			t.state, t.held, t.committed, t.reversed, o.State, o.Held, o.Committed, o.Reversed)
	}
	t.state, t.held, t.committed, t.reversed, t.expires = o.State, o.Held, o.Committed, o.Reversed, o.Expires
	st := step{receipt: rc, entry: ledger.Entry{Seq: o.Seq, Type: kind, Attempt: a.Number, Cause: rc.ID, Peer: rc.Sink}}
	d := &st.entry.Delta
	d.Reserved, d.Committed, d.Reversed = t.held-before.held, t.committed-before.committed, t.reversed-before.reversed
	if rc.Sink != nil {
		d.Funded = -d.Reversed
	}
	d.Available = d.Funded - d.Reserved - d.Committed + d.Reversed
	switch kind {
	case ledger.EntryCommit, ledger.EntryCharge, ledger.EntrySettle:
		t.commitSeq = o.Seq
	case ledger.EntryReclaim:
		if o.Late {
			st.entry.Cause = "late_commit"
		}
		if r := receiptOf(a, ledger.OpRefund, ""); r != nil && rc.Op == ledger.OpReclaimCharge {
			st.entry.RefersTo = r.Outcome.Seq
		} else {
			t.commitSeq = o.Seq
		}
	case ledger.EntryReverse, ledger.EntryRefund:
		st.entry.RefersTo = t.commitSeq
	case ledger.EntryReinstate:
		if r := receiptOf(a, ledger.OpReverse, rc.ID); r != nil {
			st.entry.RefersTo = r.Outcome.Seq
		}
	}
	return st, why
}

// move applies the rule of one operation.
func (t *trace) move(a *ledger.Attempt, rc *ledger.Receipt) (kind ledger.EntryType, why string) {
	amount := rc.Outcome.Amount
	kind = entryOf(rc)
	if rc.Void || rc.Rejection != "" {
		return kind, "names an entry although nothing was done"
	}
	switch kind {
	case ledger.EntryReserve, ledger.EntryHold:
		if t.state != ledger.StateNone || amount != a.Leg.Amount || amount <= 0 {
			why = fmt.Sprintf("reserves %d of %d from %s", amount, a.Leg.Amount, t.state)
		}
		t.state, t.held = ledger.StateReserved, amount
	case ledger.EntryCharge:
		if t.state != ledger.StateNone || amount != a.Leg.Amount || amount <= 0 {
			why = fmt.Sprintf("charges %d of %d from %s", amount, a.Leg.Amount, t.state)
		}
		t.state, t.committed = ledger.StateCommitted, amount
	case ledger.EntryCommit:
		why = t.commit(rc)
	case ledger.EntrySettle:
		why = t.commit(rc)
		t.delivered = true
	case ledger.EntryRefund:
		if t.state != ledger.StateCommitted || t.delivered || amount != t.committed || t.reversed != 0 {
			why = fmt.Sprintf("refunds %d of %d from %s, delivered: %v", amount, t.committed, t.state, t.delivered)
		}
		t.refund(amount)
	case ledger.EntryExtend:
		if t.state != ledger.StateReserved || rc.Outcome.Expires.Before(t.expires) {
			why = fmt.Sprintf("extends from %s to %s", t.state, clock(&rc.Outcome))
		}
	case ledger.EntryRelease, ledger.EntryExpire:
		if t.state != ledger.StateReserved || amount != t.held {
			why = fmt.Sprintf("gives back %d of %d from %s", amount, t.held, t.state)
		}
		t.lapse(kind)
	case ledger.EntryReclaim:
		why = t.reclaim(a, rc)
	case ledger.EntryReverse:
		if (t.state != ledger.StateCommitted && t.state != ledger.StatePartlyReversed) || amount < 0 || (amount == 0 && !rc.ByLines()) || amount > t.committed-t.reversed {
			why = fmt.Sprintf("refunds %d of %d from %s", amount, t.committed-t.reversed, t.state)
		}
		t.refund(amount)
	case ledger.EntryReinstate:
		r := receiptOf(a, ledger.OpReverse, rc.ID)
		if r == nil || r.Void || r.Outcome.Amount != amount || t.reversed < amount || !sameSink(r.Sink, rc.Sink) {
			why = fmt.Sprintf("undoes a refund of %d that is not there", amount)
		}
		t.refund(-amount)
	default:
		why = "is of no operation that writes an entry"
	}
	return kind, why
}

func (t *trace) commit(rc *ledger.Receipt) (why string) {
	o := &rc.Outcome
	rest := t.held - min(o.Amount, t.held)
	if t.state != ledger.StateReserved || o.Amount <= 0 || (o.Held != 0 && o.Held != rest) {
		why = fmt.Sprintf("commits %d of %d from %s and still holds %d", o.Amount, t.held, t.state, o.Held)
	}
	t.committed += o.Amount
	t.held = o.Held
	if t.held == 0 {
		t.state = ledger.StateCommitted
	}
	return why
}

func (t *trace) lapse(kind ledger.EntryType) {
	if kind == ledger.EntryExpire {
		t.lapsed, t.state = t.held, ledger.StateExpired
	} else {
		t.state = ledger.StateReleased
	}
	t.held = 0
	if t.committed > 0 {
		t.state = ledger.StateCommitted
	}
}

// mayCommitAgain says whether the attempt is where what lapsed can still be
// committed.
func (t *trace) mayCommitAgain() bool {
	switch t.state {
	case ledger.StateExpired, ledger.StateCommitted, ledger.StatePartlyReversed, ledger.StateReversed:
		return true
	default:
		return false
	}
}

func (t *trace) reclaim(a *ledger.Attempt, rc *ledger.Receipt) (why string) {
	amount := rc.Outcome.Amount
	t.delivered = t.delivered || rc.Op == ledger.OpReclaimCharge || rc.Op == ledger.OpSettle
	if rc.Op == ledger.OpReclaimCharge && t.state == ledger.StateReversed {
		if amount != t.reversed || amount <= 0 {
			why = fmt.Sprintf("reclaims %d of a refund of %d", amount, t.reversed)
		}
		t.refund(-amount)
		return why
	}
	if rc.Outcome.Late {
		if !t.mayCommitAgain() || amount <= 0 || amount > t.lapsed {
			why = fmt.Sprintf("commits %d late, of %d that lapsed, from %s", amount, t.lapsed, t.state)
		}
		t.lapsed -= amount
		if !rc.Partial() {
			t.lapsed = 0
		}
	} else {
		want := a.Leg.Amount
		if t.committed > 0 {
			want = t.lapsed
		}
		if (t.state != ledger.StateReleased && !t.mayCommitAgain()) || amount <= 0 || amount != want {
			why = fmt.Sprintf("reclaims %d of %d from %s", amount, want, t.state)
		}
		t.lapsed = 0
	}
	t.committed += amount
	t.refund(0) // the state now says how much of it is refunded
	return why
}

func (t *trace) refund(amount int64) {
	t.reversed += amount
	switch {
	case t.reversed == 0:
		t.state = ledger.StateCommitted
	case t.reversed < t.committed:
		t.state = ledger.StatePartlyReversed
	default:
		t.state = ledger.StateReversed
	}
}

// arrives compares the end of the trace with the attempt.
func (t *trace) arrives(a *ledger.Attempt) string {
	l := &a.Leg
	switch {
	case t.state != a.State:
		return fmt.Sprintf("its receipts lead to %s, it is %s", t.state, a.State)
	case t.held != l.Held || t.lapsed != l.Lapsed || t.committed != l.Committed || t.reversed != l.Reversed:
		return fmt.Sprintf("its receipts lead to held %d, lapsed %d, committed %d, reversed %d, it has %d, %d, %d, %d",
			t.held, t.lapsed, t.committed, t.reversed, l.Held, l.Lapsed, l.Committed, l.Reversed)
	case t.commitSeq != a.CommitSeq:
		return fmt.Sprintf("its last commit is entry %d, it says %d", t.commitSeq, a.CommitSeq)
	case !t.expires.Equal(a.Expires):
		return fmt.Sprintf("its receipts lead to an expiry at %s, it says %s", stamp(unixMilli(t.expires)), stamp(unixMilli(a.Expires)))
	}
	return ""
}

// entryOf is the type of entry that an accepted command writes.
func entryOf(rc *ledger.Receipt) ledger.EntryType {
	switch rc.Op {
	case ledger.OpReserve:
		return ledger.EntryReserve
	case ledger.OpCommit, ledger.OpSettle:
		switch {
		case rc.Outcome.Late:
			return ledger.EntryReclaim
		case rc.Op == ledger.OpSettle:
			return ledger.EntrySettle
		}
		return ledger.EntryCommit
	case ledger.OpCharge:
		return ledger.EntryCharge
	case ledger.OpHold:
		return ledger.EntryHold
	case ledger.OpRefund:
		return ledger.EntryRefund
	case ledger.OpReclaimCharge:
		return ledger.EntryReclaim
	case ledger.OpExtend:
		return ledger.EntryExtend
	case ledger.OpRelease:
		return ledger.EntryRelease
	case ledger.OpExpire:
		return ledger.EntryExpire
	case ledger.OpReclaim:
		return ledger.EntryReclaim
	case ledger.OpReverse:
		return ledger.EntryReverse
	case ledger.OpReinstate:
		return ledger.EntryReinstate
	default:
		return 0
	}
}

func receiptOf(a *ledger.Attempt, op ledger.Op, id string) *ledger.Receipt {
	for i := range a.Receipts {
		if r := &a.Receipts[i]; r.Op == op && r.ID == id {
			return r
		}
	}
	return nil
}

func sameSink(a, b *ledger.BucketID) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}
