package intake

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/shard"
)

// A tenant whose facts wait by the hundred thousand neither keeps the orders of
// others from being watched nor makes them wait behind its own.
func TestWatchedOrdersTakeTurns(t *testing.T) {
	in, err := New(DefaultConfig(), nil, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	pending, applied := []fact.Row{{State: fact.Pending}}, []fact.Row{{State: fact.Applied}}
	hot := func(i int) order { return order{"hot", fmt.Sprint(i)} }
	for i := range maxWatched {
		in.note(hot(i), pending)
		in.note(hot(i), pending) // again, which takes no second place
	}
	if n := len(in.watched); n != maxWatched/2 {
		t.Errorf("%d orders of the hot tenant are watched, want %d", n, maxWatched/2)
	}
	quiet := order{"quiet", "1"}
	in.note(quiet, pending)
	saw := func(o order) {
		in.saw(&ledger.Command{Op: ledger.OpCommit, Key: ledger.OrderKey{Tenant: o.tenant, Order: o.id}})
	}
	for o := range in.watched {
		if o != quiet {
			saw(o)
		}
	}
	saw(quiet)
	first, _ := in.wakes.take()
	second, _ := in.wakes.take()
	if first.tenant != "hot" || second != quiet {
		t.Errorf("first %v, then %v are settled; want an order of each tenant", first, second)
	}
	rest := 0
	for _, ok := in.wakes.take(); ok; _, ok = in.wakes.take() {
		rest++
	}
	if rest != maxWaiting-1 {
		t.Errorf("%d more wait, want %d", rest, maxWaiting-1)
	}
	for o := range in.watched {
		in.note(o, applied)
	}
	if n, places := len(in.watched), in.room.Taken(); n != 0 || places != 0 {
		t.Errorf("%d orders are watched, and %d places taken, when all is applied", n, places)
	}
}

// Where another node settles the facts of an order, this one does not hear of it.
// Such orders make room for new ones of their tenant, and of no other.
func TestWatchedOrdersMakeRoom(t *testing.T) {
	in, err := New(DefaultConfig(), nil, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	pending := []fact.Row{{State: fact.Pending}}
	for i := range maxWatched {
		in.note(order{"hot", fmt.Sprint(i)}, pending)
	}
	for i := range maxWatched / 8 {
		in.note(order{"quiet", fmt.Sprint(i)}, pending)
	}
	hot := func() (n int) {
		for o := range in.watched {
			if o.tenant == "hot" {
				n++
			}
		}
		return n
	}
	for i := range 1000 {
		o := order{"hot", fmt.Sprint("new ", i)}
		in.note(o, pending)
		if _, ok := in.watched[o]; !ok {
			t.Fatalf("new order %d is not watched", i)
		}
	}
	if n := hot(); n != maxWatched/2 {
		t.Errorf("%d orders of the hot tenant are watched, want %d", n, maxWatched/2)
	}
	if n, want := len(in.watched), maxWatched/2+maxWatched/8; n != want || in.room.Taken() != int64(want) {
		t.Errorf("%d orders are watched and %d places taken, want %d", n, in.room.Taken(), want)
	}
	for o := range in.watched {
		in.note(o, nil)
	}
	if st := in.room.Stats(); st.Taken != 0 || st.Tenants != 0 {
		t.Errorf("after all: %+v", st)
	}
}

// The commands of facts take places of their tenant, as everybody's do: a fact of
// one that has none is kept, and applied when there are some again.
func TestFactsTakePlacesOfTheirTenant(t *testing.T) {
	b := newBench(t, DefaultConfig())
	b.budget(1000, ledger.Policy{})
	cfg := shard.DefaultConfig()
	cfg.TenantRate = 1
	exec, err := shard.New(cfg, b.st)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := New(DefaultConfig(), b.st, exec, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var cmds []ledger.Command
	for i := range 100 { // uses up the rate of 100 seconds
		cmds = append(cmds, reserve(fmt.Sprint("o", i), "coupon", 1))
	}
	for _, r := range exec.DoAll(t.Context(), cmds) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	paid := says(fact.PaymentSucceeded, "o7", "p1")
	got, err := busy.Submit(context.Background(), []fact.Fact{paid})
	if err != nil || got[0].Err != nil || got[0].State != fact.Pending {
		t.Fatalf("submitted: %+v, %v", got, err)
	}
	if n := exec.Stats().TenantLimited; n == 0 {
		t.Error("the fact's command took no place of its tenant")
	}
	if err := b.Settle(context.Background(), "t", "o7"); err != nil { // as the scan does
		t.Fatal(err)
	}
	b.is(paid, fact.Applied, "")
	b.money(900, 99, 1, 0)
	b.audit()
}
