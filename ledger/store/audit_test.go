package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

func TestAuditFindsPlantedCorruption(t *testing.T) {
	closing := ledger.BucketID{Budget: budgetID("closing")}
	for _, tc := range []struct {
		check, name string
		plant       func(b *bench)
	}{
		{"rows_readable", "a block that is cut short", func(b *bench) {
			r := b.rows(b.key(tableBlock).all())[0]
			b.set(r.Key, r.Value[:len(r.Value)-3])
		}},
		{"rows_readable", "a reservation of another form", func(b *bench) {
			b.set(b.reservationKey(orderKey("paid")), []byte{9, 9})
		}},
		{"rows_readable", "a pointer of another form", func(b *bench) { b.set(b.rows(b.key(tableOutbox).all())[0].Key, []byte{7}) }},
		{"rows_readable", "a budget that is empty", func(b *bench) { b.set(b.budgetKey(budgetID("sink")), nil) }},
		{"rows_belong", "a reservation of a budget that is gone", func(b *bench) {
			b.editRow("held", func(r *ledger.Reservation) { r.Attempts[0].Leg.Bucket.Budget.Key = "nowhere" })
		}},
		{"rows_belong", "a bucket without a budget", func(b *bench) { b.drop(b.budgetKey(budgetID("closing"))) }},
		{"rows_belong", "a budget with a bucket missing", func(b *bench) {
			b.drop(b.bucketKey(ledger.BucketID{Budget: budgetID("spring"), Index: 2}))
		}},
		{"rows_belong", "blocks of no bucket", func(b *bench) {
			r := b.rows(b.key(tableBlock).all())[0]
			b.set(b.blockKey(ledger.BucketID{Budget: budgetID("aaa")}, 1), r.Value)
		}},
		{"rows_belong", "a pointer to no bucket", func(b *bench) {
			b.set(b.rows(b.key(tableOutbox).all())[0].Key, encodePointer(ledger.BucketID{Budget: budgetID("nowhere")}, 1))
		}},
		{"rows_belong", "a receipt of no budget", func(b *bench) {
			b.set(b.receiptKey("t1", "x"), encodeBudgetReceipt(&ledger.BudgetReceipt{Op: ledger.OpFreeze, Budget: budgetID("nowhere"), State: ledger.BudgetOpen}))
		}},
		{"balances_legal", "a negative balance", func(b *bench) {
			b.editBucket(closing, func(k *ledger.Bucket) { k.Reserved -= 1000; k.Available += 1000 })
		}},
		{"balances_legal", "more reversed than committed", func(b *bench) {
			b.editBucket(closing, func(k *ledger.Bucket) { k.Reversed += 1000; k.Funded -= 1000 })
		}},
		{"balances_add_up", "available out of nothing", func(b *bench) { b.editBucket(closing, func(k *ledger.Bucket) { k.Available++ }) }},
		{"replay_equals_balances", "money from one sum to another", func(b *bench) {
			b.editBucket(closing, func(k *ledger.Bucket) { k.Available--; k.Reserved++ })
		}},
		{"reservations_equal_buckets", "money from one sum to another", func(b *bench) {
			b.editBucket(closing, func(k *ledger.Bucket) { k.Available--; k.Reserved++ })
		}},
		{"reservations_equal_buckets", "a reservation that is gone", func(b *bench) { b.drop(b.reservationKey(orderKey("paid"))) }},
		{"seq_dense", "a block that is gone", func(b *bench) { b.drop(b.rows(b.key(tableBlock).bucket(closing).all())[2].Key) }},
		{"seq_dense", "the last block is gone", func(b *bench) {
			rows := b.rows(b.key(tableBlock).bucket(closing).all())
			b.drop(rows[len(rows)-1].Key)
		}},
		{"seq_dense", "a bucket row that is older than its ledger", func(b *bench) {
			row := b.bucketRow(closing)
			b.ok(on(ledger.OpReverse, "sunk", "r9", 1))
			b.set(b.bucketKey(closing), encodeBucket(&row))
		}},
		{"chain_intact", "one byte of one block", func(b *bench) {
			r := b.rows(b.key(tableBlock).bucket(closing).all())[1]
			i := strings.Index(string(r.Value), "n1")
			r.Value[i] = 'N'
			b.set(r.Key, r.Value)
		}},
		{"chain_intact", "the hash in the bucket's row", func(b *bench) { b.editBucket(closing, func(k *ledger.Bucket) { k.Hash[0] ^= 1 }) }},
		{"time_forward", "a block before its time", func(b *bench) {
			r := b.rows(b.key(tableBlock).bucket(closing).all())
			v := r[len(r)-1].Value
			old := enc{}
			old.i(b.bucketRow(closing).Time.UnixMilli())
			early := enc{}
			early.i(clockStart.Add(-time.Hour).UnixMilli())
			b.set(r[len(r)-1].Key, []byte(strings.Replace(string(v), string(old), string(early), 1)))
		}},
		{"entry_balances", "an entry with other balances", func(b *bench) {
			b.rewrite(closing, func(es []ledger.Entry) []ledger.Entry { es[1].After.Funded++; es[1].After.Available++; return es })
		}},
		{"one_entry_per_transition", "an entry of another amount, in a ledger written anew", func(b *bench) {
			b.rewrite(b.legOf("held"), func(es []ledger.Entry) []ledger.Entry {
				for i := range es {
					if es[i].Order == "held" && es[i].Type == ledger.EntryReserve {
						es[i].Delta.Reserved--
						es[i].Delta.Available++
					}
				}
				return es
			})
		}},
		{"one_entry_per_transition", "an entry of another order", func(b *bench) {
			b.rewrite(b.legOf("held"), func(es []ledger.Entry) []ledger.Entry {
				for i := range es {
					if es[i].Order == "held" {
						es[i].Order = "help"
					}
				}
				return es
			})
		}},
		{"one_entry_per_transition", "a receipt that is gone", func(b *bench) {
			b.editRow("held", func(r *ledger.Reservation) { r.Attempts[0].Receipts = r.Attempts[0].Receipts[:1] })
		}},
		{"one_entry_per_transition", "a receipt that names another entry", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) { r.Attempts[0].Receipts[0].Outcome.Seq-- })
		}},
		{"receipts_unique", "a receipt twice", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) {
				r.Attempts[0].Receipts = append(r.Attempts[0].Receipts, r.Attempts[0].Receipts[2])
			})
		}},
		{"receipts_unique", "an attempt twice", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) { r.Attempts = append(r.Attempts, r.Attempts[0]) })
		}},
		{"reservation_limits", "a commit above the limit", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) { r.Attempts[0].Leg.Committed = 771 })
		}},
		{"reservation_limits", "refunds above the commit", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) { r.Attempts[0].Leg.Reversed = 651 })
		}},
		{"reservation_state", "another state", func(b *bench) {
			b.editRow("held", func(r *ledger.Reservation) { r.Attempts[0].State = ledger.StateReleased })
		}},
		{"reservation_state", "another amount held", func(b *bench) {
			b.editRow("held", func(r *ledger.Reservation) { r.Attempts[0].Leg.Held++ })
		}},
		{"reservation_state", "another currency", func(b *bench) {
			b.editRow("held", func(r *ledger.Reservation) { r.Attempts[0].Leg.Currency = "USD" })
		}},
		{"reservation_state", "another amount in the request", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) { r.Attempts[0].Receipts[0].Request = request(reserve("spring", "paid", 1)) })
		}},
		{"reservation_state", "another budget in the request", func(b *bench) {
			b.editRow("held", func(r *ledger.Reservation) {
				r.Attempts[0].Receipts[0].Request = request(reserve("sink", "held", r.Attempts[0].Leg.Amount))
			})
		}},
		{"reservation_state", "another commit in the request", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) {
				r.Attempts[0].Receipts[1].Request = request(on(ledger.OpCommit, "paid", "x", 77))
			})
		}},
		{"reservation_state", "another refund in the request", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) {
				for i := range r.Attempts[0].Receipts {
					if rc := &r.Attempts[0].Receipts[i]; rc.Op == ledger.OpReverse {
						rc.Request = request(on(ledger.OpReverse, "paid", "x", rc.Outcome.Amount+1))
					}
				}
			})
		}},
		{"reservation_state", "no request", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) { r.Attempts[0].Receipts[0].Request = nil })
		}},
		{"reservation_state", "a request of a void", func(b *bench) {
			b.editRow("paid", func(r *ledger.Reservation) {
				r.Attempts[0].Receipts = append(r.Attempts[0].Receipts, ledger.Receipt{Op: ledger.OpReverse, ID: "zz", Void: true, Request: []byte{1}})
			})
		}},
		{"one_attempt_holds", "two holders", func(b *bench) {
			b.editRow("never", func(r *ledger.Reservation) {
				r.Attempts[0].State = ledger.StateReserved
				r.Attempts[0].Leg = r.Attempts[1].Leg
			})
		}},
		{"event_seq", "an event too many in the row", func(b *bench) { b.editRow("paid", func(r *ledger.Reservation) { r.EventSeq++ }) }},
		{"event_seq", "an entry with another number", func(b *bench) {
			b.rewrite(closing, func(es []ledger.Entry) []ledger.Entry {
				for i := range es {
					if es[i].Order == "sunk" && es[i].Type == ledger.EntryCommit {
						es[i].EventSeq = 7
					}
				}
				return es
			})
		}},
		{"outbox_complete", "a pointer that is gone", func(b *bench) { b.drop(b.rows(b.key(tableOutbox).all())[3].Key) }},
		{"outbox_complete", "a pointer twice", func(b *bench) {
			r := b.rows(b.key(tableOutbox).all())[0]
			k := append([]byte(nil), r.Key...)
			binary.BigEndian.PutUint16(k[len(k)-2:], 99)
			b.set(k, r.Value)
		}},
		{"outbox_order", "two pointers exchanged", func(b *bench) {
			var own []kv.KeyValue
			for _, r := range b.rows(b.key(tableOutbox).all()) {
				if id, _, _ := decodePointer(r.Value); id == closing {
					own = append(own, r)
				}
			}
			b.set(own[0].Key, own[1].Value)
			b.set(own[1].Key, own[0].Value)
		}},
		{"moves_conserve", "an arrival without a departure", func(b *bench) {
			id := ledger.BucketID{Budget: budgetID("sink"), Index: b.sunkTo()}
			b.rewrite(id, func(es []ledger.Entry) []ledger.Entry {
				for i := range es {
					if es[i].Type == ledger.EntryMoveIn {
						es[i].Delta.Funded, es[i].Delta.Available = 1, 1
					}
				}
				return es
			})
		}},
		{"budget_receipts", "a receipt that is gone", func(b *bench) { b.drop(b.receiptKey("t1", "f1")) }},
		{"budget_receipts", "a receipt without entries", func(b *bench) {
			b.set(b.receiptKey("t1", "f9"), encodeBudgetReceipt(&ledger.BudgetReceipt{Op: ledger.OpFreeze, Budget: budgetID("spring"), State: ledger.BudgetFrozen}))
		}},
		{"budget_receipts", "a receipt of another amount", func(b *bench) {
			c := onBudget(ledger.OpFund, "spring", "f1", 9_999)
			b.set(b.receiptKey("t1", "f1"), encodeBudgetReceipt(&ledger.BudgetReceipt{Op: ledger.OpFund, Budget: budgetID("spring"), Request: c.Canonical(), State: ledger.BudgetOpen}))
		}},
		{"budget_state", "a closed budget opened again", func(b *bench) {
			v, _ := b.Definition(context.Background(), budgetID("closing"))
			v.State = ledger.BudgetOpen
			b.set(b.budgetKey(v.ID), encodeBudget(v))
		}},
		{"budget_definition", "a policy relaxed", func(b *bench) {
			b.editBudget("spring", func(v *ledger.Budget) { v.Policy.OverCommit.Percent = 900 })
		}},
		{"budget_definition", "refunds sent elsewhere", func(b *bench) {
			b.editBudget("closing", func(v *ledger.Budget) { v.Policy.ReversalSink = budgetID("spring") })
		}},
		{"budget_definition", "another currency", func(b *bench) {
			b.editBudget("sink", func(v *ledger.Budget) { v.Currency = "USD" })
		}},
		{"budget_definition", "another number of buckets", func(b *bench) {
			b.editBudget("spring", func(v *ledger.Budget) { v.Epoch.Buckets = 3 })
		}},
		{"budget_definition", "another routing epoch", func(b *bench) {
			b.editBudget("spring", func(v *ledger.Budget) { v.Epoch.Number++ })
		}},
		{"budget_definition", "retired buckets disowned", func(b *bench) {
			resharded(b)
			b.editBudget("spring", func(v *ledger.Budget) { v.Epoch.Retired-- })
		}},
		{"budget_definition", "a reshard undone", func(b *bench) {
			resharded(b)
			b.editBudget("spring", func(v *ledger.Budget) { v.Epoch.Buckets, v.Epoch.Retired = v.Epoch.Retired, v.Epoch.Buckets })
		}},
		{"rows_belong", "a retired bucket that is gone", func(b *bench) {
			resharded(b)
			b.drop(b.bucketKey(ledger.BucketID{Budget: budgetID("spring"), Index: 5}))
		}},
		{"budget_receipts", "a reshard to another number", func(b *bench) {
			resharded(b)
			b.rewrite(ledger.BucketID{Budget: budgetID("spring")}, func(es []ledger.Entry) []ledger.Entry {
				for i := range es {
					if es[i].Type == ledger.EntryReshard {
						es[i].Peer.Index = 3
						break
					}
				}
				return es
			})
		}},
		{"budget_receipts", "the receipt of a reshard is gone", func(b *bench) { resharded(b); b.drop(b.receiptKey("t1", "up")) }},
		{"budget_receipts", "the receipt of a move is gone", func(b *bench) { resharded(b); b.drop(b.receiptKey("t1", "m1")) }},
		{"budget_receipts", "a receipt of a move that was not made", func(b *bench) {
			resharded(b)
			c := moveOf("spring", "m9", 0, 1, 7)
			b.set(b.receiptKey("t1", "m9"), encodeBudgetReceipt(&ledger.BudgetReceipt{Op: ledger.OpMove, Budget: c.Budget, Request: c.Canonical(), State: ledger.BudgetOpen}))
		}},
		{"budget_receipts", "a move for a reshard that is not there", func(b *bench) { b.recause("reshard:none") }},
		{"moves_conserve", "a move for no reason", func(b *bench) { b.recause("a whim") }},
		{"budget_definition", "no request that made it", func(b *bench) {
			b.editBudget("spring", func(v *ledger.Budget) { v.Definition = nil })
		}},
		{"cases_match", "a case that is gone", func(b *bench) { b.drop(b.rows(b.key(tableCase).all())[0].Key) }},
		{"cases_match", "a case of nobody", func(b *bench) {
			c := &ledger.Case{Key: orderKey("paid"), Attempt: 1, Budget: budgetID("spring"), Amount: 1, Opened: clockStart}
			b.set(b.caseKey(c), encodeCase(c))
		}},
		{"expiry_index_complete", "the index is lost", func(b *bench) { b.tamper(func(tx kv.Tx) { tx.ClearRange(b.key(tableExpiry).all()) }) }},
	} {
		t.Run(tc.check+"/"+tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			story(b)
			tc.plant(b)
			rep, err := b.Audit(context.Background(), nil)
			if err != nil {
				t.Fatal(causes(err))
			}
			if rep.OK() {
				t.Fatal("the audit passes")
			}
			found := false
			for _, c := range rep.Checks {
				if c.Name != tc.check {
					continue
				}
				found = true
				if c.Problems == 0 || len(c.Examples) == 0 || len(c.Examples) > maxExamples {
					t.Errorf("check %s has %d problems and examples %q; the report is %s", c.Name, c.Problems, c.Examples, failures(rep))
				}
			}
			if !found {
				t.Error("there is no such check")
			}
		})
	}
}

