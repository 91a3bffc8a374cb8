package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// budgetsPerTx is how many budgets' vectors one transaction takes: with 257
// buckets each, some hundred kilobytes.
const budgetsPerTx = 8

// vectorPage is what one transaction of readVector saw.
type vectorPage struct {
	budgets []ledger.Budget
	buckets [][]ledger.Bucket
	tails   [][]uint64
	faults  []string
	more    bool
	last    []byte
}

// readVector takes the cut: every budget with its bucket rows, each budget at
// one moment.
func (a *audit) readVector(ctx context.Context) error {
	rng := a.s.key(tableBudget).all()
	for page := 0; ; page++ {
		var p vectorPage
		err := a.s.readTx(ctx, func(r kv.Reader) (err error) {
			p, err = a.s.vectorPage(r, rng)
			return err
		})
		if err != nil {
			return err
		}
		for i := range p.budgets {
			a.addBudget(&p.budgets[i], p.buckets[i], p.tails[i], page)
		}
		for _, f := range p.faults {
			a.report(checkReadable, "%s", f)
		}
		a.progress("vector", a.rep.Budgets)
		if !p.more {
			return nil
		}
		rng.Begin = append(append([]byte(nil), p.last...), 0)
	}
}

func (s *Store) vectorPage(r kv.Reader, rng kv.Range) (p vectorPage, err error) {
	rows, more, err := r.Range(rng, kv.RangeOptions{Limit: budgetsPerTx}).Wait()
	if err != nil || len(rows) == 0 {
		return p, err
	}
	p.more, p.last = more, append([]byte(nil), rows[len(rows)-1].Key...)
	var pending []kv.Rows
	for _, row := range rows {
		k := s.read(row.Key, tableBudget)
		id := k.budget()
		if k.end() != nil {
			p.fault("budget key %x cannot be read", row.Key)
			continue
		}
		b, err := decodeBudget(id, row.Value)
		if err != nil {
			p.fault("budget %s of tenant %s cannot be read: %v", id, id.Tenant, err)
			continue
		}
		p.budgets = append(p.budgets, *b)
		pending = append(pending, r.Range(s.bucketsOf(id), kv.RangeOptions{}))
	}
	for _, q := range pending {
		rows, _, err := q.Wait()
		if err != nil {
			return p, err
		}
		buckets := s.bucketRows(rows, &p)
		tails, err := s.tails(r, buckets)
		if err != nil {
			return p, err
		}
		p.buckets, p.tails = append(p.buckets, buckets), append(p.tails, tails)
	}
	return p, nil
}

func (p *vectorPage) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

func (s *Store) bucketRows(rows []kv.KeyValue, p *vectorPage) []ledger.Bucket {
	var out []ledger.Bucket
	for _, row := range rows {
		k := s.read(row.Key, tableBucket)
		id := k.bucket()
		if k.end() != nil {
			p.fault("bucket key %x cannot be read", row.Key)
			continue
		}
		b, err := decodeBucket(id, row.Value)
		if err != nil {
			p.fault("bucket %s of tenant %s cannot be read: %v", id, id.Budget.Tenant, err)
			continue
		}
		out = append(out, b)
	}
	return out
}

// addBudget keeps a budget's cut and checks what can be seen of it alone.
func (a *audit) addBudget(b *ledger.Budget, buckets []ledger.Bucket, tails []uint64, page int) {
	a.checkDefinition(b)
	ba := &budgetAudit{Budget: *b, page: page, first: b.FirstBuckets()}
	ba.Definition = nil // not needed, and a page of memory each
	a.budgets[b.ID] = ba
	a.rep.Budgets++
	a.count(1, checkReadable, checkBudgetState)
	made := 0
	var total ledger.Balances
	for i := range buckets {
		k := &bucketAudit{Bucket: buckets[i], budget: ba}
		k.hash = a.hashPlace(k.ID)
		a.buckets[k.ID] = k
		a.order = append(a.order, k)
		a.rep.Buckets++
		if int(k.ID.Index) < b.Made() {
			made++
		} else if k.ID.Index != ledger.Unallocated {
			a.report(checkBelongs, "bucket %s is none of the budget's %d buckets", k.ID, b.Made())
		}
		a.checkBalances(k)
		w := walker{bucket: k.ID, report: a.report}
		w.tail(&k.Bucket, tails[i])
		var ok bool
		if total, ok = total.Add(k.Balances); !ok {
			a.report(checkAddUp, "the sum over the buckets of budget %s overflows", b.ID)
		}
	}
	if made != b.Made() {
		a.report(checkBelongs, "budget %s has %d of its %d bucket rows", b.ID, made, b.Made())
	}
	if why := addsUp(&total); why != "" {
		a.report(checkAddUp, "over all buckets of budget %s %s", b.ID, why)
	}
	a.count(1, checkAddUp)
	sum, ok := a.rep.Totals[b.Currency].Add(total)
	if ok {
		a.rep.Totals[b.Currency] = sum
	}
}

