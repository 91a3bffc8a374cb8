package shard

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// leading is the context of what a leader does, whom the store then fences off:
// so a refusal with FENCED came as far as the store.
func leading() context.Context { return store.WithTerm(context.Background(), 7) }

func expire(tenant string, b ledger.BudgetID, i int) ledger.Command {
	return of(tenant, ledger.Command{Op: ledger.OpExpire, Key: orderKey(i), Attempt: 1, Budget: b})
}

// committing is an executor whose commits stand still until opened, with a budget of
// one bucket of tenant hot, whose order 0 is at the store.
func committing(t *testing.T, cfg Config) (h *crowds, hot ledger.BudgetID, opened func()) {
	t.Helper()
	h = &crowds{harness: open(t, cfg)}
	hot = h.fundedFor("hot", "b", 1)
	hot.Tenant = "hot"
	opened = h.gate.shut()
	h.load(1, func(int) ledger.Command { return of("hot", reserve(hot, 0, 1)) })
	<-h.gate.waiting
	return h, hot, opened
}

// Where many tenants have taken every place, what the leader does and what other
// nodes have let in goes in all the same: holds expire however busy tenants are.
func TestFullNodeTakesItsOwnAndForwarded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TotalLimit = 20
	h := &crowds{harness: open(t, cfg)}
	budgets := map[string]ledger.BudgetID{}
	for i := range 20 {
		tenant := fmt.Sprint("t", i)
		budgets[tenant] = h.fundedFor(tenant, "b", 1)
	}
	opened := h.gate.shut()
	for tenant, b := range budgets {
		h.load(20, func(i int) ledger.Command { return of(tenant, reserve(b, i, 1)) })
	}
	if n := h.Stats().Pending; n != 20 {
		t.Fatalf("%d commands are open, want all 20", n)
	}
	var forward, due []ledger.Command
	for i := range 100 {
		forward = append(forward, of("t0", reserve(budgets["t0"], 100+i, 1)))
		due = append(due, expire("t1", budgets["t1"], i))
	}
	forwarded, leaders := make(chan []ledger.Reply, 1), make(chan []ledger.Reply, 1)
	go func() { forwarded <- h.Here().DoAll(context.Background(), forward) }()
	go func() { leaders <- h.DoAll(leading(), due) }()
	for h.Stats().Pending < 220 && len(forwarded)+len(leaders) == 0 {
		runtime.Gosched()
	}
	opened()
	for _, r := range <-forwarded {
		if r.Err != nil {
			t.Fatalf("forwarded: %v", r.Err)
		}
	}
	for _, r := range <-leaders {
		h.code(r.Err, ledger.Fenced)
	}
	h.Wait()
	if err := h.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.Stats(); s.Pending != 0 || s.Tenants != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A bucket whose queue its tenant keeps full takes what the leader sends: the
// queue must not keep the money of its holds for ever. So does the way to another
// node.
func TestFullQueueTakesTheLeaders(t *testing.T) {
	cfg := DefaultConfig()
	cfg.QueueLimit = 2
	h, hot, opened := committing(t, cfg)
	refused := h.load(50, func(i int) ledger.Command { return of("hot", reserve(hot, 1+i, 1)) })
	for h.Stats().Overloaded < 48 { // what is pending may not be in its queue yet
		runtime.Gosched()
	}
	leaders := make(chan []ledger.Reply, 1)
	go func() {
		leaders <- h.DoAll(leading(), []ledger.Command{expire("hot", hot, 0), expire("hot", hot, 1), expire("hot", hot, 2)})
	}()
	for at := (ledger.BucketID{Budget: hot}); h.queued(at) < cfg.QueueLimit+3 && len(leaders) == 0; {
		runtime.Gosched()
	}
	opened()
	for _, r := range <-leaders {
		h.code(r.Err, ledger.Fenced)
	}
	h.Wait()
	for _, r := range refused() {
		if r.Field != "queue" || r.Value != "3" || r.Limit != "2" {
			t.Fatalf("refusal %v", r)
		}
	}
}

