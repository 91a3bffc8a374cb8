// Package embedded is the kv engine for one machine: Pebble under optimistic
// concurrency control, with the semantics, limits and error codes that
// package kv sets out. It passes the suite of package kvtest.
//
//	callers                committer (1 goroutine)            sync loop (1 goroutine)
//	───────                ───────────────────────            ───────────────────────
//	Begin, read ◀──────────────────────────────────────────── published version
//	  │  snapshot + own writes                                 (shared snapshot)  ▲
//	  ▼                                                                           │
//	Commit ──▶ queue ──▶ take what waits: a group                                 │
//	                     give it a version                                        │
//	                     check reads against recent writes                        │
//	                     put winners into one batch                               │
//	                     write log + memtable, no wait  ──▶ (≤ 4) ──▶ wait for sync
//	                     take a snapshot                                          │
//	                                                         publish, wake watches┘
//	answer ◀───────────────────────────────────────────────── answer the group
//
// # Why the next group may go before the last is synced
//
// A group is visible to the engine once applied, and to users only once
// published, which is after its sync. In between the committer may check and
// apply more groups. That is right because
//
//   - no transaction reads an unsynced write: it reads a snapshot, taken by
//     the committer after one group and before the next, and the sync loop
//     publishes a group's snapshot after that group's own sync;
//   - the check sees unsynced groups, since the log of recent writes has them
//     from the moment they are applied: a transaction that read what one of
//     them wrote is refused, as it would be later;
//   - what a group builds on (the base of an Add) may be unsynced, but lies
//     before it in the write-ahead log, which a crash can only cut at its
//     end. If the later group survives, so does the earlier;
//   - groups are answered in their order, and after one sync has failed
//     nothing is acknowledged any more.
//
// A refusal waits for its group too: answered at once, the caller would only
// run into the same unpublished write again.
//
// # Versions
//
// Each group has one version; a stamp is that version and the place in the
// group. Versions are reserved on disk a block at a time, by the batch that
// first needs one, and an opened store begins above the last reservation: no
// stamp that anyone saw is given twice, and stamps grow over any crash.
//
// # Failure of the disk
//
// A write or sync that fails leaves it unknown what is on disk. The store
// then answers all that is in flight as unknown, refuses further commits
// ([ErrFailed], [Store.Failed]) and goes on serving reads of what is
// published. It never retries a sync. Restart the process.
//
// # Damaged files
//
// A file whose checksum is wrong stops the store in the same way. The read
// that met it gets an error that names the file ([ErrCorrupt]), as Open does;
// reads of other files go on. Nothing of the engine ends the process.
//
// The package imports package kv and Pebble. Programs and tests import it,
// nothing else.
package embedded
