// Package intake turns facts into commands: it stores what other systems say
// happened, and drives each order until its facts are in the ledger. It imports
// ledger, ledger/fact, ledger/store and shard/places; commands go through an executor, as
// everybody's do.
//
//	Submit ──▶ store the facts ──▶ settle the order ──▶ rows as they are now
//	                                    │  ▲
//	             ┌──────────────────────┘  │ until nothing is left to send
//	             ▼                         │
//	  read facts and reservations ──▶ fact.Plan ──▶ commands ──▶ Executor
//	                                    └──────▶ marks (when none)
//
// An order is settled when a fact of it comes, when a command of it was accepted
// on this node while facts of it wait ([Intake.Wrap]), when a person asks, and
// by the due-index scan. The scan alone is enough: the others make it fast. Orders
// that wait after a command are settled in turns of their tenants.
//
// Nothing is remembered between the steps but what the store holds, so a crash
// at any point is settled by the next pass, and two passes at once send the same
// commands under the same keys. A command whose outcome is unknown leaves its
// fact waiting; the next pass finds its receipt, or sends it again.
package intake
