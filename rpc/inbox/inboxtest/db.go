// Package inboxtest has a database for tests of what consumers do with events:
// in memory, with transactions, for the statements of rpc/inbox and two of its
// own. It imports nothing of ours.
package inboxtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
)

// Statements for effects, each with one argument.
const (
	// Add adds an int64 to what Sum gives.
	Add = "ADD"
	// Log appends a string to what Logged gives.
	Log = "LOG"
)

// DB is as much of a database as the inbox needs: two tables with primary keys,
// whose writes wait for a transaction that holds the same row, and what effects
// leave. What a transaction wrote is seen by others once it commits. It is safe
// for concurrent use.
type DB struct {
	// OnCommit, if not nil, may say that the answer of a commit is lost, and
	// whether it took effect. It is set while no transaction is under way.
	OnCommit func() (lost, landed bool)
	// Waits gets a value whenever a statement begins to wait for another
	// transaction.
	Waits chan struct{}

	mu     sync.Mutex
	rows   map[row]int64
	locks  map[row]chan struct{}
	sum    int64
	logged []string
}

// row is a primary key: table, consumer, event id or event key.
type row [3]string

// New makes an empty database, and opens it.
func New() (*DB, *sql.DB) {
	f := &DB{rows: map[row]int64{}, locks: map[row]chan struct{}{}, Waits: make(chan struct{}, 100)}
	return f, sql.OpenDB(f)
}

// Sum is what committed effects added up to.
func (f *DB) Sum() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sum
}

// Logged is what committed effects logged, in the order of their commits.
func (f *DB) Logged() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.logged...)
}

// Events is the number of event ids that are recorded.
func (f *DB) Events() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for r := range f.rows {
		if r[0] == "events" {
			n++
		}
	}
	return n
}

// Connect begins a connection, for database/sql.
func (f *DB) Connect(context.Context) (driver.Conn, error) { return &conn{db: f}, nil }

// Driver is nil: nothing asks for it.
func (f *DB) Driver() driver.Driver { return nil }

type conn struct {
	db     *DB
	held   []row
	rows   map[row]int64
	add    int64
	logged []string
}

var errUnsupported = errors.New("not supported by inboxtest")

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errUnsupported }
func (c *conn) Close() error                        { return nil }
func (c *conn) Begin() (driver.Tx, error) {
	c.rows, c.held, c.add, c.logged = map[row]int64{}, nil, 0, nil
	return c, nil
}

func (c *conn) Commit() error {
	var lost, landed bool
	if c.db.OnCommit != nil {
		lost, landed = c.db.OnCommit()
	}
	c.end(!lost || landed)
	if lost {
		return errors.New("connection reset by peer")
	}
	return nil
}

func (c *conn) Rollback() error { c.end(false); return nil }

func (c *conn) end(keep bool) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	if keep {
		for k, v := range c.rows {
			c.db.rows[k] = v
		}
		c.db.sum += c.add
		c.db.logged = append(c.db.logged, c.logged...)
	}
	for _, k := range c.held {
		close(c.db.locks[k])
		delete(c.db.locks, k)
	}
	c.held = nil
}

type result int64

func (r result) LastInsertId() (int64, error) { return 0, errUnsupported }
func (r result) RowsAffected() (int64, error) { return int64(r), nil }

// ExecContext runs a statement, for database/sql.
func (c *conn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	text := func(i int) string { s, _ := args[i].Value.(string); return s }
	number := func(i int) int64 { n, _ := args[i].Value.(int64); return n }
	switch {
	case strings.Contains(q, "ON CONFLICT (consumer, event_id) DO NOTHING"):
		return c.write(ctx, row{"events", text(0), text(1)}, number(2), func(_ int64, there bool) bool { return !there })
	case strings.Contains(q, "ON CONFLICT (consumer, event_key) DO UPDATE"):
		return c.write(ctx, row{"order", text(0), text(1)}, number(2), func(v int64, there bool) bool { return !there || v >= number(3) && v <= number(4) })
	case strings.HasPrefix(q, "UPDATE") && strings.Contains(q, "event_key"):
		return c.write(ctx, row{"order", text(0), text(1)}, number(2), func(v int64, there bool) bool { return there && v >= number(3) && v <= number(4) })
	case strings.HasPrefix(q, "DELETE") && strings.Contains(q, "seen_ms"):
		c.db.mu.Lock()
		defer c.db.mu.Unlock()
		n := 0
		for k, at := range c.db.rows {
			if k[0] == "events" && k[1] == text(0) && at < number(1) {
				delete(c.db.rows, k)
				n++
			}
		}
		return result(n), nil
	case q == Add:
		c.add += number(0)
		return result(1), nil
	case q == Log:
		c.logged = append(c.logged, text(0))
		return result(1), nil
	}
	return nil, errors.New("inboxtest does not know: " + q)
}

// write sets a row if its value, once no other transaction holds it, allows.
func (c *conn) write(ctx context.Context, k row, v int64, allows func(v int64, there bool) bool) (driver.Result, error) {
	for {
		c.db.mu.Lock()
		lock := c.db.locks[k]
		if _, mine := c.rows[k]; mine || lock == nil {
			break
		}
		c.db.mu.Unlock()
		c.db.Waits <- struct{}{}
		select {
		case <-lock:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer c.db.mu.Unlock()
	if !allows(c.value(k)) {
		return result(0), nil
	}
	if c.db.locks[k] == nil {
		c.db.locks[k] = make(chan struct{})
		c.held = append(c.held, k)
	}
	c.rows[k] = v
	return result(1), nil
}

// value is a row's as this transaction sees it.
func (c *conn) value(k row) (int64, bool) {
	if v, ok := c.rows[k]; ok {
		return v, true
	}
	v, ok := c.db.rows[k]
	return v, ok
}

// QueryContext runs a query, for database/sql.
func (c *conn) QueryContext(_ context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	if !strings.HasPrefix(q, "SELECT next_seq") {
		return nil, errors.New("inboxtest does not know: " + q)
	}
	consumer, _ := args[0].Value.(string)
	key, _ := args[1].Value.(string)
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	v, ok := c.value(row{"order", consumer, key})
	return &rows{v: v, left: ok}, nil
}

// rows is one number, or nothing.
type rows struct {
	v    int64
	left bool
}

func (r *rows) Columns() []string { return []string{"next_seq"} }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(dest []driver.Value) error {
	if !r.left {
		return io.EOF
	}
	r.left, dest[0] = false, r.v
	return nil
}
