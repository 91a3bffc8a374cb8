package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger"
)

// The model keeps, for each budget, five numbers, and for each attempt its
// amounts: no buckets, no receipts, no entries. It knows the rules of the state
// machine in the plainest form, and what each key was first used for.

type modelBudget struct {
	state                         ledger.BudgetState
	policy                        ledger.Policy
	available, reserved, net, sum int64 // net: committed − reversed; sum: funded
}

type modelAttempt struct {
	state                                     ledger.State
	budget                                    string
	amount, held, lapsed, committed, reversed int64
	expires                                   time.Time
	refunds                                   map[string]int64 // by id, 0 once undone
	sinks                                     map[string]string
}

type model struct {
	b        *bench
	budgets  map[string]*modelBudget
	attempts map[string]map[uint32]*modelAttempt
	done     map[string]string // key of an accepted or recorded command → its request and answer
}

var modelBudgets = map[string]struct {
	buckets int
	policy  ledger.Policy
}{
	"exact":   {4, ledger.Policy{LateCommit: ledger.LateReclaim, OverCommit: ledger.OverCommit{Percent: 20}, ReversalSink: budgetID("sinker")}},
	"single":  {1, ledger.Policy{LateCommit: ledger.LateCase, Exhaustion: ledger.Strict, OverCommit: ledger.OverCommit{Amount: 3}}},
	"sinker":  {2, ledger.Policy{}},
	"unalloc": {3, ledger.Policy{LateCommit: ledger.LateReclaim}},
}

func newModel(t testing.TB) *model {
	m := &model{b: newBench(t), budgets: map[string]*modelBudget{}, attempts: map[string]map[uint32]*modelAttempt{}, done: map[string]string{}}
	for _, name := range []string{"sinker", "exact", "single", "unalloc"} {
		def := modelBudgets[name]
		m.b.ok(create(name, def.buckets, def.policy))
		m.b.ok(onBudget(ledger.OpFund, name, "start-"+name, 60))
		m.budgets[name] = &modelBudget{state: ledger.BudgetOpen, policy: def.policy, available: 60, sum: 60}
	}
	return m
}

// step sends one random command to the ledger and to the model.
func (m *model) step(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "control") == 0 {
		m.controlStep(t)
		return
	}
	order := fmt.Sprint("o", rapid.IntRange(0, 5).Draw(t, "order"))
	last, n := m.last(order)
	if rapid.IntRange(0, 9).Draw(t, "earlier") == 0 {
		n = rapid.Uint32Range(1, n+1).Draw(t, "attempt")
		last = m.of(order, n)
	}
	op := rapid.SampledFrom(usual(last)).Draw(t, "op")
	if rapid.IntRange(0, 4).Draw(t, "unusual") == 0 {
		op = ledger.Op(rapid.IntRange(int(ledger.OpReserve), int(ledger.OpResolve)).Draw(t, "any op"))
	}
	amount := rapid.Int64Range(1, 30).Draw(t, "amount")
	c := on(op, order, rapid.SampledFrom([]string{"i1", "i2", "i3", "i4"}).Draw(t, "id"), 0)
	c.Attempt = max(n, 1)
	switch op {
	case ledger.OpReserve:
		budget := rapid.SampledFrom([]string{"exact", "exact", "single", "sinker", "unalloc"}).Draw(t, "budget")
		c = withAttempt(reserve(budget, order, amount), c.Attempt)
		if last != nil && !last.state.HoldsMoney() {
			c.Attempt++
		}
		c.TTL = time.Duration(rapid.IntRange(1, 20).Draw(t, "ttl")) * time.Minute
	case ledger.OpCommit:
		if c.Partial = rapid.Bool().Draw(t, "partial"); c.Partial || rapid.Bool().Draw(t, "some") {
			c.Amount = amount
		}
	case ledger.OpReverse:
		c.Amount = (amount + 2) / 3
	case ledger.OpExpire:
		c.ID = ""
	case ledger.OpResolve:
		c.Target = rapid.SampledFrom([]ledger.Op{ledger.OpCommit, ledger.OpRelease, ledger.OpReverse}).Draw(t, "target")
		m.resolve(t, c)
		return
	}
	m.send(t, c)
}

