// Package sink delivers events to other systems: webhooks, NATS JetStream and
// Kafka. A sink is configured at run time; its [Config] is stored with the
// tenant's data. It imports ledger/event and rpc/receiver, which has the other
// end of the webhooks.
//
//	relay ── Deliver(events) ──▶ sink ──┬── in order per key ──▶ receiver
//	   ▲                                │
//	   └──────── one error each ────────┘  nil: it has it · *Refused: never will · ErrHeld: not sent · else: try again
//
// A sink sends and says what became of it; trying again, parking and moving a
// cursor are the relay's. What it sent may arrive twice: its answer can be lost.
package sink
