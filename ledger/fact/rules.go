package fact

import (
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
)

// amountRule says whether the lines of a kind carry amounts.
type amountRule uint8

const (
	amountNone amountRule = iota
	amountOptional
	amountRequired
)

// rule is one kind's row: what its facts must carry, and what each asks of the
// ledger in each state of the reservation it is about.
type rule struct {
	// rank orders the facts of one order that are planned together.
	rank int
	// ref: a reference id is required.
	ref    bool
	amount amountRule
	// did looks for the fact's own effect among the receipts of the attempt,
	// before the state is looked at.
	did func(*subject) (step, bool)
	// on is what to do in each state of the attempt; StateNone also stands for
	// an attempt that is not there.
	on [ledger.StateVoid + 1]action
}

// action decides for one line of a fact.
type action func(*subject) step

// rules is the table. The rows of jobs speak of a charge or a hold of a wallet,
// the others of a benefit; a job's PARTLY_REVERSED is there for completeness, no
// command of jobs leads to it.
var rules = map[Kind]rule{
	PaymentSucceeded: {
		rank: 1, amount: amountOptional, did: didPay,
		on: [...]action{
			ledger.StateNone:           waits("nothing is reserved yet"),
			ledger.StateReserved:       send(ledger.OpCommit),
			ledger.StateCommitted:      committed,
			ledger.StatePartlyReversed: committed,
			ledger.StateReversed:       committed,
			ledger.StateReleased:       reclaim,
			ledger.StateExpired:        send(ledger.OpCommit), // the budget's late_commit decides
			ledger.StateRejected:       never("was paid for, but its reserve had been refused"),
			ledger.StateCancelled:      never("was paid for, but had been cancelled before it was reserved"),
			ledger.StateVoid:           never("was paid for, but its reserve was settled as never happening"),
		},
	},
	PaymentFailed: {
		rank: 2, did: didRelease,
		on: [...]action{
			ledger.StateNone:           send(ledger.OpRelease), // a tombstone
			ledger.StateReserved:       send(ledger.OpRelease),
			ledger.StateCommitted:      otherPayment,
			ledger.StatePartlyReversed: otherPayment,
			ledger.StateReversed:       otherPayment,
			ledger.StateReleased:       nothing,
			ledger.StateExpired:        nothing,
			ledger.StateRejected:       nothing,
			ledger.StateCancelled:      nothing,
			ledger.StateVoid:           nothing,
		},
	},
	OrderCancelled: {
		rank: 5, did: didRelease,
		on: [...]action{
			ledger.StateNone:           send(ledger.OpRelease), // a tombstone
			ledger.StateReserved:       send(ledger.OpRelease),
			ledger.StateCommitted:      waits("it is paid for: a cancelled order needs a refund of all of it"),
			ledger.StatePartlyReversed: waits("it is refunded in part: a cancelled order needs a refund of all of it"),
			ledger.StateReversed:       nothing,
			ledger.StateReleased:       nothing,
			ledger.StateExpired:        nothing,
			ledger.StateRejected:       nothing,
			ledger.StateCancelled:      nothing,
			ledger.StateVoid:           nothing,
		},
	},
	RefundSucceeded: {
		rank: 3, ref: true, amount: amountRequired, did: didRefund,
		on: [...]action{
			ledger.StateNone:           waits("nothing is reserved yet"),
			ledger.StateReserved:       waits("it is not paid for yet"),
			ledger.StateCommitted:      send(ledger.OpReverse),
			ledger.StatePartlyReversed: send(ledger.OpReverse),
			ledger.StateReversed:       refundedAlready,
			ledger.StateReleased:       waits("it was released and is not paid for"),
			ledger.StateExpired:        waits("it has expired and is not paid for"),
			ledger.StateRejected:       never("was refunded, but its reserve had been refused"),
			ledger.StateCancelled:      never("was refunded, but had been cancelled before it was reserved"),
			ledger.StateVoid:           never("was refunded, but its reserve was settled as never happening"),
		},
	},
	RefundCancelled: {
		rank: 4, ref: true, did: didReinstate,
		on: [...]action{
			ledger.StateNone:           waits("the refund has not come yet"),
			ledger.StateReserved:       waits("the refund has not come yet"),
			ledger.StateCommitted:      reinstate,
			ledger.StatePartlyReversed: reinstate,
			ledger.StateReversed:       reinstate,
			ledger.StateReleased:       waits("the refund has not come yet"),
			ledger.StateExpired:        waits("the refund has not come yet"),
			ledger.StateRejected:       never("has a cancelled refund, but its reserve had been refused"),
			ledger.StateCancelled:      never("has a cancelled refund, but had been cancelled before it was reserved"),
			ledger.StateVoid:           never("has a cancelled refund, but its reserve was settled as never happening"),
		},
	},
	JobSucceeded: {
		rank: 1, did: didDelivery,
		on: [...]action{
			ledger.StateNone:           waits("nothing is charged yet"),
			ledger.StateReserved:       waits("its hold is not settled yet"),
			ledger.StateCommitted:      send(ledger.OpReclaimCharge), // notes the delivery
			ledger.StatePartlyReversed: never("is refunded in part, which no job can be"),
			ledger.StateReversed:       send(ledger.OpReclaimCharge),
			ledger.StateReleased:       send(ledger.OpReclaimCharge),
			ledger.StateExpired:        send(ledger.OpReclaimCharge),
			ledger.StateRejected:       never("was delivered, but its charge had been refused"),
			ledger.StateCancelled:      never("was delivered, but its charge had been cancelled"),
			ledger.StateVoid:           never("was delivered, but its charge was settled as never happening"),
		},
	},
	JobFailed: {
		rank: 2, did: didFailure,
		on: [...]action{
			ledger.StateNone:           waits("nothing is charged yet"),
			ledger.StateReserved:       jobRelease,
			ledger.StateCommitted:      jobRefund,
			ledger.StatePartlyReversed: never("is refunded in part, which no job can be"),
			ledger.StateReversed:       nothing,
			ledger.StateReleased:       nothing,
			ledger.StateExpired:        nothing,
			ledger.StateRejected:       nothing,
			ledger.StateCancelled:      nothing,
			ledger.StateVoid:           nothing,
		},
	},
}

