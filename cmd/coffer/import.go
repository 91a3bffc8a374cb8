package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/coffer-ledger/coffer/ledger"
)

// rejectsShown bounds the rejected rows printed on the screen and in JSON; all
// of them go to --rejects.
const rejectsShown = 20

type importCmd struct {
	remote `embed:""`

	File         string        `arg:"" help:"CSV file, or - for standard input."`
	Budget       string        `help:"Budget that pays." required:"" placeholder:"BUDGET"`
	Commit       bool          `help:"Commit every row once it is reserved."`
	Attempt      uint32        `help:"Number of the try for the benefits, 1 to 16." default:"1" range:"1 to 16"`
	TTL          time.Duration `help:"How long the holds last." default:"15m" name:"ttl" range:"1ms to 9600h"`
	Batch        int           `help:"Rows in one call, 1 to 1000." default:"200" range:"1 to 1000"`
	Concurrency  int           `help:"Calls in flight at once, 1 to 64." default:"4" range:"1 to 64"`
	Rejects      string        `help:"Write all rejected rows to this CSV file." placeholder:"FILE"`
	AllowRejects bool          `help:"Exit with 0 although rows were rejected."`
}

// Help is the long help.
func (importCmd) Help() string {
	return `The file has a header that names the columns order_id, benefit_key,
amount_minor and currency, in any order; other columns are ignored. Each row is
one benefit of one order, with its amount in minor units (1250 for 12.50):

  order_id,benefit_key,amount_minor,currency
  o-1,coupon:SPRING,1250,BRL

The import can be stopped and run again: rows that were taken before are
replayed and change nothing. A rejected row does not stop the others. A key
that stands in the file twice is a replay the second time, which the total does
not count again, or a conflict when its values differ.

--rejects writes the rejected rows with all their columns, and line, code and
reason after them: it can be corrected and imported as it is. A row that was
refused for lack of money stays refused in this attempt; when the budget has
money again, import the rejects with --attempt 2.

At the end all rejected rows are counted by reason, with the first row of each
(in JSON always, else where a reason has several).

Exit code 1 when a row was rejected, so that no fault goes unseen in a script;
0 with --allow-rejects.

Examples:
  coffer import vouchers.csv --budget SPRING --commit
  coffer import vouchers.csv --budget SPRING --rejects rejected.csv --allow-rejects
  coffer import rejected.csv --budget SPRING --attempt 2`
}

// summary is what an import did.
type summary struct {
	Rows      int `json:"rows"`
	Reserved  int `json:"reserved"`
	Committed int `json:"committed"`
	Replayed  int `json:"replayed"`
	// Doubles are those replayed rows that an earlier row of the file was the first
	// of: Totals have each benefit once.
	Doubles  int `json:"doubles"`
	Skipped  int `json:"skipped"`
	Rejected int `json:"rejected"`
	// Reasons count all rejected rows by reason; Rejects are the first ones.
	Reasons []refusal `json:"rejected_by_reason,omitempty"`
	// Unanswered are rows that were sent and have no answer, Unsent those that
	// were not sent, when the import stops early.
	Unanswered int              `json:"unanswered"`
	Unsent     int              `json:"unsent"`
	Totals     map[string]int64 `json:"totals_minor"`
	Rejects    []reject         `json:"rejects,omitempty"`
	Truncated  bool             `json:"rejects_truncated,omitempty"`
	Seconds    float64          `json:"seconds"`
	// Error is why the import stopped early.
	Error map[string]any `json:"error,omitempty"`
}

// Run imports the file.
func (m *importCmd) Run(c *cli) error {
	if m.Rejects == "-" {
		return usagef("--rejects is - (allowed: the name of a file)")
	}
	if sameFile(m.File, m.Rejects) {
		return usagef("--rejects is the file to import, which it would overwrite; name another file")
	}
	in, size, err := openInput(m.File)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // read only
	bar := c.bar(size, "import")
	src, err := openRows(io.TeeReader(in, bar))
	if err != nil {
		return fmt.Errorf("import %s: %w", m.File, err)
	}
	rejects, err := newRejectLog(m.Rejects, src.head)
	if err != nil {
		return err
	}
	s, err := c.dial()
	if err != nil {
		return errors.Join(err, rejects.close())
	}
	defer s.Close()
	imp := newImporter(m, c, s, rejects)
	err = imp.checkBudget(c.ctx)
	if err == nil {
		err = imp.run(c.ctx, src)
	}
	if err != nil && size >= 0 {
		imp.skipRest(src)
	}
	_ = bar.Finish()
	if cerr := rejects.close(); err == nil {
		err = cerr
	}
	if err != nil && imp.sent == 0 {
		return fmt.Errorf("import %s: %w; nothing was sent", m.File, err)
	}
	return m.report(c, imp, rejects, err)
}

// openInput opens the file and tells its size, -1 where it has none.
func openInput(path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(os.Stdin), -1, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("import: %w", err)
	}
	st, err := f.Stat()
	if err != nil || st.IsDir() {
		_ = f.Close()
		if err == nil {
			err = errors.New("is a directory; name a CSV file")
		}
		return nil, 0, fmt.Errorf("import %s: %w", path, err)
	}
	if !st.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, st.Size(), nil
}

