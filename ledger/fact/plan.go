package fact

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// View is all a plan may look at: one order at one moment.
type View struct {
	Now time.Time
	// Facts are all facts of the order.
	Facts []Row
	// Reservations are all of the order, but at most MaxLines; More: the order
	// has others.
	Reservations []ledger.Reservation
	More         bool
	// Budgets are the definitions of the budgets they are on.
	Budgets map[ledger.BudgetID]*ledger.Budget
	// Refused are commands of an earlier plan of the same pass that the ledger
	// refused, by their key.
	Refused map[CommandKey]*ledger.Rejection
}

// CommandKey tells the commands of one order apart, also those that two facts
// ask for under one key with different amounts.
type CommandKey struct {
	Op      ledger.Op
	Benefit string
	Attempt uint32
	ID      string
	Amount  int64
}

// KeyOf is the name of a command.
func KeyOf(c *ledger.Command) CommandKey {
	return CommandKey{Op: c.Op, Benefit: c.Key.Benefit, Attempt: c.Attempt, ID: c.ID, Amount: c.Amount}
}

// Verdict is what a plan says about one fact.
type Verdict struct {
	ID
	// Version of the row it was made from.
	Version uint32
	State   State
	Reason  string
	Code    ledger.Code
	Effects []Effect
	// Send are the commands that are legal now. While there are any, State is
	// not final: run them and plan again.
	Send []ledger.Command
	// Blocked: a command of an earlier fact comes first. Plan again.
	Blocked bool
}

// Plan says what to do about each open fact of an order.
func Plan(v *View) []Verdict {
	rows := slices.Clone(v.Facts)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(rules[a.Kind].rank, rules[b.Kind].rank), a.Received.Compare(b.Received),
			strings.Compare(a.Source, b.Source), strings.Compare(a.Event, b.Event),
		)
	})
	p := newPlanner(v)
	var out []Verdict
	for i := range rows {
		if f := &rows[i]; f.State.Open() {
			out = append(out, p.plan(f))
		}
	}
	return out
}

type planner struct {
	view      *View
	benefits  map[string]*ledger.Reservation
	busy      map[string]bool     // benefits with a command in this plan
	succeeded map[uint32]bool     // attempts of the job that are known to have succeeded
	cancelled map[refundLine]bool // refunds that are known to be cancelled
}

// refundLine is a refund of one benefit, or, without one, of all.
type refundLine struct {
	ref, benefit string
	attempt      uint32
}

func newPlanner(v *View) *planner {
	p := &planner{
		view: v, benefits: map[string]*ledger.Reservation{}, busy: map[string]bool{}, succeeded: map[uint32]bool{}, cancelled: map[refundLine]bool{},
	}
	for i := range v.Reservations {
		p.benefits[v.Reservations[i].Key.Benefit] = &v.Reservations[i]
	}
	for i := range v.Facts {
		f := &v.Facts[i]
		switch {
		case f.State == Resolved:
		case f.Kind == JobSucceeded:
			p.succeeded[f.Attempt] = true
		case f.Kind == RefundCancelled && len(f.Lines) == 0:
			p.cancelled[refundLine{f.Ref, "", f.Attempt}] = true
		case f.Kind == RefundCancelled:
			for _, l := range f.Lines {
				p.cancelled[refundLine{f.Ref, l.Benefit, l.Attempt}] = true
			}
		}
	}
	return p
}

