package store

import (
	"context"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// maxListScan bounds the rows one page of a list looks through for those it
// shows. A page may so have fewer than were asked for, and a token.
const maxListScan = 4 * MaxPageSize

// Budgets lists a tenant's promotion budgets by name.
func (s *Store) Budgets(ctx context.Context, tenant string, p Page) (views []BudgetView, next string, err error) {
	return s.budgetsOf(ctx, "budgets/"+tenant, tenant, ledger.KindPromotion, p)
}

// Wallets lists a tenant's wallets by name.
func (s *Store) Wallets(ctx context.Context, tenant string, p Page) (views []BudgetView, next string, err error) {
	return s.budgetsOf(ctx, "wallets/"+tenant, tenant, ledger.KindWallet, p)
}

func (s *Store) budgetsOf(ctx context.Context, list, tenant string, kind ledger.BudgetKind, p Page) (views []BudgetView, next string, err error) {
	from, size, err := s.open(p, list, s.key(tableBudget).str(tenant).all())
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		views, next = nil, ""
		rng := from
		for scanned := 0; ; {
			rows, more, err := r.Range(rng, kv.RangeOptions{Limit: size - len(views)}).Wait()
			if err != nil {
				return err
			}
			found, err := s.viewsOf(r, rows, kind)
			if err != nil {
				return err
			}
			views = append(views, found...)
			if !more {
				return nil
			}
			last := rows[len(rows)-1].Key
			if scanned += len(rows); len(views) == size || scanned >= maxListScan {
				next = s.token(list, last)
				return nil
			}
			rng.Begin = append(append([]byte(nil), last...), 0)
		}
	})
	return views, next, err
}

// viewsOf reads the buckets of the budgets of a kind among rows.
func (s *Store) viewsOf(r kv.Reader, rows []kv.KeyValue, kind ledger.BudgetKind) ([]BudgetView, error) {
	pending := make([]kv.Rows, len(rows))
	ids := make([]ledger.BudgetID, len(rows))
	for i, row := range rows {
		k := s.read(row.Key, tableBudget)
		ids[i] = k.budget()
		if err := k.end(); err != nil {
			return nil, corrupt("budget key", err)
		}
		b, err := decodeBudget(ids[i], row.Value)
		if err != nil {
			return nil, corrupt("budget "+ids[i].String(), err)
		}
		if b.Kind == kind {
			pending[i] = r.Range(s.bucketsOf(ids[i]), kv.RangeOptions{})
		}
	}
	var views []BudgetView
	for i, row := range rows {
		if pending[i] == nil {
			continue
		}
		view, err := s.view(ids[i], row.Value, pending[i])
		if err != nil {
			return nil, err
		}
		views = append(views, *view)
	}
	return views, nil
}
