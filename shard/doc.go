// Package shard names the bucket of each command and commits commands in
// groups, one batch in flight per bucket. It imports ledger, ledger/store and shard/places.
//
//	Do ──▶ admit ──▶ route ──▶ queue of the bucket ──▶ batch ──▶ store.Apply ──▶ answers
//	        │         │          (bounded, in order)    what queued while the
//	        │         │                                 last batch committed
//	        │         └─ unknown bucket: read the reservation's row first
//	        └─ a place for each command (places), none: OVERLOADED
//
// It is the only path for changes: what clients send, what the expiry scanner
// sends and what operators send all queue here.
//
// Places are bounded, and a tenant gets a part of them that leaves room for the
// next one (places), before its commands are queued or forwarded. The node that
// a client calls gives the place: a forwarded command, and what the leader does,
// takes none of its tenant's, and is let in where none is free. No full queue
// keeps out what the leader does, either. What waits is a tenant's own, too: the
// queues of its buckets, one for its orders that have no bucket, and its place in
// the line of commands for another node, which go in turns of their tenants. So do
// batches, of which a bounded number is at the store at once (turns).
//
// A queue takes what gathered while the last batch committed, so a lone caller is
// served at once and a crowd shares one commit. It waits for nothing as long as
// processors are free. While this process has more work than they can do, a batch
// that began small would cost more of their time than it saves, so it waits for the
// callers that should come, for a millisecond at most (gather).
//
// With several nodes each bucket has a preferred one (Prefer). A command for a
// bucket that prefers another node takes a lane to it in place of a queue: one
// call in flight to each node, and what gathers meanwhile goes with the next.
// What the other node does not answer in time runs here, whatever became of it
// there: a command that took effect finds its receipt. A forwarded command is
// never forwarded again (Here). So preference decides who is fast, and nothing
// else.
//
// A route is a guess that the store checks: a batch that holds a command of
// another bucket hands it back, and it moves to that bucket's queue. Two nodes
// that both serve a bucket are slow, never wrong: the transaction decides.
//
// When a budget is resharded, what is on its way by the old routing epoch is
// handed back in this way, too, and what repeats an old command to where its
// reservation is. Commands of one call on one benefit keep their order through
// it: once the first of them has left its queue, the next waits for its answer.
//
// A command on the budget as a whole, or a move between two buckets, commits
// while no other batch of that budget does (turnstiles): it would conflict with
// one or another of many busy buckets at every attempt.
package shard
