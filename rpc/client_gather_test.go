package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// flights is how many batches fly at once in tests of what waits: as many as
// lone commands start.
const flights = 2

// stage is an execute function that the test lets go, batch by batch.
type stage struct {
	begun chan []*cofferv1.Command
	end   chan error
}

func newStage() *stage { return &stage{begun: make(chan []*cofferv1.Command), end: make(chan error)} }

func (s *stage) execute(_ context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
	s.begun <- msgs
	if err := <-s.end; err != nil {
		return nil, err
	}
	return answers(msgs), nil
}

// answers gives each command its own order id back.
func answers(msgs []*cofferv1.Command) *cofferv1.ExecuteResponse {
	res := &cofferv1.ExecuteResponse{}
	for _, m := range msgs {
		res.Results = append(res.Results, &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Outcome{
			Outcome: &cofferv1.Outcome{OrderId: m.GetReserve().GetOrderId()},
		}})
	}
	return res
}

func orderCommandNamed(order string) *cofferv1.Command {
	return &cofferv1.Command{Command: &cofferv1.Command_Reserve{Reserve: &cofferv1.ReserveRequest{
		OrderId: order, BenefitKey: "b", Budget: "spring", AmountMinor: 1, Currency: "BRL", Ttl: durationpb.New(1e9),
	}}}
}

func one(ctx context.Context, g *gatherer, msg *cofferv1.Command) (*cofferv1.CommandResult, error) {
	keys, _ := shareable(msg)
	return g.one(ctx, msg, keys)
}

// waiting blocks until n commands wait in the gatherer.
func waiting(g *gatherer, n int) {
	for {
		g.mu.Lock()
		got := g.waiting
		g.mu.Unlock()
		if got == n {
			return
		}
		runtime.Gosched()
	}
}

// landed blocks until no flight is left.
func landed(g *gatherer) {
	for {
		g.mu.Lock()
		left := g.flights
		g.mu.Unlock()
		if left == 0 {
			return
		}
		runtime.Gosched()
	}
}

// crowd sends commands and collects their answers.
type crowd struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	got  map[string]int
	errs map[string]error
}

func newCrowd() *crowd { return &crowd{got: map[string]int{}, errs: map[string]error{}} }

func (c *crowd) send(ctx context.Context, g *gatherer, name, order string) {
	c.wg.Go(func() {
		res, err := one(ctx, g, orderCommandNamed(order))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[name] = err
		if err == nil {
			c.got[res.GetOutcome().GetOrderId()]++
		}
	})
}

func TestLoneCommandGoesAtOnceAndACrowdTogether(t *testing.T) {
	s := newStage()
	g := &gatherer{most: flights, execute: s.execute}
	c := newCrowd()
	for i := range flights {
		c.send(t.Context(), g, fmt.Sprint(i), fmt.Sprint("first", i))
		if batch := <-s.begun; len(batch) != 1 {
			t.Fatalf("a lone command went with %d", len(batch))
		}
	}
	const n = 40
	for i := range n {
		c.send(t.Context(), g, fmt.Sprint("c", i), fmt.Sprint("o", i))
	}
	waiting(g, n)
	s.end <- nil
	if batch := <-s.begun; len(batch) != n {
		t.Errorf("%d of %d went with the next batch", len(batch), n)
	}
	for range flights {
		s.end <- nil
	}
	c.wg.Wait()
	if len(c.got) != n+flights {
		t.Errorf("%d answers, want %d: %v", len(c.got), n+flights, c.errs)
	}
	for order, times := range c.got {
		if times != 1 {
			t.Errorf("answer for %s came %d times", order, times)
		}
	}
}

// While a crowd travels, a few do not leave one by one: they wait until as
// many are there, or until the crowd is answered.
func TestFewDoNotFlyBesideACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		s := newStage()
		g := &gatherer{most: flights, execute: s.execute, flights: flights}
		c := newCrowd()
		send := func(from, to int) {
			for i := from; i < to; i++ {
				c.send(t.Context(), g, fmt.Sprint(i), fmt.Sprint("o", i))
			}
		}
		send(0, 8)
		waiting(g, 8)
		g.mu.Lock()
		g.flights = 1
		g.mu.Unlock()
		go g.fly()
		if batch := <-s.begun; len(batch) != 8 {
			t.Fatalf("batch of %d, want 8", len(batch))
		}
		send(8, 15)
		waiting(g, 7)
		if g.mu.Lock(); g.flights != 1 {
			t.Errorf("%d flights with 7 waiting beside 8, want 1", g.flights)
		}
		g.mu.Unlock()
		send(15, 16)
		if batch := <-s.begun; len(batch) != 8 {
			t.Errorf("batch of %d, want 8", len(batch))
		}
		send(16, 17)
		waiting(g, 1)
		s.end <- nil // one of two returns and finds fewer than travel
		s.end <- nil
		if batch := <-s.begun; len(batch) != 1 {
			t.Errorf("batch of %d, want the one that waited", len(batch))
		}
		s.end <- nil
		c.wg.Wait()
		if len(c.got) != 17 {
			t.Errorf("%d answers, want 17: %v", len(c.got), c.errs)
		}
		landed(g)
		if g.aloft != 0 {
			t.Errorf("%d commands aloft once all flights have ended", g.aloft)
		}
	})
}

