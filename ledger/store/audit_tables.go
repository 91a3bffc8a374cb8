package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// readReceipts puts the receipts of commands on budgets beside their entries.
// Such a receipt does not name its entries, so one that is newer than the cut
// cannot be told apart: where the sums differ, matchBudget decides.
func (a *audit) readReceipts(ctx context.Context) error {
	var n uint64
	err := a.s.scan(ctx, a.s.key(tableReceipt).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			n++
			a.count(1, checkReadable, checkBelongs, checkBudgetReceipts)
			if err := a.seeReceipt(ctx, row); err != nil {
				return err
			}
		}
		a.progress("receipts", n)
		return nil
	})
	if err != nil {
		return err
	}
	for id, b := range a.budgets {
		if b.control != b.commands {
			if err := a.matchBudget(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *audit) seeReceipt(ctx context.Context, row kv.KeyValue) error {
	tenant, id, ok := a.s.receiptOfKey(row.Key)
	if !ok {
		a.report(checkReadable, "receipt key %x cannot be read", row.Key)
		return nil
	}
	rc, err := decodeBudgetReceipt(tenant, row.Value)
	if err != nil {
		a.report(checkReadable, "receipt %s of tenant %s cannot be read: %v", id, tenant, err)
		return nil
	}
	b := a.budgets[rc.Budget]
	if b == nil {
		ok, err := a.exists(ctx, a.s.budgetKey(rc.Budget))
		if err == nil && !ok {
			a.report(checkBelongs, "receipt %s of tenant %s is of budget %s, which does not exist", id, tenant, rc.Budget)
		}
		return err
	}
	kind, weight, err := controlOf(rc)
	if err != nil {
		a.report(checkReadable, "receipt %s of tenant %s: %v", id, tenant, err)
		return nil
	}
	b.commands.addTimes(a.controlPrint(kind, id), weight)
	return nil
}

func (s *Store) receiptOfKey(k []byte) (tenant, id string, ok bool) {
	r := s.read(k, tableReceipt)
	tenant, id = r.str(), r.str()
	return tenant, id, r.end() == nil
}

// controlOf is the type of the entries that a command on a budget wrote, and
// what their changes must add up to (or that there is one of them).
func controlOf(rc *ledger.BudgetReceipt) (kind ledger.EntryType, weight int64, err error) {
	weight = 1
	switch rc.Op {
	case ledger.OpFund, ledger.OpDefund, ledger.OpMove:
		kind = map[ledger.Op]ledger.EntryType{
			ledger.OpFund: ledger.EntryFund, ledger.OpDefund: ledger.EntryDefund, ledger.OpMove: ledger.EntryMoveOut,
		}[rc.Op]
		var ok bool
		if weight, ok = rc.Amount(); !ok {
			return 0, 0, errors.New("its request names no amount")
		}
	case ledger.OpReshard:
		kind = ledger.EntryReshard
		n, ok := rc.Buckets()
		if !ok || n != int64(rc.Epoch.Buckets) {
			return 0, 0, fmt.Errorf("its request asks for %d buckets, it has %d", n, rc.Epoch.Buckets)
		}
		weight = n
	case ledger.OpFreeze:
		kind = ledger.EntryFreeze
	case ledger.OpUnfreeze:
		kind = ledger.EntryUnfreeze
	case ledger.OpClose:
		kind = ledger.EntryClose
	default:
		return 0, 0, fmt.Errorf("%s is no command on a budget that has a receipt", rc.Op)
	}
	return kind, weight, nil
}

// control is what entries say of one command on a budget, or its receipt.
type control struct {
	kind   ledger.EntryType
	weight int64
}

// matchBudget compares a budget's receipts with its entries one by one, in an
// order in which the answer is certain: first the receipts, then the entries
// up to a cut that is taken afterwards, so that every receipt's entries are
// there; then, for entries whose receipt was not seen, the receipt itself.
func (a *audit) matchBudget(ctx context.Context, id ledger.BudgetID) error {
	receipts := map[string]control{}
	err := a.s.scan(ctx, a.s.key(tableReceipt).str(id.Tenant).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			if name, c, ok := a.receiptFor(id, row); ok {
				receipts[name] = c
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	entries, err := a.controlEntries(ctx, id)
	if err != nil {
		return err
	}
	for name, c := range receipts {
		if got := entries[name]; got != c {
			a.report(checkBudgetReceipts, "receipt %s of budget %s is of a %s of %d, its entries are %s of %d in sum", name, id, c.kind, c.weight, got.kind, got.weight)
		}
	}
	for name, c := range entries {
		if _, seen := receipts[name]; seen {
			continue
		}
		got, err := a.receiptNow(ctx, id, name)
		if err != nil {
			return err
		}
		if got != c {
			a.report(checkBudgetReceipts, "the %s entries of budget %s with key %s add up to %d, there is no such receipt", c.kind, id, name, c.weight)
		}
	}
	return nil
}

func (a *audit) receiptFor(id ledger.BudgetID, row kv.KeyValue) (name string, c control, ok bool) {
	tenant, name, ok := a.s.receiptOfKey(row.Key)
	if !ok {
		return "", c, false
	}
	rc, err := decodeBudgetReceipt(tenant, row.Value)
	if err != nil || rc.Budget != id {
		return "", c, false
	}
	c.kind, c.weight, err = controlOf(rc)
	return name, c, err == nil
}

// receiptNow reads the receipt of a command on a budget.
func (a *audit) receiptNow(ctx context.Context, id ledger.BudgetID, name string) (c control, err error) {
	k := a.s.receiptKey(id.Tenant, name)
	err = a.s.readTx(ctx, func(r kv.Reader) error {
		v, ok, err := r.Get(k).Wait()
		if ok {
			_, c, _ = a.receiptFor(id, kv.KeyValue{Key: k, Value: v})
		}
		return err
	})
	return c, err
}

// controlEntries sums a budget's control entries by their keys, up to a cut
// that is taken now.
func (a *audit) controlEntries(ctx context.Context, id ledger.BudgetID) (map[string]control, error) {
	out := map[string]control{}
	view, _, err := a.s.vector(ctx, id)
	if isCorrupt(err) {
		return out, nil // reported by the vector
	}
	if err != nil {
		return nil, err
	}
	for i := range view.Buckets {
		k := &view.Buckets[i]
		w := a.s.newWalker(k.ID, func(checkID, string, ...any) {})
		w.entry = func(e *rawEntry) {
			if kind, key, weight, ok := controlOfEntry(e); ok {
				c := out[key]
				if c.kind != 0 && c.kind != kind {
					c.weight = 0
				}
				out[key] = control{kind, c.weight + weight}
			}
		}
		if err := w.walk(ctx, k.Seq, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readOutbox puts the pointers to blocks at or below the cut beside the
// blocks.
func (a *audit) readOutbox(ctx context.Context) error {
	var n uint64
	return a.s.scan(ctx, a.s.key(tableOutbox).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			n++
			a.count(1, checkReadable, checkBelongs, checkOutboxOrder)
			if err := a.seePointer(ctx, row); err != nil {
				return err
			}
		}
		a.progress("outbox", n)
		return nil
	})
}

func (a *audit) seePointer(ctx context.Context, row kv.KeyValue) error {
	partition, ok := a.s.partitionOfKey(row.Key)
	if !ok {
		a.report(checkReadable, "outbox key %x cannot be read", row.Key)
		return nil
	}
	id, first, err := decodePointer(row.Value)
	if err != nil {
		a.report(checkReadable, "outbox pointer %x cannot be read: %v", row.Key, err)
		return nil
	}
	k, ok, err := a.bucketOf(ctx, id)
	if err != nil {
		return err
	}
	if !ok {
		a.report(checkBelongs, "outbox pointer %x names bucket %s of tenant %s, which does not exist", row.Key, id, id.Budget.Tenant)
	}
	if k == nil || first > k.Seq { // newer than the cut
		if ok {
			a.pointerAbove(id, k, first)
		}
		return nil
	}
	if first <= k.trimmed {
		if !a.exact {
			a.report(checkOutbox, "the pointer to block %d of bucket %s is there, although those up to block %d were trimmed", first, id, k.trimmed)
		}
		return nil
	}
	fp := a.fp.start('B').u(k.hash).u(first).sum()
	if a.pointers.add(right, fp) {
		a.pointers.keep(right, fp, matchItem{text: fmt.Sprintf("an outbox pointer names block %d of bucket %s, which is not there, or named before", first, id)})
	}
	if a.exact {
		return nil
	}
	if want := partitionOf(id); partition != want {
		a.report(checkOutboxOrder, "a pointer to block %d of bucket %s stands in partition %d, not %d", first, id, partition, want)
	}
	if first <= k.pointed {
		a.report(checkOutboxOrder, "the pointer to block %d of bucket %s comes after the pointer to block %d", first, id, k.pointed)
	}
	k.pointed = max(k.pointed, first)
	return nil
}

// partitionOfKey takes an outbox pointer's key apart.
func (s *Store) partitionOfKey(k []byte) (partition uint64, ok bool) {
	r := s.read(k, tableOutbox)
	r.uint() // incarnation
	partition = r.uint()
	return partition, r.err == nil && len(r.b) == 1+kv.StampBytes && r.b[0] == 0x33
}

// caseID names the attempt that a case is about.
type caseID struct {
	key     ledger.OrderKey
	attempt uint32
}

// maxCases bounds how many cases are compared in both directions.
const maxCases = 1 << 18

func (a *audit) expectCase(id caseID) {
	if len(a.cases) >= maxCases {
		return
	}
	a.cases[id] = false
}

// readCases puts cases beside the attempts that say they have one. Rows were
// read before, so what a row says must have its case by now.
func (a *audit) readCases(ctx context.Context) error {
	err := a.s.scan(ctx, a.s.key(tableCase).all(), func(rows []kv.KeyValue) error {
		for _, row := range rows {
			a.count(1, checkReadable, checkCases)
			c, err := a.s.decodeCase(row.Key, row.Value)
			if err != nil {
				a.report(checkReadable, "case key %x cannot be read: %v", row.Key, err)
				continue
			}
			a.rep.Cases++
			id := caseID{c.Key, c.Attempt}
			if _, ok := a.cases[id]; ok {
				a.cases[id] = true
				continue
			}
			res, err := a.s.Locate(ctx, []ledger.OrderKey{c.Key})
			if err != nil {
				return err
			}
			if at := res[0].Attempt(c.Attempt); at == nil || !at.CaseOpened {
				a.report(checkCases, "a case of %s names reservation %s of tenant %s, attempt %d, which knows of none", stamp(c.Opened.UnixMilli()), c.Key, c.Key.Tenant, c.Attempt)
			}
		}
		a.progress("cases", a.rep.Cases)
		return nil
	})
	for id, seen := range a.cases {
		if !seen {
			a.report(checkCases, "reservation %s of tenant %s, attempt %d says that it has a case, there is none", id.key, id.key.Tenant, id.attempt)
		}
	}
	return err
}

// isCorrupt says that a stored row could not be read, though the store that has
// it is well.
func isCorrupt(err error) bool {
	var r *ledger.Rejection
	return errors.As(err, &r) && r.Code == ledger.Corrupt && !errors.Is(err, kv.ErrDamaged)
}

// unwrapped is the cause of a rejection: what is wrong with the row.
func unwrapped(err error) error {
	if c := errors.Unwrap(err); c != nil {
		return c
	}
	return err
}