// report prints what was done. cause is why it stopped early, if it did.
func (m *importCmd) report(c *cli, imp *importer, rejects *rejectLog, cause error) error {
	sum := imp.sum
	sum.Seconds = time.Since(imp.start).Seconds()
	if cause != nil {
		sum.Unanswered = imp.sent - imp.answered
		sum.Unsent = sum.Rows - sum.Rejected - imp.taken - sum.Skipped - sum.Unanswered
	}
	sum.Reasons = rejects.reasons()
	sum.Rejects, sum.Truncated = rejects.first(), rejects.n > rejectsShown
	if cause != nil {
		cause = fmt.Errorf("import stopped early: %w; run the same command again to go on, what was taken is replayed", cause)
	}
	if c.JSON {
		if cause != nil {
			sum.Error = jsonError(cause)
			c.notef("coffer: %v\n", cause)
			cause = errFailed // it is told, in the one document
		}
		if err := c.printJSON(sum); err != nil {
			return err
		}
	} else {
		m.print(c, &sum)
	}
	switch {
	case cause != nil:
		return cause
	case sum.Rejected > 0 && !m.AllowRejects:
		return errFailed
	}
	return nil
}

// print writes the tables.
func (m *importCmd) print(c *cli, sum *summary) {
	if len(sum.Rejects) > 0 {
		t := c.table([]any{"line", "field", "code", "reason"}, "line")
		for _, r := range sum.Rejects {
			t.row(r.Line, r.Field, r.Code, r.Reason)
		}
		t.print()
		if sum.Truncated {
			where := "all of them go to --rejects FILE"
			if m.Rejects != "" {
				where = "all of them are in " + m.Rejects
			}
			c.printf("… and %d more; %s\n", sum.Rejected-len(sum.Rejects), where)
		}
		c.printf("\n")
	}
	t := c.table([]any{"rows", "reserved", "committed", "replayed", "skipped", "rejected", "no answer", "unsent", "total", "time"},
		"rows", "reserved", "committed", "replayed", "skipped", "rejected", "no answer", "unsent", "total", "time")
	t.row(sum.Rows, sum.Reserved, sum.Committed, sum.Replayed, sum.Skipped, sum.Rejected, orEmpty(sum.Unanswered), orEmpty(sum.Unsent),
		totals(sum.Totals), rounded(time.Duration(sum.Seconds*float64(time.Second))))
	t.print()
	sum.printReasons(c)
	if sum.Doubles > 0 {
		c.printf("\n%s in the file a second time; total counts a benefit once\n", rowsThat(sum.Doubles, "is", "are"))
	}
	if n := sum.rejectedFor(ledger.IdempotencyConflict); n > 0 {
		c.printf("\n%s sent before with other values, such as another budget, and not paid again; what became of an order:\n  coffer order explain ORDER\n", rowsThat(n, "was", "were"))
	}
	m.nextAttempt(c, sum)
}

// printReasons writes how many rows each reason rejected, with its first row.
// Where each has one row, the list of rejected rows says it all.
func (s *summary) printReasons(c *cli) {
	if len(s.Reasons) == s.Rejected {
		return
	}
	c.printf("\nrejected, by reason:\n")
	t := c.table([]any{"rows", "code", "the first of them"}, "rows")
	for _, r := range s.Reasons {
		t.row(r.Rows, r.Code, fmt.Sprintf("line %d: %s", r.Example.Line, r.Example.Reason))
	}
	t.print()
}

// rejectedFor counts the rows that were rejected with a code.
func (s *summary) rejectedFor(code ledger.Code) (rows int) {
	for _, r := range s.Reasons {
		if r.Code == string(code) {
			rows += r.Rows
		}
	}
	return rows
}

// rowsThat says how many rows do something, in the verb of one or of several.
func rowsThat(rows int, one, several string) string {
	if rows == 1 {
		return "1 row " + one
	}
	return count(int64(rows), "row") + " " + several
}

// nextAttempt says how to send again what the budget was too small for.
func (m *importCmd) nextAttempt(c *cli, sum *summary) {
	rows := sum.rejectedFor(ledger.InsufficientBudget)
	if rows == 0 || m.Attempt >= ledger.MaxAttempts {
		return
	}
	file, how := m.Rejects, "fund the budget"
	if file == "" {
		file, how = "FILE", "write the rejects with --rejects FILE, fund the budget"
	}
	commit := ""
	if m.Commit {
		commit = " --commit"
	}
	c.printf("\n%s refused for lack of money, which is final for attempt %d; %s, and then:\n  coffer import %s --budget %s%s --attempt %d\n",
		count(int64(rows), "row"), m.Attempt, how, file, m.Budget, commit, m.Attempt+1)
}

// orEmpty is a count, or nothing for 0.
func orEmpty(n int) any {
	if n == 0 {
		return ""
	}
	return n
}

// sameFile reports whether two paths name one file that is there.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// bar is a progress bar on a terminal, and nothing elsewhere.
func (c *cli) bar(size int64, what string) *progressbar.ProgressBar {
	if c.JSON || !terminal(c.stderr) {
		return progressbar.DefaultBytesSilent(size)
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(c.stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

// checkBudget asks for the budget before anything is sent: a wrong name would
// reject every row.
func (imp *importer) checkBudget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, imp.timeout)
	defer cancel()
	_, err := imp.s.GetBudget(ctx, imp.cmd.Budget)
	return imp.s.explain(err)
}
