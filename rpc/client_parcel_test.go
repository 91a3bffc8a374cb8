package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// Whatever string of a command is not UTF-8, the command keeps to itself: it
// would make a message of a thousand others' unreadable.
func TestNoUnreadableStringIsShared(t *testing.T) {
	tried := 0
	var spoil func(root *cofferv1.Command, m protoreflect.Message, path string)
	spoil = func(root *cofferv1.Command, m protoreflect.Message, path string) {
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			here := path + "." + string(f.Name())
			switch {
			case f.Kind() == protoreflect.StringKind && !f.IsList():
				before := m.Get(f)
				m.Set(f, protoreflect.ValueOfString("\xff"))
				if _, ok := shareable(root); ok {
					t.Errorf("%s is shared although it is not UTF-8", here)
				}
				if before.String() == "" {
					m.Clear(f)
				} else {
					m.Set(f, before)
				}
				tried++
			case f.Kind() == protoreflect.StringKind:
				t.Errorf("%s is a list of strings, which this test does not know", here)
			case f.Kind() == protoreflect.MessageKind && f.IsList():
				l := m.Mutable(f).List()
				spoil(root, l.AppendMutable().Message(), here+"[]")
				m.Clear(f)
			case f.Kind() == protoreflect.MessageKind:
				had := m.Has(f)
				spoil(root, m.Mutable(f).Message(), here)
				if !had {
					m.Clear(f)
				}
			}
		}
	}
	kinds := (&cofferv1.Command{}).ProtoReflect().Descriptor().Fields()
	for i := range kinds.Len() {
		c := &cofferv1.Command{}
		f := kinds.Get(i)
		sub := c.ProtoReflect().Mutable(f).Message()
		if _, ok := shareable(c); !ok {
			t.Errorf("an empty %s is not shared", f.Name())
		}
		spoil(c, sub, string(f.Name()))
	}
	if tried < 60 {
		t.Errorf("only %d strings were tried", tried)
	}
}

// An answer with another number of results than of commands tells nothing
// about any of them.
func TestAnswerOfWrongLengthLeavesAllUnknown(t *testing.T) {
	short := func(_ context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
		return &cofferv1.ExecuteResponse{Results: answers(msgs).GetResults()[1:]}, nil
	}
	for name, n := range map[string]int{"gathered": 3, "alone": maxParcel + 1} {
		c := &Client{gather: &gatherer{most: flights, execute: short}, opt: clientOptions{maxAttempts: 1}}
		c.reservations = fakeReservations{execute: func(ctx context.Context, r *cofferv1.ExecuteRequest) (*cofferv1.ExecuteResponse, error) {
			return short(ctx, r.GetCommands())
		}}
		var msgs []*cofferv1.Command
		for i := range n {
			msgs = append(msgs, orderCommandNamed(fmt.Sprint("o", i)))
		}
		results, err := c.Execute(t.Context(), msgs)
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%s: the error is %v", name, err)
		}
		for i, r := range results {
			if got := r.GetError().GetDetail().GetReason(); got != string(ledger.OutcomeUnknown) {
				t.Errorf("%s: command %d is %v", name, i, r)
			}
		}
	}
}

// An answer that says nothing is none.
func TestEmptyAnswerIsNoOutcome(t *testing.T) {
	g := &gatherer{most: flights, execute: func(context.Context, []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
		return &cofferv1.ExecuteResponse{Results: []*cofferv1.CommandResult{{}}}, nil
	}}
	c := &Client{gather: g, opt: clientOptions{maxAttempts: 2, firstDelay: time.Microsecond}}
	c.reservations = fakeReservations{}
	o, err := c.Reserve(t.Context(), orderCommandNamed("o").GetReserve())
	if o != nil || !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v, %v", o, err)
	}
}

// What a caller put into the headers of its call is for its commands alone,
// the tenant above all.
func TestCallWithHeadersGoesAlone(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	ctx, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set(TenantHeader, "other")
	if _, err := c.Reserve(ctx, reserveRequest()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Execute(ctx, []*cofferv1.Command{commitCommand("o", "p")}); err != nil {
		t.Fatal(err)
	}
	for _, ran := range w.exec.commands() {
		if ran.Key.Tenant != "other" {
			t.Errorf("%s ran as tenant %q", ran.Op, ran.Key.Tenant)
		}
	}
}

// fakeReservations answers Execute by a function.
type fakeReservations struct {
	cofferv1connect.ReservationServiceClient
	execute func(context.Context, *cofferv1.ExecuteRequest) (*cofferv1.ExecuteResponse, error)
}

func (f fakeReservations) Execute(ctx context.Context, r *cofferv1.ExecuteRequest) (*cofferv1.ExecuteResponse, error) {
	return f.execute(ctx, r)
}

// A name that looks like a place in a batch stays as it is.
func TestNamesThatLookLikePlacesStay(t *testing.T) {
	g := &gatherer{most: flights, flights: flights, execute: func(_ context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
		res := answers(msgs)
		for i := range msgs {
			res.Results[i] = &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: commandError(&ledger.Rejection{
				Code: ledger.BudgetNotFound, Field: commandField(i) + ".budget", Value: "commands[0]", Message: "commands[0] does not exist",
			})}}
		}
		return res, nil
	}}
	c := &Client{gather: g, opt: clientOptions{maxAttempts: 1}}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			res, err := c.Execute(t.Context(), []*cofferv1.Command{orderCommandNamed(fmt.Sprint("o", i))})
			d := res[0].GetError().GetDetail()
			if err != nil || d.GetField() != "commands[0].budget" || d.GetValue() != "commands[0]" || d.GetMessage() != "commands[0] does not exist" {
				t.Errorf("%v, %v", d, err)
			}
		})
		waiting(g, i+1)
	}
	g.flights = 1
	g.fly()
	wg.Wait()
}

