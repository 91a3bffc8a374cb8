package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard"
)

// Reply is what a caller learns of one command.
type Reply struct {
	// Code is empty when the command was accepted.
	Code ledger.Code
	// Replayed: it had taken effect before.
	Replayed bool
	Bucket   uint16
	// Amount is what the command moved, in minor units.
	Amount int64
	// Requested and Available are in minor units (INSUFFICIENT_BUDGET).
	Requested, Available int64
	// Err is the error where there was one.
	Err error
}

func (r Reply) err() error {
	if r.Err != nil {
		return r.Err
	}
	return errors.New(string(r.Code))
}

// again says that the answer asks for the same command again.
func (r Reply) again() bool {
	return r.Code != "" && r.Code.SendAgain()
}

// Target is what takes the load. All methods are safe for concurrent use.
type Target interface {
	// Make makes a budget and funds it.
	Make(ctx context.Context, b budgetSpec) error
	// Do sends commands as one call and gives one reply each, in order.
	Do(ctx context.Context, cmds []ledger.Command) []Reply
	// Balances are the sums of a budget.
	Balances(ctx context.Context, id ledger.BudgetID) (ledger.Balances, error)
	// Counters are counted since the target was opened.
	Counters(ctx context.Context) (Counters, error)
	// Audit checks everything that is stored.
	Audit(ctx context.Context, progress func(phase string, done uint64)) (*Audit, error)
	// Engine names what keeps the data, and how durable an answer is.
	Engine() string
	// Close ends the target and frees what it holds.
	Close() error
}

// resetter is a target that starts each round from nothing. Its audit comes
// before each reset.
type resetter interface {
	reset(ctx context.Context) error
}

// Audit is the verdict on a store.
type Audit struct {
	OK bool `json:"ok"`
	// None: the target stores no ledger, so there is nothing to audit.
	None         bool     `json:"none,omitempty"`
	Entries      uint64   `json:"entries"`
	Reservations uint64   `json:"reservations"`
	Problems     []string `json:"problems,omitempty"`
	// Seconds is how long the audit took.
	Seconds float64 `json:"seconds"`
}

// Deps are what the caller brings: engines and nodes, which this package may
// not know.
type Deps struct {
	// Shared names an engine that is not this process's own, such as
	// "FoundationDB"; empty for the embedded one. OpenEngine ignores dir then,
	// and a run removes what it wrote, as far as it can.
	Shared string
	// OpenEngine opens the storage engine in dir.
	OpenEngine func(ctx context.Context, dir string) (kv.Store, error)
	// StartNode runs a node on a free loopback port with its store in dir,
	// and returns its base URL. stop drains it.
	StartNode func(ctx context.Context, dir string) (url string, stop func() error, err error)
	// ServeAPI serves a handler on a free loopback port as a node serves its
	// API, and returns the base URL. stop ends it.
	ServeAPI func(ctx context.Context, h http.Handler) (url string, stop func() error, err error)
	// Expire runs the expiry scanner until ctx ends.
	Expire func(ctx context.Context, st *store.Store, exec *shard.Executor) error
	// Token gives the token to show to the target server, empty for none; nil: none.
	Token func() (string, error)
	// TLS is for the target server; nil for Go's own settings.
	TLS *tls.Config
	// Version is this build's.
	Version string
	// Progress is told what the run does; nil for nobody.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	// What it is doing now: "make budgets", "preload", "warm up", "run", "audit".
	What string
	// Done of Of; Of is 0 where the end is not known.
	Done, Of uint64
	// Commands answered so far in this round.
	Commands uint64
}

// engineName is the engine and how durable its answers are.
func (d Deps) engineName() string {
	if d.Shared != "" {
		return d.Shared
	}
	return "embedded (Pebble), fsync of every commit"
}

func (d Deps) progress(p Progress) {
	if d.Progress != nil {
		d.Progress(p)
	}
}

var openers = []struct {
	name, help string
	open       func(context.Context, Config, Deps) (Target, error)
}{
	{"node", "a node in this process, over loopback", openNode},
	{"server", "a running server (--server)", openServer},
	{"executor", "the executor in this process, without RPC", openExecutor},
	{"raw", "the engine in the ledger's block layout, with no ledger logic: the ceiling", openRaw},
	{"rmw", "the engine alone, reading and writing one hot key a call", openRmw},
	{"noop", "a node's server with an executor that does nothing", openNoop},
	{"postgres", "PostgreSQL with one function call a command (--pg-dsn, or a private one)", openPostgres},
}

// Targets lists the names.
func Targets() []string {
	var names []string
	for _, o := range openers {
		names = append(names, o.name)
	}
	return names
}

// TargetHelp says what a target is.
func TargetHelp(name string) string {
	for _, o := range openers {
		if o.name == name {
			return o.help
		}
	}
	return ""
}

func openTarget(ctx context.Context, cfg Config, deps Deps) (Target, error) {
	for _, o := range openers {
		if o.name == cfg.Target {
			t, err := o.open(ctx, cfg, deps)
			if err != nil {
				return nil, fmt.Errorf("target %s: %w", cfg.Target, err)
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("target %q is unknown", cfg.Target)
}

// makeBudget creates and funds through any path that runs commands.
func makeBudget(b budgetSpec, do func(ledger.Command) error) error {
	if err := do(ledger.Command{Op: ledger.OpCreate, Budget: b.id, Currency: currency, Buckets: b.buckets, Policy: b.policy}); err != nil {
		return fmt.Errorf("create budget %s: %w", b.id, err)
	}
	if err := do(ledger.Command{Op: ledger.OpFund, Budget: b.id, Amount: b.funded, Currency: currency, ID: "fund " + b.id.Key}); err != nil {
		return fmt.Errorf("fund budget %s: %w", b.id, err)
	}
	return nil
}

// replyOf reads a domain reply.
func replyOf(r *ledger.Reply) Reply {
	if r.Err == nil {
		o := &r.Result.Outcome
		return Reply{Replayed: r.Result.Replayed, Bucket: o.Bucket.Index, Amount: o.Amount}
	}
	out := Reply{Code: ledger.Internal, Err: r.Err}
	var rej *ledger.Rejection
	if errors.As(r.Err, &rej) {
		out.Code, out.Requested, out.Available, out.Replayed = rej.Code, rej.Requested, rej.Available, rej.Replayed
	}
	return out
}

// auditOf reads the store's own report.
func auditOf(r *store.AuditReport, took time.Duration) *Audit {
	a := &Audit{OK: r.OK(), Entries: r.Entries, Reservations: r.Reservations, Seconds: took.Seconds()}
	for _, c := range r.Checks {
		if c.Problems > 0 {
			a.Problems = append(a.Problems, problem(c.Name, c.Problems, c.Examples))
		}
	}
	return a
}

func problem(name string, n uint64, examples []string) string {
	s := fmt.Sprintf("%s: %d problems", name, n)
	if len(examples) > 0 {
		s += ", such as: " + examples[0]
	}
	return s
}
