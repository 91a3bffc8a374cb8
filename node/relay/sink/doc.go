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
//
//	         an event is                          has it when                      known by
//	webhook  a signed POST, JSON format           2xx                              webhook-id
//	nats     a message, binary mode, ce- headers  the stream's ack                 Nats-Msg-Id, which the server knows again
//	kafka    a record, binary mode, ce_ headers   all in-sync replicas wrote it    ce_id; repeats of one sending are dropped
//
// Each keeps one event of a key under way and sends different keys at once. A
// webhook's receiver that keeps failing is left alone by its circuit; the clients
// of NATS and Kafka look after their own connections.
//
// A tenant's configuration says where the node connects to. So connections go to
// public addresses alone, unless the node's own configuration allows more.
package sink
