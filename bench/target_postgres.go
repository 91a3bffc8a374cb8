package bench

import (
	"context"
	"crypto/sha256"
	_ "embed" // the schema
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/coffer-ledger/coffer/ledger"
)

//go:embed postgres.sql
var postgresSchema string

// postgres is the ledger on PostgreSQL, one prepared function call a command.
// It has STRICT budgets only.
type postgres struct {
	pool     *pgxpool.Pool
	callers  int
	pipeline bool
	engine   string
	stop     func() error

	mu      sync.RWMutex
	budgets map[ledger.BudgetID]pgBudget
	lapse   context.CancelFunc
	lapsed  chan error
}

type pgBudget struct {
	number int
	route  ledger.Budget // names the bucket of an order, as the ledger does
}

// pgCalls are the calls of the functions; pgx prepares each once a connection.
const (
	pgReserve = "SELECT coffer_bench.reserve($1, $2, $3, $4, $5, $6::bigint * interval '1 ms')"
	pgBuy     = "SELECT coffer_bench.buy($1, $2, $3, $4, $5, $6::bigint * interval '1 ms')"
	pgSettle  = "SELECT coffer_bench.settle($1, $2::text::\"char\", '')"
	pgRefund  = "SELECT coffer_bench.refund($1, $2, $3)"
	pgLapse   = "SELECT coffer_bench.lapse(1000)"
)

// pgSpare is how many connections there are beside those of callers.
const pgSpare = 4

func openPostgres(ctx context.Context, cfg Config, _ Deps) (_ Target, err error) {
	p := &postgres{callers: cfg.Callers, pipeline: cfg.Pipeline, stop: func() error { return nil }}
	dsn := cfg.DSN
	if dsn == "" {
		if dsn, p.stop, err = startPostgres(ctx, cfg); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("--pg-dsn: %w", err)
	}
	pc.MaxConns = int32(min(cfg.Callers, maxPgCallers) + pgSpare)
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if p.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, err
	}
	var version, sync, fsync string
	err = p.pool.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync')").Scan(&version, &sync, &fsync)
	if err != nil {
		return nil, fmt.Errorf("connect: %w; start PostgreSQL, or leave --pg-dsn out to get a private one", err)
	}
	p.engine = fmt.Sprintf("PostgreSQL %s, fsync %s, synchronous_commit %s, over loopback", version, fsync, sync)
	return p, p.reset(ctx)
}

// maxPgCallers is the most connections; PostgreSQL is at its best with far
// fewer.
const maxPgCallers = 256

// reset makes the schema anew, empty, and begins to give lapsed holds back.
func (p *postgres) reset(ctx context.Context) error {
	if err := p.stopLapse(); err != nil {
		return err
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, err = conn.Conn().PgConn().Exec(ctx, postgresSchema).ReadAll()
	conn.Release()
	if err != nil {
		return fmt.Errorf("make schema: %w", err)
	}
	p.pool.Reset() // what connections have prepared names tables that are gone
	p.mu.Lock()
	p.budgets = map[ledger.BudgetID]pgBudget{}
	p.mu.Unlock()
	lctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.lapse, p.lapsed = cancel, make(chan error, 1)
	go func() { p.lapsed <- p.expire(lctx) }()
	return nil
}

// expire gives lapsed holds back, once a second.
func (p *postgres) expire(ctx context.Context) error {
	for sleep(ctx, time.Second) {
		if _, err := p.pool.Exec(ctx, pgLapse); err != nil && ctx.Err() == nil {
			return fmt.Errorf("give lapsed holds back: %w", err)
		}
	}
	return nil
}

func (p *postgres) stopLapse() error {
	if p.lapse == nil {
		return nil
	}
	p.lapse()
	p.lapse = nil
	return <-p.lapsed
}

// Make implements Target.
func (p *postgres) Make(ctx context.Context, b budgetSpec) error {
	if b.policy.Exhaustion == ledger.Exact && b.funded < plenty/2048 {
		return errors.New("this schema has no EXACT budgets: a bucket spends its own money only")
	}
	p.mu.Lock()
	n := pgBudget{number: len(p.budgets) + 1, route: ledger.Budget{ID: b.id, Epoch: ledger.Epoch{Buckets: uint16(b.buckets)}}}
	p.budgets[b.id] = n
	p.mu.Unlock()
	_, err := p.pool.Exec(ctx, `INSERT INTO coffer_bench.balance (budget, bucket, funded, available)
		SELECT $1, i, m, m FROM (SELECT i, $3::bigint / $2 + CASE WHEN i < $3::bigint % $2 THEN 1 ELSE 0 END AS m FROM generate_series(0, $2::int - 1) i) s`,
		n.number, b.buckets, b.funded)
	return err
}

// Do implements Target. Reserve and commit of one order are one call of one
// function. Other commands of a call are sent one after the other, each in a
// transaction of its own, as each must be accepted by itself.
func (p *postgres) Do(ctx context.Context, cmds []ledger.Command) []Reply {
	if len(cmds) == 2 && cmds[0].Op == ledger.OpReserve && cmds[1].Op == ledger.OpCommit && cmds[0].Key == cmds[1].Key {
		r := p.one(ctx, &cmds[0], pgBuy)
		return []Reply{r, r}
	}
	if p.pipeline && len(cmds) > 1 {
		return p.together(ctx, cmds)
	}
	out := make([]Reply, len(cmds))
	for i := range cmds {
		out[i] = p.one(ctx, &cmds[i], pgReserve)
	}
	return out
}

func (p *postgres) one(ctx context.Context, c *ledger.Command, reserve string) Reply {
	sql, args, bucket := p.query(c, reserve)
	var word string
	err := p.pool.QueryRow(ctx, sql, args...).Scan(&word)
	return pgReply(c, word, bucket, err)
}

// together sends all commands in one pipeline and one transaction.
func (p *postgres) together(ctx context.Context, cmds []ledger.Command) []Reply {
	out := make([]Reply, len(cmds))
	b := &pgx.Batch{}
	for i := range cmds {
		sql, args, bucket := p.query(&cmds[i], pgReserve)
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
			var word string
			err := row.Scan(&word)
			out[i] = pgReply(&cmds[i], word, bucket, err)
			return err
		})
	}
	if err := p.pool.SendBatch(ctx, b).Close(); err != nil {
		return failed(len(cmds), ledger.Unavailable, err)
	}
	return out
}

