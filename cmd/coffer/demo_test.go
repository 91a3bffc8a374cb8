package main

import "testing"

// The demo ends well, and says the same for the same seed.
func TestDemo(t *testing.T) {
	text := must(t, "demo", "--orders", "300", "--seed", "3", "--json")
	contains(t, text, `"audit":"ok"`)
	a := decode[demoReport](t, text)
	if a.Audit != "ok" || !a.OK || a.Orders != 300 || a.Entries == 0 || a.Entries != a.Events || len(a.Faults) > 0 {
		t.Errorf("demo: %+v", a)
	}
	for _, l := range demoLines {
		if a.Happened[l.key] == 0 {
			t.Errorf("nothing happened of: %s", l.text)
		}
	}
	out := must(t, "demo", "--orders", "300", "--seed", "3")
	checkAudit(t, out)
	for _, b := range a.Budgets {
		contains(t, out, formatMajor(b.Committed, b.Currency), formatMajor(b.Available, b.Currency))
	}
}

// On a store that is kept, the demo runs again and again beside its own
// earlier orders.
func TestDemoOnStore(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		a := decode[demoReport](t, must(t, "demo", "--orders", "200", "--store", dir, "--json"))
		if !a.OK {
			t.Errorf("demo: %+v", a)
		}
	}
	checkAudit(t, must(t, "audit", "--store", dir))
	fails(t, exitFailed, "no FoundationDB engine", "demo", "--orders", "200", "--store", "fdb:/etc/foundationdb/fdb.cluster")
}
