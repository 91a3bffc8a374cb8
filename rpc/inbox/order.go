package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// MaxKey is the longest key of events, in bytes.
const MaxKey = 2048

// Message is what the inbox needs to know of an event that belongs in an order.
type Message struct {
	// ID is the event's, the same on every delivery.
	ID string
	// Key names the order, Seq is the event's place in it, from 1, rising.
	Key string
	Seq uint64
	// Next is the place of the key's next event, 0 where that is not known
	// because places are left out: then no gap is seen.
	Next uint64
	// Midway: the key may begin here, also for Config.FromStart.
	Midway bool
}

// Verdict says how an event stood to those before it.
type Verdict uint8

// Verdicts.
const (
	// InOrder: it was the next one of its key, and had its effect.
	InOrder Verdict = iota + 1
	// Repeated: it had had its effect before, and nothing was done.
	Repeated
	// Late: it had its effect now, but a later one of its key had come before
	// it. Where gaps are seen this happens after Skip alone, or where a key
	// began in the middle.
	Late
)

func (v Verdict) String() string {
	switch v {
	case InOrder:
		return "in order"
	case Repeated:
		return "repeated"
	case Late:
		return "late"
	default:
		return "none"
	}
}

// Gap is the error of an event before which others of its key are missing. It had
// no effect: ask for it again later, when those have come. If they never will,
// because whoever delivers has skipped them, Skip says so.
type Gap struct {
	Key       string
	Want, Got uint64
}

func (g *Gap) Error() string {
	return fmt.Sprintf("inbox: event %d of key %.80q came, and %d is missing", g.Got, g.Key, g.Want)
}

// orderStatements work on the table that says which event of each key is next:
// one row a key, which stays.
type orderStatements struct{ create, advance, follow, next string }

func orderOf(cfg Config) orderStatements {
	p, table := cfg.Dialect.param, cfg.Table+"_order"
	return orderStatements{
		create: fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (consumer TEXT NOT NULL, event_key TEXT NOT NULL, next_seq BIGINT NOT NULL, "+
			"PRIMARY KEY (consumer, event_key))", table),
		// Both also lock the key's row until the transaction ends. What is next
		// must be between the last two parameters; advance takes a key that is
		// new, follow does not.
		advance: fmt.Sprintf("INSERT INTO %s AS o (consumer, event_key, next_seq) VALUES (%s, %s, %s) ON CONFLICT (consumer, event_key) DO UPDATE "+
			"SET next_seq = excluded.next_seq WHERE o.next_seq BETWEEN %s AND %s", table, p(1), p(2), p(3), p(4), p(5)),
		follow: fmt.Sprintf("UPDATE %s SET next_seq = %s WHERE consumer = %s AND event_key = %s AND next_seq BETWEEN %s AND %s",
			table, p(3), p(1), p(2), p(4), p(5)),
		next: fmt.Sprintf("SELECT next_seq FROM %s WHERE consumer = %s AND event_key = %s", table, p(1), p(2)),
	}
}

// DoInOrder is Do for events that have an order: the effect runs once, and after
// the effects of the key's events before it. An event that is too early is a
// *Gap. All other errors mean what they mean for Do.
func (in *Inbox) DoInOrder(ctx context.Context, db *sql.DB, m Message, effect func(context.Context, *sql.Tx) error) (Verdict, error) {
	if err := m.check(); err != nil {
		return 0, err
	}
	var v Verdict
	err := transact(ctx, db, func(tx *sql.Tx) error {
		first, err := in.First(ctx, tx, m.ID)
		if err != nil {
			return err
		}
		if v = Repeated; !first {
			return nil
		}
		if v, err = in.place(ctx, tx, &m); err != nil {
			return err
		}
		return effect(ctx, tx)
	})
	if err != nil {
		return 0, err
	}
	return v, nil
}

// place moves the key on to the message, or says why not.
func (in *Inbox) place(ctx context.Context, tx *sql.Tx, m *Message) (Verdict, error) {
	low, next, statement := m.Seq, m.Next, in.order.advance
	if m.Next == 0 {
		low, next = 0, m.Seq+1
	} else if in.cfg.FromStart && m.Seq > 1 && !m.Midway {
		statement = in.order.follow
	}
	moved, err := in.move(ctx, tx, statement, m.Key, next, low, m.Seq)
	if err != nil {
		return 0, err
	}
	if moved {
		return InOrder, nil
	}
	var want int64
	err = tx.QueryRowContext(ctx, in.order.next, in.cfg.Consumer, m.Key).Scan(&want)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, &Gap{Key: m.Key, Want: 1, Got: m.Seq}
	case err != nil:
		return 0, fmt.Errorf("inbox: read the order: %w", err)
	case uint64(want) < m.Seq:
		return 0, &Gap{Key: m.Key, Want: uint64(want), Got: m.Seq}
	default:
		return Late, nil
	}
}

func (in *Inbox) move(ctx context.Context, tx *sql.Tx, statement, key string, next, low, high uint64) (bool, error) {
	res, err := tx.ExecContext(ctx, statement, in.cfg.Consumer, key, int64(next), int64(low), int64(high))
	if err != nil {
		return false, fmt.Errorf("inbox: move the order: %w", err)
	}
	n, err := res.RowsAffected()
	switch {
	case err != nil:
		return false, fmt.Errorf("inbox: move the order: %w", err)
	case n != 0 && n != 1:
		return false, fmt.Errorf("inbox: moving one key changed %d rows: the driver does not say what a statement did", n)
	}
	return n == 1, nil
}

// Skip says that the events of a key before seq will not come: the next one is
// seq. It never goes back, and reports whether it went on. A missing event that
// comes after all has its effect then, and is Late.
func (in *Inbox) Skip(ctx context.Context, db *sql.DB, key string, seq uint64) (moved bool, err error) {
	m := Message{ID: "skip", Key: key, Seq: seq}
	if err := m.check(); err != nil {
		return false, err
	}
	err = transact(ctx, db, func(tx *sql.Tx) error {
		moved, err = in.move(ctx, tx, in.order.advance, key, seq, 0, seq-1)
		return err
	})
	return moved && err == nil, err
}

func (m *Message) check() error {
	if err := checkText("event key", m.Key, MaxKey); err != nil {
		return err
	}
	if m.Seq == 0 || m.Seq >= math.MaxInt64 || m.Next > math.MaxInt64 || m.Next != 0 && m.Next <= m.Seq {
		return fmt.Errorf("inbox: seq is %d and next %d (allowed: 1 or more, and next above seq or 0)", m.Seq, m.Next)
	}
	return nil
}
