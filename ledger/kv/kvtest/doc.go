// Package kvtest is the conformance suite of package kv: what it asserts is
// what the words of the contract mean. Every engine passes it, so the code
// above is right on each.
//
//	engine's test ──▶ Run(t, open) ──▶ for each case: open(t) ──▶ Harness
//	                                     │                          Store, Prefix
//	                                     ▼                          and what the engine
//	                                  subtest, on keys under        can be made to do:
//	                                  the prefix alone, which       reopen, age, fail,
//	                                  it clears at its end          lose its power
//
// The cases of the core need a Store and no more, so they run on a cluster
// that others use. A case that needs a capability which the harness lacks is
// skipped and says so. No case waits for time to pass: age comes from
// Harness.Advance, everything else is signalled.
//
// [Counting] wraps a store to count calls, for tests of what a transaction
// costs.
//
// The package may import package kv and test libraries. Only tests import it.
package kvtest