func (m *model) controlStep(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "buckets") == 0 {
		m.bucketStep(t)
		return
	}
	ops := []ledger.Op{ledger.OpFund, ledger.OpFund, ledger.OpFund, ledger.OpFund, ledger.OpDefund, ledger.OpDefund, ledger.OpFreeze, ledger.OpUnfreeze, ledger.OpUnfreeze, ledger.OpClose}
	budget := rapid.SampledFrom([]string{"exact", "single", "sinker", "unalloc"}).Draw(t, "budget")
	c := onBudget(rapid.SampledFrom(ops).Draw(t, "op"), budget, fmt.Sprint("k", rapid.IntRange(0, 40).Draw(t, "key")), 0)
	if c.Op == ledger.OpFund || c.Op == ledger.OpDefund {
		c.Amount = rapid.Int64Range(1, 100).Draw(t, "amount")
	}
	m.send(t, c)
}

// bucketStep reshards a budget or moves money between its buckets. To the model
// neither changes anything; only of the EXACT budgets is that true.
func (m *model) bucketStep(t *rapid.T) {
	budget := rapid.SampledFrom([]string{"exact", "sinker", "unalloc"}).Draw(t, "budget")
	c := onBudget(ledger.OpReshard, budget, fmt.Sprint("b", rapid.IntRange(0, 60).Draw(t, "key")), 0)
	view, err := m.b.Budget(t.Context(), c.Budget)
	if err != nil {
		t.Fatal(causes(err))
	}
	if rapid.Bool().Draw(t, "reshard") {
		if c.Buckets = rapid.IntRange(1, 9).Draw(t, "n"); c.Buckets == view.Budget.Buckets() {
			c.Buckets++
		}
	} else {
		c.Op = ledger.OpMove
		c.From = uint16(rapid.IntRange(0, view.Made()-1).Draw(t, "from"))
		c.To = uint16(rapid.IntRange(0, view.Budget.Buckets()-1).Draw(t, "to"))
		have := view.Buckets[c.From].Available
		if c.From == c.To || have == 0 {
			return
		}
		c.Amount = rapid.Int64Range(1, have).Draw(t, "amount")
	}
	m.send(t, c)
}

// last is the latest attempt of an order, and its number.
func (m *model) last(order string) (*modelAttempt, uint32) {
	n := uint32(0)
	for k := range m.attempts[order] {
		n = max(n, k)
	}
	return m.of(order, n), n
}

// usual lists what tends to come next.
func usual(a *modelAttempt) []ledger.Op {
	if a == nil {
		return []ledger.Op{ledger.OpReserve, ledger.OpReserve, ledger.OpReserve, ledger.OpReserve, ledger.OpRelease}
	}
	switch a.state {
	case ledger.StateReserved:
		return []ledger.Op{ledger.OpCommit, ledger.OpCommit, ledger.OpCommit, ledger.OpExtend, ledger.OpRelease, ledger.OpExpire, ledger.OpExpire}
	case ledger.StateReleased, ledger.StateExpired:
		return []ledger.Op{ledger.OpReclaim, ledger.OpCommit, ledger.OpReserve}
	case ledger.StateCommitted, ledger.StatePartlyReversed:
		return []ledger.Op{ledger.OpReverse, ledger.OpReverse, ledger.OpReverse, ledger.OpReinstate, ledger.OpCommit}
	case ledger.StateReversed:
		return []ledger.Op{ledger.OpReinstate, ledger.OpReserve}
	default:
		return []ledger.Op{ledger.OpReserve}
	}
}

