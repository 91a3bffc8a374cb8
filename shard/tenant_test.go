package shard

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/shard/places"
)

// of gives a command to another tenant.
func of(tenant string, c ledger.Command) ledger.Command {
	c.Budget.Tenant = tenant
	if !c.Op.OnBudget() {
		c.Key.Tenant = tenant
	}
	return c
}

// fundedFor makes a tenant's budget with money in it.
func (h *harness) fundedFor(tenant, name string, buckets int) ledger.BudgetID {
	h.t.Helper()
	id := budget(name)
	h.must(of(tenant, ledger.Command{Op: ledger.OpCreate, Budget: id, Currency: "BRL", Buckets: buckets}))
	h.must(of(tenant, ledger.Command{Op: ledger.OpFund, Budget: id, Amount: 1_000_000, Currency: "BRL", ID: "fund " + name}))
	return id
}

// crowds sends single commands at once, whose commits the test holds up.
type crowds struct {
	*harness
	sync.WaitGroup
	sent, answered atomic.Int64
}

// load sends n commands and returns when each is pending or was answered.
func (h *crowds) load(n int, command func(i int) ledger.Command) (refused func() []*ledger.Rejection) {
	var mu sync.Mutex
	var out []*ledger.Rejection
	h.sent.Add(int64(n))
	for i := range n {
		h.Go(func() {
			_, err := h.Do(context.Background(), command(i))
			if err != nil {
				r := h.code(err, ledger.Overloaded)
				mu.Lock()
				out = append(out, r)
				mu.Unlock()
			}
			h.answered.Add(1)
		})
	}
	for h.answered.Load()+h.Stats().Pending != h.sent.Load() {
		runtime.Gosched()
	}
	return func() []*ledger.Rejection {
		mu.Lock()
		defer mu.Unlock()
		return out
	}
}

// A tenant with thousands of commands at once gets half of a node's places, and
// the commands of others go in as if it were not there.
func TestHotTenantLeavesPlacesToOthers(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TotalLimit = 1000
	h := &crowds{harness: open(t, cfg)}
	hot, quiet := h.fundedFor("hot", "b", 64), h.fundedFor("quiet", "b", 4)
	opened := h.gate.shut()
	refused := h.load(3000, func(i int) ledger.Command { return of("hot", reserve(hot, i, 1)) })
	if n := h.Stats().Pending; n != 500 {
		t.Errorf("the hot tenant has %d places, want 500", n)
	}
	others := h.load(200, func(i int) ledger.Command { return of("quiet", reserve(quiet, i, 1)) })
	if n := h.Stats().Pending; n != 700 {
		t.Errorf("with the quiet tenant %d places are taken, want 700", n)
	}
	opened()
	h.Wait()
	if n := len(others()); n != 0 {
		t.Errorf("%d commands of the quiet tenant were refused: %v", n, others()[0])
	}
	if n := len(refused()); n != 2500 {
		t.Fatalf("%d commands of the hot tenant were refused, want 2500", n)
	}
	if r := refused()[0]; r.Value != "501" || r.Limit != "500" || r.RetryAfter <= 0 {
		t.Errorf("refusal %v, value %s, limit %s, retry after %s", r, r.Value, r.Limit, r.RetryAfter)
	}
	if s := h.Stats(); s.Pending != 0 || s.TenantLimited != 2500 || s.Overloaded != 2500 {
		t.Errorf("stats %+v", s)
	}
}

// A reserve above its tenant's part is answered with no benefit where the budget
// wants so.
func TestTenantAtItsLimitSkipsBenefits(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TenantLimit = 1
	h := open(t, cfg)
	skip := h.funded("skip", 1, 1000, ledger.Policy{OnUnavailable: ledger.SkipBenefit})
	h.must(reserve(skip, 0, 1)) // the router knows the budget
	opened := h.gate.shut()
	first := make(chan error, 1)
	go func() { _, err := h.Do(context.Background(), reserve(skip, 1, 1)); first <- err }()
	<-h.gate.waiting
	if r := h.must(reserve(skip, 2, 1)); !r.Skipped {
		t.Errorf("got %+v, want a skipped benefit", r)
	}
	opened()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if s := h.Stats(); s.TenantLimited != 1 || s.Skipped != 1 {
		t.Errorf("stats %+v", s)
	}
}

