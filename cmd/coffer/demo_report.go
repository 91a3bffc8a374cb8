package main

import (
	"context"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/coffer-ledger/coffer/ledger"
)

// collect audits the store and compares what it holds with the tally.
func (d *demo) collect(ctx context.Context, took time.Duration, trouble *demoTrouble) (*demoReport, error) {
	t := d.tally
	r := &demoReport{
		Orders: d.cmd.Orders, Seed: d.cmd.Seed, Seconds: took.Seconds(), Calls: d.wire.calls.Load() - d.polls,
		PerSec: float64(d.cmd.Orders) / took.Seconds(), Commands: d.commands.Load(), CmdsSec: float64(d.commands.Load()) / took.Seconds(), Happened: t.happened, Faults: t.faults, Cluster: trouble,
	}
	r.check("orders that went as they must", d.cmd.Orders, d.cmd.Orders-t.nfaults)
	for _, name := range []string{flashBudget, couponBudget, dryBudget} {
		res, err := d.client.GetBudget(ctx, name)
		if err != nil {
			return nil, err
		}
		m := res.GetBudget().GetBalances()
		got := ledger.Balances{
			Funded: m.GetFundedMinor(), Available: m.GetAvailableMinor(), Reserved: m.GetReservedMinor(),
			Committed: m.GetCommittedMinor(), Reversed: m.GetReversedMinor(),
		}
		r.check("balances of "+name+"", balanceText(*t.budgets[name]), balanceText(got))
		r.server = append(r.server, res.GetBudget())
		r.Budgets = append(r.Budgets, demoBudget{name, demoCurrency, got.Funded, got.Available, got.Reserved, got.Committed, got.Reversed})
	}
	r.check("benefits paid by "+dryBudget+" to its last cent", min(d.dryPlaces(), t.count("dry_budget_paid")+t.count("dry_budget_refused")), t.count("dry_budget_paid"))
	r.check("another node led while the leader was paused", true, trouble.Next != trouble.Paused && trouble.Term > 1)
	var err error
	if r.audit, err = d.client.Audit(ctx, nil); err != nil {
		return nil, err
	}
	r.check("reservations in the store", t.keys, int(r.audit.Reservations-d.before.GetReservations()))
	r.check("cases of late commits", t.count("late_commit_case"), int(r.audit.Cases-d.before.GetCases()))
	r.check("events are the ledger's entries", r.audit.Entries, r.audit.Events)
	r.Entries, r.Events, r.Audit = r.audit.Entries, r.audit.Events, verdict(r.audit.Ok)
	r.OK = r.audit.Ok
	for _, k := range r.Checks {
		r.OK = r.OK && k.OK
	}
	return r, nil
}

func (r *demoReport) check(what string, want, got any) {
	w, g := fmt.Sprint(want), fmt.Sprint(got)
	r.Checks = append(r.Checks, demoCheck{What: what, Want: w, Got: g, OK: w == g})
}

func balanceText(b ledger.Balances) string {
	return fmt.Sprintf("available %s, reserved %s, committed %s, reversed %s", formatMajor(b.Available, demoCurrency),
		formatMajor(b.Reserved, demoCurrency), formatMajor(b.Committed, demoCurrency), formatMajor(b.Reversed, demoCurrency))
}

// demoLines puts what happened into words, in the order of a promotion.
var demoLines = []struct{ key, text string }{
	{"paid", "orders paid at once"},
	{"paid_in_parts", "orders paid in two parts, the rest returned"},
	{"duplicates_answered", "duplicates at the same moment, answered with the first answer"},
	{"lost_then_sent_again", "answers lost, the client sent the same command again"},
	{"lost_then_resolved_applied", "answers lost, resolve found the command applied"},
	{"lost_then_resolved_void", "commands lost, resolve voided them, the next attempt paid"},
	{"cancelled_after_reserve", "orders cancelled after the reserve"},
	{"cancelled_before_reserve", "orders cancelled before the reserve arrived, which was refused"},
	{"expired", "holds returned by the expiry scanner"},
	{"late_commit_reclaimed", "late commits taken back from the budget (RECLAIM)"},
	{"late_commit_case", "late commits refused, a case opened (CASE)"},
	{"refunds", "refunds"},
	{"refund_repeats_answered", "refunds sent twice, done once"},
	{"refunds_above_payment_refused", "refunds above the payment, refused"},
	{"refunds_reinstated", "refunds cancelled and reinstated"},
	{"dry_budget_paid", "benefits paid by the small budget until it was dry"},
	{"dry_budget_refused", "benefits the dry budget refused"},
}

// print writes the report and fails when anything in it is wrong.
func (d *demo) print(r *demoReport) error {
	if d.c.JSON {
		if err := d.c.printJSON(r); err != nil {
			return err
		}
	} else {
		d.tables(r)
	}
	if !r.OK {
		return errFailed
	}
	return nil
}

func (d *demo) tables(r *demoReport) {
	c := d.c
	t := c.table([]any{"what happened", "count"}, "count")
	for _, l := range demoLines {
		t.row(l.text, r.Happened[l.key])
	}
	t.print()
	c.printf("\n")
	c.budgetTable(r.server)
	c.printf("\n%d orders, %d commands and %d ledger entries over %d HTTP calls in %s: %.0f orders/s, %.0f commands/s, every answer after its fsync\n\n",
		r.Orders, r.Commands, r.Entries, r.Calls, rounded(time.Duration(r.Seconds*float64(time.Second))), r.PerSec, r.CmdsSec)
	c.printf("%d nodes: %s led and was paused; %s led %.1fs later, in term %d; %s was killed\n\n",
		r.Cluster.Nodes, r.Cluster.Paused, r.Cluster.Next, r.Cluster.Without, r.Cluster.Term, r.Cluster.Killed)
	k := c.table([]any{"expected by the callers", "ok", "value"})
	for _, ch := range r.Checks {
		value, mark := ch.Got, "ok"
		if !ch.OK {
			value, mark = fmt.Sprintf("%s, must be %s", ch.Got, ch.Want), "WRONG"
		}
		k.row(ch.What, mark, value)
	}
	k.print()
	for _, f := range r.Faults {
		c.printf("fault: %s\n", f)
	}
	c.printf("\n")
	c.auditTable(r.audit, d.cmd.Verbose)
	if !r.OK && r.audit.Ok {
		c.printf("demo: FAILED, the callers expected something else\n")
	}
}

// countBar is a progress bar that counts, on a terminal.
func (c *cli) countBar(n int, what string) *progressbar.ProgressBar {
	if c.JSON || !terminal(c.stderr) {
		return progressbar.DefaultSilent(int64(n))
	}
	return progressbar.NewOptions(n, progressbar.OptionSetWriter(c.stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}
