package intake

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
)

// naive is what the ledger should have of one order with one benefit, and the
// facts that came: written as plainly as can be, with no receipts, plans or
// versions.
type naive struct {
	state                       string // "", reserved, committed, released, expired, cancelled
	amount, committed, reversed int64
	paidBy                      string
	refunds                     map[string]int64 // made
	undone, void                map[string]bool
	facts                       []*naiveFact
	byEvent                     map[string]*naiveFact
	late                        ledger.LateCommit
}

type naiveFact struct {
	fact.Fact
	state    fact.State
	received time.Time
}

func (n *naive) held() int64 {
	if n.state == "reserved" {
		return n.amount
	}
	return 0
}

// spent is what of the budget the order has used up.
func (n *naive) spent() int64 { return n.committed - n.reversed }

func (n *naive) cancelledRefund(ref string) bool {
	for _, f := range n.facts {
		if f.Kind == fact.RefundCancelled && f.Ref == ref && f.state != fact.Resolved {
			return true
		}
	}
	return false
}

// try applies one fact if it can be: done, and whether something changed.
func (n *naive) try(f *naiveFact, now time.Time) (changed bool) {
	wait := func() bool {
		if want := fact.Exception; !now.Before(f.received.Add(24*time.Hour)) && f.state != want {
			f.state = want
		}
		return false
	}
	never := func() bool { f.state = fact.Exception; return false }
	done := func() bool { f.state = fact.Applied; return true }
	switch f.Kind {
	case fact.PaymentSucceeded:
		switch {
		case n.paidBy == f.Ref, n.state == "committed":
			return done()
		case n.state == "reserved", n.state == "expired" && n.late == ledger.LateReclaim, n.state == "released" && n.late == ledger.LateReclaim:
			n.state, n.committed = "committed", n.amount
			if n.paidBy == "" {
				n.paidBy = f.Ref
			}
			return done()
		case n.state == "":
			return wait()
		}
		return never()
	case fact.PaymentFailed, fact.OrderCancelled:
		switch n.state {
		case "":
			n.state = "cancelled"
		case "reserved":
			n.state = "released"
		case "committed":
			if f.Kind == fact.OrderCancelled && n.reversed < n.committed {
				return wait()
			}
			if f.Kind == fact.PaymentFailed && n.paidBy == f.Ref {
				return never()
			}
		}
		return done()
	case fact.RefundSucceeded:
		amount := f.Lines[0].Amount
		made, is := n.refunds[f.Ref]
		switch {
		case n.void[f.Ref]:
			return done() // only ever made void once it was known to be cancelled
		case is && made != amount:
			return never()
		case is:
			return done()
		case n.state == "cancelled":
			return never()
		case n.state != "committed":
			return wait()
		case amount > n.committed-n.reversed:
			if n.cancelledRefund(f.Ref) {
				n.void[f.Ref] = true
				return done()
			}
			return wait()
		}
		n.refunds[f.Ref] = amount
		n.reversed += amount
		return done()
	default: // refund cancelled
		made, is := n.refunds[f.Ref]
		switch {
		case n.void[f.Ref], n.undone[f.Ref]:
			return done()
		case is:
			n.undone[f.Ref] = true
			n.reversed -= made
			return done()
		case n.state == "cancelled":
			return never()
		}
		return wait()
	}
}

var naiveRank = map[fact.Kind]int{
	fact.PaymentSucceeded: 1, fact.PaymentFailed: 2, fact.RefundSucceeded: 3, fact.RefundCancelled: 4, fact.OrderCancelled: 5,
}

// settle goes through the facts again and again, from the first on whenever one
// was applied.
func (n *naive) settle(now time.Time) {
	slices.SortStableFunc(n.facts, func(a, b *naiveFact) int {
		return cmp.Or(cmp.Compare(naiveRank[a.Kind], naiveRank[b.Kind]), a.received.Compare(b.received), strings.Compare(a.Event, b.Event))
	})
again:
	for _, f := range n.facts {
		if f.state.Open() && n.try(f, now) {
			goto again
		}
	}
}

// Random orders of facts, repeated, contradicting and late ones among them, with
// commands and the clock in between: after every step the facts' states and the
// budget are what a naive model says, and at the end the audit passes.
func TestFactsFollowModel(t *testing.T) {
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		late := rapid.SampledFrom([]ledger.LateCommit{ledger.LateReject, ledger.LateReclaim}).Draw(rt, "late")
		b := open(rt, DefaultConfig())
		defer b.close()
		b.budget(1_000_000, ledger.Policy{LateCommit: late})
		orders := map[string]*naive{}
		for _, o := range []string{"a", "b", "c", "d"} {
			orders[o] = &naive{refunds: map[string]int64{}, undone: map[string]bool{}, void: map[string]bool{}, byEvent: map[string]*naiveFact{}, late: late}
		}
		n := rapid.IntRange(40, 120).Draw(rt, "steps")
		for range n {
			steps++
			o := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "order")
			if m := orders[o]; len(m.facts) < 40 {
				m.step(rt, b, o)
			}
			compare(rt, b, orders)
		}
		b.audit()
	})
	t.Logf("%d steps", steps)
}

