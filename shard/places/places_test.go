package places

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

func commands(places int64) Config {
	return Config{Name: "pending", Things: "commands", Places: places, Retry: 100 * time.Millisecond}
}

// greed takes single places for a tenant until it is refused.
func greed(t *testing.T, p *Places, tenant string) (got int, r *ledger.Rejection) {
	t.Helper()
	for {
		if _, r = p.Take(tenant, 1); r != nil {
			if !errors.Is(r, &ledger.Rejection{Code: ledger.Overloaded}) || r.RetryAfter <= 0 {
				t.Fatalf("refused with %v after %s", r, r.RetryAfter)
			}
			return got, r
		}
		got++
	}
}

// However many tenants want everything, the next one gets as much as each of them
// has in the end.
func TestNobodyTakesEverything(t *testing.T) {
	for _, c := range []struct{ hot, each int }{{1, 600}, {2, 400}, {5, 200}, {11, 100}} {
		p := New(commands(1200))
		got := make([]int, c.hot)
		for more := true; more; { // in turns: all are hot at once
			more = false
			for i := range got {
				if _, r := p.Take(fmt.Sprint("hot ", i), 1); r == nil {
					got[i]++
					more = true
				}
			}
		}
		for i, n := range got {
			if n < c.each-1 || n > c.each+1 {
				t.Errorf("%d hot tenants: number %d has %d places, want %d", c.hot, i, n, c.each)
			}
		}
		if free := 1200 - p.Taken(); free < int64(c.each-c.hot) {
			t.Errorf("%d hot tenants leave %d places, want %d", c.hot, free, c.each)
		}
		if n, _ := greed(t, p, "quiet"); n < c.each/2-c.hot {
			t.Errorf("%d hot tenants leave a quiet one %d places, want half of %d", c.hot, n, c.each)
		}
	}
}

func TestRefusalSaysWhoAndWhat(t *testing.T) {
	p := New(commands(100))
	n, r := greed(t, p, "acme")
	if n != 50 {
		t.Errorf("a tenant alone has %d places, want 50", n)
	}
	want := `OVERLOADED: pending 51 commands of tenant "acme" are more than its part of this node: keep fewer open at once (allowed: 50)`
	if got := r.Error(); !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, r := p.Take("other", 51); r == nil || r.Value != "101" || r.Limit != "100" || r.RetryAfter != 100*time.Millisecond || strings.Contains(r.Message, "one call") {
		t.Errorf("no room: %+v", r)
	}
	if st := p.Stats(); st != (Stats{Taken: 50, Most: 50, Tenants: 1, Full: 51, Held: 1}) {
		t.Errorf("stats %+v", st)
	}
}

// A call that is larger than its tenant's part waits for the tenant's other
// calls, and not for ever.
func TestLargeCallIsLetInAlone(t *testing.T) {
	c := commands(100)
	c.Each.Open = 10
	p := New(c)
	small, r := p.Take("acme", 1)
	if r != nil {
		t.Fatal(r)
	}
	if _, r = p.Take("acme", 80); r == nil || r.Value != "81" || r.Limit != "10" {
		t.Errorf("beside another: %v", r)
	}
	p.Give(small, 1)
	large, r := p.Take("acme", 80)
	if r != nil {
		t.Fatal(r)
	}
	if _, r = p.Take("acme", 1); r == nil {
		t.Error("another beside the large one")
	}
	if _, r = p.Take("other", 21); r == nil || r.Limit != "100" {
		t.Errorf("above all places: %v", r)
	}
	if left := p.Give(large, 80); left != 0 {
		t.Errorf("%d places are taken after all", left)
	}
}

// What the node does for itself goes in also where many tenants have left less
// than it needs, and leaves less to them in the meantime.
func TestOwnPlacesCountForNobody(t *testing.T) {
	p := New(commands(100))
	for i := range 20 {
		greed(t, p, fmt.Sprint("t", i))
	}
	before := p.Stats()
	if free := 100 - before.Taken; free >= 20 {
		t.Fatalf("%d places are free, which tests nothing", free)
	}
	p.TakeOwn(40)
	if st := p.Stats(); st.Taken != before.Taken+40 || st.Tenants != before.Tenants || st.Most != before.Most || st.Full != before.Full {
		t.Errorf("with the node's own %+v, before %+v", st, before)
	}
	if _, r := p.Take("another", 1); r == nil || r.Value != fmt.Sprint(before.Taken+41) || r.Limit != "100" {
		t.Errorf("above all places: %v", r)
	}
	if left := p.Give(nil, 40); left != before.Taken {
		t.Errorf("%d taken, want %d", left, before.Taken)
	}
}

// A tenant whose next call is above its part is told so, and counted so, also
// where the call is more than is free: the node is not full because of others.
func TestPartComesBeforeRoom(t *testing.T) {
	p := New(commands(60))
	if _, r := p.Take("acme", 30); r != nil {
		t.Fatal(r)
	}
	_, r := p.Take("acme", 37)
	if r == nil || r.Value != "67" || r.Limit != "30" || !strings.Contains(r.Message, `tenant "acme"`) {
		t.Errorf("got %v", r)
	}
	p.TakeOwn(70)
	if _, r = p.Take("acme", 1); r == nil || r.Value != "31" || r.Limit != "0" {
		t.Errorf("on a node that is more than full: %v", r)
	}
	if st := p.Stats(); st != (Stats{Taken: 100, Most: 30, Tenants: 1, Held: 38}) {
		t.Errorf("stats %+v", st)
	}
}

