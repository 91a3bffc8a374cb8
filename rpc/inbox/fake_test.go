package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
)

// fakeDB is as much of a database as the inbox needs: a table with a primary
// key whose inserts wait for a transaction that holds the same key, and one
// number that effects add to. What a transaction writes is seen by others once
// it commits.
type fakeDB struct {
	mu    sync.Mutex
	rows  map[[2]string]int64
	locks map[[2]string]chan struct{}
	sum   int64
	// commit, if not nil, may say that the answer of a commit is lost, and
	// whether it took effect.
	commit func() (lost, landed bool)
	waits  chan struct{}
}

func newFake() (*fakeDB, *sql.DB) {
	f := &fakeDB{rows: map[[2]string]int64{}, locks: map[[2]string]chan struct{}{}, waits: make(chan struct{}, 100)}
	return f, sql.OpenDB(f)
}

func (f *fakeDB) Connect(context.Context) (driver.Conn, error) { return &fakeConn{db: f}, nil }
func (f *fakeDB) Driver() driver.Driver                        { return nil }

type fakeConn struct {
	db   *fakeDB
	keys [][2]string
	rows map[[2]string]int64
	add  int64
	open bool
}

var errUnsupported = errors.New("not supported by the fake")

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errUnsupported }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error) {
	c.open, c.rows, c.keys, c.add = true, map[[2]string]int64{}, nil, 0
	return c, nil
}

func (c *fakeConn) Commit() error {
	var lost, landed bool
	if c.db.commit != nil {
		lost, landed = c.db.commit()
	}
	c.end(!lost || landed)
	if lost {
		return errors.New("connection reset by peer")
	}
	return nil
}

func (c *fakeConn) Rollback() error { c.end(false); return nil }

func (c *fakeConn) end(keep bool) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	if keep {
		for k, v := range c.rows {
			c.db.rows[k] = v
		}
		c.db.sum += c.add
	}
	for _, k := range c.keys {
		close(c.db.locks[k])
		delete(c.db.locks, k)
	}
	c.open, c.keys = false, nil
}

type result int64

func (r result) LastInsertId() (int64, error) { return 0, errUnsupported }
func (r result) RowsAffected() (int64, error) { return int64(r), nil }

func (c *fakeConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case strings.HasPrefix(q, "INSERT INTO coffer_inbox (consumer, event_id, seen_ms) VALUES ($1, $2, $3) ON CONFLICT (consumer, event_id) DO NOTHING"):
		consumer, _ := args[0].Value.(string)
		event, _ := args[1].Value.(string)
		at, _ := args[2].Value.(int64)
		return c.insert(ctx, [2]string{consumer, event}, at)
	case strings.HasPrefix(q, "DELETE FROM coffer_inbox WHERE consumer = $1"):
		before, _ := args[1].Value.(int64)
		c.db.mu.Lock()
		defer c.db.mu.Unlock()
		n := 0
		for k, at := range c.db.rows {
			if k[0] == args[0].Value && at < before {
				delete(c.db.rows, k)
				n++
			}
		}
		return result(n), nil
	case q == "ADD":
		v, _ := args[0].Value.(int64)
		c.add += v
		return result(1), nil
	}
	return nil, errors.New("the fake does not know: " + q)
}

func (c *fakeConn) insert(ctx context.Context, k [2]string, at int64) (driver.Result, error) {
	for {
		c.db.mu.Lock()
		_, there := c.db.rows[k]
		_, mine := c.rows[k]
		lock := c.db.locks[k]
		if there || mine || lock == nil {
			if !there && !mine {
				c.rows[k] = at
				c.db.locks[k] = make(chan struct{})
				c.keys = append(c.keys, k)
			}
			c.db.mu.Unlock()
			if there || mine {
				return result(0), nil
			}
			return result(1), nil
		}
		c.db.mu.Unlock()
		c.db.waits <- struct{}{}
		select {
		case <-lock:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
