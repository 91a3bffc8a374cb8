package ledger

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The model knows the rules in their plainest form: for each attempt a few
// numbers, for each line and funder what was paid and given back, what each key
// was first used for. It has no receipts, no entries and no decisions, and
// divides amounts with fractions.

type modelAttempt struct {
	state                                     State
	amount, held, lapsed, committed, reversed int64
	expires, limit                            time.Time
	delivered                                 bool
	quote                                     *Quote
	paid, back                                [][]int64 // by line and funder
	units                                     []int64   // given back, by line
	refunds                                   map[string]*modelRefund
}

type modelRefund struct {
	amount int64
	cells  [][]int64
	units  []int64
}

type model struct {
	w         *world
	wallet    bool
	rows      map[OrderKey]*modelRow
	available int64
	done      map[string]modelDone // by the keys of commands that were accepted or recorded
	steps     int
	accepted  map[Op]int
}

type modelDone struct {
	request string
	answer  Code
}

type modelRow struct {
	row      Reservation
	alloc    map[uint32]*Allocation
	splits   map[uint32]map[string]*Split
	attempts map[uint32]*modelAttempt
}

func newModel(t testing.TB, wallet bool) *model {
	m := &model{w: newWorld(t), wallet: wallet, rows: map[OrderKey]*modelRow{}, available: 200, done: map[string]modelDone{}, accepted: map[Op]int{}}
	m.w.budget.Policy = Policy{LateCommit: LateReclaim, MaxLifetime: time.Hour, OverCommit: OverCommit{Percent: 20}, Exhaustion: Strict}
	if wallet {
		m.w.budget.Kind = KindWallet
		m.w.budget.Policy.Overdraft, m.w.budget.Policy.DebtCap = 15, 40
	}
	m.w.bucket.Balances = Balances{Funded: m.available, Available: m.available}
	return m
}

// draws makes small choices out of one random number, which is quicker than to
// ask for each.
type draws uint64

func (d *draws) n(n int) int {
	v := int(uint64(*d) % uint64(n))
	*d = draws(uint64(*d)/uint64(n)*0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019)
	return v
}

var (
	jobOps   = []Op{OpCharge, OpCharge, OpHold, OpHold, OpRefund, OpRefund, OpReclaimCharge, OpReclaimCharge, OpSettle, OpSettle, OpRelease, OpExpire, OpExtend}
	orderOps = []Op{OpReserve, OpReserve, OpReserve, OpCommit, OpCommit, OpReverse, OpReverse, OpReverse, OpReverse, OpReinstate, OpReinstate, OpRelease, OpExpire, OpReclaim, OpExtend}
)

// command draws any command, legal or not, new or sent before.
func (m *model) command(d *draws) Command {
	ids := []string{"i1", "i2", "i3"}
	c := Command{Attempt: uint32(1 + d.n(2)), ID: ids[d.n(3)], Amount: int64(1 + d.n(40)), Currency: "BRL", TTL: time.Duration(1+d.n(20)) * time.Minute}
	order := fmt.Sprint("o", d.n(5))
	if m.wallet {
		c.Op, c.Key = jobOps[d.n(len(jobOps))], JobKey("t1", order)
	} else {
		c.Op, c.Key = orderOps[d.n(len(orderOps))], OrderKey{"t1", order, "coupon"}
	}
	switch c.Op {
	case OpReserve, OpCharge, OpHold:
		c.ID, c.Budget = "", m.w.budget.ID
		if c.Op == OpReserve && d.n(3) > 0 {
			c.Quote = drawQuote(d, c.Amount)
		}
	case OpCommit, OpSettle:
		if c.Partial = d.n(3) == 0; !c.Partial && c.Op == OpCommit && d.n(2) == 0 {
			c.Amount = 0
		}
	case OpReverse:
		if d.n(2) == 0 {
			c.Amount = 0
			c.Lines = []RefundLine{{fmt.Sprint("l", d.n(3)), int64(1 + d.n(3))}}
		}
	case OpRefund, OpReclaimCharge, OpExpire:
		c.ID = ""
	}
	return c.Normalize()
}