func (p *postgres) query(c *ledger.Command, reserve string) (sql string, args []any, bucket uint16) {
	p.mu.RLock()
	b := p.budgets[c.Budget]
	p.mu.RUnlock()
	bucket = b.route.Route(c.Key).Index
	key := c.Key.Tenant + "/" + c.Key.Order + "/" + c.Key.Benefit + "/1"
	switch c.Op {
	case ledger.OpCommit:
		return pgSettle, []any{key, "C"}, bucket
	case ledger.OpRelease:
		return pgSettle, []any{key, "L"}, bucket
	case ledger.OpReverse:
		return pgRefund, []any{key, c.ID, c.Amount}, bucket
	default:
		return reserve, []any{key, pgHash(c), b.number, int(bucket), c.Amount, c.TTL.Milliseconds()}, bucket
	}
}

// pgHash tells a repeated request from another one with the same key.
func pgHash(c *ledger.Command) []byte {
	form := append([]byte(c.Budget.String()+"\x00"+c.Currency+"\x00"), make([]byte, 16)...)
	binary.BigEndian.PutUint64(form[len(form)-16:], uint64(c.Amount))
	binary.BigEndian.PutUint64(form[len(form)-8:], uint64(c.TTL))
	sum := sha256.Sum256(form)
	return sum[:]
}

func pgReply(c *ledger.Command, word string, bucket uint16, err error) Reply {
	var pe *pgconn.PgError
	switch {
	case errors.As(err, &pe) && pe.Code == "CB001":
		return Reply{Code: ledger.InsufficientBudget, Bucket: bucket, Requested: c.Amount, Err: err}
	case err != nil:
		return Reply{Code: ledger.Unavailable, Bucket: bucket, Err: err}
	case word == "done", word == "replayed":
		return Reply{Replayed: word == "replayed", Bucket: bucket, Amount: c.Amount}
	}
	return Reply{Code: ledger.Code(word), Bucket: bucket, Err: errors.New(word)}
}

// Balances implements Target.
func (p *postgres) Balances(ctx context.Context, id ledger.BudgetID) (b ledger.Balances, err error) {
	p.mu.RLock()
	n := p.budgets[id].number
	p.mu.RUnlock()
	err = p.pool.QueryRow(ctx, "SELECT sum(funded)::bigint, sum(available)::bigint, sum(held)::bigint, sum(spent)::bigint, sum(refunded)::bigint FROM coffer_bench.balance WHERE budget = $1", n).
		Scan(&b.Funded, &b.Available, &b.Reserved, &b.Committed, &b.Reversed)
	return b, err
}

// Counters implements Target; a transaction is one command.
func (p *postgres) Counters(context.Context) (Counters, error) {
	return Counters{NoConflicts: true}, nil
}

// Audit implements Target: sums of balances, entries, holds and events.
func (p *postgres) Audit(ctx context.Context, _ func(string, uint64)) (*Audit, error) {
	start := time.Now()
	if err := p.stopLapse(); err != nil {
		return nil, err
	}
	a := &Audit{}
	rows, err := p.pool.Query(ctx, "SELECT problem FROM coffer_bench.audit() LIMIT 10")
	if err != nil {
		return nil, err
	}
	if a.Problems, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	err = p.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM coffer_bench.entry), (SELECT count(*) FROM coffer_bench.hold)").Scan(&a.Entries, &a.Reservations)
	a.OK, a.Seconds = len(a.Problems) == 0, time.Since(start).Seconds()
	return a, err
}

// Engine implements Target.
func (p *postgres) Engine() string { return p.engine }

// Close implements Target.
func (p *postgres) Close() error {
	err := p.stopLapse()
	if p.pool != nil {
		p.pool.Close()
	}
	return errors.Join(err, p.stop())
}