// A batch counts by its commands, and its places come back also when its caller
// leaves early.
func TestBatchTakesAPlaceForEachCommand(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TotalLimit = 1000
	h := &crowds{harness: open(t, cfg)}
	hot := h.fundedFor("hot", "b", 1)
	h.must(of("hot", reserve(hot, 0, 1)))
	batch := func(from, n int) (out []ledger.Command) {
		for i := range n {
			out = append(out, of("hot", reserve(hot, from+i, 1)))
		}
		return out
	}
	opened := h.gate.shut()
	ctx, leave := context.WithCancel(context.Background())
	first := make(chan []ledger.Reply, 1)
	go func() { first <- h.DoAll(ctx, batch(1, 400)) }()
	<-h.gate.waiting
	for _, r := range h.DoAll(context.Background(), batch(1000, 101)) {
		if r := h.code(r.Err, ledger.Overloaded); r.Value != "501" || r.Limit != "500" {
			t.Fatalf("second batch: %v", r)
		}
	}
	leave()
	<-first
	taken := h.Stats().Pending // by the batch at the store; the others have gone
	if taken < 1 || taken > int64(cfg.BatchLimit) {
		t.Errorf("%d commands are pending, want those of one batch", taken)
	}
	second := make(chan []ledger.Reply, 1)
	go func() { second <- h.DoAll(context.Background(), batch(1000, 101)) }()
	for h.Stats().Pending < taken+101 {
		runtime.Gosched()
	}
	opened()
	for _, r := range <-second {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if err := h.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := h.Stats(); s.Pending != 0 || s.Tenants != 0 {
		t.Errorf("stats %+v", s)
	}
}

// What the leader does, such as the expiry of a hot tenant's holds, and what other
// nodes have let in already, goes in whatever its tenant has open.
func TestTenantsPartIsForItsOwnCalls(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TotalLimit = 100
	h := &crowds{harness: open(t, cfg)}
	hot := h.fundedFor("hot", "b", 4)
	opened := h.gate.shut()
	h.load(60, func(i int) ledger.Command { return of("hot", reserve(hot, i, 1)) })
	if n := h.Stats().Pending; n != 50 {
		t.Fatalf("%d commands are open, want 50", n)
	}
	forwarded, leaders := make(chan []ledger.Reply, 1), make(chan []ledger.Reply, 1)
	go func() {
		forwarded <- h.Here().DoAll(context.Background(), []ledger.Command{of("hot", reserve(hot, 100, 1))})
	}()
	go func() {
		leaders <- h.DoAll(leading(), []ledger.Command{expire("hot", hot, 0)})
	}()
	for h.Stats().Pending < 52 {
		runtime.Gosched()
	}
	opened()
	if r := (<-forwarded)[0]; r.Err != nil {
		t.Errorf("forwarded: %v", r.Err)
	}
	h.code((<-leaders)[0].Err, ledger.Fenced) // so it came as far as the store
	h.Wait()
}

// Commands on orders without a bucket wait among their tenant's own: releases of
// orders that nobody knows cost other tenants nothing.
func TestUnroutedCommandsWaitByTenant(t *testing.T) {
	cfg := DefaultConfig()
	cfg.QueueLimit = 10
	h := &crowds{harness: open(t, cfg)}
	opened := h.gate.shut()
	release := func(tenant string) func(i int) ledger.Command {
		return func(i int) ledger.Command {
			return ledger.Command{Op: ledger.OpRelease, Key: ledger.OrderKey{Tenant: tenant, Order: "same", Benefit: fmt.Sprint("coupon:", i)}}
		}
	}
	refused := h.load(500, release("hot"))
	for h.Stats().Overloaded == 0 { // what is pending may not be in its queue yet
		runtime.Gosched()
	}
	others := h.load(5, release("quiet"))
	opened()
	h.Wait()
	for _, r := range refused() {
		if r.Field != "queue" || r.Limit != "10" || !strings.Contains(r.Message, `orders of tenant "hot" that have no bucket`) {
			t.Fatalf("refusal %v", r)
		}
	}
	if n := len(others()); n != 0 {
		t.Errorf("%d commands of the quiet tenant were refused: %v", n, others()[0])
	}
}

// A tenant with work in many buckets at once has as many batches at the store as
// there are turns; the batch of another tenant takes the turn after next.
func TestTenantsTakeTurnsAtTheStore(t *testing.T) {
	h := &crowds{harness: open(t, DefaultConfig())}
	hot, quiet := h.fundedFor("hot", "b", 256), h.fundedFor("quiet", "b", 1)
	const limit = 4
	h.turns.limit, h.gate.commits, h.gate.mark = limit, 0, "quiet"
	opened := h.gate.shut()
	h.load(1000, func(i int) ledger.Command { return of("hot", reserve(hot, i, 1)) })
	waits := func(tenant string, n int) {
		for _, own := h.waitingTurns(tenant); own < n; _, own = h.waitingTurns(tenant) {
			runtime.Gosched()
		}
	}
	waits("hot", 200) // of the 256 buckets
	h.load(1, func(i int) ledger.Command { return of("quiet", reserve(quiet, i, 1)) })
	waits("quiet", 1)
	for range limit {
		<-h.gate.waiting
	}
	if n := len(h.gate.waiting); n > 0 {
		t.Errorf("%d batches are at the store, want %d", limit+n, limit)
	}
	for range 2 { // it is let go second
		h.gate.pass()
		<-h.gate.waiting
	}
	h.gate.mu.Lock()
	n := h.gate.marked
	h.gate.mu.Unlock()
	if n != limit+1 && n != limit+2 {
		t.Errorf("the quiet tenant's batch was commit %d, want %d or the next", n, limit+1)
	}
	opened()
	h.Wait()
	if s := h.Stats(); s.Batches > 600 {
		t.Errorf("%d batches for 1001 commands: they did not grow while they waited", s.Batches)
	}
	for h.Stats().Queues > 0 { // the last turns end a moment after their answers
		runtime.Gosched()
	}
	if n, _ := h.waitingTurns(""); n != 0 || h.turns.running != 0 {
		t.Errorf("%d batches wait, %d turns are not given back", n, h.turns.running)
	}
}

// waitingTurns is how many batches wait for the store, and how many of them are a
// tenant's.
func (h *crowds) waitingTurns(tenant string) (all, own int) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	return h.turns.waiting.Len(), h.turns.waiting.Of(tenant)
}