// send compares the ledger's answer with the model's.
func (m *model) send(t *rapid.T, c ledger.Command) {
	key, req := m.key(c), fmt.Sprintf("%s %s %d %s %v %d %d %d", c.Op, c.Budget, c.Amount, c.TTL, c.Partial, c.Buckets, c.From, c.To)
	if c.Op != ledger.OpReserve && !c.Op.OnBudget() {
		req = fmt.Sprintf("%s %d %v", c.Op, c.Amount, c.Partial)
	}
	got := m.b.one(c)
	code := codeOf(t, got.Err)
	if first, ok := m.done[key]; ok {
		var want string
		switch {
		case first == "void":
			want = string(ledger.Voided)
		case first[:len(first)-len(tail(first))] != req+"|":
			want = string(ledger.IdempotencyConflict)
		default:
			want = tail(first)
		}
		if string(code) != want {
			t.Fatalf("%s again (%s, first %q): %q, want %q: %v", c.Op, req, first, code, want, got.Err)
		}
		if want == "" && !got.Result.Replayed {
			t.Fatalf("%s again is not replayed", c.Op)
		}
		return
	}
	want := m.decide(&c)
	if code != want {
		t.Fatalf("%s of %s (attempt %d, %s): the ledger says %q (%v), the model %q", c.Op, c.Key, c.Attempt, req, code, got.Err, want)
	}
	if got.Err == nil && got.Result.Replayed {
		t.Fatalf("%s is replayed the first time", c.Op)
	}
	if want == "" || (c.Op == ledger.OpReserve && want.Info().Recorded) {
		m.done[key] = req + "|" + string(want)
	}
}

func tail(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '|' {
			return s[i+1:]
		}
	}
	return ""
}

func (m *model) key(c ledger.Command) string {
	if c.Op.OnBudget() {
		return "budget " + c.ID
	}
	return fmt.Sprint(c.Key, c.Attempt, c.Op, c.ID)
}

func codeOf(t *rapid.T, err error) ledger.Code {
	var r *ledger.Rejection
	if err == nil {
		return ""
	}
	if !errors.As(err, &r) {
		t.Fatalf("an error that is no rejection: %v", err)
	}
	return r.Code
}

// resolve voids an operation that has not happened.
func (m *model) resolve(t *rapid.T, c ledger.Command) {
	key := fmt.Sprint(c.Key, c.Attempt, c.Target, c.ID)
	first, known := m.done[key]
	if !known && m.of(c.Key.Order, c.Attempt) == nil {
		return // the model does not follow attempts that are only void
	}
	got := m.b.ok(c)
	if void := !known || first == "void"; got.Void != void {
		t.Fatalf("resolve of %s: void %v, want %v", key, got.Void, void)
	}
	if !known {
		m.done[key] = "void"
	}
}

func (m *model) of(order string, attempt uint32) *modelAttempt { return m.attempts[order][attempt] }

// check compares the sums.
func (m *model) check(t *rapid.T) {
	for name, want := range m.budgets {
		got := m.b.totals(budgetID(name))
		if got.Funded != want.sum || got.Available != want.available || got.Reserved != want.reserved || got.Committed-got.Reversed != want.net {
			t.Fatalf("budget %s has %+v, the model %+v", name, got, *want)
		}
	}
}

func TestLedgerFollowsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(20, 120).Draw(rt, "steps") {
			m.step(rt)
			if rapid.IntRange(0, 7).Draw(rt, "time") == 0 {
				m.b.advance(time.Duration(rapid.IntRange(1, 12).Draw(rt, "minutes")) * time.Minute)
			}
		}
		m.check(rt)
		rep, err := m.b.Audit(t.Context(), nil)
		if err != nil || !rep.OK() {
			rt.Fatalf("audit: %v\n%s", err, failures(rep))
		}
		for name := range m.budgets {
			if r := m.b.replay(budgetID(name), time.Time{}); !r.OK() {
				rt.Fatalf("replay of %s: %+v", name, r)
			}
		}
	})
}
