package ledger

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// declaredCodes finds every constant of type Code in the package's source.
func declaredCodes(t *testing.T) map[string]string {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		src, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(src, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
				return true
			}
			for i, name := range v.Names {
				lit, ok := v.Values[i].(*ast.BasicLit)
				if !ok {
					t.Fatalf("code %s is not a literal", name.Name)
				}
				if codes[name.Name], err = strconv.Unquote(lit.Value); err != nil {
					t.Fatal(err)
				}
			}
			return true
		})
	}
	return codes
}

func TestEveryCodeHasARow(t *testing.T) {
	codes := declaredCodes(t)
	if len(codes) < 30 {
		t.Fatalf("found only %d codes in the source", len(codes))
	}
	rows := map[Code]int{}
	for _, row := range Codes() {
		rows[row.Code]++
		if row.Class < ClassInvalid || row.Class > ClassDefect || row.Next == "" {
			t.Errorf("the row of %s is %+v", row.Code, row)
		}
	}
	for name, value := range codes {
		if rows[Code(value)] != 1 {
			t.Errorf("code %s (%s) has %d rows", name, value, rows[Code(value)])
		}
		if value != strings.ToUpper(value) || strings.ContainsAny(value, " -") {
			t.Errorf("code %s is %q", name, value)
		}
	}
	if len(rows) != len(codes) {
		t.Errorf("the table has %d codes, the source %d", len(rows), len(codes))
	}
	if i := Code("MADE_UP").Info(); i.Class != ClassDefect || i.Recorded {
		t.Errorf("an unknown code has row %+v", i)
	}
}

// Only refusals of Reserve by the budget's state or money are recorded.
func TestRecordedCodes(t *testing.T) {
	want := map[Code]bool{BudgetFrozenCode: true, BudgetClosedCode: true, InsufficientBudget: true}
	for _, row := range Codes() {
		if row.Recorded != want[row.Code] {
			t.Errorf("%s recorded: %v", row.Code, row.Recorded)
		}
		if row.Recorded && (row.Class == ClassRetry || row.Class == ClassUnknown || row.Class == ClassDefect) {
			t.Errorf("%s is a failure of the infrastructure and recorded", row.Code)
		}
	}
}

func TestRejectionIsAnError(t *testing.T) {
	cause := errors.New("cause")
	r := &Rejection{Code: InsufficientBudget, Field: "amount_minor", Value: "7", Limit: "5", Message: "exceeds what budget b has available", Cause: cause, RetryAfter: time.Second}
	if got, want := r.Error(), "INSUFFICIENT_BUDGET: amount_minor 7 exceeds what budget b has available (allowed: 5); go on without it, ask for less, or fund it first; a reserve, charge or hold then needs the next attempt"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(r, &Rejection{Code: InsufficientBudget}) || errors.Is(r, &Rejection{Code: Voided}) || !errors.Is(r, cause) {
		t.Error("errors.Is does not see code and cause")
	}
	if strings.Contains(r.Error(), "cause") {
		t.Error("the error leaks its cause")
	}
}

// A refusal says each thing once, and names what there is to look at.
func TestRefusalsSayEachThingOnce(t *testing.T) {
	for want, r := range map[string]*Rejection{
		"LATE_COMMIT: the hold of attempt 1 expired at 2026-03-01T12:10:00.000Z; reclaim it if the order was paid": bring(t, StateExpired).refused(
			LateCommitRejected, Command{Op: OpCommit, ID: "c"}),
		"VOIDED: a resolve settled that RESERVE of attempt 1 never happens; use the next attempt or a new id": bring(t, StateVoid).refused(
			Voided, Command{Op: OpReserve, Amount: 100}),
		"LATE_COMMIT_CASE: expired; a case was opened, a person decides (coffer ledger cases)":                                               {Code: LateCommitCase, Message: "expired"},
		"DEBT_CAP: too much; fund the wallet, then send the same command again; a case was opened for a person to see (coffer ledger cases)": {Code: DebtCapReached, Message: "too much"},
	} {
		if got := r.Error(); got != want {
			t.Errorf("the refusal says %q, want %q", got, want)
		}
	}
}
