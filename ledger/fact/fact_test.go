package fact

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func says(k Kind, ref string, lines ...Line) Fact {
	return Fact{ID: ID{Tenant: "t", Source: "shop", Event: k.String() + ref}, Kind: k, Order: "o", Ref: ref, Lines: lines}.Normalize()
}

// Every kind has a row, and every row an answer for every state.
func TestTableIsComplete(t *testing.T) {
	for k := PaymentSucceeded; k.Valid(); k++ {
		r, ok := rules[k]
		if !ok || r.rank == 0 || r.did == nil {
			t.Errorf("%s has no complete row", k)
		}
		for st := ledger.StateNone; st.Valid(); st++ {
			if r.on[st] == nil {
				t.Errorf("%s says nothing about %s", k, st)
			}
		}
	}
	if len(rules) != len(kindNames)-1 {
		t.Errorf("%d rows for %d kinds", len(rules), len(kindNames)-1)
	}
	for c := range passing {
		if c.Info().Next == "" {
			t.Errorf("%s is no code", c)
		}
	}
}

// What each kind asks of the ledger in each state, as one table. c, r, R, v, i,
// f and d are commands (commit, release, reclaim, reverse, reinstate, refund,
// reclaim of a charge), a is applied with no command, w waits, x is an
// exception.
func TestTable(t *testing.T) {
	states := []ledger.State{
		ledger.StateNone, ledger.StateReserved, ledger.StateCommitted, ledger.StatePartlyReversed, ledger.StateReversed,
		ledger.StateReleased, ledger.StateExpired, ledger.StateRejected, ledger.StateCancelled, ledger.StateVoid,
	}
	letters := map[ledger.Op]string{
		ledger.OpCommit: "c", ledger.OpRelease: "r", ledger.OpReclaim: "R", ledger.OpReverse: "v", ledger.OpReinstate: "i",
		ledger.OpRefund: "f", ledger.OpReclaimCharge: "d",
	}
	for _, tc := range []struct {
		kind Kind
		late ledger.LateCommit
		want string
	}{
		{PaymentSucceeded, ledger.LateReclaim, "w c a a a R c x x x"},
		{PaymentSucceeded, ledger.LateReject, "w c a a a x c x x x"},
		{PaymentSucceeded, ledger.LateCase, "w c a a a x c x x x"},
		{PaymentFailed, ledger.LateReject, "r r a a a a a a a a"},
		{OrderCancelled, ledger.LateReject, "r r w w a a a a a a"},
		{RefundSucceeded, ledger.LateReject, "w w v v w w w x x x"},
		{RefundCancelled, ledger.LateReject, "w w w w w w w x x x"},
		{JobSucceeded, ledger.LateReclaim, "w w d x d d d x x x"},
		{JobSucceeded, ledger.LateReject, "w w d x d d d x x x"},
		{JobFailed, ledger.LateReject, "w r f x a a a a a a"},
	} {
		var got []string
		for _, st := range states {
			f := says(tc.kind, "ref")
			benefit := ledger.JobBenefit
			if !tc.kind.job() {
				benefit = "b"
				f.Lines = []Line{{Benefit: "b", Attempt: 1, Amount: 10}}
			}
			v := View{Now: t0, Facts: []Row{{Fact: f, State: Pending, Version: 1, Deadline: t0.Add(time.Hour)}}, Budgets: map[ledger.BudgetID]*ledger.Budget{}}
			if st != ledger.StateNone {
				id := ledger.BudgetID{Tenant: "t", Key: "k"}
				v.Budgets[id] = &ledger.Budget{ID: id, Policy: ledger.Policy{LateCommit: tc.late}}
				v.Reservations = []ledger.Reservation{{
					Key:      ledger.OrderKey{Tenant: "t", Order: "o", Benefit: benefit},
					Attempts: []ledger.Attempt{{Number: 1, State: st, Leg: ledger.Leg{Bucket: ledger.BucketID{Budget: id}, Currency: "BRL", Committed: 30}}},
				}}
			}
			verdict := Plan(&v)[0]
			switch {
			case len(verdict.Send) == 1:
				c := verdict.Send[0].Normalize()
				if r := c.Validate(); r != nil {
					t.Errorf("%s in %s makes an invalid command: %v", tc.kind, st, r)
				}
				got = append(got, letters[c.Op])
			case verdict.State == Applied:
				got = append(got, "a")
			case verdict.State == Pending:
				got = append(got, "w")
			case verdict.State == Exception:
				got = append(got, "x")
			}
			if verdict.State != Applied && verdict.Reason == "" {
				t.Errorf("%s in %s gives no reason", tc.kind, st)
			}
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%s with late_commit %s:\n got %s\nwant %s", tc.kind, tc.late, s, tc.want)
		}
	}
}

func TestBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		f     Fact
		field string
	}{
		"no source":      {Fact{ID: ID{Tenant: "t", Event: "e"}}, "source"},
		"long source":    {Fact{ID: ID{Tenant: "t", Source: strings.Repeat("s", 124), Event: "e"}}, "source"},
		"no event":       {Fact{ID: ID{Tenant: "t", Source: "s"}}, "event_id"},
		"no kind":        {Fact{ID: ID{"t", "s", "e"}, Order: "o"}, "kind"},
		"no order":       {Fact{ID: ID{"t", "s", "e"}, Kind: PaymentFailed}, "order_id"},
		"no refund id":   {says(RefundCancelled, ""), "reference_id"},
		"no lines":       {says(RefundSucceeded, "r"), "lines"},
		"no amount":      {says(RefundSucceeded, "r", Line{Benefit: "b"}), "lines[0].amount_minor"},
		"negative":       {says(PaymentSucceeded, "p", Line{Benefit: "b", Amount: -1}), "lines[0].amount_minor"},
		"amount":         {says(OrderCancelled, "", Line{Benefit: "b", Amount: 1}), "lines[0].amount_minor"},
		"lines of a job": {says(JobFailed, "", Line{Benefit: "b"}), "lines"},
		"a job's line":   {says(OrderCancelled, "", Line{Benefit: ledger.JobBenefit}), "lines[0].benefit_key"},
		"twice":          {says(PaymentFailed, "", Line{Benefit: "b"}, Line{Benefit: "b", Attempt: 1}), "lines[1].benefit_key"},
		"attempt":        {says(PaymentFailed, "", Line{Benefit: "b", Attempt: 17}), "lines[0].attempt"},
		"currency":       {Fact{ID: ID{"t", "s", "e"}, Kind: PaymentFailed, Order: "o", Currency: "BR"}, "currency"},
		"too many":       {says(PaymentFailed, "", make([]Line, MaxLines+1)...), "lines"},
	} {
		f := tc.f.Normalize()
		if r := f.Validate(); r == nil || r.Code != ledger.InvalidArgument || r.Field != tc.field || r.Limit == "" && tc.field != "currency" {
			t.Errorf("%s: %v", name, r)
		}
	}
	good := says(RefundSucceeded, "r", Line{Benefit: "b", Amount: 1}, Line{Benefit: "b", Attempt: 2, Amount: 1})
	if r := good.Validate(); r != nil || good.Lines[0].Attempt != 1 {
		t.Errorf("%v %+v", r, good)
	}
}

// The name of a fact's command fits a command, and no two facts share one.
func TestCommandID(t *testing.T) {
	seen := map[string]ID{}
	for _, id := range []ID{
		{"t", "shop", "e"},
		{"t", "shop/e", "x"},
		{"t", "shop", "e/x"},
		{"t", strings.Repeat("s", 100), strings.Repeat("e", 100)},
		{"t", strings.Repeat("s", 101), strings.Repeat("e", 99)},
	} {
		name := CommandID(id)
		if other, ok := seen[name]; ok || len(name) > ledger.MaxIDBytes {
			t.Errorf("%v and %v are both %q", id, other, name)
		}
		seen[name] = id
	}
	if CommandID(ID{"t", "shop", "e1"}) != "fact:shop/e1" {
		t.Error("a short name is not readable")
	}
}

// Looks at a fact that waits come apart, and the last one is at the deadline.
func TestSchedule(t *testing.T) {
	s := Schedule{Deadline: time.Hour, Base: time.Second, Max: time.Minute}
	row, replayed, rej := Submit(t0, nil, says(PaymentSucceeded, "p"), s)
	if rej != nil || replayed || row.State != Pending || !row.Deadline.Equal(t0.Add(time.Hour)) {
		t.Fatalf("%+v %v", row, rej)
	}
	now := t0
	var waits []time.Duration
	for row.Due.Before(row.Deadline) {
		waits = append(waits, row.Due.Sub(now))
		now = row.Due
		v := Verdict{ID: row.ID, Version: row.Version, State: Pending, Reason: "nothing is reserved yet"}
		if early, ok := Mark(now.Add(-time.Millisecond), row, &v, s); ok && len(waits) > 1 {
			t.Fatalf("looked at before its time, and changed: %+v", early)
		}
		next, ok := Mark(now, row, &v, s)
		if !ok || !next.Due.After(now) || next.Due.After(next.Deadline) || next.Version != row.Version+1 {
			t.Fatalf("%+v after %+v", next, row)
		}
		row = next
	}
	if !slices.IsSorted(waits[:5]) || waits[0] < 500*time.Millisecond || waits[0] > time.Second || slices.Max(waits) > time.Minute || !row.Due.Equal(row.Deadline) {
		t.Errorf("waits %v, last look at %s", waits, row.Due)
	}
	v := Verdict{ID: row.ID, Version: row.Version, State: Exception, Reason: "in vain"}
	row, ok := Mark(row.Due, row, &v, s)
	if !ok || row.State != Exception || !row.Due.IsZero() {
		t.Errorf("%+v", row)
	}
	for _, v := range []Verdict{
		{ID: row.ID, Version: row.Version, State: Pending, Reason: "waits again"},
		{ID: row.ID, Version: row.Version, State: Exception, Reason: "in vain"},
		{ID: row.ID, Version: row.Version - 1, State: Applied},
	} {
		if next, ok := Mark(now, row, &v, s); ok {
			t.Errorf("%+v changes the row to %+v", v, next)
		}
	}
	if next, ok := Mark(now, row, &Verdict{ID: row.ID, Version: row.Version, State: Applied}, s); !ok || next.State != Applied {
		t.Errorf("an exception is not applied: %+v", next)
	}
}
