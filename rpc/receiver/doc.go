// Package receiver is the other end of the sinks: what a consumer of events
// needs. It imports ledger/event and rpc/inbox, so that a consumer gets no server
// with it.
//
//	POST ─▶ [Receiver]: signature ─▶ time ─▶ event ─▶ Handle ─┬─ nil ────────▶ 204, the event is done with
//	                                                          ├─ *inbox.Gap ─▶ 425, again in a second
//	                                                          ├─ ErrRefused ─▶ 422, never again
//	                                                          └─ other ──────▶ 500, again later
//
// [InOrder] makes a Handle of an SQL effect: once per event, in order per key. It
// and [Message] serve events that came another way, by NATS, Kafka or Subscribe,
// just as well. An event of a type that is not known is acknowledged: it is of a
// later version, or the ping that tests a webhook.
//
// A sink that leaves types out leaves gaps: what relies on the order must get all
// types but the internal ones.
//
// # Signatures
//
// A webhook request is signed in the form of Standard Webhooks
// (www.standardwebhooks.com), and any library of theirs verifies it:
//
//	webhook-id:        the event's id, the same on every delivery
//	webhook-timestamp: when this request was made, in seconds since 1970
//	webhook-signature: v1,BASE64 of HMAC-SHA256(secret, "ID.TIMESTAMP.BODY")
//	webhook-key-id:    which key signed, not part of that standard
//
// A secret is "whsec_" and 24 to 64 random bytes in base64. To rotate: give the
// receiver the new key beside the old one, put it first in the sink's
// configuration, and take the old one from the receiver once no request names it.
//
// The signature covers id and time, so a request that was listened to is of no
// use after the tolerance, and within it the id says that it was seen before.
package receiver
