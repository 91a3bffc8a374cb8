package store

import (
	"context"
	"time"

	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// Fact reads one fact.
func (s *Store) Fact(ctx context.Context, id fact.ID) (*fact.Row, error) {
	var row *fact.Row
	err := s.readTx(ctx, func(r kv.Reader) (err error) {
		if row, err = s.factNamed(r, id, r.Get(s.inboxKey(id))); err == nil && row == nil {
			return fact.Missing(id)
		}
		return err
	})
	return row, err
}

// Facts lists a tenant's facts: those of one state by the time they were
// received, or, with state zero, all by order.
func (s *Store) Facts(ctx context.Context, tenant string, state fact.State, page Page) (facts []fact.Row, next string, err error) {
	list := "facts/" + state.String() + "/" + tenant
	rng := s.allFacts(tenant)
	if state != 0 {
		rng = s.factsIn(tenant, state).all()
	}
	from, size, err := s.open(page, list, rng)
	if err != nil {
		return nil, "", err
	}
	err = s.readTx(ctx, func(r kv.Reader) error {
		facts, next = nil, ""
		rows, more, err := r.Range(from, kv.RangeOptions{Limit: size}).Wait()
		if err != nil {
			return err
		}
		weight := 0
		for i, row := range rows {
			f, ok, err := s.listed(r, state, row)
			if err != nil {
				return err
			}
			if ok {
				facts = append(facts, f)
			}
			if weight += 256 + 64*len(f.Lines) + 128*len(f.Effects); (weight >= maxPageBytes && i < len(rows)-1) || (more && i == len(rows)-1) {
				next = s.token(list, row.Key)
				return nil
			}
		}
		return nil
	})
	return facts, next, err
}

// listed is the fact that a row of a list is or names.
func (s *Store) listed(r kv.Reader, state fact.State, row kv.KeyValue) (f fact.Row, ok bool, err error) {
	if state == 0 {
		f, err = s.decodeFactRow(row)
		return f, err == nil, err
	}
	order, id, _, err := s.readFactState(row.Key)
	if err != nil {
		return f, false, corrupt("fact list key", err)
	}
	v, ok, err := r.Get(s.factKey(order, id)).Wait()
	if err != nil || !ok {
		return f, false, err
	}
	if f, err = decodeFact(order, id, v); err != nil {
		return f, false, corrupt("fact "+id.String(), err)
	}
	return f, true, nil
}

// DueFacts gives up to n orders of a tenant with a fact that is due to be looked
// at again, the longest due first, each once.
func (s *Store) DueFacts(ctx context.Context, tenant string, n int) (orders []string, err error) {
	now := s.now()
	err = s.readTx(ctx, func(r kv.Reader) error {
		orders = nil
		rows, _, err := r.Range(s.dueBy(laneFact, factPlace(tenant), now), kv.RangeOptions{Limit: n}).Wait()
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, row := range rows {
			order, _, _, err := s.readFactDue(row.Key)
			if err != nil {
				return corrupt("due-index key", err)
			}
			if !seen[order] {
				seen[order] = true
				orders = append(orders, order)
			}
		}
		return nil
	})
	return orders, err
}

// FactGauges are the figures of all facts of the store.
type FactGauges struct {
	Pending, Applied, Exceptions, Resolved int64
	// OldestPending is when the fact was received that has waited longest,
	// among the first maxGaugeTenants tenants that have one; zero for none.
	OldestPending time.Time
}

// maxGaugeTenants bounds what FactGauges looks at.
const maxGaugeTenants = 256

// FactGauges reads the figures of all facts.
func (s *Store) FactGauges(ctx context.Context) (FactGauges, error) {
	var g FactGauges
	err := s.readTx(ctx, func(r kv.Reader) error {
		g = FactGauges{}
		var counts [fact.Resolved + 1]kv.Value
		for st := fact.Pending; st <= fact.Resolved; st++ {
			counts[st] = r.Get(s.factGaugeKey(st))
		}
		for st := fact.Pending; st <= fact.Resolved; st++ {
			v, _, err := counts[st].Wait()
			if err != nil {
				return err
			}
			n := decodeCount(v)
			switch st {
			case fact.Pending:
				g.Pending = n
			case fact.Applied:
				g.Applied = n
			case fact.Exception:
				g.Exceptions = n
			case fact.Resolved:
				g.Resolved = n
			}
		}
		return s.oldestPending(r, &g)
	})
	return g, err
}

// oldestPending looks at the first waiting fact of each tenant that has one.
func (s *Store) oldestPending(r kv.Reader, g *FactGauges) error {
	rng := s.laneOf(laneFact).all()
	for range maxGaugeTenants {
		rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
		if err != nil || len(rows) == 0 {
			return err
		}
		p, _, k := s.readDue(laneFact, rows[0].Key)
		if k.err != nil {
			return corrupt("due-index key", k.err)
		}
		first, _, err := r.Range(s.factsIn(p.Tenant, fact.Pending).all(), kv.RangeOptions{Limit: 1}).Wait()
		if err != nil {
			return err
		}
		if len(first) > 0 {
			_, _, at, err := s.readFactState(first[0].Key)
			if err != nil {
				return corrupt("fact list key", err)
			}
			if g.OldestPending.IsZero() || at.Before(g.OldestPending) {
				g.OldestPending = at
			}
		}
		rng.Begin = s.lanePlace(laneFact, work.Place{Tenant: p.Tenant}).all().End
	}
	return nil
}