func drawQuote(d *draws, amount int64) *Quote {
	q := &Quote{Rounding: Rounding(d.n(4))}
	for i := range 1 + d.n(3) {
		part := int64(d.n(int(amount) + 1))
		q.Lines = append(q.Lines, QuoteLine{ID: fmt.Sprint("l", i), Quantity: int64(1 + d.n(4)), Amount: part})
		amount -= part
	}
	q.Lines[0].Amount += amount
	for i := range d.n(4) {
		q.Funders = append(q.Funders, Funder{ID: fmt.Sprint("f", i), Weight: int64(1 + d.n(9))})
	}
	return q
}

// step sends one command to the ledger and to the model, and compares.
func (m *model) step(t *rapid.T, d *draws) {
	m.steps++
	if d.n(12) == 0 {
		m.w.now = m.w.now.Add(time.Duration(d.n(10)) * time.Minute)
	}
	if d.n(25) == 0 {
		v := int64(d.n(60))
		m.available += v
		m.w.bucket.Available, m.w.bucket.Funded = m.w.bucket.Available+v, m.w.bucket.Funded+v
	}
	c := m.command(d)
	r := m.rows[c.Key]
	if r == nil {
		r = &modelRow{
			row: Reservation{Key: c.Key}, alloc: map[uint32]*Allocation{}, splits: map[uint32]map[string]*Split{}, attempts: map[uint32]*modelAttempt{},
		}
		m.rows[c.Key] = r
	}
	if len(r.row.Attempts) > 0 && r.row.receipts() > MaxRepeats-2 { // the bounds of a row have tests of their own
		m.forget(r)
		return
	}
	got := m.send(r, &c)
	key, req := fmt.Sprint(c.Key, c.Attempt, c.Op, c.ID), string(c.Canonical())
	if first, again := m.done[key]; again {
		want := first.answer
		if first.request != req {
			want = IdempotencyConflict
		}
		if got.code() != want || (want == "" && !got.Result.Replayed) {
			t.Fatalf("step %d: %s again is %q (%v), want %q", m.steps, c.Op, got.code(), got.Rejection, want)
		}
		return
	}
	want := m.decide(r, &c)
	if got.code() != want {
		t.Fatalf("step %d: %s of %s, attempt %d: the ledger says %q (%v), the model %q", m.steps, c.Op, c.Key, c.Attempt, got.code(), got.Rejection, want)
	}
	if want == "" || (c.Op.Opens() && want.Info().Recorded) {
		m.done[key] = modelDone{req, want}
	}
	if want == "" {
		m.accepted[c.Op]++
	}
	m.compare(t, r, &c)
}

func (d *Decision) code() Code {
	if d.Rejection == nil {
		return ""
	}
	return d.Rejection.Code
}

// send lets the ledger decide on the order's row.
func (m *model) send(r *modelRow, c *Command) *Decision {
	w := m.w
	w.row, w.alloc, w.splits = r.row, r.alloc[c.Attempt], r.splits[c.Attempt]
	d := w.do(*c)
	r.row = w.row
	if w.alloc != nil {
		r.alloc[c.Attempt], r.splits[c.Attempt] = w.alloc, w.splits
	}
	w.entries = w.entries[:0]
	return &d
}

// forget takes an order out of the model and the ledger, with the money that it
// took.
func (m *model) forget(r *modelRow) {
	for n := range r.attempts {
		a := r.row.Attempt(n)
		net := a.Leg.Committed - a.Leg.Reversed
		b := &m.w.bucket
		b.Funded -= net + a.Leg.Held
		b.Reserved -= a.Leg.Held
		b.Committed -= a.Leg.Committed
		b.Reversed -= a.Leg.Reversed
	}
	prefix := fmt.Sprint(r.row.Key)
	for key := range m.done {
		if strings.HasPrefix(key, prefix) {
			delete(m.done, key)
		}
	}
	delete(m.rows, r.row.Key)
}

