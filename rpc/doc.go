// Package rpc is Coffer on the wire: the Connect services, the one table from
// domain errors to wire codes, the interceptors and the Go client. It imports
// ledger, ledger/work, ledger/fact, ledger/event, ledger/store (for its read views), shard/places, rpc/access
// and the generated code; what runs commands reaches it through small interfaces.
//
//	HTTP ──▶ mux ──▶ observe ──▶ edge ──▶ access ──▶ doors ──▶ validate ──▶ service ──▶ Executor (changes)
//	          │      metrics,    panics,  token,     places    schema         │
//	          │      log         errors   tenant               rules          └───────▶ Reader   (reads)
//	          └────▶ health, reflection
//
// One mux speaks Connect (binary and JSON, so that curl works), gRPC and
// gRPC-Web. The services translate and nothing else: whether a command is
// legal is decided in package ledger.
//
// Decisions of weight:
//
//   - Every refusal carries an ErrorDetail. Whether the schema's rules, the
//     domain or the store refused is the same to a caller: reason, field, value
//     and limit are there in each case.
//   - OUTCOME_UNKNOWN is DEADLINE_EXCEEDED on the wire. It is the one standard
//     code whose definition says that the operation may have completed, so a
//     client that knows nothing of Coffer cannot take it for a failure, and
//     generic retry policies (which retry UNAVAILABLE) leave it alone.
//   - OVERLOADED is UNAVAILABLE like all that certainly was not done, and says
//     in retry_delay when to come back: generic clients retry that code.
//   - A lack of money is FAILED_PRECONDITION (HTTP 400), like all that stays
//     refused until a command changes the state: proxies and HTTP clients repeat
//     429, and the same reserve would get the same refusal for ever.
//     RESOURCE_EXHAUSTED (429) is left to limits that time alone lifts: a full
//     queue of jobs, and a worker's leases.
//   - Where a tracer is given, a span is around all of a call, below the caller's
//     by W3C Trace Context. Refusals are no errors in it; causes are not in it.
//     A caller's word that its trace is recorded counts for calls that the token
//     admits, so that no stranger fills the collector. The log has the ids anyway.
//   - A call takes a place of its tenant until it ends, one of its kind (doors):
//     without one it is refused before its message is read. Commands need a place
//     of the executor besides, where a batch counts by its commands.
//   - A worker's stream carries jobs one way only; what became of them are calls
//     of their own. So it works over HTTP/1.1 too, a result survives its stream,
//     and the server counts what a worker holds by the store, where a result told
//     to another node counts as well.
//   - A stream of events keeps nothing for its subscriber: a cursor is the
//     subscriber's, and what it does not read stays in the store.
//   - The tenant is a header and never a field, so that no message can name
//     another tenant's data. With tokens the token has the tenant, and the header
//     may only repeat it.
//   - Who may call what is one table (permissions.go) with a row for every
//     procedure, and not a rule at each service: it can be read as a whole, and
//     a procedure that was forgotten is closed. What other nodes call is not in
//     it: their certificates are its guard, and the first node has asked for the
//     token. Health is open, since supervisors have no tokens; reflection takes
//     any token; metrics speak of all tenants and take one for all of them.
//   - A caller is known before anything of its payload is read, and that it was
//     refused says nothing of its command: an outcome that was unknown stays so.
//   - A stream asks again with each message it sends, so a token that was revoked,
//     has expired or became another tenant's ends it with the next event or
//     heartbeat.
//   - A command of a batch is checked by itself. Only what makes the message
//     unreadable, such as a string that is not UTF-8, refuses the whole call;
//     nothing of it runs then.
//   - JSON with a field that the schema does not know is refused: a mistyped
//     "partial" would otherwise turn a part of a commit into the whole.
//   - An error that is no refusal reaches the caller as INTERNAL without its
//     text; the cause is logged once, in the outermost interceptor.
package rpc