// resharded gives spring a life in several epochs.
func resharded(b *bench) {
	b.ok(reshard("spring", "up", 7), reshard("spring", "down", 3), moveOf("spring", "m1", 1, 0, 5))
}

// recause gives both ends of a move another reason.
func (b *bench) recause(cause string) {
	resharded(b)
	for i := range uint16(2) {
		b.rewrite(ledger.BucketID{Budget: budgetID("spring"), Index: i}, func(es []ledger.Entry) []ledger.Entry {
			for i := range es {
				if es[i].Cause == "move:m1" {
					es[i].Cause = cause
				}
			}
			return es
		})
	}
}

func request(c ledger.Command) []byte {
	c = c.Normalize()
	return c.Canonical()
}

func failures(rep *AuditReport) string {
	var out []string
	for _, c := range rep.Checks {
		if c.Problems > 0 {
			out = append(out, fmt.Sprintf("%s (%d): %s", c.Name, c.Problems, strings.Join(c.Examples, "; ")))
		}
	}
	return strings.Join(out, "\n")
}

func (b *bench) sunkTo() uint16 {
	r, err := b.Reservation(context.Background(), orderKey("sunk"))
	if err != nil {
		b.t.Fatal(causes(err))
	}
	for _, rc := range r.Attempts[0].Receipts {
		if rc.Sink != nil {
			return rc.Sink.Index
		}
	}
	b.t.Fatal("no refund went to the sink")
	return 0
}

