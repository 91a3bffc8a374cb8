// Package inbox makes the effect of an event on a consumer's own SQL database
// happen once, however often the event is delivered. It imports nothing of
// Coffer's, so that a consumer gets no server with it.
//
//	event ──▶ begin ──▶ insert (consumer, event id) ──┬─ first:  effect ──▶ commit ──▶ acknowledge
//	                                                  └─ before: nothing ─▶ commit ──▶ acknowledge
//
// The guarantee: of all transactions that call First with one (consumer, event
// id) and commit, exactly one was told true. It rests on the table's primary
// key alone. It holds for effects inside that transaction and for nothing else:
// an e-mail, or a call to another service, is not undone with it. For those use
// something that is idempotent by the event's id itself, as Coffer's commands
// are by theirs; an inbox behind a network could not do better, which is why
// there is none.
//
// Events that have an order go through [Inbox.DoInOrder]: a second table holds
// which event of each key is next, moved on in the same transaction. What comes
// too early is a [Gap], to be asked for again; nothing is acknowledged that was
// not done, so nothing is lost where the sender gives up. That table has one row a
// key, and they stay.
//
// An event is acknowledged after the commit. When the commit's answer is lost,
// the event is not acknowledged and comes again, and then the row says whether
// it had been. Two deliveries at the same moment: the second waits for the first
// to end, and is told true if that one was rolled back. (At the levels repeatable
// read and serializable PostgreSQL ends the second with a serialization failure
// instead; it comes again.)
//
// Rows may be purged once their events cannot come again: keep them for longer
// than whatever delivers the events goes on trying, replays by a person
// included.
package inbox