// compare looks at every number both keep.
func (m *model) compare(t *rapid.T, r *modelRow, c *Command) {
	if b := &m.w.bucket; b.Available != m.available || b.Check(m.w.budget.Policy.Floor()) != nil {
		t.Fatalf("step %d: after %s the bucket has %+v, the model %d available", m.steps, c.Op, b.Balances, m.available)
	}
	want := r.attempts[c.Attempt]
	got := r.row.Attempt(c.Attempt)
	if want == nil {
		return
	}
	l := &got.Leg
	if got.State != want.state || l.Held != want.held || l.Lapsed != want.lapsed || l.Committed != want.committed || l.Reversed != want.reversed {
		t.Fatalf("step %d: after %s attempt %d is %s %+v, the model has %+v", m.steps, c.Op, c.Attempt, got.State, *l, *want)
	}
	if l.Reversed > l.Committed {
		t.Fatalf("step %d: refunds of %d exceed commits of %d", m.steps, l.Reversed, l.Committed)
	}
	if m.wallet {
		// The net of a job is its cost or nothing, and its cost once delivered.
		net := l.Committed - l.Reversed
		if got.Delivered() != want.delivered || (net != 0 && net != l.Committed) || (want.delivered && net == 0) {
			t.Fatalf("step %d: after %s the net is %d of %d, delivered %v, in the model %v", m.steps, c.Op, net, l.Committed, got.Delivered(), want.delivered)
		}
	}
	m.compareLines(t, r, c, want)
}

func (m *model) compareLines(t *rapid.T, r *modelRow, c *Command, want *modelAttempt) {
	a := r.alloc[c.Attempt]
	if want.quote == nil || a == nil {
		if (want.quote == nil) != (a == nil) {
			t.Fatalf("step %d: quote %v, allocation %v", m.steps, want.quote, a)
		}
		return
	}
	if err := a.Check(); err != nil || a.Reversed() != want.reversed {
		t.Fatalf("step %d: %v, lines refunded %d of %d", m.steps, err, a.Reversed(), want.reversed)
	}
	for i := range a.Lines {
		for f, cell := range a.Lines[i].Cells {
			if cell.Reversed != want.back[i][f] || a.Lines[i].Returned != want.units[i] {
				t.Fatalf("step %d: after %s line %d, funder %d refunded %+v, %d units; the model has %d, %d",
					m.steps, c.Op, i, f, cell, a.Lines[i].Returned, want.back[i][f], want.units[i])
			}
		}
	}
}

// share divides total over weights with fractions: the whole part of each quota,
// then one more to the largest remainders.
func share(total int64, weights []int64) []int64 {
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	out := make([]int64, len(weights))
	if sum == 0 {
		return out
	}
	rest := make([]*big.Rat, len(weights))
	left := total
	for i, w := range weights {
		quota := big.NewRat(total*w, sum)
		out[i] = new(big.Int).Quo(quota.Num(), quota.Denom()).Int64()
		rest[i] = quota.Sub(quota, big.NewRat(out[i], 1))
		left -= out[i]
	}
	for ; left > 0; left-- {
		best := 0
		for i := range rest {
			if rest[i].Cmp(rest[best]) > 0 {
				best = i
			}
		}
		out[best]++
		rest[best] = big.NewRat(-1, 1)
	}
	return out
}

// rounded is a·n/d by fractions.
func rounded(mode Rounding, a, n, d int64) int64 {
	x := big.NewRat(a*n, d)
	floor := new(big.Int).Quo(x.Num(), x.Denom()).Int64()
	rest := x.Sub(x, big.NewRat(floor, 1))
	half := rest.Cmp(big.NewRat(1, 2))
	up := map[Rounding]bool{
		RoundHalfUp: half >= 0, RoundHalfEven: half > 0 || (half == 0 && floor%2 == 1), RoundUp: rest.Sign() > 0,
	}[mode]
	if up {
		floor++
	}
	return floor
}

// More than 100,000 random commands, legal and not, new and repeated, over a
// wallet and a budget: the ledger and the model never differ.
func TestLedgerAgainstModel(t *testing.T) {
	steps, accepted := 0, map[Op]int{}
	rapid.Check(t, func(rt *rapid.T) {
		for _, wallet := range []bool{true, false} {
			m := newModel(t, wallet)
			for _, seed := range rapid.SliceOfN(rapid.Uint64(), 8, 8).Draw(rt, "seeds") {
				d := draws(seed)
				for range 80 {
					m.step(rt, &d)
				}
			}
			steps += m.steps
			for op, n := range m.accepted {
				accepted[op] += n
			}
		}
	})
	if steps < 100_000 && !t.Failed() {
		t.Errorf("only %d steps", steps)
	}
	// The rarest is accepted some 115 times; far fewer would mean that the
	// commands no longer reach it.
	for _, op := range append(jobOps, orderOps...) {
		if accepted[op] < 25 && !t.Failed() {
			t.Errorf("%s was accepted %d times only", op, accepted[op])
		}
	}
	t.Logf("%d steps, accepted: %v", steps, accepted)
}