// A call that is larger than all places would be refused for ever: it is told.
func TestCallAboveAllPlaces(t *testing.T) {
	p := New(commands(100))
	_, r := p.Take("acme", 101)
	if r == nil || r.Value != "101" || r.Limit != "100" || !strings.Contains(r.Message, "send fewer in one call") {
		t.Errorf("got %v", r)
	}
	if st := p.Stats(); st != (Stats{Full: 101}) {
		t.Errorf("stats %+v", st)
	}
}

// The number that a refusal names is the one that was too high, whatever is given
// back meanwhile.
func TestRefusalNamesWhatItCounted(t *testing.T) {
	p := New(commands(8))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				s, r := p.Take("acme", 1)
				switch {
				case r == nil:
					runtime.Gosched() // so that others find it taken
					p.Give(s, 1)
				case r.Value != "5" || r.Limit != "4":
					t.Errorf("refused %s of %s", r.Value, r.Limit)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A rate lets a tenant go on at it, twice as fast at first, and says when to come
// again.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := commands(1_000_000)
		c.Own = map[string]Limits{"slow": {Rate: 100}}
		p := New(c)
		second := func(tenant string) (n int) {
			end := time.Now().Add(time.Second)
			for time.Now().Before(end) {
				s, r := p.Take(tenant, 1)
				if r == nil {
					n++
					p.Give(s, 1)
					time.Sleep(time.Millisecond)
					continue
				}
				if r.Field != "rate" || r.Limit != "100" || r.RetryAfter < time.Millisecond || r.RetryAfter > 10*time.Millisecond {
					t.Fatalf("refused: %v after %s", r, r.RetryAfter)
				}
				time.Sleep(r.RetryAfter)
			}
			return n
		}
		for i, want := range []int{200, 100, 100} {
			if n := second("slow"); n < want-1 || n > want+1 {
				t.Errorf("second %d: %d commands, want %d", i, n, want)
			}
		}
		if n := second("fast"); n != 1000 {
			t.Errorf("a tenant without a rate had %d commands, want all 1000", n)
		}
		// A batch is let in whole, and paid for after.
		time.Sleep(10 * time.Second)
		if s, r := p.Take("slow", 1000); r != nil {
			t.Fatal(r)
		} else {
			p.Give(s, 1000)
		}
		if _, r := p.Take("slow", 1); r == nil || r.RetryAfter != 9*time.Second {
			t.Errorf("after a batch of ten seconds: %v", r)
		}
	})
}

// Tenants that have gone are forgotten; those that have places, or a rate to pay
// for, are not.
func TestTenantsThatCameBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := commands(1 << 20)
		c.Own = map[string]Limits{"in debt": {Rate: 1}}
		p := New(c)
		kept, r := p.Take("kept", 3)
		if r != nil {
			t.Fatal(r)
		}
		if s, r := p.Take("in debt", 100); r != nil {
			t.Fatal(r)
		} else {
			p.Give(s, 100)
		}
		most := 0
		for i := range 100_000 {
			s, r := p.Take(fmt.Sprint("passer-by ", i), 1)
			if r != nil {
				t.Fatal(r)
			}
			p.Give(s, 1)
			most = max(most, len(p.tenants))
		}
		if most > minSweep {
			t.Errorf("%d tenants were in mind, want at most %d", most, minSweep)
		}
		if p.tenants["kept"] != kept || p.Stats().Most != 3 {
			t.Errorf("a tenant with places was forgotten: %+v", p.Stats())
		}
		if _, r := p.Take("in debt", 1); r == nil {
			t.Error("a tenant's rate was forgotten")
		}
	})
}

func TestPlacesUnderContention(t *testing.T) {
	p := New(commands(64))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 2000 {
				s, r := p.Take(fmt.Sprint("t", i%3), 1+j%4)
				if r != nil {
					continue
				}
				if n := p.Taken(); n > 64 {
					t.Errorf("%d of 64 places are taken", n)
				}
				p.Give(s, 1+j%4)
			}
		})
	}
	wg.Wait()
	if st := p.Stats(); st.Taken != 0 || st.Most != 0 || st.Tenants != 0 {
		t.Errorf("after all: %+v", st)
	}
}

// BenchmarkTake is the cost of a place, to callers of one tenant and of many.
func BenchmarkTake(b *testing.B) {
	c := commands(1 << 20)
	for name, limits := range map[string]Limits{"plain": {}, "rate": {Rate: 1 << 40}} {
		b.Run(name, func(b *testing.B) {
			c.Each = limits
			p := New(c)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					s, r := p.Take("acme", 1)
					if r != nil {
						b.Error(r)
						return
					}
					p.Give(s, 1)
				}
			})
		})
	}
}
