// Package scan holds the loops that look through the store for work that is
// due. They change no balance by themselves: what they find goes through the
// executor as commands, like everything else. It imports ledger, ledger/store,
// ledger/work and shard. The leader runs them (node/election), with a context behind
// the fence of its term: what a scanner of an earlier term still does is refused
// with FENCED, and changes nothing.
//
//	every interval:
//	  slot 0…63 ──▶ due index rows ──▶ one EXPIRE a reservation ──▶ Executor
//	                     ▲                                            │
//	                     └──── drop the row when all are settled ◀────┘
//
//	  leases that ran out ──▶ due again, or dead letters
//	  facts that wait     ──▶ settle the order again ──▶ Executor
//	  finished jobs       ──▶ forgotten
//
//	  budgets, page by page ──▶ shard.PlanRebalance ──▶ MOVE ──▶ Executor
//	                            shard.Adapt ──▶ RESHARD (where that is on)
//	                        ──▶ replay from where it was verified last, and all of
//	                            it in rounds ──▶ a difference: log, metric, FREEZE
//
// The expiry index is a hint and the reservation is the truth: an EXPIRE of one
// that was committed, released or extended in the meantime is refused and does
// nothing. So two scanners at once, on one node or on several, are slow and
// never wrong, and a row that was found twice is harmless. The same holds for
// jobs and facts: their rows are read again in the transaction that changes
// them. A plan of moves that no longer fits is refused, and one that two loops
// made of the same state has the same keys, so that it is carried out once.
package scan