// The time of an attempt runs while its commands wait for a batch, too. A call
// that never left is certainly not done, and says so in one line.
func TestAttemptTimeRunsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gatherer{most: flights, flights: flights} // both are away, for ever
		c := &Client{gather: g, opt: clientOptions{maxAttempts: 3, attemptTimeout: time.Second, firstDelay: time.Millisecond}}
		start := time.Now()
		results, err := c.Execute(t.Context(), []*cofferv1.Command{orderCommandNamed("a"), orderCommandNamed("b")})
		var e *Error
		if !errors.As(err, &e) || e.Unknown || e.Attempts != 3 || strings.Contains(err.Error(), "\n") {
			t.Errorf("the error is %q, %+v", err, e)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("three attempts of a second took %s", took)
		}
		for _, r := range results {
			if r.GetError().GetDetail().GetReason() != string(ledger.Unavailable) {
				t.Errorf("%v", r)
			}
		}
		if g.waiting != 0 || len(g.queue) != 0 {
			t.Errorf("%d wait after their caller left", g.waiting)
		}
	})
}

// Commands of a call on one benefit run in their order. One that was refused
// because the one before it had not been taken is sent again with it.
func TestWhatFollowsAnUntakenCommandIsSentAgain(t *testing.T) {
	w := newWorld(t)
	busy := true
	reserved := map[string]bool{}
	w.exec.do = func(c ledger.Command) (ledger.Result, error) { // DoAll runs them one by one
		switch {
		case c.Op == ledger.OpReserve && busy && c.Key.Order == "late":
			busy = false
			return ledger.Result{}, &ledger.Rejection{Code: ledger.Overloaded, Message: "busy"}
		case c.Op == ledger.OpReserve:
			reserved[c.Key.Order] = true
		case !reserved[c.Key.Order]:
			return ledger.Result{}, &ledger.Rejection{Code: ledger.ReservationNotFound, Message: "there is none"}
		}
		return accepted(c), nil
	}
	results, err := w.client(t).Execute(t.Context(), []*cofferv1.Command{
		orderCommandNamed("late"), commitCommand("late", "p"), commitCommand("none", "p"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].GetError() != nil || results[1].GetError() != nil {
		t.Errorf("the pair ended as %v, %v", results[0], results[1])
	}
	if results[2].GetError().GetDetail().GetReason() != string(ledger.ReservationNotFound) {
		t.Errorf("a commit of nothing ended as %v", results[2])
	}
	if n := len(w.exec.commands()); n != 5 {
		t.Errorf("%d commands ran, want 3 and then 2", n)
	}
}

// moody is a server in memory that loses answers, refuses whole batches and
// single commands, and remembers what it did.
type moody struct {
	mu    sync.Mutex
	rnd   *rand.Rand
	first map[commandKey]string // who took effect
	done  map[string]bool       // by the name of the call that sent it
	t     *testing.T
}

// execute fails in one of its moods, before or after it ran the commands.
func (m *moody) execute(ctx context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mood := m.rnd.IntN(10)
	switch {
	case mood == 0 && len(msgs) > 1:
		return nil, connect.NewError(connect.CodeInvalidArgument, "message too large")
	case mood == 1:
		return nil, wireError(ctx, &ledger.Rejection{Code: ledger.Draining, Message: "shutting down"})
	}
	seen := map[commandKey]int{}
	res := &cofferv1.ExecuteResponse{}
	for i, msg := range msgs {
		c, _ := commandOf("", msg)
		r := duplicate(seen, &c, i)
		if r == nil && m.rnd.IntN(8) == 0 {
			r = &ledger.Rejection{Code: ledger.Overloaded, Field: commandField(i), Message: "busy"}
		}
		if r != nil {
			res.Results = append(res.Results, &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: commandError(r)}})
			continue
		}
		if !strings.HasPrefix(c.Correlation, "call") {
			m.t.Errorf("a message was changed while it was under way: %v", msg)
		}
		k := keyOf(&c)
		if m.first[k] == "" {
			m.first[k] = c.Correlation
		}
		m.done[c.Correlation] = true
		res.Results = append(res.Results, &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Outcome{
			Outcome: &cofferv1.Outcome{OrderId: c.Key.Order, Replayed: m.first[k] != c.Correlation},
		}})
	}
	switch mood {
	case 2:
		return nil, http.ErrServerClosed
	case 3:
		return &cofferv1.ExecuteResponse{Results: res.GetResults()[1:]}, nil
	}
	return res, nil
}

