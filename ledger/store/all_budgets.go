package store

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// MaxBudgetPage is the most budgets that one page of AllBudgets looks at.
const MaxBudgetPage = 16

// BudgetPage is a page of the budgets of all tenants, in the order of their
// names.
type BudgetPage struct {
	// Budgets are those that were asked for among the ones looked at,
	// Unreadable those of them that could not be read.
	Budgets    []BudgetView
	Unreadable []UnreadableBudget
	// Looked is how many were looked at, Next where the next page begins: nil
	// after the last.
	Looked int
	Next   []byte
}

// UnreadableBudget is a budget of which a row cannot be read: its own, and then
// Budget is nil, or that of a bucket.
type UnreadableBudget struct {
	ID      ledger.BudgetID
	Budget  *ledger.Budget
	Problem string
}

// AllBudgets looks at up to limit budgets of any tenant, from where a page
// before this one ended (nil: from the first), and reads those that want accepts
// with their buckets. It is for scanners: a budget that cannot be read keeps none
// of the others from being looked at.
func (s *Store) AllBudgets(ctx context.Context, from []byte, limit int, want func(*ledger.Budget) bool) (BudgetPage, error) {
	rng := s.key(tableBudget).all()
	if from != nil {
		rng.Begin = from
	}
	var page BudgetPage
	err := s.readTx(ctx, func(r kv.Reader) error {
		page = BudgetPage{}
		rows, more, err := r.Range(rng, kv.RangeOptions{Limit: min(max(limit, 1), MaxBudgetPage)}).Wait()
		if err != nil {
			return err
		}
		if page.Looked = len(rows); more && len(rows) > 0 {
			page.Next = append(append([]byte(nil), rows[len(rows)-1].Key...), 0)
		}
		type pending struct {
			budget *ledger.Budget
			def    []byte
			rows   kv.Rows
		}
		var wanted []pending
		for _, row := range rows {
			k := s.read(row.Key, tableBudget)
			id := k.budget()
			if k.end() != nil {
				continue
			}
			b, err := decodeBudget(id, row.Value)
			if err != nil {
				page.Unreadable = append(page.Unreadable, UnreadableBudget{ID: id, Problem: fmt.Sprintf("the row of budget %s cannot be read: %v", id, err)})
			} else if want(b) {
				wanted = append(wanted, pending{b, row.Value, r.Range(s.bucketsOf(id), kv.RangeOptions{})})
			}
		}
		for _, p := range wanted {
			view, err := s.view(p.budget.ID, p.def, p.rows)
			if isCorrupt(err) {
				page.Unreadable = append(page.Unreadable, UnreadableBudget{ID: p.budget.ID, Budget: p.budget, Problem: fmt.Sprintf("%v: %v", err, unwrapped(err))})
				continue
			}
			if err != nil {
				return err
			}
			page.Budgets = append(page.Budgets, *view)
		}
		return nil
	})
	return page, err
}
