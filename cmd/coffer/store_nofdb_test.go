//go:build !fdb

package main

import "testing"

// noEngine is what a command says of the store fdb:x, in this build.
const noEngine = "no FoundationDB engine"

// A build without FoundationDB says so at once, and how to get it, in every
// command that takes a store.
func TestWithoutFoundationDB(t *testing.T) {
	const place = "fdb:/etc/foundationdb/fdb.cluster?prefix=x"
	for _, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0", "--store", place},
		{"dev", "--listen", "127.0.0.1:0", "--store", place},
		{"demo", "--orders", "200", "--store", place},
		{"audit", "--store", place},
		{"expiry", "rebuild", "--store", place},
		{"bench", "run", "--workload", "hot", "--store", place, "--target", "executor"},
		{"store", "check", "--store", place},
		{"store", "incarnation", "--store", place},
	} {
		fails(t, exitFailed, "this build has no FoundationDB engine; build coffer with -tags fdb", args...)
	}
	_, out, _ := coffer(t, "store", "check", "--store", place, "--json")
	if got := decode[checked](t, out); got.Problem != "NOT_BUILT" || got.OK || got.Engine != "fdb" {
		t.Errorf("check --json: %+v", got)
	}
}
