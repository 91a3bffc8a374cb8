package main

import (
	"sync"

	"github.com/coffer-ledger/coffer/ledger"
)

// maxFaults bounds the faults that are kept; all are counted.
const maxFaults = 20

// tally is what the demo, as a client, knows must be true: it adds up what it
// sent and was promised, and never looks at the server's sums.
type tally struct {
	mu       sync.Mutex
	budgets  map[string]*ledger.Balances
	happened map[string]int
	keys     int // reservations that must have a row
	faults   []string
	nfaults  int
}

func newTally() *tally {
	return &tally{budgets: map[string]*ledger.Balances{}, happened: map[string]int{}}
}

func (t *tally) fund(budget string, v int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.budgets[budget] = &ledger.Balances{Funded: v, Available: v}
}

// move adds a change to a budget's sums.
func (t *tally) move(budget string, reserved, committed, reversed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.budgets[budget]
	b.Reserved += reserved
	b.Committed += committed
	b.Reversed += reversed
	b.Available -= reserved + committed - reversed
}

// did counts something that happened.
func (t *tally) did(what string) { t.add(what, 1) }

func (t *tally) add(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.happened[what] += n
}

// row counts a reservation that must have a row in the store.
func (t *tally) row() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys++
}

func (t *tally) fault(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nfaults++
	if len(t.faults) < maxFaults {
		t.faults = append(t.faults, text)
	}
}

func (t *tally) count(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.happened[what]
}