// Many callers share few keys with a server that fails in all ways, and leave
// at random. Each gets the answer of its own commands, and none is told that
// a command was not done that was.
func TestNobodyIsToldLies(t *testing.T) {
	const callers, calls, orders = 16, 40, 40
	m := &moody{rnd: rand.New(rand.NewPCG(7, 7)), first: map[commandKey]string{}, done: map[string]bool{}, t: t}
	c := &Client{gather: &gatherer{most: maxFlights, execute: m.execute}, opt: clientOptions{maxAttempts: 3, firstDelay: time.Microsecond}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var undone []string
	answered := 0
	for caller := range callers {
		rnd := rand.New(rand.NewPCG(7, uint64(caller)))
		wg.Go(func() {
			for call := range calls {
				name := fmt.Sprintf("call %d/%d", caller, call)
				ctx, leave := context.WithCancel(t.Context())
				if rnd.IntN(3) == 0 {
					go leave()
				}
				msgs := make([]*cofferv1.Command, 1+rnd.IntN(maxParcel))
				for i := range msgs {
					msgs[i] = orderCommandNamed(fmt.Sprint("o", rnd.IntN(orders)))
					msgs[i].GetReserve().CorrelationId = fmt.Sprint(name, " #", i)
				}
				sent := make([]*cofferv1.Command, len(msgs))
				for i := range msgs {
					sent[i] = proto.CloneOf(msgs[i])
				}
				results, err := c.Execute(ctx, msgs)
				leave()
				for i := range msgs { // they are the caller's again
					msgs[i].GetReserve().CorrelationId = "changed"
				}
				mu.Lock()
				for i, r := range results {
					want := sent[i].GetReserve()
					d := r.GetError().GetDetail()
					switch {
					case d == nil && r.GetOutcome().GetOrderId() != want.GetOrderId():
						t.Errorf("%s: %s got %v", want.GetCorrelationId(), want.GetOrderId(), r)
					case d == nil:
						answered++
					case d.GetReason() == string(ledger.DuplicateInBatch):
						at := slices.IndexFunc(sent, func(m *cofferv1.Command) bool { return m.GetReserve().GetOrderId() == want.GetOrderId() })
						if at == i || d.GetField() != commandField(i) || d.GetMessage() != "has the same key as "+commandField(at) {
							t.Errorf("%s: %v, want one that names %d and %d", name, d, i, at)
						}
					case d.GetReason() == string(ledger.Overloaded):
						if d.GetField() != commandField(i) {
							t.Errorf("%s: %v, want %s", name, d, commandField(i))
						}
						undone = append(undone, want.GetCorrelationId())
					case d.GetReason() != string(ledger.OutcomeUnknown):
						undone = append(undone, want.GetCorrelationId())
					case err != nil && !errors.Is(err, ErrOutcomeUnknown):
						t.Errorf("%s: unknown is %v, the call's error %v", name, r, err)
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	landed(c.gather)
	for _, name := range undone {
		if m.done[name] {
			t.Errorf("%s was told that it was not done, and it was", name)
		}
	}
	if answered < 500 || len(undone) < 100 || c.gather.waiting != 0 || c.gather.aloft != 0 {
		t.Errorf("%d answered, %d not done, %d wait, %d travel", answered, len(undone), c.gather.waiting, c.gather.aloft)
	}
}

// A large batch that does not come back, as of a bucket that is stuck, holds up
// a few that come later no longer than it takes to see that.
func TestFewPassABatchThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := &gatherer{most: flights, flights: flights, execute: func(_ context.Context, msgs []*cofferv1.Command) (*cofferv1.ExecuteResponse, error) {
			if strings.HasPrefix(msgs[0].GetReserve().GetOrderId(), "stuck") {
				<-release
			}
			return answers(msgs), nil
		}}
		c := newCrowd()
		for i := range 20 {
			c.send(t.Context(), g, fmt.Sprint("stuck", i), fmt.Sprint("stuck", i))
		}
		waiting(g, 20)
		g.flights = 1
		go g.fly()
		synctest.Wait()
		c.send(t.Context(), g, "early", "early")
		synctest.Wait()
		if c.count() != 0 {
			t.Error("a lone command flew beside a crowd")
		}
		time.Sleep(maxBeside)
		c.send(t.Context(), g, "late", "late")
		synctest.Wait()
		if c.got["early"] != 1 || c.got["late"] != 1 || c.count() != 2 {
			t.Errorf("answered while the crowd is stuck: %v", c.got)
		}
		close(release)
		c.wg.Wait()
		landed(g)
		if len(c.got) != 22 || g.aloft != 0 {
			t.Errorf("%d answers, %d travel", len(c.got), g.aloft)
		}
	})
}
