package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of names, in bytes.
const (
	MaxConsumer = 128
	MaxEventID  = 512
	// maxPurge bounds the rows that one Purge removes.
	maxPurge = 10_000
	// maxName bounds each part of a table's name, so that what is named after
	// it stays within the 63 bytes that PostgreSQL keeps.
	maxName = 57
)

// Dialect is what differs between databases.
type Dialect uint8

// Dialects. Others are left out on purpose: the table's key must compare
// strings byte by byte, and an insert that finds its key taken must say so
// without failing the transaction.
const (
	Postgres Dialect = iota
	SQLite
)

// param is the n-th parameter, from 1.
func (d Dialect) param(n int) string {
	if d == Postgres {
		return "$" + strconv.Itoa(n)
	}
	return "?" + strconv.Itoa(n)
}

// DefaultTable is the table's name where Config has none.
const DefaultTable = "coffer_inbox"

// Config says whose inbox it is and where.
type Config struct {
	// Consumer names the effect. Two effects of one event need two names, and so
	// do the events of two installations, whose ids may be the same.
	Consumer string
	// Table may be "schema.table"; letters, digits and underscores.
	Table   string
	Dialect Dialect
	// FromStart: the consumer gets every event there has ever been of a key, so
	// the first one it sees of a dense key has sequence 1, or is after a gap.
	// Without it, and where Message.Midway says so, a key may begin anywhere. For
	// DoInOrder.
	FromStart bool
}

// Inbox records which events had their effect. It is safe for concurrent use
// and holds nothing but its configuration.
type Inbox struct {
	cfg                   Config
	insert, purge, create string
	index                 string
	order                 orderStatements
}

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Inbox, error) {
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	if err := checkText("consumer", cfg.Consumer, MaxConsumer); err != nil {
		return nil, err
	}
	if !tableName(cfg.Table) {
		return nil, fmt.Errorf("inbox: table is %.80q (allowed: table or schema.table of letters, digits and underscores, each up to 57)", cfg.Table)
	}
	if cfg.Dialect > SQLite {
		return nil, fmt.Errorf("inbox: dialect is %d (allowed: Postgres, SQLite)", cfg.Dialect)
	}
	p := cfg.Dialect.param
	in := &Inbox{cfg: cfg}
	in.insert = fmt.Sprintf("INSERT INTO %s (consumer, event_id, seen_ms) VALUES (%s, %s, %s) ON CONFLICT (consumer, event_id) DO NOTHING",
		cfg.Table, p(1), p(2), p(3))
	in.purge = fmt.Sprintf("DELETE FROM %s WHERE consumer = %s AND event_id IN (SELECT event_id FROM %s WHERE consumer = %s AND seen_ms < %s LIMIT %d)",
		cfg.Table, p(1), cfg.Table, p(1), p(2), maxPurge)
	in.create = fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (consumer TEXT NOT NULL, event_id TEXT NOT NULL, seen_ms BIGINT NOT NULL, PRIMARY KEY (consumer, event_id))", cfg.Table)
	_, bare, ok := strings.Cut(cfg.Table, ".")
	if !ok {
		bare = cfg.Table
	}
	on := cfg.Table
	in.index = fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s_seen ON %s (consumer, seen_ms)", bare, on)
	if ok && cfg.Dialect == SQLite { // there the index names the schema, and the table must not
		in.index = fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s_seen ON %s (consumer, seen_ms)", cfg.Table, bare)
	}
	in.order = orderOf(cfg)
	return in, nil
}

// Schema is the tables as statements, to be run by whatever runs the consumer's
// migrations. They do nothing where the tables are there.
func (in *Inbox) Schema() []string { return []string{in.create, in.index, in.order.create} }

// First records the event in the caller's transaction and reports whether it is
// the first time. True: make the effect in the same transaction, and commit both.
// False: it has been made; there is nothing to do but to acknowledge. After an
// error the transaction must be rolled back.
func (in *Inbox) First(ctx context.Context, tx *sql.Tx, eventID string) (bool, error) {
	if err := checkText("event id", eventID, MaxEventID); err != nil {
		return false, err
	}
	res, err := tx.ExecContext(ctx, in.insert, in.cfg.Consumer, eventID, time.Now().UnixMilli())
	if err != nil {
		return false, fmt.Errorf("inbox: record event: %w", err)
	}
	n, err := res.RowsAffected()
	switch {
	case err != nil:
		return false, fmt.Errorf("inbox: record event: %w", err)
	case n != 0 && n != 1:
		return false, fmt.Errorf("inbox: recording one event changed %d rows: the driver does not say what an insert did", n)
	}
	return n == 1, nil
}

// Do runs the effect of an event in a transaction of its own, unless it has been
// made before, and reports whether it ran. An error means that nothing was
// changed, or, when it came from the commit, that this is not known: either way
// do not acknowledge the event; when it comes again, the inbox knows.
//
// The effect must use the transaction for all it changes. It must neither commit
// nor roll back.
func (in *Inbox) Do(ctx context.Context, db *sql.DB, eventID string, effect func(context.Context, *sql.Tx) error) (ran bool, err error) {
	err = transact(ctx, db, func(tx *sql.Tx) (err error) {
		if ran, err = in.First(ctx, tx, eventID); err == nil && ran {
			err = effect(ctx, tx)
		}
		return err
	})
	return ran && err == nil, err
}

// transact commits what f did, unless it failed.
func transact(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("inbox: begin: %w", err)
	}
	defer func() {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) && err == nil {
			err = fmt.Errorf("inbox: roll back: %w", rerr)
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("inbox: commit: %w", err)
	}
	return nil
}

// Purge forgets up to 10,000 events that were recorded before a time, and gives
// how many; call it again while it gives as many. An event that comes after it
// was forgotten has its effect again.
func (in *Inbox) Purge(ctx context.Context, db *sql.DB, before time.Time) (int64, error) {
	res, err := db.ExecContext(ctx, in.purge, in.cfg.Consumer, before.UnixMilli())
	if err != nil {
		return 0, fmt.Errorf("inbox: purge: %w", err)
	}
	return res.RowsAffected()
}

// checkText refuses what a database may refuse, cut or compare differently.
func checkText(what, s string, limit int) error {
	if s == "" || len(s) > limit || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("inbox: %s is %.40q, %d bytes (allowed: 1 to %d bytes of UTF-8 without zero bytes)", what, s, len(s), limit)
	}
	return nil
}

func tableName(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) > 2 {
		return false
	}
	for _, p := range parts {
		if p == "" || len(p) > maxName || p[0] >= '0' && p[0] <= '9' {
			return false
		}
		for _, c := range []byte(p) {
			if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}
