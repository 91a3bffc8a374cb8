// Package fact is the domain of fact intake, pure: what other systems say
// happened to an order, and what the ledger has to do about it. It imports
// ledger, for commands and reservations, and ledger/work, for its backoff.
//
// A fact is named by (tenant, source, event id). It comes at least once, late,
// and in any order. It is stored before anything is done about it, and never
// dropped:
//
//	           the effect is in the ledger
//	PENDING ─────────────────────────────────▶ APPLIED
//	   │ deadline, or nothing legal can come         ▲
//	   ▼                                             │ it became legal after all
//	EXCEPTION ───────────────────────────────────────┘
//	   │ Resolve(reason): a person settled it elsewhere
//	   ▼
//	RESOLVED
//
// [Plan] looks at an order as a whole: its facts and its reservations. It says
// for each open fact which command is legal now, or that its effect is there
// already, or what it waits for, or why nothing legal can come. It reads that
// from the reservations and their receipts alone, never from what somebody
// remembers having sent. So a crash between a command and the mark on its fact,
// a lost answer, or a second planner at the same moment lead to the same
// command under the same key, which the ledger answers with its first result;
// then Plan finds the effect, and the mark is made.
//
// rules.go is the one table from kinds of facts to commands. refusals.go says
// which refusals of a command are final. An order's facts are planned in the
// order of their kinds' rank, then as they were received: a payment before its
// refund, a refund before its cancellation.
//
// A fact may name the benefits it is about (lines) or none, and then it is about
// all benefits that the order has reserved when it is applied. Only a line can
// leave a tombstone: without one there is no key to put it at. A fact with lines
// is applied when every line is; until then each line that can be is.
//
// A job is one subject: its facts have no lines, and facts of orders leave it
// alone. A success is RECLAIM_CHARGE, a failure is REFUND, or RELEASE of what is
// held. That work which was delivered is not refunded is the ledger's rule and
// not one of this package's: a failure that comes after the success finds the
// delivery among the receipts, or is refused (JOB_DELIVERED) and finds it at the
// next look; either way it is applied and nothing moves. A success that the
// wallet may not owe (DEBT_CAP) waits for its funding.
package fact
