package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// peers makes every bucket prefer one other node, whose calls the test answers.
type peers struct {
	mu    sync.Mutex
	node  string
	calls [][]ledger.Command
	// answer is called for each call, in order.
	answer func(call int, cmds []ledger.Command) ([]ledger.Reply, error)
}

func (p *peers) Prefer(ledger.BucketID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

func (p *peers) Forward(_ context.Context, node string, cmds []ledger.Command) ([]ledger.Reply, error) {
	p.mu.Lock()
	if node != p.node {
		p.mu.Unlock()
		return nil, fmt.Errorf("forwarded to %q", node)
	}
	p.calls = append(p.calls, cmds)
	n := len(p.calls)
	p.mu.Unlock()
	return p.answer(n, cmds)
}

func (p *peers) sizes() (out []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		out = append(out, len(c))
	}
	return out
}

// pair is a node and another one over the same store, which the first prefers.
func pair(t *testing.T) (a, b *harness, p *peers, id ledger.BudgetID) {
	t.Helper()
	a = open(t, DefaultConfig())
	st, err := store.Open(t.Context(), a.gate, store.Options{Writer: "n2", Prefix: a.prefix})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(DefaultConfig(), st)
	if err != nil {
		t.Fatal(err)
	}
	b = &harness{t: t, gate: a.gate, store: st, Executor: e}
	id = a.funded("hot", 4, 1_000_000, ledger.Policy{})
	p = &peers{node: "n2", answer: func(_ int, cmds []ledger.Command) ([]ledger.Reply, error) {
		return b.Here().DoAll(context.Background(), cmds), nil
	}}
	a.SetPeers(p)
	return a, b, p, id
}

func TestForwards(t *testing.T) {
	a, b, p, id := pair(t)
	back := &peers{node: "n1", answer: func(int, []ledger.Command) ([]ledger.Reply, error) {
		return nil, errors.New("a second hop")
	}}
	b.SetPeers(back)
	got := a.must(reserve(id, 1, 10))
	if got.Outcome.State != ledger.StateReserved || got.Replayed {
		t.Errorf("forwarded reserve: %+v", got)
	}
	if again := a.must(reserve(id, 1, 10)); !again.Replayed || again.Outcome != got.Outcome {
		t.Errorf("again: %+v, want %+v", again.Outcome, got.Outcome)
	}
	r := a.refused(reserve(id, 1, 11), ledger.IdempotencyConflict)
	if len(r.Fields) != 1 || r.Fields[0] != "amount_minor" {
		t.Errorf("refusal %+v", r)
	}
	// Budgets' own commands stay.
	a.must(ledger.Command{Op: ledger.OpFund, Budget: id, Amount: 1, Currency: "BRL", ID: "g"})
	if s := a.Stats(); len(p.sizes()) != 3 || s.Forwarded != 3 || s.Forwards != 3 || s.Active != 1 || len(back.sizes()) != 0 {
		t.Errorf("calls %v, back %v, stats %+v", p.sizes(), back.sizes(), s)
	}
	if b.Stats().Commands != 3 {
		t.Errorf("the other node ran %d commands, want 3", b.Stats().Commands)
	}
}

// One call is in flight to a node; what comes meanwhile goes with the next, in
// order, and the commands of one order keep theirs.
func TestForwardsTogether(t *testing.T) {
	a, b, p, id := pair(t)
	flying, land := make(chan struct{}), make(chan struct{})
	p.answer = func(call int, cmds []ledger.Command) ([]ledger.Reply, error) {
		if call == 1 {
			close(flying)
			<-land
		}
		return b.Here().DoAll(context.Background(), cmds), nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.must(reserve(id, 0, 1)) })
	<-flying
	const more = 40
	for i := 1; i <= more; i++ {
		wg.Go(func() {
			for _, r := range a.DoAll(context.Background(), []ledger.Command{
				reserve(id, i, 10), {Op: ledger.OpCommit, Key: orderKey(i), Budget: id}, {Op: ledger.OpReverse, Key: orderKey(i), Budget: id, ID: "r", Amount: 4},
			}) {
				if r.Err != nil {
					t.Error(r.Err)
				}
			}
		})
	}
	for a.lane("n2").waiting() < 3*more {
		runtime.Gosched()
	}
	close(land)
	wg.Wait()
	if got := p.sizes(); len(got) != 2 || got[0] != 1 || got[1] != 3*more {
		t.Errorf("calls of %v commands, want 1 and %d", got, 3*more)
	}
	if got := a.totals(id); got != (ledger.Balances{Funded: 1_000_000, Available: 1_000_000 - 1 - more*6, Reserved: 1, Committed: more * 10, Reversed: more * 4}) {
		t.Errorf("totals %+v", got)
	}
}