// An empty store is in order too.
func TestAuditOfNothing(t *testing.T) {
	if rep := newBench(t).audit(); rep.Budgets != 0 || !rep.OK() {
		t.Errorf("the audit of nothing is %+v", rep)
	}
}

// Commands of all kinds, over budgets that sink into each other, go on while
// audits run; none may call anything a problem.
func TestAuditUnderTraffic(t *testing.T) {
	b := newBench(t)
	story(b)
	for i := range 12 { // several pages of vectors, with sinks and attempts across them
		b.ok(create(fmt.Sprintf("b%02d", i), 2, ledger.Policy{ReversalSink: budgetID("sink")}),
			onBudget(ledger.OpFund, fmt.Sprintf("b%02d", i), fmt.Sprintf("g%d", i), 1_000_000))
	}
	b.auditsWhile(20, func(w, i int) { b.traffic(fmt.Sprintf("w%d-%d", w, i), i) })
	if t.Failed() {
		return
	}
	b.audit()
}

// auditsWhile runs audits while two workers do their rounds. They get so many
// rounds an audit, so that what there is to audit does not grow with the
// slowness of the machine.
func (b *bench) auditsWhile(audits int, round func(worker, i int)) {
	b.t.Helper()
	rounds := make(chan struct{}, 20)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			i := 0
			for range rounds {
				round(w, i)
				i++
			}
		})
	}
	for range audits {
		for len(rounds) < cap(rounds) {
			rounds <- struct{}{}
		}
		rep, err := b.Audit(context.Background(), nil)
		if err != nil {
			b.t.Error(causes(err))
			break
		}
		if !rep.OK() {
			b.t.Error(failures(rep))
			break
		}
	}
	close(rounds)
	wg.Wait()
}

