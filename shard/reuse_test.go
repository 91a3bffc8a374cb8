package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coffer-ledger/coffer/ledger"
)

// What a call was told stays: answers that come after it has ended change
// nothing that its caller has in hand.
func TestLateAnswersChangeNothing(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("B", 1, 1000, ledger.Policy{})
	open := h.gate.shut()
	ctx, leave := context.WithCancel(t.Context())
	got := make(chan []ledger.Reply)
	go func() {
		got <- h.DoAll(ctx, []ledger.Command{reserve(b, 1, 1), {Op: ledger.OpReserve, Budget: b}, reserve(b, 2, 1)})
	}()
	<-h.gate.waiting
	leave()
	replies := <-got
	before := fmt.Sprint(replies)
	h.code(replies[0].Err, ledger.OutcomeUnknown)
	h.code(replies[1].Err, ledger.InvalidArgument)
	if replies[2].Err == nil { // it went with the first, or still waits
		t.Errorf("the third was answered: %+v", replies[2])
	}
	open()
	if err := h.Drain(t.Context()); err != nil { // both have landed
		t.Fatal(err)
	}
	if after := fmt.Sprint(replies); after != before {
		t.Errorf("the answers were %s and became %s", before, after)
	}
}

// Commands reach the store in memory that batches share one after another.
// Nothing of a batch may be left in it, nor read from it, once the next one
// uses it: each hold has the order, amount, lines and answer of its own command,
// also where conflicts repeat the batch and callers leave.
func TestUsedMemoryKeepsNothing(t *testing.T) {
	cfg := DefaultConfig()
	cfg.BatchLimit = 8
	h := open(t, cfg)
	b := h.funded("B", 4, 1e9, ledger.Policy{})
	const callers, calls = 12, 25
	quoted := func(id int) ledger.Command {
		c := reserve(b, id, int64(2*id+10))
		c.Correlation = fmt.Sprint("for ", id)
		c.Quote = &ledger.Quote{ID: fmt.Sprint("q", id), Lines: []ledger.QuoteLine{
			{ID: fmt.Sprint("l", id, "a"), Quantity: 1, Amount: int64(id + 4)}, {ID: fmt.Sprint("l", id, "b"), Quantity: 1, Amount: int64(id + 6)},
		}}
		return c
	}
	var mu sync.Mutex
	known := map[int]bool{}
	var wg sync.WaitGroup
	for caller := range callers {
		rnd := rand.New(rand.NewPCG(3, uint64(caller)))
		wg.Go(func() {
			for call := range calls {
				ctx, leave := context.WithCancel(t.Context())
				var cmds []ledger.Command
				first := 1000*caller + 10*call
				for id := first; id < first+1+rnd.IntN(5); id++ {
					cmds = append(cmds, quoted(id), ledger.Command{Op: ledger.OpCommit, Key: orderKey(id), Budget: b, ID: fmt.Sprint("p", id)})
				}
				if rnd.IntN(4) == 0 {
					go leave()
				}
				for i, r := range h.DoAll(ctx, cmds) {
					var rej *ledger.Rejection
					switch {
					case r.Err == nil && (r.Result.Key != cmds[i].Key || r.Result.Outcome.Amount != int64(2*(first+i/2)+10)):
						t.Errorf("%s of %s got %+v", cmds[i].Op, cmds[i].Key, r.Result)
					case r.Err == nil && i%2 == 0:
						mu.Lock()
						known[first+i/2] = true
						mu.Unlock()
					case r.Err != nil && (!errors.As(r.Err, &rej) || rej.Code != ledger.Unavailable && rej.Code != ledger.OutcomeUnknown):
						t.Errorf("%s of %s: %v", cmds[i].Op, cmds[i].Key, r.Err)
					}
				}
				leave()
			}
		})
	}
	wg.Wait()
	if err := h.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(known) < callers*calls/2 {
		t.Errorf("only %d reserves were answered", len(known))
	}
	for id := range known {
		row, err := h.store.Reservation(t.Context(), orderKey(id))
		if err != nil {
			t.Fatal(err)
		}
		all, err := h.store.Allocations(t.Context(), orderKey(id))
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		at, q := row.Attempt(1), all[0].Quote
		if at.Correlation != fmt.Sprint("for ", id) || at.Leg.Amount != int64(2*id+10) || q.ID != fmt.Sprint("q", id) ||
			len(q.Lines) != 2 || q.Lines[1].ID != fmt.Sprint("l", id, "b") || q.Lines[1].Amount != int64(id+6) {
			t.Fatalf("order %d has %+v with %+v", id, at, q)
		}
	}
}