// waits: something that is still to come may make it legal.
func waits(why string) action {
	return func(s *subject) step { return step{wait: true, reason: s.name() + ": " + why} }
}

// never: nothing that can still come makes it legal.
func never(why string) action {
	return func(s *subject) step { return step{final: true, reason: s.name() + " " + why} }
}

// nothing: there is nothing to do.
func nothing(*subject) step { return step{} }

// send asks for a command under the fact's key.
func send(op ledger.Op) action {
	return func(s *subject) step { return step{send: s.command(op)} }
}

// committed: the payment is counted already, but for what has lapsed of it.
func committed(s *subject) step {
	if s.attempt.Leg.Lapsed > 0 {
		return step{send: s.command(ledger.OpCommit)}
	}
	return step{}
}

// reclaim: the hold was given up before the payment was known. The budget's
// late_commit says, as for one that expired, whether it is spent all the same.
func reclaim(s *subject) step {
	if s.late == ledger.LateReclaim {
		return step{send: s.command(ledger.OpReclaim)}
	}
	return step{final: true, code: ledger.LateCommitRejected, reason: fmt.Sprintf(
		"%s was paid for after it was released, and the budget's late_commit is %s; reclaim it by hand if it counts", s.name(), s.late)}
}

// otherPayment: it is paid for. A failure of the very payment that paid for it
// is a contradiction; that of another one is old news.
func otherPayment(s *subject) step {
	if s.fact.Ref != "" {
		_, paid := s.receipt(ledger.OpCommit, s.fact.Ref)
		_, late := s.receipt(ledger.OpReclaim, s.fact.Ref)
		if paid || late {
			return step{final: true, reason: fmt.Sprintf("%s was paid for by payment %.40q, which is now said to have failed", s.name(), s.fact.Ref)}
		}
	}
	return step{}
}

