package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// lists are the paged lists, each as a function of tenant and page.
func (b *bench) lists() map[string]func(tenant string, p Page) (int, string, error) {
	ctx := context.Background()
	return map[string]func(string, Page) (int, string, error){
		"budgets": func(tenant string, p Page) (int, string, error) {
			v, next, err := b.Budgets(ctx, tenant, p)
			return len(v), next, err
		},
		"entries": func(tenant string, p Page) (int, string, error) {
			v, next, err := b.Entries(ctx, ledger.BudgetID{Tenant: tenant, Key: "b0"}, nil, p)
			return len(v), next, err
		},
		"cases": func(tenant string, p Page) (int, string, error) {
			v, next, err := b.Cases(ctx, tenant, p)
			return len(v), next, err
		},
	}
}

func paged(t *testing.T) *bench {
	b := newBench(t)
	for i := range 7 {
		name := fmt.Sprint("b", i)
		b.ok(create(name, 2, ledger.Policy{LateCommit: ledger.LateCase}), onBudget(ledger.OpFund, name, "f"+name, 1000), reserve(name, name, 5))
		c := create(name, 2, ledger.Policy{})
		c.Budget.Tenant = "t2"
		b.ok(c)
	}
	b.advance(1e12)
	for i := range 7 {
		name := fmt.Sprint("b", i)
		b.ok(on(ledger.OpExpire, name, "", 0))
		b.refused(ledger.LateCommitCase, on(ledger.OpCommit, name, "", 0))
	}
	return b
}

func TestPagesAddUp(t *testing.T) {
	b := paged(t)
	for name, want := range map[string]int{"budgets": 7, "entries": 5, "cases": 7} {
		for size := 1; size <= 8; size++ {
			got, pages := 0, 0
			for p := (Page{Size: size}); ; pages++ {
				n, next, err := b.lists()[name]("t1", p)
				if err != nil {
					t.Fatal(causes(err))
				}
				got += n
				if p.Token = next; next == "" {
					break
				}
			}
			if got != want {
				t.Errorf("%s in pages of %d: %d items, want %d", name, size, got, want)
			}
		}
	}
}

// A token that the list did not give is refused: made up, of another list, of
// another tenant, changed by a bit.
func TestMadeUpPageTokens(t *testing.T) {
	b := paged(t)
	tokens := map[string]string{}
	for name, list := range b.lists() {
		_, next, err := list("t1", Page{Size: 1})
		if err != nil || next == "" {
			t.Fatal(name, next, err)
		}
		tokens[name] = next
	}
	for name, list := range b.lists() {
		bad := []string{"x", "AAAA", "AAAAAA", "!!!", base64.RawURLEncoding.EncodeToString([]byte("0000coffer")), tokens[name] + "A", tokens[name][:len(tokens[name])-2]}
		raw, _ := base64.RawURLEncoding.DecodeString(tokens[name])
		for i := range raw {
			raw[i] ^= 1
			bad = append(bad, base64.RawURLEncoding.EncodeToString(raw))
			raw[i] ^= 1
		}
		for other, tok := range tokens {
			if other != name {
				bad = append(bad, tok)
			}
		}
		for _, tok := range bad {
			_, _, err := list("t1", Page{Token: tok})
			if r := wantCode(t, ledger.BadPageToken, err); r.Field != "page_token" || r.Value == "" || r.Limit == "" {
				t.Errorf("%s: the refusal names %q, %q, %q", name, r.Field, r.Value, r.Limit)
			}
		}
		_, _, err := list("t2", Page{Token: tokens[name]})
		wantCode(t, ledger.BadPageToken, err)
		for _, size := range []int{-1, MaxPageSize + 1} {
			_, _, err := list("t1", Page{Size: size})
			if r := wantCode(t, ledger.InvalidArgument, err); r.Field != "page_size" || r.Value != fmt.Sprint(size) || r.Limit != "1 to 1000" {
				t.Errorf("%s: page size %d is refused with %q, %q, %q", name, size, r.Field, r.Value, r.Limit)
			}
		}
	}
}

// Another tenant's rows are answered exactly as rows that do not exist.
func TestTenantsAreApart(t *testing.T) {
	b := paged(t)
	ctx := context.Background()
	other := func(id ledger.BudgetID) ledger.BudgetID { id.Tenant = "t3"; return id }
	_, err := b.Budget(ctx, other(budgetID("b0")))
	missing := wantCode(t, ledger.BudgetNotFound, err)
	if _, err := b.Budget(ctx, budgetID("b0x")); wantCode(t, ledger.BudgetNotFound, err).Message != missing.Message {
		t.Error("another tenant's budget is answered differently from none")
	}
	_, _, err = b.Entries(ctx, other(budgetID("b0")), nil, Page{})
	wantCode(t, ledger.BudgetNotFound, err)
	_, err = b.Reservation(ctx, ledger.OrderKey{Tenant: "t3", Order: "b0", Benefit: "coupon"})
	wantCode(t, ledger.ReservationNotFound, err)
	c := reserve("b0", "x", 1)
	c.Key.Tenant, c.Budget.Tenant = "t3", "t3"
	b.refused(ledger.BudgetNotFound, c)
	rows, err := b.Locate(ctx, []ledger.OrderKey{orderKey("b0"), {Tenant: "t3", Order: "b0", Benefit: "coupon"}})
	if err != nil || rows[0] == nil || rows[1] != nil {
		t.Errorf("located %v (%v)", rows, err)
	}
	cases, _, err := b.Cases(ctx, "t1", Page{})
	if err != nil || len(cases) != 7 || cases[0].State != ledger.StateExpired || cases[0].Amount != 5 {
		t.Errorf("cases: %+v (%v)", cases, err)
	}
}

func TestEntriesOfOneBucket(t *testing.T) {
	b := paged(t)
	for i := range uint16(2) {
		es, _, err := b.Entries(context.Background(), budgetID("b0"), &i, Page{})
		if err != nil {
			t.Fatal(causes(err))
		}
		for j, en := range es {
			if en.Bucket.Index != i || en.Seq != uint64(j+1) || en.Time.IsZero() {
				t.Errorf("entry %d of bucket %d: %+v", j, i, en)
			}
		}
	}
}

// A bucket that never was is refused; one that was retired keeps its entries.
func TestEntriesOfNoBucket(t *testing.T) {
	b := paged(t)
	list := func(key string, i uint16) ([]EntryView, error) {
		es, _, err := b.Entries(context.Background(), budgetID(key), &i, Page{})
		return es, err
	}
	_, err := list("b0", 2)
	r := wantCode(t, ledger.InvalidArgument, err)
	if want := "bucket 2 is no bucket of b0, which has 2 (allowed: 0 to 1)"; !strings.Contains(r.Error(), want) || r.Field != "bucket" {
		t.Errorf("the refusal is %v, want %s", r, want)
	}
	b.ok(create("one", 1, ledger.Policy{}))
	_, err = list("one", 255)
	if r := wantCode(t, ledger.InvalidArgument, err); r.Limit != "0" {
		t.Errorf("the refusal is %v", r)
	}
	if es, err := list("one", ledger.Unallocated); err != nil || len(es) != 0 {
		t.Errorf("the unallocated bucket: %v, %v", es, err)
	}
	b.ok(reshard("b0", "down", 1))
	if es, err := list("b0", 1); err != nil || len(es) == 0 {
		t.Errorf("the retired bucket: %v, %v", es, err)
	}
}