// step does one thing to an order, in both worlds.
func (n *naive) step(rt *rapid.T, b *bench, o string) {
	ctx := context.Background()
	command := func(op ledger.Op, legal bool, then func()) {
		c := ledger.Command{Op: op, Key: key(o, "coupon")}
		_, err := b.exec.Do(ctx, c)
		if (err == nil) != legal {
			rt.Fatalf("%s in state %q: %v", op, n.state, err)
		}
		if legal {
			then()
		}
	}
	switch rapid.SampledFrom([]string{"fact", "fact", "fact", "fact", "again", "reserve", "release", "expire", "clock", "deadline", "resolve"}).Draw(rt, "step") {
	case "fact":
		n.tell(rt, b, o)
	case "again":
		if len(n.facts) > 0 {
			f := rapid.SampledFrom(n.facts).Draw(rt, "again")
			if got := b.submit(f.Fact)[0]; !got.Replayed {
				rt.Fatalf("%s came twice and was new", f.Event)
			}
		}
	case "reserve":
		amount := rapid.Int64Range(1, 5).Draw(rt, "amount") * 20
		_, err := b.exec.Do(ctx, reserve(o, "coupon", amount))
		if (err == nil) != (n.state == "") {
			if n.amount != amount || n.state == "cancelled" { // not the same reserve again
				if err == nil {
					rt.Fatalf("reserved in state %q", n.state)
				}
			}
		}
		if n.state == "" {
			n.state, n.amount = "reserved", amount
		}
	case "release":
		if n.state == "reserved" {
			command(ledger.OpRelease, true, func() { n.state = "released" })
		}
	case "expire":
		if n.state == "reserved" {
			b.advance(16 * time.Minute)
			command(ledger.OpExpire, true, func() { n.state = "expired" })
		}
	case "clock":
		b.advance(time.Duration(rapid.IntRange(1, 600).Draw(rt, "seconds")) * time.Second)
	case "deadline":
		b.advance(24 * time.Hour)
	case "resolve":
		for _, f := range n.facts {
			_, _, err := b.Resolve(ctx, f.ID, "by hand")
			if (err == nil) != (f.state == fact.Exception || f.state == fact.Resolved) {
				rt.Fatalf("resolve of a fact that is %s: %v", f.state, err)
			}
			if err == nil {
				f.state = fact.Resolved
			}
		}
	}
	if err := b.Settle(ctx, "t", o); err != nil {
		rt.Fatalf("settle: %v", err)
	}
	n.settle(b.now())
}

// tell submits a new fact, or one whose event id was used with other content.
func (n *naive) tell(rt *rapid.T, b *bench, o string) {
	k := rapid.SampledFrom([]fact.Kind{
		fact.PaymentSucceeded, fact.PaymentFailed, fact.OrderCancelled, fact.RefundSucceeded, fact.RefundSucceeded, fact.RefundCancelled,
	}).Draw(rt, "kind")
	ref, amount := "", int64(0)
	switch k {
	case fact.PaymentSucceeded, fact.PaymentFailed:
		ref = rapid.SampledFrom([]string{"p1", "p2"}).Draw(rt, "payment")
	case fact.RefundSucceeded:
		amount = rapid.SampledFrom([]int64{20, 40, 100}).Draw(rt, "refunded")
		fallthrough
	case fact.RefundCancelled:
		ref = rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(rt, "refund")
	}
	f := says(k, o, ref, line("coupon", amount))
	f.Event = fmt.Sprint(o, " ", rapid.IntRange(0, 60).Draw(rt, "event"))
	got, err := b.Submit(context.Background(), []fact.Fact{f})
	if err != nil {
		rt.Fatalf("submit: %v", err)
	}
	f = f.Normalize()
	if known := n.byEvent[f.Event]; known != nil {
		same := known.Kind == f.Kind && known.Ref == f.Ref && known.Lines[0] == f.Lines[0]
		if same != (got[0].Err == nil) || (!same && code(got[0].Err) != ledger.IdempotencyConflict) {
			rt.Fatalf("event %s again, the same content %v: %v", f.Event, same, got[0].Err)
		}
		return
	}
	if got[0].Err != nil || got[0].Replayed {
		rt.Fatalf("a new fact: %v %v", got[0].Err, got[0].Replayed)
	}
	nf := &naiveFact{Fact: f, state: fact.Pending, received: got[0].Received}
	n.facts, n.byEvent[f.Event] = append(n.facts, nf), nf
}

func compare(rt *rapid.T, b *bench, orders map[string]*naive) {
	want := ledger.Balances{Funded: 1_000_000, Available: 1_000_000}
	for o, n := range orders {
		want.Available -= n.held() + n.spent()
		want.Reserved += n.held()
		want.Committed += n.committed
		want.Reversed += n.reversed
		view, err := b.st.OrderFacts(context.Background(), "t", o)
		if err != nil {
			rt.Fatalf("%v", err)
		}
		if len(view.Facts) != len(n.facts) {
			rt.Fatalf("order %s has %d facts, the model %d", o, len(view.Facts), len(n.facts))
		}
		for _, row := range view.Facts {
			if m := n.byEvent[row.Event]; m.state != row.State {
				rt.Fatalf("order %s, %s %s %v (event %s) is %s (%s), the model says %s; the order is %q", o, row.Kind, row.Ref, row.Lines, row.Event, row.State, row.Reason, m.state, n.state)
			}
		}
	}
	if got := b.totals(); got != want {
		rt.Fatalf("the budget is %+v, the model says %+v", got, want)
	}
}