func reinstate(s *subject) step {
	if _, refunded := s.receipt(ledger.OpReverse, s.fact.Ref); refunded {
		return step{send: s.command(ledger.OpReinstate)}
	}
	return step{wait: true, reason: fmt.Sprintf("%s: refund %.40q has not come yet", s.name(), s.fact.Ref)}
}

// refundedAlready: there is nothing left to refund. It may come back; unless the
// refund is known to be cancelled, and then both come to nothing.
func refundedAlready(s *subject) step {
	if s.cancelled {
		return step{send: s.void()}
	}
	return step{wait: true, reason: s.name() + ": all of it is refunded already"}
}

// jobRefund gives back what the job was charged, unless it was delivered. While
// its success is known but not in the ledger, as when its command was lost, it
// waits for that: a refund now would only be taken back, from a wallet that may
// not be able to pay it any more.
func jobRefund(s *subject) step {
	switch {
	case s.attempt.Delivered():
		return step{reason: s.name() + ": the job was delivered, nothing is refunded"}
	case s.succeeded:
		return step{wait: true, reason: s.name() + ": the job is known to have succeeded, its delivery is not noted yet"}
	}
	return step{send: s.command(ledger.OpRefund)}
}

// jobRelease gives up what is held. What was settled in part stays spent.
func jobRelease(s *subject) step {
	if s.succeeded {
		return step{wait: true, reason: s.name() + ": the job is known to have succeeded, its hold is not settled yet"}
	}
	return step{send: s.command(ledger.OpRelease)}
}

// The effects a fact looks for.

// didPay finds the commit of the payment. One of another amount is a
// contradiction; a reclaim's amount is always what was reserved.
func didPay(s *subject) (step, bool) {
	id := s.id(ledger.OpCommit)
	st, ok := s.found(ledger.OpCommit, id)
	if !ok {
		return s.found(ledger.OpReclaim, id)
	}
	if paid := st.effects[0].Outcome.Amount; s.line.Amount != 0 && paid != s.line.Amount {
		return step{final: true, code: ledger.IdempotencyConflict, reason: fmt.Sprintf(
			"%s: payment %.40q was counted with %d and is now said to be %d", s.name(), id, paid, s.line.Amount)}, true
	}
	return st, true
}

func didRelease(s *subject) (step, bool) { return s.found(ledger.OpRelease, s.id(ledger.OpRelease)) }

func didRefund(s *subject) (step, bool) {
	if s.cancelled && s.voided(s.fact.Ref) {
		return step{reason: fmt.Sprintf("%s: refund %.40q was cancelled before it could be made", s.name(), s.fact.Ref)}, true
	}
	st, ok := s.found(ledger.OpReverse, s.fact.Ref)
	if ok && st.effects[0].Outcome.Amount != s.line.Amount {
		return step{final: true, code: ledger.IdempotencyConflict, reason: fmt.Sprintf(
			"%s: refund %.40q was made with %d and is now said to be %d", s.name(), s.fact.Ref, st.effects[0].Outcome.Amount, s.line.Amount)}, true
	}
	return st, ok
}

func didReinstate(s *subject) (step, bool) {
	if s.voided(s.fact.Ref) {
		return step{reason: fmt.Sprintf("%s: refund %.40q was never made and never will be", s.name(), s.fact.Ref)}, true
	}
	return s.found(ledger.OpReinstate, s.fact.Ref)
}

// didDelivery finds the success, or a settlement once nothing is held any more:
// a part of one leaves the rest to come.
func didDelivery(s *subject) (step, bool) {
	if st, ok := s.found(ledger.OpReclaimCharge, ""); ok {
		return st, true
	}
	if s.attempt == nil || s.attempt.State == ledger.StateReserved {
		return step{}, false
	}
	for i := len(s.attempt.Receipts) - 1; i >= 0; i-- {
		if rc := &s.attempt.Receipts[i]; rc.Op == ledger.OpSettle {
			if st, ok := s.found(rc.Op, rc.ID); ok {
				return st, true
			}
		}
	}
	return step{}, false
}

func didFailure(s *subject) (step, bool) {
	if st, ok := s.found(ledger.OpRefund, ""); ok {
		return st, true
	}
	return didRelease(s)
}
