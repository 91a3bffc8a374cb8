package store

import (
	"context"
)

// compare ends the audit: where a matcher's sides differ, the same cut is read
// again and the rows on one side only are named.
func (a *audit) compare(ctx context.Context) error {
	a.count(a.rep.Entries, checkMoves)
	a.rep.Events = a.rep.Entries
	matchers := []struct {
		m     *matcher
		check checkID
		rest  []int
	}{
		{m: &a.transitions, check: checkTransition},
		{m: &a.events, check: checkEventSeq},
		{m: &a.moves, check: checkMoves},
		{m: &a.pointers, check: checkOutbox},
	}
	left := false
	for i := range matchers {
		matchers[i].rest = matchers[i].m.differing()
		left = left || len(matchers[i].rest) > 0
	}
	for pass := 0; left && pass < maxExactPasses; pass++ {
		left = false
		for i := range matchers {
			m := &matchers[i]
			m.rest = m.m.pick(m.rest)
			left = left || len(m.rest) > 0
		}
		if err := a.exactPass(ctx); err != nil {
			return err
		}
		for i := range matchers {
			a.name(matchers[i].m, matchers[i].check)
		}
	}
	for i := range matchers {
		for range matchers[i].rest {
			a.problem(matchers[i].check, "there are more rows without their match than one audit names")
		}
	}
	return nil
}

// exactPass reads the cut again for the matchers alone.
func (a *audit) exactPass(ctx context.Context) error {
	a.exact = true
	defer func() { a.exact = false }()
	for _, phase := range []func(context.Context) error{a.readLedger, a.readReservations, a.readOutbox, a.settleMoves, a.settleTrimmed} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// name reports what an exact pass found on one side only.
func (a *audit) name(m *matcher, c checkID) {
	for _, it := range m.unmatched() {
		for range max(it.n, -it.n) {
			a.problem(c, it.text)
		}
		if it.n > 0 {
			a.rep.Events -= min(it.weight, a.rep.Events)
		}
	}
}
