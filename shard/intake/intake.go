package intake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard/places"
)

// Executor runs commands; *shard.Executor is one.
type Executor interface {
	Do(ctx context.Context, c ledger.Command) (ledger.Result, error)
	DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply
}

// Store keeps facts; *store.Store is one.
type Store interface {
	SubmitFacts(ctx context.Context, facts []fact.Fact, sch fact.Schedule) ([]store.Submitted, error)
	OrderFacts(ctx context.Context, tenant, order string) (*fact.View, error)
	MarkFacts(ctx context.Context, order string, verdicts []fact.Verdict, sch fact.Schedule) (int, error)
	Fact(ctx context.Context, id fact.ID) (*fact.Row, error)
	ResolveFact(ctx context.Context, id fact.ID, reason string) (fact.Row, bool, error)
}

// Config shapes the intake.
type Config struct {
	// Deadline is how long a fact may wait for what it needs before it is an
	// exception.
	Deadline time.Duration `yaml:"deadline"`
	// RetryBase and RetryMax bound the time between two looks at a fact that
	// waits; it doubles from one to the other.
	RetryBase time.Duration `yaml:"retry_base"`
	RetryMax  time.Duration `yaml:"retry_max"`
}

// DefaultConfig gives facts a day.
func DefaultConfig() Config {
	d := fact.DefaultSchedule()
	return Config{Deadline: d.Deadline, RetryBase: d.Base, RetryMax: d.Max}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	duration := func(field string, v, low, high time.Duration) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %s (allowed: %s to %s)", field, v, low, high))
		}
	}
	duration("deadline", c.Deadline, time.Second, 90*24*time.Hour)
	duration("retry_base", c.RetryBase, 10*time.Millisecond, time.Hour)
	duration("retry_max", c.RetryMax, max(c.RetryBase, 10*time.Millisecond), 24*time.Hour)
	return errors.Join(errs...)
}

func (c Config) schedule() fact.Schedule {
	return fact.Schedule{Deadline: c.Deadline, Base: c.RetryBase, Max: c.RetryMax}
}

// Bounds of the intake's own work.
const (
	// maxRounds is how often one pass over an order plans. Each round sends at
	// least one command of each benefit that wants one; what is left after the
	// last waits for the next pass.
	maxRounds = 32
	// settlers is how many orders one Submit settles at once.
	settlers = 16
	// maxWatched bounds the orders whose commands are watched for, of which a
	// tenant gets at most half of what the others leave. Above that a new one is
	// watched in place of another one, which the scan alone finds then.
	maxWatched = 200_000
	// maxLooks is how many of them are looked at for one of the tenant.
	maxLooks = 64
	// maxWaiting bounds the watched orders of a tenant that wait to be settled.
	maxWaiting = 4096
)

// Intake takes facts. Make it with New; it is safe for concurrent use. Run
// settles orders after commands; everything else works without it.
type Intake struct {
	cfg   Config
	store Store
	exec  Executor
	log   zerolog.Logger

	mu      sync.RWMutex
	watched map[order]*places.Share // orders with a fact that waits, as far as this node knows
	room    *places.Places          // of the watched ones
	wakes   wakes
}

// order names an order of a tenant.
type order struct{ tenant, id string }

// New makes an intake over an executor.
func New(cfg Config, st Store, exec Executor, log zerolog.Logger) (*Intake, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("facts config: %w", err)
	}
	return &Intake{
		cfg: cfg, store: st, exec: exec, log: log, watched: map[order]*places.Share{},
		room:  places.New(places.Config{Name: "watched", Things: "orders", Places: maxWatched}),
		wakes: wakes{some: make(chan struct{}, 1)},
	}, nil
}

// Submit stores facts and settles their orders. It gives one answer a fact: the
// row as it is once its order was settled, or why the fact was refused. A fact
// that was stored is accepted, also where its order could not be settled now;
// it is settled later.
func (in *Intake) Submit(ctx context.Context, facts []fact.Fact) ([]store.Submitted, error) {
	out := make([]store.Submitted, len(facts))
	var valid []fact.Fact
	var index []int
	for i := range facts {
		f := facts[i].Normalize()
		if r := f.Validate(); r != nil {
			out[i].Err = r
			continue
		}
		valid, index = append(valid, f), append(index, i)
	}
	if len(valid) == 0 {
		return out, nil
	}
	stored, err := in.store.SubmitFacts(ctx, valid, in.cfg.schedule())
	if err != nil {
		return nil, err
	}
	seen := map[order]bool{}
	var orders []order
	for j := range stored {
		out[index[j]] = stored[j]
		o := order{stored[j].Tenant, stored[j].Order}
		if stored[j].Err == nil && stored[j].State == fact.Pending && !seen[o] {
			seen[o] = true
			orders = append(orders, o)
		}
	}
	rows := in.settleAll(ctx, orders)
	for i := range out {
		if row, ok := rows[out[i].ID]; ok && out[i].Err == nil {
			out[i].Row = row
		}
	}
	return out, nil
}

