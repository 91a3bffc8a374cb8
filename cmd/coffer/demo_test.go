package main

import (
	"bytes"
	"context"
	"testing"
)

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
	fails(t, exitFailed, noEngine, "demo", "--orders", "200", "--store", "fdb:x")
}

// A fault that has nothing to do with the expiry does not end the wait for it,
// and what the scanner returned is what is reported.
func TestDemoWaitsInSpiteOfFault(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var out bytes.Buffer
	c := &cli{ctx: ctx, stdout: &out, stderr: &out, globals: &globals{JSON: true}}
	cmd := &demoCmd{Orders: 200, Seed: 1, Callers: 16}
	loc, remove, err := cmd.place()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	nodes, err := c.startDemo(ctx, loc, cancel)
	if err != nil {
		t.Fatal(err)
	}
	d := cmd.newRun(c, nodes)
	d.tally.fault("a fault of an order")
	r, err := d.play(ctx)
	if err != nil {
		t.Fatal(err)
	}
	due := 0
	for _, o := range d.plan() {
		if o.scene.after != nil {
			due++
		}
	}
	if r.OK || due == 0 || r.Happened["expired"] != due || r.Commands < int64(2*due) || r.CmdsSec <= 0 {
		t.Errorf("%d holds were left to expire: %+v", due, r)
	}
	for _, k := range r.Checks[1:] {
		if !k.OK {
			t.Errorf("check %+v", k)
		}
	}
	d.client.Close()
	if err := nodes.close(); err != nil {
		t.Error(err)
	}
}
