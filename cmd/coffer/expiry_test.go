package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
)

// loseIndex removes the expiry index from a store, as a fault would.
func loseIndex(t *testing.T, dir string) {
	t.Helper()
	st, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = kv.Transact(t.Context(), st, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.PrefixRange([]byte("coffer\x02X\x00")))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// passes tells how many passes a server's expiry scanner has completed.
func passes(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\ncoffer_expiry_passes_total ")
	n, _, _ := strings.Cut(rest, "\n")
	return n
}

// The index of due holds is lost: the audit says so and how to mend it, one
// command makes it again from the reservations, and everything expires.
func TestLostExpiryIndex(t *testing.T) {
	for _, live := range []bool{true, false} {
		dir := t.TempDir()
		s := serveEnv(t, dir, []string{"COFFER_EXPIRY_INTERVAL=1h", "COFFER_EXPIRY_STALL_AFTER=2h"})
		until(t, "the only pass before the holds", func() bool { return passes(t, s.url) == "1" })
		s.cli(t, "budget", "create", "B", "--currency", "BRL", "--buckets", "3")
		s.cli(t, "budget", "fund", "B", "--amount", "100.00")
		orders := []string{"o1", "o2", "o3", "o4", "o5"}
		for _, o := range orders {
			s.cli(t, "order", "reserve", o, "b", "--budget", "B", "--amount", "1.00", "--ttl", "500ms")
		}
		s.end(t)
		loseIndex(t, dir)
		fails(t, exitFailed, "coffer expiry rebuild", "audit", "--store", dir)

		const rebuilt = "5 reservations scanned, 5 rows written"
		if !live {
			contains(t, must(t, "expiry", "rebuild", "--store", "embedded:"+dir), rebuilt)
		}
		s = serve(t, dir)
		if live {
			contains(t, s.cli(t, "expiry", "rebuild"), rebuilt)
		}
		for _, o := range orders {
			until(t, o+" to expire", func() bool { return strings.Contains(s.cli(t, "order", "get", o, "b"), "EXPIRED") })
		}
		checkAudit(t, s.cli(t, "audit"))
		s.end(t)
		checkAudit(t, must(t, "audit", "--store", dir))
	}
	fails(t, exitFailed, "not a store", "expiry", "rebuild", "--store", filepath.Join(t.TempDir(), "nowhere"))
}
