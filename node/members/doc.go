// Package members knows the nodes over one store, and takes commands to the one
// that has their bucket. It imports ledger, ledger/store and shard.
//
//	every interval:
//	  write the own sign of life ──▶ store ──▶ read those of all
//	                                             │ whose beat changed lately,
//	                                             ▼ by this node's clock
//	  command ─▶ shard.Prefer(bucket, live nodes) ─▶ here, or one call away
//
// The set of live nodes is each node's own view; two nodes may differ for a
// while. That costs conflicts, or a hop to a node that runs the command although
// it would prefer a third one: never more than one hop, and never a wrong
// answer, since the transaction decides. Clocks of different machines are never
// compared.
//
// A node that drains says so in its sign of life. The others then no longer
// prefer it, each says whom it sends commands to, and the draining node waits,
// within bounds, until none names it.
//
// A node's id is one process's at a time. Each start of a node has a random
// number, its run, which stands in its sign of life; a sign is written only over
// one of the same run, in a transaction that reads it. So of two processes with
// one id one finds the other's sign in its place:
//
//	start ──▶ no sign, or it is gone ────────────────────────▶ the id is ours
//	      └─▶ another run's ──▶ the same for DeadAfter ──▶ overwrite exactly it
//	                        └─▶ it changes ──▶ refuse to start
//	later ──▶ another run's ──▶ we were silent for too long, end
//
// A process that was killed left its sign behind; its next start waits until the
// sign has been the same for DeadAfter by its own clock, and no longer. One that
// ends in order takes its sign away, and the next start waits for nothing.
//
// Decision: the one that is there keeps the id. Did the newer one take it at
// once, two processes under supervisors would take it from each other for ever.
package members
