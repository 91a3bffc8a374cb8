package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Submitted is what became of one fact of a SubmitFacts.
type Submitted struct {
	fact.Row
	// Replayed: it had come before; this is its row as it is now.
	Replayed bool
	Err      error
}

// SubmitFacts stores facts in one transaction, before anything is done about
// them; each is accepted or refused by itself. Facts must be normalized and
// valid, of one tenant, and at most fact.MaxBatch.
func (s *Store) SubmitFacts(ctx context.Context, facts []fact.Fact, sch fact.Schedule) ([]Submitted, error) {
	now := s.now()
	var out []Submitted
	written := map[fact.ID]bool{}
	err := s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		out = make([]Submitted, len(facts))
		names := make([]kv.Value, len(facts))
		for i := range facts {
			names[i] = tx.Get(s.inboxKey(facts[i].ID))
		}
		seen, held := map[fact.ID]*fact.Row{}, map[string]int{}
		for i := range facts {
			cur := seen[facts[i].ID]
			if cur == nil {
				var err error
				if cur, err = s.factNamed(tx, facts[i].ID, names[i]); err != nil {
					return err
				}
			}
			if err := s.submit(tx, now, cur, facts[i], sch, held, &out[i]); err != nil {
				return err
			}
			o := &out[i]
			switch {
			case o.Err != nil:
			case !o.Replayed:
				seen[o.ID], written[o.ID] = &o.Row, true
			case a.MayHaveCommitted && written[o.ID] && seen[o.ID] == nil:
				o.Replayed = false // stored by an earlier attempt of this call
				seen[o.ID] = &o.Row
			}
		}
		return nil
	})
	return out, err
}

// submit stores one fact. held counts the facts of the orders it has met.
func (s *Store) submit(tx kv.Tx, now time.Time, cur *fact.Row, f fact.Fact, sch fact.Schedule, held map[string]int, out *Submitted) error {
	row, replayed, rej := fact.Submit(now, cur, f, sch)
	if rej != nil {
		out.Err = rej
		return nil //nolint:nilerr // the refusal is the fact's own answer
	}
	out.Row, out.Replayed = row, replayed
	if replayed {
		return nil
	}
	if _, known := held[f.Order]; !known {
		rows, _, err := tx.Snapshot().Range(s.factsOf(f.Tenant, f.Order).all(), kv.RangeOptions{Limit: fact.MaxPerOrder}).Wait()
		if err != nil {
			return err
		}
		held[f.Order] = len(rows)
	}
	if held[f.Order] >= fact.MaxPerOrder {
		*out = Submitted{Err: &ledger.Rejection{
			Code: ledger.FactLimit, Field: "order_id", Value: fmt.Sprintf("%.40q", f.Order), Limit: fmt.Sprintf("%d facts of an order", fact.MaxPerOrder),
			Message: "has as many",
		}}
		return nil
	}
	held[f.Order]++
	tx.Set(s.inboxKey(f.ID), encodeInbox(f.Order))
	s.putFact(tx, nil, &row)
	return nil
}

func encodeInbox(order string) []byte {
	var e enc
	e.u(codecVersion)
	e.str(order)
	return e
}

func decodeInbox(v []byte) (order string, err error) {
	d := newDec(v)
	order = d.str()
	return order, d.end()
}

// factNamed reads the fact that an inbox row names, nil where there is none.
func (s *Store) factNamed(r kv.Reader, id fact.ID, name kv.Value) (*fact.Row, error) {
	raw, ok, err := name.Wait()
	if err != nil || !ok {
		return nil, err
	}
	order, err := decodeInbox(raw)
	if err != nil {
		return nil, corrupt("inbox row", err)
	}
	v, ok, err := r.Get(s.factKey(order, id)).Wait()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, corrupt("inbox row", fmt.Errorf("it names a fact of order %.40q that has no row", order))
	}
	row, err := decodeFact(order, id, v)
	if err != nil {
		return nil, corrupt("fact "+id.String(), err)
	}
	return &row, nil
}

// putFact writes a fact with all that follows from it: the list of its state,
// its place in the due-index and the gauges.
func (s *Store) putFact(tx kv.Tx, old, next *fact.Row) {
	if old != nil {
		tx.Clear(s.factStateKey(old))
		if !old.Due.IsZero() {
			tx.Clear(s.factDueKey(old))
		}
	}
	if old == nil || old.State != next.State {
		tx.Add(s.factGaugeKey(next.State), plus(1))
		if old != nil {
			tx.Add(s.factGaugeKey(old.State), plus(-1))
		}
	}
	tx.Set(s.factKey(next.Order, next.ID), encodeFact(next))
	tx.Set(s.factStateKey(next), nil)
	if !next.Due.IsZero() {
		tx.Set(s.factDueKey(next), nil)
	}
}

