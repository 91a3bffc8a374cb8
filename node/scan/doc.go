// Package scan holds the loops that look through the store for work that is
// due. They change nothing by themselves: what they find goes through the
// executor as commands, like everything else. It imports ledger and
// ledger/store.
//
//	every interval:
//	  slot 0…63 ──▶ due index rows ──▶ one EXPIRE a reservation ──▶ Executor
//	                     ▲                                            │
//	                     └──── drop the row when all are settled ◀────┘
//
// The index is a hint and the reservation is the truth: an EXPIRE of one that
// was committed, released or extended in the meantime is refused and does
// nothing. So two scanners at once, on one node or on several, are slow and
// never wrong, and a row that was found twice is harmless.
package scan
