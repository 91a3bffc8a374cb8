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
package ledger
