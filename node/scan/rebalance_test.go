package scan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// books is a ledger with an executor, for scanners that look at real budgets.
type books struct {
	t     testing.TB
	store *store.Store
	*shard.Executor
}

func openBooks(t testing.TB) *books {
	t.Helper()
	engine, prefix := testengine.Open(t)
	st, err := store.Open(t.Context(), engine, store.Options{Writer: "n1", Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	e, err := shard.New(shard.DefaultConfig(), st)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		_ = engine.Close()
	})
	return &books{t: t, store: st, Executor: e}
}

func (b *books) must(cmds ...ledger.Command) (last ledger.Result) {
	b.t.Helper()
	for _, c := range cmds {
		var err error
		if last, err = b.Do(context.Background(), c); err != nil {
			b.t.Fatalf("%s: %v", c.Op, err)
		}
	}
	return last
}

func bookID(name string) ledger.BudgetID { return ledger.BudgetID{Tenant: "t", Key: name} }

func (b *books) funded(name string, buckets int, amount int64, p ledger.Policy) ledger.BudgetID {
	b.t.Helper()
	id := bookID(name)
	b.must(ledger.Command{Op: ledger.OpCreate, Budget: id, Currency: "BRL", Buckets: buckets, Policy: p},
		ledger.Command{Op: ledger.OpFund, Budget: id, Amount: amount, Currency: "BRL", ID: "fund " + name})
	return id
}

func paid(id ledger.BudgetID, order string, amount int64) []ledger.Command {
	k := ledger.OrderKey{Tenant: "t", Order: order, Benefit: "b"}
	return []ledger.Command{
		{Op: ledger.OpReserve, Key: k, Budget: id, Amount: amount, Currency: "BRL", TTL: time.Hour},
		{Op: ledger.OpCommit, Key: k},
	}
}