// traffic is one order's life: an attempt on one budget, given up, another on
// another budget, paid, closed, refunded into the sink and taken back.
func (b *bench) traffic(order string, i int) {
	first, second := fmt.Sprintf("b%02d", i%12), fmt.Sprintf("b%02d", (i*7+5)%12)
	own := "own-" + order
	cmds := []ledger.Command{
		reserve(first, order, 5),
		on(ledger.OpRelease, order, "", 0),
		withAttempt(reserve(second, order, 7), 2),
		withAttempt(on(ledger.OpCommit, order, "p", 0), 2),
		reserve(first, order+"x", 3),
	}
	if i%4 == 0 {
		cmds = append(cmds, create(own, 1, ledger.Policy{ReversalSink: budgetID("sink")}), onBudget(ledger.OpFund, own, "f-"+own, 100),
			reserve(own, order+"y", 30), on(ledger.OpCommit, order+"y", "p", 0), onBudget(ledger.OpClose, own, "c-"+own, 0),
			on(ledger.OpReverse, order+"y", "r", 10), on(ledger.OpReinstate, order+"y", "r", 0))
	}
	for _, c := range cmds {
		if r := b.one(c); r.Err != nil && !errors.Is(r.Err, &ledger.Rejection{Code: ledger.InsufficientBudget}) {
			b.t.Errorf("%s of %s: %s", c.Op, order, causes(r.Err))
		}
	}
}
