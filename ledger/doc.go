// Package ledger is the domain of Coffer, pure: commands, state machines and
// the functions that decide. It has no clock, no I/O and no randomness, and
// imports nothing of Coffer's.
//
// A [Command] is the only way anything changes. [Decide] takes what the
// command may look at (a [View]) and returns what it does (a [Decision]); the
// store writes that in one transaction with the state it was read from.
// Commands on a budget go through [DecideBudget] in the same way.
//
// One attempt of a reservation is this state machine:
//
//	          Reserve                Commit(final)             Reverse (part)          Reverse (rest)
//	(none) ───────────▶ RESERVED ─────────────────▶ COMMITTED ─────────────▶ PARTLY_REVERSED ─────▶ REVERSED
//	  │ │                │  │ ▲                      ▲   ▲                         │                    │
//	  │ │         Release│  │ └ Commit(part), Extend │   └─────── Reinstate ───────┴────────────────────┘
//	  │ │                ▼  ▼ Expire                 │ Reclaim, late Commit
//	  │ │           RELEASED  EXPIRED ───────────────┘
//	  │ ├─ Release first ───▶ CANCELLED   (tombstone: a Reserve that comes late is refused)
//	  │ └─ Resolve first ───▶ VOID        (a lost Reserve can never land)
//	  └─── refused Reserve ─▶ REJECTED    (stays refused)
//
// A job, the unit of usage billing, is an order with the one benefit
// [JobBenefit] whose budget is a wallet. It goes through the same states, and
// its commands through the same Decide; a charge is a reserve and a commit in
// one, a reclaim is its success:
//
//	          Charge                    Refund                  Reclaim
//	(none) ─────────────▶ COMMITTED ─────────────▶ REVERSED ─────────────▶ COMMITTED
//	  │                       │                                            delivered
//	  │                       └── Reclaim: no entry ──────────────────────▶ ▲  ▲
//	  │                                                                     │  │
//	  │ Hold                        Settle(final)                           │  │
//	  └───────▶ RESERVED ───────────────────────────────────────────────────┘  │
//	              │  │ ▲                                                        │
//	       Release│  │ └ Settle(part), Extend              Reclaim, late Settle │
//	              ▼  ▼ Expire                                                   │
//	        RELEASED  EXPIRED ──────────────────────────────────────────────────┘
//
//	  REJECTED, CANCELLED and VOID as above.
//
// Delivered is no state of its own but what the receipts say: a reclaim, or a
// settlement, was accepted. From then on Refund is refused (JOB_DELIVERED). So
// the net of a job is its cost or nothing, never nothing once it was delivered,
// and never twice its cost:
//
//   - The failure handler sends Refund and the success handler sends Reclaim,
//     both without looking. Whichever comes first, and however often each comes,
//     one success makes the net the cost. A retry of the work needs no charge of
//     its own: its success reclaims what its failure refunded.
//   - A job is charged once. A further attempt is for charges that were refused,
//     voided or cancelled, and for holds that were given up without a
//     settlement; not for refunded ones (JOB_CHARGED).
//   - Refund and Reclaim carry no amount: it is what was charged.
//   - A charge, a hold and what a settlement takes above its hold may go below
//     zero by the wallet's overdraft. What is taken for work that is done
//     (Reclaim, late Settle) may go down to the debt cap: refusing it would
//     leave delivered work unpaid, so the debt is shown instead. Above the cap
//     it is refused (DEBT_CAP) and a case is opened, once.
//   - A wallet has one bucket and no sink: a refund into a closed wallet stays in
//     it, where it is seen and can be defunded.
//
// Decisions of weight:
//
//   - Release or Expire after a partial Commit leads to COMMITTED: what was
//     spent stays spent. What expired can still be committed late.
//   - Every command carries its attempt (default 1), so that a late duplicate
//     of an earlier attempt's Release cannot release a later attempt.
//   - Receipts store the canonical request itself. Comparing requests is
//     exact, and the request hash is derived when somebody asks for it.
//   - A reversal into a closed budget writes REVERSE in the reservation's
//     bucket with the funds leaving it, and MOVE_IN in the sink: one entry in
//     each bucket it touches.
//   - A reservation keeps its bucket when its budget is resharded, and its row
//     says which it is: a command that repeats an old one is answered from the row
//     wherever the current epoch routes it. So only the current epoch is kept.
//   - RESHARD moves what is available in the decision that begins the epoch. A
//     STRICT budget would otherwise refuse orders whose new bucket has nothing
//     yet, and such refusals are recorded.
//   - Buckets above the new number are retired, never removed: their reservations
//     are settled there, and what those give back is the budget's like any other.
//   - A benefit may be reserved with the quote it was priced with. What each
//     order line and funder paid is divided once, when it is reserved, and only
//     scaled where another amount is committed; each refund records what it took
//     from which of them. Nothing is ever computed from rules of a later day.
//     Commit does not look at it, so that orders pay for it only when refunded.
//   - Amounts are divided by one function, Apportion, over what is left to
//     give: so nothing is given twice and the last refund takes the exact tail.
package ledger
