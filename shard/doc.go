// Package shard names the bucket of each command and commits commands in
// groups, one batch in flight per bucket. It imports ledger and ledger/store.
//
//	Do ──▶ route ──▶ queue of the bucket ──▶ batch ──▶ store.Apply ──▶ answers
//	        │          (bounded, in order)    what queued while the
//	        │                                 last batch committed
//	        └─ unknown bucket: read the reservation's row first
//
// It is the only path for changes: what clients send, what the expiry scanner
// sends and what operators send all queue here.
//
// A queue never waits on a timer. It drains what gathered while the last batch
// committed, so a lone caller is served at once and a crowd shares one commit.
//
// A route is a guess that the store checks: a batch that holds a command of
// another bucket hands it back, and it moves to that bucket's queue. Two nodes
// that both serve a bucket are slow, never wrong: the transaction decides.
package shard
