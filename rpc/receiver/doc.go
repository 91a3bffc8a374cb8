// Package receiver is the other end of the sinks: what a consumer of events
// needs. It imports ledger/event and what that imports, so that a consumer gets
// no server with it.
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