// checkDefinition compares what a budget's row says with the Create that made
// it, which the row keeps in its canonical form. No command changes any of it
// but the number of buckets; judgeBudgets compares that with the ledger.
func (a *audit) checkDefinition(b *ledger.Budget) {
	a.count(1, checkDefinition)
	c := ledger.Command{Op: ledger.OpCreate, Budget: b.ID, Kind: b.Kind, Currency: b.Currency, Buckets: b.FirstBuckets(), Policy: b.Policy}
	if says := c.Canonical(); !bytes.Equal(says, b.Definition) {
		a.report(checkDefinition, "the row of budget %s of tenant %s says %q, it was created with %q", b.ID, b.ID.Tenant, says, b.Definition)
	}
}

func (a *audit) checkBalances(k *bucketAudit) {
	a.count(1, checkReadable, checkBelongs, checkLegal, checkAddUp)
	if why := negative(&k.Balances, k.budget.Policy.Floor()); why != "" {
		a.report(checkLegal, "in the row of bucket %s %s", k.ID, why)
	}
	if why := addsUp(&k.Balances); why != "" {
		a.report(checkAddUp, "in the row of bucket %s %s", k.ID, why)
	}
}

// hashPlace hashes a bucket's name in the way that placeHash does from the
// stored form.
func (a *audit) hashPlace(b ledger.BucketID) uint64 {
	e := enc(a.fp.buf[:0])
	e.place(b)
	a.fp.buf = e
	return placeHash(a.fp.seeds[0], b.Budget.Tenant, e)
}

// bucketOf finds a bucket at its cut. A bucket that is not there may have been
// made since; then nothing up to a cut names it. ok is false when there is no
// such bucket now either.
func (a *audit) bucketOf(ctx context.Context, id ledger.BucketID) (b *bucketAudit, ok bool, err error) {
	if b := a.buckets[id]; b != nil {
		return b, true, nil
	}
	ok, err = a.exists(ctx, a.s.bucketKey(id))
	return nil, ok, err
}

// readOrphans looks for bucket rows and blocks that belong to nothing: rows of
// no budget, and blocks between those of the buckets that are known.
func (a *audit) readOrphans(ctx context.Context) error {
	err := a.s.scan(ctx, a.s.key(tableBucket).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			k := a.s.read(row.Key, tableBucket)
			id := k.bucket()
			if k.end() != nil {
				a.report(checkReadable, "bucket key %x cannot be read", row.Key)
				continue
			}
			if a.budgets[id.Budget] != nil {
				continue // its vector was taken
			}
			ok, err := a.exists(ctx, a.s.budgetKey(id.Budget))
			if err != nil {
				return err
			}
			if !ok {
				a.report(checkBelongs, "bucket %s of tenant %s belongs to no budget", id, id.Budget.Tenant)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	table := a.s.key(tableBlock).all()
	from := table.Begin
	for _, k := range a.order {
		own := a.s.key(tableBlock).bucket(k.ID).all()
		if err := a.gap(ctx, kv.Range{Begin: from, End: own.Begin}); err != nil {
			return err
		}
		from = own.End
	}
	return a.gap(ctx, kv.Range{Begin: from, End: table.End})
}

// gap reads one block of each bucket in a range where none should be.
func (a *audit) gap(ctx context.Context, rng kv.Range) error {
	for {
		var first []byte
		err := a.s.readTx(ctx, func(r kv.Reader) error {
			first = nil
			rows, _, err := r.Range(rng, kv.RangeOptions{Limit: 1}).Wait()
			if err == nil && len(rows) > 0 {
				first = append([]byte(nil), rows[0].Key...)
			}
			return err
		})
		if err != nil || first == nil {
			return err
		}
		k := a.s.read(first, tableBlock)
		id := k.bucket()
		k.uint()
		if k.end() != nil {
			a.report(checkReadable, "block key %x cannot be read", first)
			rng.Begin = append(first, 0)
			continue
		}
		ok, err := a.exists(ctx, a.s.bucketKey(id))
		if err != nil {
			return err
		}
		if !ok {
			a.report(checkBelongs, "blocks of bucket %s of tenant %s belong to no bucket", id, id.Budget.Tenant)
		}
		rng.Begin = a.s.key(tableBlock).bucket(id).all().End
	}
}