// settleAll settles orders, several at once, and gives their facts as they are
// then. What fails is left to the scan.
func (in *Intake) settleAll(ctx context.Context, orders []order) map[fact.ID]fact.Row {
	rows := map[fact.ID]fact.Row{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, settlers)
	for _, o := range orders {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			view, err := in.settle(ctx, o)
			if err != nil {
				in.log.Debug().Err(err).Str("tenant", o.tenant).Msg("facts of an order wait for the scan")
			}
			if view == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, f := range view.Facts {
				rows[f.ID] = f
			}
		})
	}
	wg.Wait()
	return rows
}

// Settle drives the facts of one order as far as they go.
func (in *Intake) Settle(ctx context.Context, tenant, id string) error {
	_, err := in.settle(ctx, order{tenant, id})
	return err
}

// settle gives the order as it was read last.
func (in *Intake) settle(ctx context.Context, o order) (view *fact.View, err error) {
	refused := map[fact.CommandKey]*ledger.Rejection{}
	for range maxRounds {
		if view, err = in.store.OrderFacts(ctx, o.tenant, o.id); err != nil {
			return view, err
		}
		view.Refused = refused
		in.note(o, view.Facts)
		verdicts := fact.Plan(view)
		if cmds := sends(verdicts); len(cmds) > 0 {
			in.send(ctx, cmds, refused)
			if ctx.Err() != nil {
				return view, context.Cause(ctx)
			}
			continue
		}
		changed, err := in.store.MarkFacts(ctx, o.id, verdicts, in.cfg.schedule())
		if err != nil {
			return view, err
		}
		if changed == 0 { // what was read is how things are
			return view, nil
		}
		// Read once more: what a mark says must be seen by whoever asked, and
		// a fact that came meanwhile may go on from here.
	}
	return view, nil
}

func sends(verdicts []fact.Verdict) []ledger.Command {
	var cmds []ledger.Command
	for i := range verdicts {
		cmds = append(cmds, verdicts[i].Send...)
	}
	return cmds
}

// send runs commands and keeps the refusals, so that the next plan does not ask
// for the same again and again. Once a command has changed something, those that
// may have passed with it are forgotten.
func (in *Intake) send(ctx context.Context, cmds []ledger.Command, refused map[fact.CommandKey]*ledger.Rejection) {
	replies := in.exec.DoAll(ctx, cmds)
	progress := false
	for i := range replies {
		if replies[i].Err == nil {
			progress = progress || !replies[i].Result.Replayed
			continue
		}
		var r *ledger.Rejection
		if !errors.As(replies[i].Err, &r) {
			r = &ledger.Rejection{Code: ledger.Internal, Message: "the command failed", Cause: replies[i].Err}
		}
		refused[fact.KeyOf(&cmds[i])] = r
	}
	if progress {
		maps.DeleteFunc(refused, func(_ fact.CommandKey, r *ledger.Rejection) bool { return fact.Passing(r.Code) })
	}
}

// Get reads one fact.
func (in *Intake) Get(ctx context.Context, id fact.ID) (*fact.Row, error) {
	if r := id.Validate(); r != nil {
		return nil, r
	}
	return in.store.Fact(ctx, id)
}

// Retry looks at a fact now, an exception too, and gives it as it is then.
func (in *Intake) Retry(ctx context.Context, id fact.ID) (*fact.Row, error) {
	row, err := in.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := in.Settle(ctx, row.Tenant, row.Order); err != nil {
		return nil, err
	}
	return in.store.Fact(ctx, id)
}

// Resolve closes an exception with a person's reason.
func (in *Intake) Resolve(ctx context.Context, id fact.ID, reason string) (fact.Row, bool, error) {
	if r := id.Validate(); r != nil {
		return fact.Row{}, false, r
	}
	return in.store.ResolveFact(ctx, id, reason)
}
