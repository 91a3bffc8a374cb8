package main

import (
	"errors"
	"fmt"
	"sort"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type auditCmd struct {
	remote `embed:""`

	Store   string `help:"Audit this store, which no server may have open, instead of a server." placeholder:"STORE" empty:"name a directory, or leave the flag out to use the server"`
	Verbose bool   `help:"Print what each check proves, not only that of checks with problems."`
}

// Help is the long help.
func (auditCmd) Help() string {
	return `Checks every invariant over all tenants and prints what each check looked at.
The last line is "audit: ok" or "audit: FAILED"; then the exit code is 1. A store
is opened read-only. --verbose says what each check proves. It takes as long as
the ledger is large: --timeout does not bound it.

Examples:
  coffer audit
  coffer audit --store embedded:/var/lib/coffer/store`
}

// Run audits. An audit takes as long as the ledger is large, so --timeout does
// not bound it.
func (a *auditCmd) Run(c *cli) error {
	report, err := a.audit(c)
	if err != nil {
		return err
	}
	if c.JSON {
		err = c.printJSON(auditJSON(report))
	} else {
		c.auditTable(report, a.Verbose)
	}
	if err == nil && !report.Ok {
		return errFailed
	}
	return err
}

func (a *auditCmd) audit(c *cli) (*cofferv1.AuditReport, error) {
	if a.Store != "" {
		return c.auditStore(a.Store)
	}
	s, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	progress := c.progress()
	report, err := s.Audit(c.ctx, func(p *cofferv1.AuditProgress) { progress(p.GetPhase(), p.GetDone()) })
	progress("", 0)
	return report, s.explain(err)
}

// openLedger opens a ledger that is there, in a store that no server has open
// where it is an embedded one. The engine is the caller's to close.
func (c *cli) openLedger(loc location, readOnly bool) (*store.Store, kv.Store, error) {
	engine, err := loc.open(c.ctx, true)
	if err != nil {
		return nil, nil, err
	}
	// Opening for writing makes what is missing, so look first.
	opt := loc.ledgerOptions("cli")
	opt.ReadOnly = true
	st, err := store.Open(c.ctx, engine, opt)
	if err == nil && readOnly {
		return st, engine, nil
	}
	if err = errors.Join(err, engine.Close()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", loc, err)
	}
	if engine, err = loc.open(c.ctx, false); err != nil {
		return nil, nil, err
	}
	opt.ReadOnly = false
	if st, err = store.Open(c.ctx, engine, opt); err != nil {
		return nil, nil, errors.Join(err, engine.Close())
	}
	return st, engine, nil
}

func (c *cli) auditStore(where string) (report *cofferv1.AuditReport, err error) {
	loc, err := parseStore(where)
	if err != nil {
		return nil, err
	}
	defer func() { err = loc.explain(err) }()
	st, engine, err := c.openLedger(loc, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	progress := c.progress()
	r, err := st.Audit(c.ctx, progress)
	progress("", 0)
	if err != nil {
		return nil, fmt.Errorf("audit %s: %w", where, err)
	}
	return offlineReport(r), nil
}

// offlineReport gives a report the form it has over the wire, so that both
// are printed alike.
func offlineReport(r *store.AuditReport) *cofferv1.AuditReport {
	out := &cofferv1.AuditReport{
		Ok: r.OK(), Budgets: r.Budgets, Buckets: r.Buckets, Blocks: r.Blocks, Entries: r.Entries,
		Reservations: r.Reservations, Events: r.Events, Cases: r.Cases,
	}
	for _, k := range r.Checks {
		out.Checks = append(out.Checks, &cofferv1.AuditCheck{Name: k.Name, Statement: k.Statement, Checked: k.Checked, Problems: k.Problems, Examples: k.Examples})
	}
	for cur, b := range r.Totals {
		out.Totals = append(out.Totals, &cofferv1.CurrencyTotal{Currency: cur, Balances: &cofferv1.Balances{
			FundedMinor: b.Funded, AvailableMinor: b.Available, ReservedMinor: b.Reserved, CommittedMinor: b.Committed, ReversedMinor: b.Reversed,
		}})
	}
	sort.Slice(out.Totals, func(i, j int) bool { return out.Totals[i].Currency < out.Totals[j].Currency })
	return out
}

// auditJSON is the report for programs, its verdict in one word first.
func auditJSON(r *cofferv1.AuditReport) map[string]any {
	raw, err := (protojson.MarshalOptions{EmitUnpopulated: true}).Marshal(r)
	if err != nil {
		return map[string]any{"audit": verdict(r.Ok), "error": err.Error()}
	}
	return map[string]any{"audit": verdict(r.Ok), "report": jsonRaw(raw)}
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}

// auditTable prints a report. What a check proves is said where it has
// problems, and everywhere if verbose.
func (c *cli) auditTable(r *cofferv1.AuditReport, verbose bool) {
	t := c.table([]any{"check", "checked", "problems", "what must hold"}, "checked", "problems")
	for _, k := range r.Checks {
		statement := ""
		if verbose || k.Problems > 0 {
			statement = k.Statement
		}
		t.row(k.Name, k.Checked, k.Problems, statement)
	}
	t.print()
	for _, k := range r.Checks {
		for _, e := range k.Examples {
			c.printf("  %s: %s\n", k.Name, e)
		}
	}
	n := func(v uint64, noun string) string { return count(int64(v), noun) }
	c.printf("\n%s, %s, %s, %s, %s, %s, %s\n", n(r.Budgets, "budget"), n(r.Buckets, "bucket"), n(r.Blocks, "block"),
		n(r.Entries, "entry"), n(r.Reservations, "reservation"), n(r.Events, "event"), n(r.Cases, "case"))
	for _, m := range r.Totals {
		b, cur := m.GetBalances(), m.GetCurrency()
		c.printf("%s: funded %s, available %s, reserved %s, committed %s, reversed %s\n", cur, formatMajor(b.GetFundedMinor(), cur),
			formatMajor(b.GetAvailableMinor(), cur), formatMajor(b.GetReservedMinor(), cur), formatMajor(b.GetCommittedMinor(), cur), formatMajor(b.GetReversedMinor(), cur))
	}
	c.printf("audit: %s\n", verdict(r.Ok))
}

// progress shows how far a long run is on a terminal, and nothing elsewhere.
// An empty phase ends it.
func (c *cli) progress() func(phase string, done uint64) {
	if c.JSON || !terminal(c.stderr) {
		return func(string, uint64) {}
	}
	return func(phase string, done uint64) {
		if phase == "" {
			c.notef("\r\x1b[K")
			return
		}
		c.notef("\r\x1b[K%s %d", phase, done)
	}
}