// Commands that nobody waits for any more take no room in a bucket's queue: while
// a commit is slow, callers that gave up do not keep those out that come after.
func TestCallersThatLeftTakeNoRoom(t *testing.T) {
	cfg := DefaultConfig()
	cfg.QueueLimit = 100
	h, hot, opened := committing(t, cfg)
	at := ledger.BucketID{Budget: hot}
	for round := range 5 {
		ctx, leave := context.WithCancel(context.Background())
		left := make(chan error, cfg.QueueLimit)
		for i := range cfg.QueueLimit {
			go func() { _, err := h.Do(ctx, of("hot", reserve(hot, 1000*(round+1)+i, 1))); left <- err }()
		}
		for h.Stats().Pending < int64(1+cfg.QueueLimit) || h.queued(at) < cfg.QueueLimit {
			if len(left) > 0 {
				t.Fatalf("round %d: %v", round, <-left)
			}
			runtime.Gosched()
		}
		h.refused(of("hot", reserve(hot, 9999, 1)), ledger.Overloaded) // by callers that wait
		leave()
		for range cfg.QueueLimit {
			h.code(<-left, ledger.Unavailable)
		}
	}
	if n := h.queued(at); n != 0 {
		t.Errorf("%d commands wait that nobody waits for", n)
	}
	stayed := h.load(cfg.QueueLimit, func(i int) ledger.Command { return of("hot", reserve(hot, 1+i, 1)) })
	opened()
	h.Wait()
	if n := len(stayed()); n != 0 {
		t.Errorf("%d of %d commands were refused: %v", n, cfg.QueueLimit, stayed()[0])
	}
	if got, want := h.totals(hot).Reserved, int64(1+cfg.QueueLimit); got != want {
		t.Errorf("%d is reserved, want %d: what was given up must not run", got, want)
	}
}

// Nor do they take memory: their places are free for more.
func TestCallersThatLeftTakeNoMemory(t *testing.T) {
	h, hot, opened := committing(t, DefaultConfig())
	at := ledger.BucketID{Budget: hot}
	const rounds, commands, patient = 20, 1000, 200
	h.load(patient, func(i int) ledger.Command { return of("hot", reserve(hot, 1+i, 1)) })
	for h.queued(at) < patient {
		runtime.Gosched()
	}
	for round := range rounds {
		var cmds []ledger.Command
		for i := range commands {
			cmds = append(cmds, of("hot", reserve(hot, commands*(1+round)+i, 1)))
		}
		ctx, leave := context.WithCancel(context.Background())
		left := make(chan []ledger.Reply, 1)
		go func() { left <- h.DoAll(ctx, cmds) }()
		for h.queued(at) < patient+commands {
			runtime.Gosched()
		}
		leave()
		for _, r := range <-left {
			h.code(r.Err, ledger.Unavailable)
		}
		if n := h.queued(at); n > patient+commands/10 {
			t.Fatalf("%d commands are in the queue after %d rounds, of which %d are waited for", n, round+1, patient)
		}
	}
	opened()
	h.Wait()
	if got := h.totals(hot).Reserved; got != 1+patient {
		t.Errorf("%d is reserved, want %d", got, 1+patient)
	}
}

// Calls of commands of several tenants have a part together, as a tenant has.
func TestCallsOfSeveralTenantsHaveAPart(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TotalLimit = 20
	h := &crowds{harness: open(t, cfg)}
	hot, quiet := h.fundedFor("hot", "b", 1), h.fundedFor("quiet", "b", 1)
	both := func(i int) []ledger.Command {
		return []ledger.Command{of("hot", reserve(hot, i, 1)), of("quiet", reserve(quiet, i, 1))}
	}
	opened := h.gate.shut()
	var answers []chan []ledger.Reply
	for i := range 5 {
		answer := make(chan []ledger.Reply, 1)
		answers = append(answers, answer)
		go func() { answer <- h.DoAll(context.Background(), both(i)) }()
	}
	for h.Stats().Pending < 10 {
		runtime.Gosched()
	}
	for _, r := range h.DoAll(context.Background(), both(5)) {
		if r := h.code(r.Err, ledger.Overloaded); r.Value != "12" || r.Limit != "10" {
			t.Errorf("above their part: %v", r)
		}
	}
	h.sent.Add(10) // those that are pending
	others := h.load(1, func(int) ledger.Command { return of("hot", reserve(hot, 6, 1)) })
	opened()
	h.Wait()
	if n := len(others()); n != 0 {
		t.Errorf("a call of one of them was refused: %v", others()[0])
	}
	for i, answer := range answers {
		for _, r := range <-answer {
			if r.Err != nil {
				t.Errorf("call %d: %v", i, r.Err)
			}
		}
	}
}
