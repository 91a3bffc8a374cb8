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
// # Why a row may be read without the write buffer
//
// Most rows that a batch asks for are not there: a reservation is looked for
// before it is made. To learn that from the engine's write buffer is a walk
// through a list of some hundred thousand rows, most of them in no cache of the
// processor, and costs more than all else that a command does. So the committer
// keeps a filter of the keys written since a version S, all up to which is in
// tables; a transaction that reads at V ≥ S asks the filter, and where it has
// not seen the key, reads the tables alone. That is right because
//
//   - a key that the filter has not seen was last written at S or before, so
//     its row at V is its row at S, and that is in the tables, or its absence;
//   - the filter has seen all that V holds: the committer adds a write to it
//     before the write is applied, and a transaction takes V before the filter;
//   - nothing unsynced is read: what S holds was published with V at the latest;
//   - a filter is replaced only by one that was begun before the buffer was
//     handed to the flush, after which all before it is in tables. While the
//     flush runs, both are asked.
//
// A filter that errs, a range that was cleared, or a V older than S cost a read
// from the snapshot and no more.
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
// The same holds where a table cannot be written, though commits may still fit
// into the log: the engine would try again at once and for ever. An Open that
// cannot write what it found in the log says so, and finds it again later. Where
// the engine merges tables by then, it is left as it is: a store that is opened
// again needs another process, and is told so ([ErrLocked]).
//
// A read that the disk does not answer is an error of its own and no failure of
// the store: the disk may give the file again, and other files are well. It is
// counted and told ([Store.ReadFaults]), since the caller can only repeat it. A
// merge or a commit that meets such a file stops the store.
//
// # Damaged files
//
// A file whose checksum is wrong, or that ends too early, stops the store in the
// same way. The read that met it gets an error that says so ([ErrCorrupt]), as
// Open does; reads of other files go on, and so does the process. Files that are
// gone are damage to Open, and so is a folder without any log: the engine keeps one.
// Only where a commit waits for a merge that met damage is the engine left as it is.
//
// A log has marks of what was synced before each of its records, so a bad record
// that synced ones follow in a later block of 32 KiB is damage, too. In the last
// block it reads as the torn end that a loss of power leaves, and ends the log.
//
// The package imports package kv and Pebble. Programs and tests import it,
// nothing else.
package embedded
