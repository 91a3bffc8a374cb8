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
package members