func (b *books) available(id ledger.BudgetID) (out []int64) {
	b.t.Helper()
	v, err := b.store.Budget(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range v.Buckets {
		out = append(out, v.Buckets[i].Available)
	}
	return out
}

func (b *books) audit() {
	b.t.Helper()
	rep, err := b.store.Audit(context.Background(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range rep.Checks {
		if c.Problems > 0 {
			b.t.Errorf("audit: %s: %q", c.Name, c.Examples)
		}
	}
}

func (b *books) rebalance(cfg RebalanceConfig, adapt shard.Adapting) *Rebalance {
	b.t.Helper()
	r, err := NewRebalance(cfg, adapt, b.store, b.Executor, b.Executor, zerolog.Nop())
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// quick is the default without pauses.
func quick() RebalanceConfig {
	c := DefaultRebalanceConfig()
	c.Rate = 1 << 20
	return c
}

func TestRebalanceLevelsAndFolds(t *testing.T) {
	b := openBooks(t)
	skewed := b.funded("skewed", 4, 400, ledger.Policy{})
	b.must(ledger.Command{Op: ledger.OpMove, Budget: skewed, From: 1, To: 0, Amount: 100, ID: "m1"}, ledger.Command{Op: ledger.OpMove, Budget: skewed, From: 2, To: 0, Amount: 90, ID: "m2"})
	level := b.funded("level", 4, 402, ledger.Policy{})
	// A STRICT budget gets money back in buckets that it has retired.
	strict := b.funded("strict", 8, 800, ledger.Policy{Exhaustion: ledger.Strict})
	for i := range 40 {
		b.must(paid(strict, fmt.Sprint("o", i), 1)...)
	}
	b.must(ledger.Command{Op: ledger.OpReshard, Budget: strict, Buckets: 2, ID: "down"})
	for i := range 40 {
		b.must(ledger.Command{Op: ledger.OpReverse, Key: ledger.OrderKey{Tenant: "t", Order: fmt.Sprint("o", i), Benefit: "b"}, ID: "r", Amount: 1})
	}
	frozen := b.funded("frozen", 2, 200, ledger.Policy{})
	b.must(ledger.Command{Op: ledger.OpMove, Budget: frozen, From: 1, To: 0, Amount: 100, ID: "m3"}, ledger.Command{Op: ledger.OpFreeze, Budget: frozen, ID: "f"})
	r := b.rebalance(quick(), shard.DefaultAdapting())
	if err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.available(skewed)); got != "[100 100 100 100]" {
		t.Errorf("the skewed budget has %s", got)
	}
	if got := fmt.Sprint(b.available(level)); got != "[101 101 100 100]" {
		t.Errorf("the level budget has %s", got)
	}
	if got := b.available(strict); got[0]+got[1] != 800 || len(got) != 8 {
		t.Errorf("the budget with retired buckets has %d", got)
	}
	if got := fmt.Sprint(b.available(frozen)); got != "[200 0]" {
		t.Errorf("the frozen budget has %s", got)
	}
	s := r.Status()
	if s.Passes != 1 || s.Budgets != 4 || s.Moves == 0 || s.Refused != 0 || s.Deferred != 0 || s.WidestSkew < 2 {
		t.Errorf("%+v", s)
	}
	if err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := r.Status(); again.Moves != s.Moves || again.WidestSkew > 0.5 {
		t.Errorf("a level ledger is moved about: %+v", again)
	}
	b.audit()
}

// Over pages and the limit of a pass: every budget gets its turn.
func TestRebalanceWalksAllBudgets(t *testing.T) {
	b := openBooks(t)
	var ids []ledger.BudgetID
	for i := range 40 {
		id := b.funded(fmt.Sprintf("b%02d", i), 2, 200, ledger.Policy{})
		b.must(ledger.Command{Op: ledger.OpMove, Budget: id, From: 1, To: 0, Amount: 100, ID: fmt.Sprint("m", i)})
		ids = append(ids, id)
	}
	cfg := quick()
	cfg.PassLimit = 25
	r := b.rebalance(cfg, shard.DefaultAdapting())
	for pass, want := range []uint64{25, 40} {
		if err := r.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := r.Status(); s.Budgets != want || s.Moves != want {
			t.Errorf("pass %d: %+v", pass, s)
		}
	}
	for _, id := range ids {
		if got := fmt.Sprint(b.available(id)); got != "[100 100]" {
			t.Errorf("%s has %s", id, got)
		}
	}
	b.audit()
}

// Two loops at once, and customers who spend the money meanwhile: sums are
// kept, nothing is moved twice for one reason, and the audit is in order.
func TestTwoRebalancersUnderLoad(t *testing.T) {
	b := openBooks(t)
	const funds = 1 << 40 // however long it takes, the customers do not run out of it
	id := b.funded("hot", 8, funds, ledger.Policy{Exhaustion: ledger.Exact})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				b.must(paid(id, fmt.Sprintf("w%d-%d", w, i), 10)...)
			}
		})
	}
	loops := []*Rebalance{b.rebalance(quick(), shard.DefaultAdapting()), b.rebalance(quick(), shard.DefaultAdapting())}
	for i := range 15 {
		v, err := b.store.Budget(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		from := uint16(i % 8)
		_, err = b.Do(ctx, ledger.Command{Op: ledger.OpMove, Budget: id, From: from, To: (from + 1) % 8, Amount: v.Buckets[from].Available / 2, ID: fmt.Sprint("skew", i)})
		if err != nil && !errors.Is(err, &ledger.Rejection{Code: ledger.InsufficientBudget}) {
			t.Error(err)
		}
		var both sync.WaitGroup
		for _, r := range loops {
			both.Go(func() {
				if err := r.Pass(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	cancel()
	wg.Wait()
	v, err := b.store.Budget(t.Context(), id)
	if err != nil || v.Total.Funded != funds || v.Total.Available+v.Total.Committed != funds {
		t.Errorf("%+v, %v", v.Total, err)
	}
	b.audit()
	t.Logf("%+v\n%+v", loops[0].Status(), loops[1].Status())
}

// pressed is a budget with a load that the test says.
type pressed struct {
	mu    sync.Mutex
	view  store.BudgetView
	load  shard.BucketLoad
	sent  []ledger.Command
	code  ledger.Code
	fault error
	// grows is how many entries each bucket gets from one look to the next.
	grows uint64
}

func (p *pressed) AllBudgets(_ context.Context, _ []byte, _ int, want func(*ledger.Budget) bool) (store.BudgetPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.view.Buckets {
		p.view.Buckets[i].Seq += p.grows
	}
	page := store.BudgetPage{Looked: 1}
	if want(&p.view.Budget) {
		page.Budgets = []store.BudgetView{p.view}
	}
	return page, p.fault
}

func (p *pressed) Loads(ledger.BudgetID) map[uint16]shard.BucketLoad {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint16]shard.BucketLoad{}
	for i := range p.view.Epoch.Buckets {
		out[i] = p.load
	}
	return out
}

func (p *pressed) DoAll(_ context.Context, cmds []ledger.Command) []ledger.Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]ledger.Reply, len(cmds))
	for i, c := range cmds {
		p.sent = append(p.sent, c)
		if p.code != "" {
			out[i].Err = &ledger.Rejection{Code: p.code, Message: "said the test"}
		} else if c.Op == ledger.OpReshard {
			p.view.Epoch = ledger.Epoch{Number: p.view.Epoch.Number + 1, Buckets: uint16(c.Buckets)}
		}
	}
	return out
}

// The number of buckets follows the load: up while much waits, each time after
// the cool-down, and down again when all is quiet.
func TestAdaptFollowsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pressed{load: shard.BucketLoad{Queued: 1000, Rate: 500}}
		p.view.Budget = ledger.Budget{ID: bookID("hot"), State: ledger.BudgetOpen, Epoch: ledger.Epoch{Number: 1, Buckets: 1}}
		p.view.Total = ledger.Balances{Funded: 100, Available: 100}
		adapt := shard.DefaultAdapting()
		adapt.Enabled, adapt.Max, adapt.CoolDown = true, 4, time.Minute
		cfg := quick()
		cfg.Enabled = false
		r, err := NewRebalance(cfg, adapt, p, p, p, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		buckets := func() uint16 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.view.Epoch.Buckets
		}
		for _, want := range []uint16{1, 2, 4, 4} {
			time.Sleep(55 * time.Second)
			if got := buckets(); got != want {
				t.Errorf("%d buckets, want %d", got, want)
			}
			time.Sleep(20 * time.Second) // past the cool-down and one more pass
		}
		p.mu.Lock()
		p.load = shard.BucketLoad{}
		p.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if got := buckets(); got != 1 {
			t.Errorf("%d buckets when all is quiet, want 1", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if s := r.Status(); s.Resharded != 4 || s.Moves != 0 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A loop of a term that has passed ends; what the state no longer allows is
// counted and no fault; what the store did not take fails the pass.
func TestRebalanceRefusals(t *testing.T) {
	for code, want := range map[ledger.Code]struct {
		fails             bool
		refused, deferred uint64
	}{
		ledger.InsufficientBudget: {false, 1, 0}, ledger.BudgetIllegalState: {false, 1, 0}, ledger.IdempotencyConflict: {false, 1, 0},
		ledger.Unavailable: {true, 0, 1}, ledger.Overloaded: {true, 0, 1}, ledger.Fenced: {true, 0, 0},
	} {
		p := &pressed{code: code}
		p.view.Budget = ledger.Budget{ID: bookID("b"), State: ledger.BudgetOpen, Epoch: ledger.Epoch{Number: 1, Buckets: 2}}
		p.view.Total = ledger.Balances{Funded: 100, Available: 100}
		p.view.Buckets = []ledger.Bucket{{Balances: p.view.Total}, {ID: ledger.BucketID{Index: 1}}}
		r, err := NewRebalance(quick(), shard.DefaultAdapting(), p, p, p, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		err = r.Pass(t.Context())
		if s := r.Status(); (err != nil) != want.fails || s.Refused != want.refused || s.Deferred != want.deferred || s.Moves != 0 || len(p.sent) != 1 {
			t.Errorf("%s: %v, %+v", code, err, s)
		}
		if code == ledger.Fenced {
			if err := r.Run(t.Context()); !fenced(err) {
				t.Errorf("a loop that was fenced off ends with %v", err)
			}
		}
	}
	off := DefaultRebalanceConfig()
	off.Enabled = false
	r, err := NewRebalance(off, shard.DefaultAdapting(), &pressed{}, &pressed{}, &pressed{}, zerolog.Nop())
	if err != nil || r.Run(t.Context()) != nil {
		t.Errorf("a loop that is off: %v", err)
	}
	if _, err := NewRebalance(RebalanceConfig{}, shard.Adapting{}, nil, nil, nil, zerolog.Nop()); err == nil {
		t.Error("a zero configuration is taken")
	}
}
