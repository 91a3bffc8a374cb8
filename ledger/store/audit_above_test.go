package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// tailed is a store with a bucket whose last block has 20 entries.
func tailed(t *testing.T) (b *bench, id ledger.BucketID) {
	t.Helper()
	b = newBench(t)
	story(b)
	id = ledger.BucketID{Budget: budgetID("tail")}
	b.ok(create("tail", 1, ledger.Policy{}), onBudget(ledger.OpFund, "tail", "ft", 1000), reserve("tail", "kept", 5))
	b.block20(id, "t")
	b.audit()
	return b, id
}

// block20 writes one block of 20 reserves.
func (b *bench) block20(id ledger.BucketID, order string) {
	b.t.Helper()
	var cmds []ledger.Command
	for i := range 20 {
		cmds = append(cmds, reserve("tail", fmt.Sprint(order, i), 2))
	}
	for _, g := range b.batch(id, cmds...) {
		if g.Err != nil {
			b.t.Fatal(causes(g.Err))
		}
	}
}

// dropOrders drops the rows of a block20.
func (b *bench) dropOrders(order string) {
	b.t.Helper()
	for i := range 20 {
		b.drop(b.reservationKey(orderKey(fmt.Sprint(order, i))))
	}
}

// The end of a bucket's ledger is lost, and what is left of the bucket is in
// order by itself: only rows that name what was lost can tell.
func TestAuditFindsLostTail(t *testing.T) {
	const pointer, receipt = "outbox_complete", "one_entry_per_transition"
	for _, tc := range []struct {
		name   string
		checks map[string][]string // and what the example says
		plant  func(b *bench, id ledger.BucketID)
	}{
		{
			"receipts and pointers are left",
			map[string][]string{pointer: {"block 4 of bucket tail#0", "entry 3"}, receipt: {"entry 23 of bucket tail#0", "entry 3", "20 receipts"}},
			func(b *bench, id ledger.BucketID) { b.cutTail(id) },
		},
		{"receipts are left", map[string][]string{receipt: {"entry 23 of bucket tail#0", "entry 3"}}, func(b *bench, id ledger.BucketID) {
			b.dropPointers(id, b.cutTail(id).First)
		}},
		{"pointers are left", map[string][]string{pointer: {"block 4 of bucket tail#0", "entry 3"}}, func(b *bench, id ledger.BucketID) {
			b.cutTail(id)
			b.dropOrders("t")
		}},
		{"two blocks are lost, the ends of both are named", map[string][]string{pointer: {"block 24 of bucket tail#0", "entry 3"}, receipt: {"entry 43 of bucket tail#0", "40 receipts"}}, func(b *bench, id ledger.BucketID) {
			b.block20(id, "u")
			b.cutTail(id)
			b.cutTail(id)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, id := tailed(t)
			tc.plant(b, id)
			rep, err := b.Audit(context.Background(), nil)
			if err != nil {
				t.Fatal(causes(err))
			}
			wantChecks(t, rep, tc.checks)
		})
	}
}

// wantChecks requires exactly these checks to have problems, one that says all
// of the given words.
func wantChecks(t *testing.T, rep *AuditReport, want map[string][]string) {
	t.Helper()
	for _, c := range rep.Checks {
		if _, ok := want[c.Name]; ok != (c.Problems > 0) {
			t.Errorf("check %s has %d problems; the report is\n%s", c.Name, c.Problems, failures(rep))
		}
		for _, w := range want[c.Name] {
			if !strings.Contains(strings.Join(c.Examples, "\n"), w) {
				t.Errorf("check %s does not say %q: %q", c.Name, w, c.Examples)
			}
		}
	}
}

// What is lost or doubled above the cut while the audit runs. The story goes
// on after the cut, then during happens, before receipts are read.
func TestAuditLooksAboveTheCut(t *testing.T) {
	const pointer, receipt = "outbox_complete", "one_entry_per_transition"
	for _, tc := range []struct {
		name   string
		checks map[string][]string
		during func(b *bench, id ledger.BucketID)
	}{
		{"nothing", nil, func(*bench, ledger.BucketID) {}},
		{"a bucket that is new", nil, func(b *bench, _ ledger.BucketID) {
			b.ok(create("fresh", 2, ledger.Policy{}), onBudget(ledger.OpFund, "fresh", "ff", 10), reserve("fresh", "f", 3))
		}},
		{"the tail is lost again", map[string][]string{pointer: {"block 24"}, receipt: {"entry 43"}}, func(b *bench, id ledger.BucketID) {
			b.cutTail(id)
		}},
		{"the block is lost, the row is not", map[string][]string{pointer: {"block 24"}, receipt: {"entry 43"}}, func(b *bench, id ledger.BucketID) {
			b.drop(b.blockKey(id, 24))
		}},
		{"the block is unreadable", map[string][]string{"rows_readable": {"block 24"}}, func(b *bench, id ledger.BucketID) {
			b.set(b.blockKey(id, 24), []byte{9})
		}},
		{"the bucket is gone", map[string][]string{pointer: {"block 24"}, receipt: {"entry 43"}}, func(b *bench, id ledger.BucketID) {
			b.drop(b.bucketKey(id))
		}},
		{"a pointer to the middle of a block", map[string][]string{pointer: {"block 30"}}, func(b *bench, id ledger.BucketID) {
			b.again(encodePointer(id, 24), encodePointer(id, 30), 1)
		}},
		{"a pointer many times", map[string][]string{pointer: {"21 pointers"}}, func(b *bench, id ledger.BucketID) {
			b.again(encodePointer(id, 24), encodePointer(id, 24), 20)
		}},
		{"more receipts than entries", map[string][]string{receipt: {"21 receipts"}, "expiry_index_complete": nil}, func(b *bench, _ ledger.BucketID) {
			r, err := b.Reservation(context.Background(), orderKey("u3"))
			if err != nil {
				b.t.Fatal(causes(err))
			}
			r.Key = orderKey("u3-twin")
			b.set(b.reservationKey(r.Key), encodeReservation(r))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, id := tailed(t)
			done := false
			rep, err := b.Audit(context.Background(), func(phase string, _ uint64) {
				if phase != "ledger" || done {
					return
				}
				done = true
				b.block20(id, "u")
				tc.during(b, id)
			})
			if err != nil {
				t.Fatal(causes(err))
			}
			wantChecks(t, rep, tc.checks)
		})
	}
}

// again adds rows beside the pointer that has a value.
func (b *bench) again(beside, value []byte, times int) {
	b.t.Helper()
	for _, r := range b.rows(b.key(tableOutbox).all()) {
		if string(r.Value) != string(beside) {
			continue
		}
		for i := range times {
			k := append([]byte(nil), r.Key...)
			binary.BigEndian.PutUint16(k[len(k)-2:], uint16(100+i))
			b.set(k, value)
		}
		return
	}
	b.t.Fatal("there is no such pointer")
}