// plan decides one fact.
func (p *planner) plan(f *Row) Verdict {
	rule := rules[f.Kind]
	v := Verdict{ID: f.ID, Version: f.Version, State: Applied}
	lines := p.lines(f)
	if p.view.More && (len(f.Lines) == 0 && !f.Kind.job() || !p.known(lines)) {
		v.State, v.Reason = Exception, fmt.Sprintf(
			"the order has more than %d benefits, and this fact is about some that were not looked at; settle it by commands", MaxLines)
		return v
	}
	if len(lines) == 0 {
		v.State, v.Reason = Pending, "the order has no reservation yet"
		if !p.view.Now.Before(f.Deadline) {
			v.State, v.Reason = Applied, "the order has no benefits"
		}
		return v
	}
	var wait, final, done []step
	for _, l := range lines {
		s := p.subject(f, l)
		st := p.step(s, &rule)
		switch {
		case st.send != nil && p.busy[l.Benefit]:
			v.Blocked = true
		case st.send != nil:
			p.busy[l.Benefit] = true
			v.Send = append(v.Send, *st.send)
		case st.final:
			final = append(final, st)
		case st.wait:
			wait = append(wait, st)
		default:
			done = append(done, st)
			v.Effects = append(v.Effects, st.effects...)
		}
	}
	switch {
	case len(final) > 0:
		v.State, v.Reason, v.Code = Exception, reasons(final), final[0].code
	case len(wait) > 0:
		v.State, v.Reason, v.Code = Pending, reasons(wait), wait[0].code
		if !p.view.Now.Before(f.Deadline) {
			v.State = Exception
			v.Reason = fmt.Sprintf("waited until %s in vain: %s", f.Deadline.UTC().Format("2006-01-02T15:04:05.000Z"), v.Reason)
		}
	default:
		v.Reason = reasons(done)
	}
	v.Reason = cut(v.Reason, maxReasonText)
	return v
}

// known reports whether all lines are of reservations that were looked at.
func (p *planner) known(lines []Line) bool {
	return !slices.ContainsFunc(lines, func(l Line) bool { return p.benefits[l.Benefit] == nil })
}

// maxReasonText bounds the reason that is stored.
const maxReasonText = 1024

// reasons is the first reason, and how many more there are.
func reasons(steps []step) string {
	var all []string
	for _, s := range steps {
		if s.reason != "" {
			all = append(all, s.reason)
		}
	}
	switch len(all) {
	case 0:
		return ""
	case 1:
		return all[0]
	}
	return fmt.Sprintf("%s (and %d more)", all[0], len(all)-1)
}

// lines are the benefits a fact is about. One that names none is about all
// that the order tried to reserve; where that was refused or never happened the
// order went on without it. A job of the same name is none of its benefits.
func (p *planner) lines(f *Row) []Line {
	if f.Kind.job() {
		return []Line{{Benefit: ledger.JobBenefit, Attempt: f.Attempt}}
	}
	if len(f.Lines) > 0 {
		return f.Lines
	}
	var out []Line
	for i := range p.view.Reservations {
		res := &p.view.Reservations[i]
		a := res.Attempt(f.Attempt)
		if a == nil || res.Key.IsJob() || a.State == ledger.StateNone || a.State == ledger.StateRejected || a.State == ledger.StateVoid {
			continue
		}
		out = append(out, Line{Benefit: res.Key.Benefit, Attempt: f.Attempt})
	}
	return out
}

// subject is one line of a fact and what the ledger has of it.
type subject struct {
	fact      *Row
	line      Line
	attempt   *ledger.Attempt // nil where there is none
	late      ledger.LateCommit
	succeeded bool // the attempt is of a job and known to have succeeded
	cancelled bool // the fact is a refund that is known to be cancelled
}

func (p *planner) subject(f *Row, l Line) *subject {
	s := &subject{
		fact: f, line: l,
		succeeded: f.Kind.job() && p.succeeded[l.Attempt],
		cancelled: f.Kind == RefundSucceeded && (p.cancelled[refundLine{f.Ref, l.Benefit, l.Attempt}] || p.cancelled[refundLine{f.Ref, "", l.Attempt}]),
		attempt:   p.benefits[l.Benefit].Attempt(l.Attempt),
	}
	if s.attempt != nil {
		if b := p.view.Budgets[s.attempt.Leg.Bucket.Budget]; b != nil {
			s.late = b.Policy.LateCommit
		}
	}
	return s
}

// step is what one line comes to: a command, a wait, an end in vain, or (all
// unset) done.
type step struct {
	send        *ledger.Command
	wait, final bool
	code        ledger.Code
	reason      string
	effects     []Effect
}

