// Package kv is the storage contract of Coffer: an ordered, transactional
// key-value store with strict serializability, shaped after FoundationDB's
// transaction. It imports nothing of Coffer's.
//
// An engine implements [Store]; everything above talks to it through
// [Transact] and [Read], so there is exactly one retry loop and one meaning of
// "committed", "not committed" and "unknown" for all engines. The package
// kvtest holds the conformance suite that every engine passes.
//
//	          Begin                   Commit
//	Store ───────────▶ Tx (reads, ──────────▶ nil            committed
//	                   buffered writes)       not committed  safe to run again
//	                                          unknown        may have landed, or
//	                                                         may still land
//
// Semantics every engine provides:
//
//   - A transaction reads from one consistent snapshot, its read version, and
//     sees its own writes over it.
//   - Commit succeeds only if nothing in the transaction's read conflict
//     ranges was written by a transaction that committed after the read
//     version. Plain reads add read conflicts, snapshot reads do not. Writes
//     never conflict with writes.
//   - Stamps (see [Stamp]) grow in commit order, also across a restart.
//   - A transaction may live five seconds ([MaxTxAge]) and hold ten megabytes
//     ([MaxTxBytes]); keys and values are bounded as well.
package kv