func (l *lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tasks.Len()
}

// A node that does not answer, answers with nothing, or does not take commands:
// they run here, also those that took effect there, and for a while nothing more
// goes there.
func TestForwardFails(t *testing.T) {
	refuse := func(c ledger.Code) func(*harness, []ledger.Command) ([]ledger.Reply, error) {
		return func(_ *harness, cmds []ledger.Command) ([]ledger.Reply, error) {
			out := make([]ledger.Reply, len(cmds))
			for i := range out {
				out[i].Err = &ledger.Rejection{Code: c}
			}
			return out, nil
		}
	}
	for name, answer := range map[string]func(*harness, []ledger.Command) ([]ledger.Reply, error){
		"no answer": func(*harness, []ledger.Command) ([]ledger.Reply, error) { return nil, errors.New("connection refused") },
		"a lost answer": func(b *harness, cmds []ledger.Command) ([]ledger.Reply, error) {
			b.Here().DoAll(context.Background(), cmds)
			return nil, errors.New("connection reset")
		},
		"too few": func(*harness, []ledger.Command) ([]ledger.Reply, error) { return nil, nil },
		"leaving": refuse(ledger.Draining), "no store": refuse(ledger.Unavailable), "unknown": refuse(ledger.OutcomeUnknown),
	} {
		t.Run(name, func(t *testing.T) {
			a, b, p, id := pair(t)
			p.answer = func(_ int, cmds []ledger.Command) ([]ledger.Reply, error) { return answer(b, cmds) }
			for i := range 3 {
				a.must(reserve(id, i, 10))
			}
			if got := a.totals(id); got != (ledger.Balances{Funded: 1_000_000, Available: 999_970, Reserved: 30}) {
				t.Errorf("totals %+v", got)
			}
			if n := count(a.entries(id), ledger.EntryReserve); n != 3 {
				t.Errorf("%d RESERVE entries, want 3", n)
			}
			if got := p.sizes(); len(got) == 0 || a.Stats().RanHere == 0 {
				t.Errorf("calls %v, stats %+v", got, a.Stats())
			}
			if err := a.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	// What the other node refuses for a reason is the answer.
	a, _, p, id := pair(t)
	p.answer = func(_ int, cmds []ledger.Command) ([]ledger.Reply, error) {
		return refuse(ledger.Overloaded)(nil, cmds)
	}
	a.refused(reserve(id, 1, 10), ledger.Overloaded)
}

// The term of a scanner's commands goes with them.
func TestForwardKeepsTerm(t *testing.T) {
	a, _, p, id := pair(t)
	if err := a.store.Claim(t.Context(), 4, "n1"); err != nil {
		t.Fatal(err)
	}
	a.must(reserve(id, 1, 10))
	c := ledger.Command{Op: ledger.OpExpire, Key: orderKey(1), Budget: id}
	a.code(a.DoAll(store.WithTerm(t.Context(), 3), []ledger.Command{c})[0].Err, ledger.Fenced)
	a.code(a.DoAll(store.WithTerm(t.Context(), 4), []ledger.Command{c})[0].Err, ledger.NotDue)
	if got := p.calls[1][0].Term; got != 3 {
		t.Errorf("forwarded with term %d, want 3", got)
	}
}

// A caller that leaves does not end the call of the others, and its command is
// counted out when the answer comes.
func TestForwardedCallerLeaves(t *testing.T) {
	a, b, p, id := pair(t)
	flying, land := make(chan struct{}), make(chan struct{})
	p.answer = func(_ int, cmds []ledger.Command) ([]ledger.Reply, error) {
		close(flying)
		<-land
		return b.Here().DoAll(context.Background(), cmds), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		_, err := a.Do(ctx, reserve(id, 1, 10))
		got <- err
	}()
	<-flying
	cancel()
	a.code(<-got, ledger.OutcomeUnknown)
	close(land)
	if err := a.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := a.totals(id).Reserved; got != 10 {
		t.Errorf("%d reserved, want 10", got)
	}
}

func TestPrefer(t *testing.T) {
	nodes := []string{"n1", "n2", "n3"}
	load := map[string]int{}
	moved, from := 0, 0
	for i := range 3000 {
		b := ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t", Key: fmt.Sprint("b", i%300)}, Index: uint16(i / 300)}
		got := Prefer(b, nodes)
		if other := Prefer(b, []string{"n3", "n1", "n2"}); other != got {
			t.Fatalf("%s: %s or %s, by the order of the nodes", b, got, other)
		}
		load[got]++
		if got == "n2" {
			from++
		}
		if after := Prefer(b, []string{"n1", "n3"}); after != got {
			if got != "n2" {
				t.Fatalf("%s moved from %s to %s although n2 left", b, got, after)
			}
			moved++
		}
	}
	for _, n := range nodes {
		if load[n] < 850 || load[n] > 1150 {
			t.Errorf("buckets by node: %v, want about 1000 each", load)
		}
	}
	if moved != from || Prefer(ledger.BucketID{}, nil) != "" {
		t.Errorf("%d of %d buckets moved", moved, from)
	}
}

// Whether a reserve that nobody could take is answered with no benefit is for
// the node to say that has the caller: it may take the command itself.
func TestForwardedReserveIsNotSkipped(t *testing.T) {
	a, b, p, _ := pair(t)
	id := a.funded("low risk", 1, 1000, ledger.Policy{OnUnavailable: ledger.SkipBenefit})
	var there error
	p.answer = func(_ int, cmds []ledger.Command) ([]ledger.Reply, error) {
		b.must(ledger.Command{Op: ledger.OpRelease, Key: orderKey(99), Budget: id}) // it knows the budget now
		b.cfg.QueueLimit = 0                                                        // and has no room
		replies := b.Here().DoAll(context.Background(), cmds)
		there = replies[0].Err
		return replies, errors.New("and cut off")
	}
	if r := a.must(reserve(id, 1, 10)); r.Skipped || r.Outcome.State != ledger.StateReserved {
		t.Errorf("reserve: %+v", r)
	}
	b.code(there, ledger.Overloaded)
}

// The leader's clock says what is due. A node that is behind does not keep the
// holds in its buckets from expiring, nor is it given a rest for it.
func TestForwardedExpiryGoesByTheLeadersClock(t *testing.T) {
	a, b, p, id := pair(t)
	st, err := store.Open(t.Context(), a.gate, store.Options{
		Writer: "n3", Prefix: a.prefix, Now: func() time.Time { return time.Now().Add(24 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	leader, err := New(DefaultConfig(), st)
	if err != nil {
		t.Fatal(err)
	}
	leader.SetPeers(p)
	b.must(reserve(id, 1, 10))
	expire := ledger.Command{Op: ledger.OpExpire, Key: orderKey(1), Budget: id}
	b.refused(expire, ledger.NotDue)
	if r, err := leader.Do(t.Context(), expire); err != nil || r.Outcome.State != ledger.StateExpired {
		t.Errorf("expire: %+v, %v", r.Outcome, err)
	}
	a.must(reserve(id, 2, 10))
	if s := leader.Stats(); s.RanHere != 1 || leader.lane("n2").rests() {
		t.Errorf("%+v, rests %v", s, leader.lane("n2").rests())
	}
}

// A node that keeps failing is tried less and less often, and at once again when
// it has answered.
func TestRestsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{node: "n2", answer: func(_ int, cmds []ledger.Command) ([]ledger.Reply, error) {
			return make([]ledger.Reply, len(cmds)), nil
		}}
		l := &lane{e: &Executor{peers: p}, node: "n2"}
		for _, s := range []int{1, 2, 4, 8, 16, 32, 32} {
			want := time.Duration(s) * time.Second
			l.runHere(nil)
			if time.Sleep(want - time.Nanosecond); !l.rests() {
				t.Errorf("the rest ends before %s", want)
			}
			if time.Sleep(time.Nanosecond); l.rests() {
				t.Errorf("the rest goes on after %s", want)
			}
		}
		l.send(nil)
		l.runHere(nil)
		if time.Sleep(time.Second); l.rests() {
			t.Error("the rest is longer than at first, once the node has answered")
		}
	})
}