func TestOneKeyNeverSharesABatch(t *testing.T) {
	s := newStage()
	g := &gatherer{most: flights, execute: s.execute}
	c := newCrowd()
	for i := range flights {
		c.send(t.Context(), g, fmt.Sprint(i), fmt.Sprint("first", i))
		<-s.begun
	}
	for i := range 3 {
		c.send(t.Context(), g, fmt.Sprint("same", i), "same")
		c.send(t.Context(), g, fmt.Sprint("other", i), fmt.Sprint("other", i))
	}
	waiting(g, 6)
	s.end <- nil
	if batch := <-s.begun; len(batch) != 4 { // one of the three, and the others
		t.Errorf("batch of %d, want 4", len(batch))
	}
	// The other two follow one by one, whichever flight returns first.
	go func() {
		for range 4 {
			s.end <- nil
		}
	}()
	for range 2 {
		if batch := <-s.begun; len(batch) != 1 || batch[0].GetReserve().GetOrderId() != "same" {
			t.Errorf("batch %v, want one of the same key", batch)
		}
	}
	c.wg.Wait()
	if c.got["same"] != 3 {
		t.Errorf("answers %v, errors %v", c.got, c.errs)
	}
}

func TestCancelledCommandLeavesItsBatchAlone(t *testing.T) {
	s := newStage()
	g := &gatherer{most: flights, execute: s.execute}
	c := newCrowd()
	flying, stopFlying := context.WithCancel(t.Context())
	for i := range flights {
		c.send(flying, g, fmt.Sprint("flying", i), fmt.Sprint("first", i))
		<-s.begun
	}
	queued, leave := context.WithCancel(t.Context())
	c.send(queued, g, "queued", "q")
	c.send(t.Context(), g, "stays", "s")
	waiting(g, 2)
	leave()
	waiting(g, 1)
	stopFlying()
	for c.count() < 1+flights { // the one that left the queue and those in flight have their errors
		runtime.Gosched()
	}
	s.end <- nil
	if batch := <-s.begun; len(batch) != 1 || batch[0].GetReserve().GetOrderId() != "s" {
		t.Errorf("batch %v, want the one that stayed", batch)
	}
	for range flights {
		s.end <- nil
	}
	c.wg.Wait()
	if err := c.errs["queued"]; !errors.Is(err, context.Canceled) || judge(err, false).unknown {
		t.Errorf("a command that was never sent ends with %v", err)
	}
	if err := c.errs["flying0"]; !errors.Is(err, context.Canceled) || !judge(err, false).unknown {
		t.Errorf("a command in flight ends with %v, which is not unknown", err)
	}
	if c.errs["stays"] != nil {
		t.Error(c.errs["stays"])
	}
}

func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.errs)
}