// Commands for another node go there in turns of their tenants: however many of
// one wait, those of another one go with the next call.
func TestTenantsTakeTurnsOnTheWayToAnotherNode(t *testing.T) {
	a, b, p, _ := pair(t)
	a.cfg.QueueLimit = 4 * ForwardLimit
	hot, quiet := a.fundedFor("hot", "b", 4), a.fundedFor("quiet", "b", 4)
	flying, land := make(chan struct{}), make(chan struct{})
	p.answer = func(call int, cmds []ledger.Command) ([]ledger.Reply, error) {
		if call == 1 {
			close(flying)
			<-land
		}
		return b.Here().DoAll(context.Background(), cmds), nil
	}
	var wg sync.WaitGroup
	send := func(tenant string, id ledger.BudgetID, from, n int) {
		var cmds []ledger.Command
		for i := range n {
			cmds = append(cmds, of(tenant, reserve(id, from+i, 1)))
		}
		wg.Go(func() {
			for _, r := range a.DoAll(context.Background(), cmds) {
				if r.Err != nil {
					t.Error(r.Err)
				}
			}
		})
	}
	send("hot", hot, 0, 1)
	<-flying
	send("hot", hot, 1, a.cfg.QueueLimit)
	for a.lane("n2").waiting() < a.cfg.QueueLimit {
		runtime.Gosched()
	}
	r := a.refused(of("hot", reserve(hot, 5000, 1)), ledger.Overloaded)
	if r.Value != "4001" || r.Limit != "4000" || !strings.Contains(r.Message, `tenant "hot"`) {
		t.Errorf("refusal %v", r)
	}
	send("quiet", quiet, 0, 5)
	for a.lane("n2").waiting() < a.cfg.QueueLimit+5 {
		runtime.Gosched()
	}
	close(land)
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	first := 0
	for _, c := range p.calls[1] {
		if c.Key.Tenant == "quiet" {
			first++
		}
	}
	if first != 5 {
		t.Errorf("%d commands of the quiet tenant go with the next call, want all 5", first)
	}
}

func TestLimitsOfSingleTenants(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TenantLimit, cfg.TenantRate, cfg.Tenants = 7, 9, "acme=2000/500, a=b=5/5,quiet=0/0"
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	got, err := cfg.tenants()
	want := map[string]places.Limits{"acme": {Open: 2000, Rate: 500}, "a=b": {Open: 5, Rate: 5}, "quiet": {}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"acme":            `tenants has "acme", which names no tenant (allowed: NAME=LIMIT/RATE,… such as acme=2000/500; 0 is no limit)`,
		"a=1/2,*=3/4":     `tenants has "*=3/4", which names no tenant; tenant_limit and tenant_rate are those of all others (allowed: NAME=LIMIT/RATE,…`,
		"=1/2":            `tenants has "=1/2", which names no tenant`,
		"acme=1":          `tenants has "acme=1", which has no two whole numbers up to 16777215`,
		"acme=1/-1":       `which has no two whole numbers`,
		"acme=1/16777216": `which has no two whole numbers`,
		"acme=1/2,":       `tenants has "", which names no tenant`,
		"a=1/2,a=1/2":     `tenants has "a=1/2", a second time`,
	} {
		cfg.Tenants = text
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
