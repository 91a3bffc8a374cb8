// Package relay delivers the ledger's events to sinks, at least once and in
// order per key. It imports ledger/store, ledger/event and node/relay/sink.
//
//	sinks changed ──▶ keeper ──┬── beats, takes and gives leases on partitions
//	                           └── one pump for each partition held and sink running
//
//	signal of the partition ─▶ pump: read a page ─▶ filter ─▶ Deliver ─┬─▶ advance the cursor
//	(watch, or a poll)                  ▲                              ├─▶ refused too often: park its key
//	                                    └───── wait, try again ◀───────┘   trouble
//
// # What holds
//
// A cursor moves in a transaction that reads the lease: a relay that was paused
// and lost its partition can repeat a delivery, which the event's id shows, but
// moves nothing. A lease has no time in it. Its holder counts a beat up, and
// another relay that saw the beat stand still for Config.Lease, by its own
// clock, takes it. So what a relay did not confirm is delivered again by the
// next one, and nothing is left out.
//
// A sink that is in trouble gets everything later. An event that the receiver
// refuses Config.Tries times is parked with its key: what comes later under the
// same key joins it, in order, and all other keys go on. So is one that failed
// Config.FailingTries times while the sink answered pings. A person retries or
// skips it. With Config.MaxParked events parked in a partition the sink stands
// still there, says so, and loses nothing.
//
// # What it costs
//
// Without a running sink: one read of one key a second, and no lease, watch or
// goroutine beyond the keeper. With some: a pump for each sink and partition,
// one watch and one read a second for each partition that is quiet (whatever the
// number of sinks), and a transaction for each batch delivered or, where batches
// are small, every 50 ms: that much may come again after a crash. Sinks are apart from each other: a slow
// one holds up no other.
//
// # Retention
//
// Outbox pointers are trimmed when every sink is past them and their blocks are
// older than Config.Retention, which is what a subscriber can fall behind. A
// paused sink counts and has no limit: it loses nothing, and the outbox grows by
// some 60 bytes a block until it is resumed or deleted. Without a sink nothing
// is trimmed. Ledger blocks stay for ever.
package relay