// So does what calls of one command need: each gets the answer of its own
// command, also beside callers that leave while theirs is queued or runs.
func TestUsedCallsKeepNothing(t *testing.T) {
	cfg := DefaultConfig()
	cfg.BatchLimit = 4
	h := open(t, cfg)
	b := h.funded("B", 2, 1e9, ledger.Policy{})
	const callers, calls = 16, 100
	var stayed, answered atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		rnd := rand.New(rand.NewPCG(7, uint64(caller)))
		wg.Go(func() {
			for call := range calls {
				ctx, leave := context.WithCancel(t.Context())
				id := calls*caller + call
				c := reserve(b, id, int64(id+1))
				left := false
				switch rnd.IntN(4) {
				case 0:
					left = true
					go leave()
				case 1:
					c.Currency = "XXX"
				default:
					stayed.Add(1)
				}
				got, err := h.Do(ctx, c)
				leave()
				var rej *ledger.Rejection
				switch {
				case err == nil && (got.Key != c.Key || got.Outcome.Amount != c.Amount || c.Currency == "XXX"):
					t.Errorf("%s of %d got %+v", c.Key, c.Amount, got)
				case err == nil && !left:
					answered.Add(1)
				case err == nil:
				case !errors.As(err, &rej) || rej.Code != ledger.Unavailable && rej.Code != ledger.OutcomeUnknown && (rej.Code != ledger.CurrencyMismatch || c.Currency != "XXX"):
					t.Errorf("%s: %v", c.Key, err)
				}
			}
		})
	}
	wg.Wait()
	if err := h.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, of := answered.Load(), stayed.Load(); n != of {
		t.Errorf("%d reserves of %d were accepted", n, of)
	}
	if n := h.Stats().Pending; n != 0 {
		t.Errorf("%d commands are still pending", n)
	}
}

// meddler is the context of a call that has ended; a batch takes what it finds
// whenever the context is asked for its cause.
type meddler struct {
	context.Context
	meddle func()
}

func (m meddler) Value(key any) any { m.meddle(); return m.Context.Value(key) }

// A caller that leaves takes no command from before one that runs: a commit
// never goes without its reserve.
func TestNothingRunsWithoutWhatComesBefore(t *testing.T) {
	ended, leave := context.WithCancel(t.Context())
	leave()
	tasks := make([]task, 3)
	for i := range tasks {
		tasks[i].reply = &ledger.Reply{}
	}
	batch := func() {
		for i := range tasks {
			tasks[i].state.CompareAndSwap(taskQueued, taskTaken)
		}
	}
	replies := takeAll(meddler{ended, batch}, tasks)
	for i, want := range []ledger.Code{ledger.OutcomeUnknown, ledger.OutcomeUnknown, ledger.Unavailable} {
		var r *ledger.Rejection
		if !errors.As(replies[i].Err, &r) || r.Code != want {
			t.Errorf("command %d: %v, want %s", i, replies[i].Err, want)
		}
	}
}

// Where there was no room for a command, there is none for what comes after it
// on the same benefit, though room was made in between; in another queue, too.
func TestNothingRunsBehindACommandTurnedAway(t *testing.T) {
	h := open(t, DefaultConfig())
	b := h.funded("B", 1, 1000, ledger.Policy{})
	full := &ledger.Rejection{Code: ledger.Overloaded, Field: "queue", Message: "is full"}
	chain := func() (*group, []task, []ledger.Reply) {
		g := &group{e: h.Executor, done: make(chan struct{}, 1)}
		g.left.Store(3)
		tasks, replies := make([]task, 3), make([]ledger.Reply, 3)
		for i := range tasks {
			tasks[i].cmd = ledger.Command{Op: ledger.OpCommit, Key: orderKey(1), Budget: b}.Normalize()
			tasks[i].group, tasks[i].reply, tasks[i].at, tasks[i].routed = g, &replies[i], ledger.BucketID{Budget: b}, true
		}
		return g, tasks, replies
	}
	told := func(g *group, replies []ledger.Reply) {
		t.Helper()
		<-g.done
		if h.code(replies[0].Err, ledger.Overloaded) != full {
			t.Errorf("the first: %v", replies[0].Err)
		}
		for _, r := range replies[1:] {
			if rej := h.code(r.Err, ledger.Overloaded); rej.RetryAfter <= 0 {
				t.Errorf("%v has no delay", rej)
			}
		}
	}
	g, tasks, replies := chain() // in one queue
	for i := range tasks[1:] {
		tasks[i].followed, tasks[i+1].after = true, &tasks[i]
	}
	tasks[0].turnAway(full)
	h.placeIn(&tasks[1], nil)
	h.placeIn(&tasks[2], h.lane("n2"))
	told(g, replies)

	g, tasks, replies = chain() // each waits for the one before it
	for i := range tasks[1:] {
		tasks[i].next, tasks[i+1].waits = &tasks[i+1], true
	}
	tasks[0].turnAway(full)
	told(g, replies)
}