// step decides one line: first whether the effect is there, then by the state.
func (p *planner) step(s *subject, r *rule) step {
	st, did := r.did(s)
	if !did {
		state := ledger.StateNone
		if s.attempt != nil {
			state = s.attempt.State
		}
		st = r.on[state](s)
	}
	if st.send == nil {
		return st
	}
	if s.attempt != nil && s.fact.Currency != "" && s.attempt.Leg.Currency != "" && s.fact.Currency != s.attempt.Leg.Currency {
		return step{final: true, code: ledger.CurrencyMismatch, reason: fmt.Sprintf(
			"%s is in %s, the fact says %s", s.name(), s.attempt.Leg.Currency, s.fact.Currency)}
	}
	rej := p.view.Refused[KeyOf(st.send)]
	if rej != nil && rej.Code == ledger.RefundExceedsCommit && s.cancelled {
		st.send = s.void() // it never fits, and is not wanted any more
		rej = p.view.Refused[KeyOf(st.send)]
	}
	if rej != nil {
		return step{
			final: !Passing(rej.Code), wait: Passing(rej.Code), code: rej.Code,
			reason: fmt.Sprintf("%s: %s was refused: %s", s.name(), st.send.Op, refusalText(rej)),
		}
	}
	return st
}

func (s *subject) name() string {
	return fmt.Sprintf("benefit %.40q attempt %d", s.line.Benefit, s.line.Attempt)
}

// id is the id of the fact's command. Where the domain has a name for it
// (payment, refund) that is the id, so that a caller's own command and the
// fact's are one; what happens once an attempt of a job has none; elsewhere the
// fact's name is.
func (s *subject) id(op ledger.Op) string {
	switch op {
	case ledger.OpRefund, ledger.OpReclaimCharge:
		return ""
	case ledger.OpReverse, ledger.OpReinstate:
		return s.fact.Ref
	case ledger.OpCommit, ledger.OpReclaim:
		if s.fact.Ref != "" {
			return s.fact.Ref
		}
	}
	return CommandID(s.fact.ID)
}

// CommandID is the operation id of a command that a fact stands behind.
func CommandID(id ID) string {
	name := "fact:" + id.String()
	if len(name) > ledger.MaxIDBytes || strings.Contains(id.Source, "/") {
		sum := sha256.Sum256([]byte(id.Source + "\x00" + id.Event))
		return "fact:" + hex.EncodeToString(sum[:])
	}
	return name
}

// command is the fact's command of this kind.
func (s *subject) command(op ledger.Op) *ledger.Command {
	c := &ledger.Command{
		Op: op, Key: ledger.OrderKey{Tenant: s.fact.Tenant, Order: s.fact.Order, Benefit: s.line.Benefit}, Attempt: s.line.Attempt,
		ID: s.id(op), Correlation: s.fact.Correlation,
	}
	if op == ledger.OpReverse || op == ledger.OpCommit {
		c.Amount = s.line.Amount
	}
	if s.attempt != nil {
		c.Budget = s.attempt.Leg.Bucket.Budget
	}
	return c
}

// void is the command that keeps the fact's refund from ever landing.
func (s *subject) void() *ledger.Command {
	c := s.command(ledger.OpReverse)
	c.Op, c.Target, c.Amount = ledger.OpResolve, ledger.OpReverse, 0
	return c
}

// voided reports whether a refund was settled as never happening.
func (s *subject) voided(refund string) bool {
	rc, _ := s.receipt(ledger.OpReverse, refund)
	return rc != nil && rc.Void
}

// receipt finds a command among the attempt's receipts, and whether it was
// accepted.
func (s *subject) receipt(op ledger.Op, id string) (*ledger.Receipt, bool) {
	if s.attempt == nil {
		return nil, false
	}
	for i := range s.attempt.Receipts {
		if rc := &s.attempt.Receipts[i]; rc.Op == op && rc.ID == id {
			return rc, !rc.Void && rc.Rejection == ""
		}
	}
	return nil, false
}

// found makes the step of an effect that is there.
func (s *subject) found(op ledger.Op, id string) (step, bool) {
	rc, ok := s.receipt(op, id)
	if !ok {
		return step{}, false
	}
	e := Effect{Op: op, Benefit: s.line.Benefit, Attempt: s.line.Attempt, Outcome: rc.Outcome}
	return step{effects: []Effect{e}}, true
}