// OrderFacts reads all that a plan of an order looks at, in one transaction: its
// facts, its reservations and their budgets.
func (s *Store) OrderFacts(ctx context.Context, tenant, order string) (*fact.View, error) {
	var v *fact.View
	err := s.readTx(ctx, func(r kv.Reader) error {
		v = &fact.View{Now: s.now(), Budgets: map[ledger.BudgetID]*ledger.Budget{}}
		facts := r.Range(s.factsOf(tenant, order).all(), kv.RangeOptions{Limit: fact.MaxPerOrder * 2})
		rows := r.Range(s.orderPrefix(tenant, order).all(), kv.RangeOptions{Limit: fact.MaxLines + 1})
		kvs, _, err := facts.Wait()
		if err != nil {
			return err
		}
		for _, row := range kvs {
			f, err := s.decodeFactRow(row)
			if err != nil {
				return err
			}
			v.Facts = append(v.Facts, f)
		}
		if kvs, _, err = rows.Wait(); err != nil {
			return err
		}
		if len(kvs) > fact.MaxLines {
			kvs, v.More = kvs[:fact.MaxLines], true
		}
		for _, row := range kvs {
			res, err := s.decodeReservationRow(row)
			if err != nil {
				return err
			}
			v.Reservations = append(v.Reservations, *res)
		}
		return s.budgetsIn(r, v)
	})
	return v, err
}

// budgetsIn reads the budgets of a view's reservations.
func (s *Store) budgetsIn(r kv.Reader, v *fact.View) error {
	values := map[ledger.BudgetID]kv.Value{}
	for i := range v.Reservations {
		for j := range v.Reservations[i].Attempts {
			if id := v.Reservations[i].Attempts[j].Leg.Bucket.Budget; !id.IsZero() && values[id] == nil {
				values[id] = r.Get(s.budgetKey(id))
			}
		}
	}
	for id, p := range values {
		raw, ok, err := p.Wait()
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if v.Budgets[id], err = decodeBudget(id, raw); err != nil {
			return corrupt("budget "+id.String(), err)
		}
	}
	return nil
}

func (s *Store) decodeFactRow(row kv.KeyValue) (fact.Row, error) {
	order, id, err := s.readFactKey(row.Key)
	if err != nil {
		return fact.Row{}, corrupt("fact key", err)
	}
	f, err := decodeFact(order, id, row.Value)
	if err != nil {
		return f, corrupt("fact "+id.String(), err)
	}
	return f, nil
}

// markedAtOnce is how many facts one transaction marks: with so many of the
// largest it is still small.
const markedAtOnce = 32

// MarkFacts brings the facts of one order up to the verdicts on them. A fact
// that has changed since its plan was made is left alone: whoever changed it has
// planned anew. It gives how many rows changed, or may have: none means that
// things are as the plan saw them.
func (s *Store) MarkFacts(ctx context.Context, order string, verdicts []fact.Verdict, sch fact.Schedule) (changed int, err error) {
	for part := range slices.Chunk(verdicts, markedAtOnce) {
		n, err := s.markFacts(ctx, order, part, sch)
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// markFacts marks facts in one transaction.
func (s *Store) markFacts(ctx context.Context, order string, verdicts []fact.Verdict, sch fact.Schedule) (changed int, err error) {
	now := s.now()
	err = s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		changed = 0
		if a.MayHaveCommitted {
			changed++ // by the attempt before
		}
		values := make([]kv.Value, len(verdicts))
		for i := range verdicts {
			values[i] = tx.Get(s.factKey(order, verdicts[i].ID))
		}
		for i := range verdicts {
			raw, ok, err := values[i].Wait()
			if err != nil {
				return err
			}
			if !ok {
				return fact.Missing(verdicts[i].ID)
			}
			old, err := decodeFact(order, verdicts[i].ID, raw)
			if err != nil {
				return corrupt("fact "+verdicts[i].ID.String(), err)
			}
			if next, ok := fact.Mark(now, old, &verdicts[i], sch); ok {
				s.putFact(tx, &old, &next)
				changed++
			}
		}
		return nil
	})
	return changed, err
}

// ResolveFact closes an exception. The same call again gives the same answer.
func (s *Store) ResolveFact(ctx context.Context, id fact.ID, reason string) (row fact.Row, replayed bool, err error) {
	now := s.now()
	wrote := false
	err = s.transact(ctx, func(tx kv.Tx, a kv.Attempt) error {
		cur, err := s.factNamed(tx, id, tx.Get(s.inboxKey(id)))
		if err != nil {
			return err
		}
		if cur == nil {
			return fact.Missing(id)
		}
		// The row itself is read in factNamed, so a planner that marks it at
		// the same moment and this call see each other.
		next, again, rej := fact.Resolve(now, *cur, reason)
		if rej != nil {
			return rej
		}
		row, replayed = next, again && (!a.MayHaveCommitted || !wrote)
		if !again {
			s.putFact(tx, cur, &next)
			wrote = true
		}
		return nil
	})
	return row, replayed, err
}
