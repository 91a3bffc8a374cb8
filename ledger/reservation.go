package ledger

import "time"

// State is the state of one attempt of a reservation.
type State uint8

// Reservation states; doc.go has the diagram.
const (
	StateNone           State = iota // no Reserve has come; only VOID receipts may be there
	StateReserved                    // money is held
	StateCommitted                   // money is spent
	StatePartlyReversed              // part of it was refunded
	StateReversed                    // all of it was refunded
	StateReleased                    // the hold was given up
	StateExpired                     // the hold lapsed
	StateRejected                    // Reserve was refused, and stays refused
	StateCancelled                   // Release came before Reserve: the tombstone
	StateVoid                        // Resolve settled that Reserve will never land
)

var stateNames = [...]string{
	"NONE", "RESERVED", "COMMITTED", "PARTLY_REVERSED", "REVERSED", "RELEASED", "EXPIRED",
	"REJECTED", "CANCELLED", "VOID",
}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "UNKNOWN"
}

// Valid reports whether the state is one of the above.
func (s State) Valid() bool { return int(s) < len(stateNames) }

// HoldsMoney reports whether an attempt in this state has money reserved or
// spent, so that no other attempt of the same benefit may take any.
func (s State) HoldsMoney() bool {
	return s == StateReserved || s == StateCommitted || s == StatePartlyReversed
}

// Leg is the money of a reservation on one bucket. A reservation has exactly
// one leg today; the stored form holds a list.
type Leg struct {
	Bucket   BucketID
	Currency string
	// Amount is what Reserve asked for. Held is what of it is still
	// reserved, Lapsed what expired and may be committed late. Committed
	// grows by commits, Reversed by refunds net of reinstatements.
	Amount, Held, Lapsed, Committed, Reversed int64
}

// Attempt is one try to spend one benefit of one order.
type Attempt struct {
	Number uint32
	State  State
	Leg    Leg
	// Created is when Reserve was taken, Expires when the hold lapses.
	Created, Expires time.Time
	// CommitSeq is the Seq of the last COMMIT or RECLAIM entry, to which
	// refunds refer.
	CommitSeq uint64
	// CaseOpened: a late commit, or the cost of a delivered job, was refused
	// and left to a person.
	CaseOpened  bool
	Correlation string
	Receipts    []Receipt
}

// Reservation is the row of one benefit of one order: all its attempts.
type Reservation struct {
	Key OrderKey
	// EventSeq is the number of entries of this reservation so far.
	EventSeq uint32
	Attempts []Attempt
}

// Attempt finds an attempt by number.
func (r *Reservation) Attempt(n uint32) *Attempt {
	if r == nil {
		return nil
	}
	for i := range r.Attempts {
		if r.Attempts[i].Number == n {
			return &r.Attempts[i]
		}
	}
	return nil
}

// receipts counts the receipts of all attempts.
func (r *Reservation) receipts() int {
	n := 0
	for i := range r.Attempts {
		n += len(r.Attempts[i].Receipts)
	}
	return n
}

// holder finds an attempt other than n that holds money.
func (r *Reservation) holder(n uint32) *Attempt {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.Number != n && a.State.HoldsMoney() {
			return a
		}
	}
	return nil
}

// Receipt is what makes a command idempotent: its key, its canonical request
// and its outcome, stored in the row the command changed.
type Receipt struct {
	Op Op
	// ID tells commands of one kind apart: payment, refund or operation id.
	ID string
	// Request is the canonical form; empty on a VOID receipt.
	Request []byte
	Void    bool
	// Rejection is the reason of a recorded refusal, empty when accepted.
	Rejection Code
	// Short and Available carry the figures of a recorded
	// INSUFFICIENT_BUDGET.
	Requested, Available int64
	// Outcome is the answer, as it was given first.
	Outcome Outcome
	// Sink is the bucket that took the money of a reversal into a closed
	// budget, nil otherwise.
	Sink *BucketID
}

// Outcome is the reservation as a command left it.
type Outcome struct {
	State State
	// Amount is what this command moved.
	Amount                    int64
	Held, Committed, Reversed int64
	Expires, At               time.Time
	// Bucket and Seq name the entry the command wrote; Seq is 0 when it
	// wrote none.
	Bucket BucketID
	Seq    uint64
	// Late: a Commit that came after Expire and was taken by RECLAIM.
	Late bool
}

// receipt finds the receipt of a command.
func (a *Attempt) receipt(op Op, id string) *Receipt {
	if a == nil {
		return nil
	}
	for i := range a.Receipts {
		if r := &a.Receipts[i]; r.Op == op && r.ID == id {
			return r
		}
	}
	return nil
}

// Case is a paid order, or a delivered job, that could not be counted and waits
// for a person.
type Case struct {
	Key     OrderKey
	Attempt uint32
	Budget  BudgetID
	Amount  int64
	Opened  time.Time
}

// spent reports whether an attempt in this state has committed money, refunded
// or not.
func (s State) spent() bool {
	return s == StateCommitted || s == StatePartlyReversed || s == StateReversed
}

// HasLeg reports whether an attempt in this state was placed on a bucket.
func (s State) HasLeg() bool {
	return s != StateNone && s != StateCancelled && s != StateVoid
}
