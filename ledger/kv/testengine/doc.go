// Package testengine gives tests the engine that they run on: the embedded one
// in memory, or, in a build with the tag fdb where COFFER_TEST_FDB_CLUSTER
// names a cluster file, FoundationDB under a fresh prefix that is cleared at
// the end. The tests of everything above ledger/kv open their engines here, so
// that the same suites run on both and there is one switch.
//
// It imports the engines and is imported by tests only.
package testengine
