// Package fdbkv is the FoundationDB engine of ledger/kv, on Apple's Go binding
// at API version 730. It is built with the tag fdb and then needs the client
// library libfdb_c and its headers, version 7.3 or later; without the tag,
// [Open] fails with an error that says so.
//
//	kv.Transact ──▶ Begin ──▶ one FoundationDB transaction an attempt
//	                  │        (no retry loop of the binding's: kv has the only one)
//	                  └─ at most Options.MaxInFlight at a time
//
// What the adapter holds to, from FoundationDB's documentation:
//
//   - commit_unknown_result (1021) may have committed; transaction_timed_out
//     (1031) and a cancellation during commit may still land later. Both come
//     back as an unknown outcome.
//   - The defaults are no timeout and endless retries; every transaction gets
//     a timeout and a size limit, and nothing here retries.
//   - Faults in arguments are found here, before the client library sees them,
//     and surface at Commit: the same codes as on every other engine.
//   - A watch may be orphaned: each is raced with a poll.
//   - Futures are freed by finalizers: what is in flight is bounded, and a
//     transaction's futures are dropped with it.
//
// Not used, on purpose: automatic idempotency (experimental, and it does not
// cover 1031), tenants, tag throttling, the cache of read versions.
package fdbkv
