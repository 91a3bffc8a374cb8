package store

import (
	"context"
	"slices"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readFacts checks facts: against the inbox, their lists and the ledger, and
// those against them.
func (a *audit) readFacts(ctx context.Context) error {
	if err := a.judge(ctx, "facts", a.s.key(tableFact).all(), a.seeFacts); err != nil {
		return err
	}
	if err := a.judge(ctx, "inbox", a.s.key(tableInbox).all(), a.seeInbox); err != nil {
		return err
	}
	return a.countFacts(ctx)
}

// storedFact is a fact of a page and the rows that go with it.
type storedFact struct {
	fact.Row
	inbox, list, due kv.Value
}

// seeFacts judges facts and the rows of their lists.
func (a *audit) seeFacts(r kv.Reader, rows []kv.KeyValue, f *findings) error {
	var facts []storedFact
	var lists []kv.KeyValue
	for _, row := range rows {
		tenant, sub, err := a.s.inFactTable(row.Key)
		if err == nil && tenant == "" {
			continue // a gauge
		}
		if err == nil && sub == factByState {
			lists = append(lists, row)
			continue
		}
		f.checked(checkReadable)
		f.checked(checkFacts)
		got, err := a.s.decodeFactRow(row)
		if err != nil {
			f.add(checkReadable, "fact row %q cannot be read: %v", row.Key, unwrapped(err))
			continue
		}
		if err := got.Check(); err != nil {
			f.add(checkFacts, "fact %s of tenant %s: %v", got.ID, got.Tenant, err)
		}
		st := storedFact{Row: got, inbox: r.Get(a.s.inboxKey(got.ID)), list: r.Get(a.s.factStateKey(&got))}
		if !got.Due.IsZero() {
			st.due = r.Get(a.s.factDueKey(&got))
		}
		facts = append(facts, st)
	}
	for i := range facts {
		if err := a.judgeFact(r, &facts[i], f); err != nil {
			return err
		}
	}
	return a.seeListed(r, lists, f)
}

func (a *audit) judgeFact(r kv.Reader, st *storedFact, f *findings) error {
	if v, ok, err := st.inbox.Wait(); err != nil {
		return err
	} else if order, derr := decodeInbox(v); !ok || derr != nil || order != st.Order {
		f.add(checkFacts, "fact %s of tenant %s of order %s is not in the inbox: it may come again as a new one", st.ID, st.Tenant, st.Order)
	}
	if _, ok, err := st.list.Wait(); err != nil {
		return err
	} else if !ok {
		f.add(checkFacts, "fact %s of tenant %s is %s and not in that list", st.ID, st.Tenant, st.State)
	}
	if st.due != nil {
		if _, ok, err := st.due.Wait(); err != nil {
			return err
		} else if !ok {
			f.add(checkFacts, "fact %s of tenant %s waits and has no place in the due-index: nobody looks at it again", st.ID, st.Tenant)
		}
	}
	return a.judgeEffects(r, &st.Row, f)
}

// judgeEffects looks for what a fact says it did among the receipts, which are
// only ever added.
func (a *audit) judgeEffects(r kv.Reader, row *fact.Row, f *findings) error {
	rows := make([]kv.Value, len(row.Effects))
	for i := range row.Effects {
		rows[i] = r.Get(a.s.reservationKey(ledger.OrderKey{Tenant: row.Tenant, Order: row.Order, Benefit: row.Effects[i].Benefit}))
	}
	for i := range row.Effects {
		e := &row.Effects[i]
		f.checked(checkEffects)
		raw, ok, err := rows[i].Wait()
		if err != nil {
			return err
		}
		var at *ledger.Attempt
		if ok {
			res, err := decodeReservation(ledger.OrderKey{Tenant: row.Tenant, Order: row.Order, Benefit: e.Benefit}, raw)
			if err != nil {
				continue // the reservations' own pages say so
			}
			at = res.Attempt(e.Attempt)
		}
		if at == nil || !slices.ContainsFunc(at.Receipts, func(rc ledger.Receipt) bool { return rc.Op == e.Op && rc.Outcome == e.Outcome }) {
			f.add(checkEffects, "fact %s of tenant %s says that it did %s of %s/%s, attempt %d; the ledger has no such receipt",
				row.ID, row.Tenant, e.Op, row.Order, e.Benefit, e.Attempt)
		}
	}
	return nil
}

// seeListed judges rows of the lists by state.
func (a *audit) seeListed(r kv.Reader, rows []kv.KeyValue, f *findings) error {
	return a.seeNamed(r, rows, f, "list", func(k []byte) (string, fact.ID, error) {
		order, id, _, err := a.s.readFactState(k)
		return order, id, err
	}, func(row *fact.Row) key { return a.s.factStateKey(row) })
}

// seeDueFacts judges rows of the due-index.
func (a *audit) seeDueFacts(r kv.Reader, rows []kv.KeyValue, f *findings) error {
	return a.seeNamed(r, rows, f, "due-index", func(k []byte) (string, fact.ID, error) {
		order, id, _, err := a.s.readFactDue(k)
		return order, id, err
	}, func(row *fact.Row) key {
		if row.Due.IsZero() {
			return nil
		}
		return a.s.factDueKey(row)
	})
}

// seeNamed judges rows that each name a fact, by the place that the fact has.
func (a *audit) seeNamed(
	r kv.Reader, rows []kv.KeyValue, f *findings, what string, read func([]byte) (string, fact.ID, error), place func(*fact.Row) key,
) error {
	type named struct {
		order string
		id    fact.ID
		row   kv.Value
		at    []byte
	}
	var all []named
	for _, row := range rows {
		order, id, err := read(row.Key)
		f.checked(checkFacts)
		if err != nil {
			f.checked(checkReadable)
			f.add(checkReadable, "%s key %x cannot be read", what, row.Key)
			continue
		}
		all = append(all, named{order, id, r.Get(a.s.factKey(order, id)), row.Key})
	}
	for i := range all {
		n := &all[i]
		raw, ok, err := n.row.Wait()
		if err != nil {
			return err
		}
		if !ok {
			f.add(checkFacts, "the %s names fact %s of tenant %s, which does not exist", what, n.id, n.id.Tenant)
			continue
		}
		row, err := decodeFact(n.order, n.id, raw)
		if err != nil {
			continue // the facts' own pages say so
		}
		if string(place(&row)) != string(n.at) {
			f.add(checkFacts, "fact %s of tenant %s is %s and has another place in the %s, too", n.id, n.id.Tenant, row.State, what)
		}
	}
	return nil
}

// seeInbox judges whether each inbox row has its fact.
func (a *audit) seeInbox(r kv.Reader, rows []kv.KeyValue, f *findings) error {
	for _, row := range rows {
		id, ok, err := a.s.readInbox(row.Key)
		f.checked(checkReadable)
		if err != nil {
			f.add(checkReadable, "inbox key %x cannot be read", row.Key)
			continue
		}
		if !ok {
			continue // another consumer's
		}
		f.checked(checkFacts)
		order, err := decodeInbox(row.Value)
		if err != nil {
			f.add(checkReadable, "inbox row of fact %s of tenant %s cannot be read: %v", id, id.Tenant, err)
			continue
		}
		if _, ok, err := r.Get(a.s.factKey(order, id)).Wait(); err != nil {
			return err
		} else if !ok {
			f.add(checkFacts, "the inbox has fact %s of tenant %s, which is not stored: it was dropped", id, id.Tenant)
		}
	}
	return nil
}

// countFacts compares the gauges with the lists, where they can be counted in
// one transaction.
func (a *audit) countFacts(ctx context.Context) error {
	var f findings
	err := a.s.readTx(ctx, func(r kv.Reader) error {
		f.reset()
		var gauges, counts [fact.Resolved + 1]int64
		for st := fact.Pending; st <= fact.Resolved; st++ {
			v, _, err := r.Get(a.s.factGaugeKey(st)).Wait()
			if err != nil {
				return err
			}
			gauges[st] = decodeCount(v)
		}
		left := maxCounted
		rng := a.s.key(tableFact).all()
		rng.Begin = a.s.key(tableFact).str("").all().End
		for {
			rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			tenant, _, err := a.s.inFactTable(rows[0].Key)
			if err != nil {
				return nil //nolint:nilerr // the facts' pages say so
			}
			listed, _, err := r.Range(a.s.factLists(tenant).all(), kv.RangeOptions{Limit: left + 1}).Wait()
			if err != nil {
				return err
			}
			if left -= len(listed) + 1; left < 0 {
				return nil // too many to count in one transaction
			}
			for _, row := range listed {
				if st, ok := a.s.listState(row.Key); ok {
					counts[st]++
				}
			}
			rng.Begin = a.s.key(tableFact).str(tenant).all().End
		}
		for st := fact.Pending; st <= fact.Resolved; st++ {
			f.checked(checkCounters)
			if gauges[st] != counts[st] {
				f.add(checkCounters, "%d facts are counted as %s, the lists have %d", gauges[st], st, counts[st])
			}
		}
		return nil
	})
	if err == nil {
		a.tell(&f)
	}
	return err
}