// A batch that is refused as a whole is taken apart: only the culprit fails.
func TestOneCulpritFailsAlone(t *testing.T) {
	refuse := connect.NewError(connect.CodeInvalidArgument, "message too large")
	g := &gatherer{most: flights, flights: flights, execute: func(_ context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
		for _, m := range msgs {
			if m.GetReserve().GetOrderId() == "o5" {
				return nil, refuse
			}
		}
		return answers(msgs), nil
	}}
	c := newCrowd()
	for i := range 16 {
		c.send(t.Context(), g, fmt.Sprint("o", i), fmt.Sprint("o", i))
	}
	waiting(g, 16)
	g.fly() // one batch of all of them
	c.wg.Wait()
	for name, err := range c.errs {
		if (name == "o5") != errors.Is(err, refuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(c.got) != 15 {
		t.Errorf("%d answers, want 15", len(c.got))
	}
}

func TestQueueIsBounded(t *testing.T) {
	g := &gatherer{most: flights, flights: flights, waiting: maxGathered}
	_, err := one(t.Context(), g, orderCommandNamed("o"))
	if v := judge(err, true); v.err.Code != connect.CodeUnavailable || v.unknown || !v.again {
		t.Errorf("got %v: %+v", err, v)
	}
}

func TestRefusalOutOfABatchReadsLikeOneAlone(t *testing.T) {
	w := newWorld(t)
	w.exec.do = func(ledger.Command) (ledger.Result, error) {
		return ledger.Result{}, &ledger.Rejection{Code: ledger.InsufficientBudget, Field: "amount_minor", Value: "5", Limit: "3", Message: "exceeds it"}
	}
	_, together := w.client(t).Reserve(t.Context(), reserveRequest())
	_, alone := w.client(t, WithoutBatching()).Reserve(t.Context(), reserveRequest())
	if together.Error() != alone.Error() || refusal(t, together).Detail.GetField() != "amount_minor" || refusal(t, together).Code != refusal(t, alone).Code {
		t.Errorf("in a batch %q, alone %q", together, alone)
	}
	bad := reserveRequest()
	bad.OrderId = "\xff"
	if _, err := w.client(t).Reserve(t.Context(), bad); ReasonOf(err) == "" && connect.CodeOf(err) == connect.CodeUnknown {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

// A caller that left owns its message again, also while the batch is written.
func TestCallerMayReuseItsMessage(t *testing.T) {
	s := newStage()
	g := &gatherer{most: flights, execute: s.execute}
	ctx, leave := context.WithCancel(t.Context())
	msg := orderCommandNamed("before")
	ended := make(chan error)
	go func() { _, err := one(ctx, g, msg); ended <- err }()
	batch := <-s.begun
	leave()
	<-ended
	msg.GetReserve().OrderId = "after"
	if got := batch[0].GetReserve().GetOrderId(); got != "before" {
		t.Errorf("the batch says %q", got)
	}
	s.end <- nil
}

// Small calls of several commands share batches, too: each stays whole and in
// order, one that uses a key of another waits with all that it has, and a
// refusal names the place in its own call.
func TestSmallCallsTravelTogether(t *testing.T) {
	var mu sync.Mutex
	var batches [][]string
	g := &gatherer{most: flights, flights: flights, execute: func(_ context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
		res := answers(msgs)
		var orders []string
		for i, m := range msgs {
			orders = append(orders, m.GetReserve().GetOrderId())
			if m.GetReserve().GetOrderId() == "bad" {
				field := fmt.Sprintf("commands[%d].ttl", i)
				res.Results[i] = &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: commandError(
					&ledger.Rejection{Code: ledger.DuplicateInBatch, Field: field, Message: "has the same key as commands[" + fmt.Sprint(i-1) + "]"})}}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, orders)
		return res, nil
	}}
	c := &Client{gather: g, opt: clientOptions{maxAttempts: 1}}
	got := map[string][]*cofferv1.CommandResult{}
	var wg sync.WaitGroup
	total := 0
	call := func(name string, orders ...string) {
		var msgs []*cofferv1.Command
		for _, o := range orders {
			msgs = append(msgs, orderCommandNamed(o))
		}
		wg.Go(func() {
			res, err := c.Execute(t.Context(), msgs)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[name] = res
		})
		total += len(orders)
		waiting(g, total)
	}
	call("first", "a", "b")
	call("second", "b", "c")
	call("third", "c", "d")
	call("fourth", "e", "bad")
	g.flights = 1
	g.fly()
	wg.Wait()
	if want := "[[a b e bad] [b c] [c d]]"; fmt.Sprint(batches) != want {
		t.Errorf("batches %v, want %s", batches, want)
	}
	for name, want := range map[string][]string{"first": {"a", "b"}, "second": {"b", "c"}, "third": {"c", "d"}} {
		for i, r := range got[name] {
			if r.GetOutcome().GetOrderId() != want[i] {
				t.Errorf("%s[%d] is %v", name, i, r)
			}
		}
	}
	if d := got["fourth"][1].GetError().GetDetail(); d.GetField() != "commands[1].ttl" || d.GetMessage() != "has the same key as commands[0]" {
		t.Errorf("the refusal says %v", d)
	}
}

// What is large, or cannot share a message, goes by itself.
func TestLargeCallsGoAlone(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	c.gather.execute = func(context.Context, []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
		return nil, errors.New("gathered")
	}
	var many []*cofferv1.Command
	for i := range maxParcel + 1 {
		many = append(many, orderCommandNamed(fmt.Sprint("o", i)))
	}
	for name, msgs := range map[string][]*cofferv1.Command{"many": many, "none": {{}}} {
		if res, err := c.Execute(t.Context(), msgs); err != nil || len(res) != len(msgs) {
			t.Errorf("%s: %d results, %v", name, len(res), err)
		}
	}
	if _, err := c.Execute(t.Context(), many[:maxParcel]); err == nil {
		t.Error("a small call was not gathered")
	}
}
