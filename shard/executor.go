package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/shard/places"
)

// Executor runs commands. It is safe for concurrent use.
type Executor struct {
	cfg    Config
	store  *store.Store
	router router
	count  counters
	loads  loads
	gates  turnstiles
	turns  turns
	crowd  crowd
	// singles holds *single. It is not shared with other executors: a channel
	// must stay in the synctest bubble that it was made in.
	singles sync.Pool
	peers   Peers          // nil: there are none
	places  *places.Places // of the commands accepted and not yet answered

	mu     sync.Mutex
	queues map[ledger.BucketID]*queue
	lanes  map[string]*lane // by node
	active activity

	draining atomic.Bool
	idle     chan struct{} // closed when draining and nothing is pending
	ended    sync.Once     // closes idle
}

// unroutedQueues is how many queues a tenant's commands on orders that have no
// bucket are spread over, so that one slow commit does not hold up all of them.
const unroutedQueues = 16

// retryAfter is when a caller that was refused for want of room may come again.
const retryAfter = 100 * time.Millisecond

// New makes an executor over a store. It owns no goroutine while no command
// is pending.
func New(cfg Config, st *store.Store) (*Executor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("shard config: %w", err)
	}
	e := &Executor{cfg: cfg, store: st, places: cfg.places(), queues: map[ledger.BucketID]*queue{}, lanes: map[string]*lane{}, idle: make(chan struct{})}
	e.router.store, e.turns.limit = st, maxBatches
	e.crowd.waits = schedulerWaits()
	return e, nil
}

// SetPeers makes the executor send commands to the nodes that their buckets
// prefer. It must be called before the first command, if at all.
func (e *Executor) SetPeers(p Peers) { e.peers = p }

// Do runs one command and returns when it has taken effect or was refused.
// The error is a *ledger.Rejection. When ctx ends first, the answer is
// UNAVAILABLE if the command certainly did not start, and OUTCOME_UNKNOWN if
// it may take effect.
func (e *Executor) Do(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	o, _ := e.singles.Get().(*single)
	if o == nil {
		o = &single{group: group{done: make(chan struct{}, 1)}}
	}
	o.tasks[0].cmd = c
	r, ended := e.run(ctx, &o.group, o.tasks[:], o.replies[:], o.open[:0])
	res, err := r[0].Result, r[0].Err
	if ended {
		o.reset()
		e.singles.Put(o)
	}
	return res, err
}

// single is what a call of one command needs. Once its group has ended nobody
// looks at it but the caller, so it serves another call then.
type single struct {
	group   group
	tasks   [1]task
	replies [1]ledger.Reply
	open    [1]*task
}

func (o *single) reset() {
	o.group.e, o.group.here, o.group.share = nil, false, nil
	o.tasks, o.replies, o.open = [1]task{}, [1]ledger.Reply{}, [1]*task{}
}

// DoAll runs many commands and returns one reply each, in order. Commands on
// one benefit of one order run in the order given; others may run in any.
// Each is accepted, refused or fails by itself. Where ctx has a leader's term
// (store.WithTerm), so have all commands.
//
// While there is no room for all of them, or their tenant has its part of the
// node's places, all are refused with OVERLOADED. Calls of commands of several
// tenants have a part as one more tenant has; a leader's commands take no
// tenant's places, and are let in whatever the tenants have open.
func (e *Executor) DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply {
	return e.doAll(ctx, cmds, false)
}

// doAll runs commands; here keeps them on this node.
func (e *Executor) doAll(ctx context.Context, cmds []ledger.Command, here bool) []ledger.Reply {
	tasks := make([]task, len(cmds))
	for i := range cmds {
		tasks[i].cmd = cmds[i]
	}
	g := &group{here: here, done: make(chan struct{}, 1)}
	replies, _ := e.run(ctx, g, tasks, make([]ledger.Reply, len(cmds)), make([]*task, 0, len(cmds)))
	return replies
}

// run runs the commands of one call, whose tasks hold them, and returns one
// reply each. open is an empty slice with room for all. ended: all of them are
// done, so nobody but the caller has the group and its tasks any more.
func (e *Executor) run(ctx context.Context, g *group, tasks []task, replies []ledger.Reply, open []*task) (_ []ledger.Reply, ended bool) {
	g.e = e
	g.left.Store(int64(len(tasks)) + 1)
	term, span := store.TermOf(ctx), recording(ctx)
	refuse := e.admit(g, tasks, g.here || term != 0)
	if refuse == nil {
		defer e.release(g, tasks) // whatever happens from here on
	}
	for i := range tasks {
		t := &tasks[i]
		t.group, t.cmd, t.reply, t.span = g, t.cmd.Normalize(), &replies[i], span
		if term != 0 {
			t.cmd.Term = term
		}
		if refuse != nil {
			t.finish(ledger.Reply{Err: refuse})
		} else if r := t.cmd.Validate(); r != nil {
			t.finish(ledger.Reply{Err: r})
		} else {
			open = append(open, t)
		}
	}
	if refuse == nil {
		e.dispatch(ctx, open)
	}
	g.finish() // the one that kept the group open while tasks were added
	select {
	case <-g.done:
		ended = true
	case <-ctx.Done(): // answers that are still to come must not change those that are given now
		replies = takeAll(ctx, tasks)
		e.drop(tasks)
	}
	for i := range tasks {
		if !g.here { // the node that forwarded may still take the command itself
			replies[i] = e.skip(&tasks[i].cmd, replies[i])
		}
	}
	return replies, ended
}

// group is the commands of one call.
type group struct {
	e    *Executor
	here bool // forward nothing
	// share is the tenant's whose places the commands take, nil for nobody's.
	share *places.Share
	left  atomic.Int64
	// done has room for the one signal that all have ended. Who sends it looks at
	// nothing of the group, or of its tasks, after that.
	done chan struct{}
	mu   sync.Mutex // orders park and finish
}

func (g *group) finish() {
	if g.left.Add(-1) == 0 {
		g.done <- struct{}{}
	}
}

// dispatch routes tasks and puts them into their queues, in order.
func (e *Executor) dispatch(ctx context.Context, open []*task) {
	open = e.router.route(ctx, open)
	if len(open) < 2 {
		e.placeAll(open)
		return
	}
	// Commands on one benefit that go to one queue keep their order there.
	// One that goes to another queue than the one before it waits for that
	// one's answer.
	last := make(map[ledger.OrderKey]*task, len(open))
	ready := make([]*task, 0, len(open))
	for _, t := range open {
		if !t.cmd.Op.OnBudget() {
			prev := last[t.cmd.Key]
			last[t.cmd.Key] = t
			if prev != nil && (prev.waits || prev.at != t.at) {
				prev.next, t.waits = t, true
				continue
			}
			if prev != nil {
				t.after, prev.followed = prev, true
			}
		}
		ready = append(ready, t)
	}
	e.placeAll(ready)
}

// admit counts the commands of a call in, or says why they are refused. It is the
// one door: everything that takes a place passes it, before any queue.
func (e *Executor) admit(g *group, tasks []task, own bool) (r *ledger.Rejection) {
	if e.draining.Load() {
		return drainingNow()
	}
	if own {
		e.places.TakeOwn(len(tasks))
	} else if g.share, r = e.places.Take(tenantOf(tasks), len(tasks)); r != nil {
		e.count.overloaded.Add(uint64(len(tasks)))
		return r
	}
	if e.draining.Load() { // since then; the drain waits for what it has seen
		e.settle(g.share, len(tasks))
		return drainingNow()
	}
	return nil
}

func drainingNow() *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.Draining, Message: "this node is shutting down", RetryAfter: retryAfter}
}

// tenantOf is the tenant of all commands, "" where they have none in common.
func tenantOf(tasks []task) (tenant string) {
	for i := range tasks {
		c := &tasks[i].cmd
		t := c.Key.Tenant
		if c.Op.OnBudget() {
			t = c.Budget.Tenant
		}
		if i > 0 && t != tenant {
			return ""
		}
		tenant = t
	}
	return tenant
}

// release counts commands out when their caller has its answers. Commands
// whose caller left early stay pending until they are done.
func (e *Executor) release(g *group, tasks []task) {
	n := len(tasks)
	for i := range tasks {
		if tasks[i].leave() {
			n--
		}
	}
	e.settle(g.share, n)
}

// settle counts n commands out and tells a drain when none are left.
func (e *Executor) settle(s *places.Share, n int) {
	if n > 0 && e.places.Give(s, n) == 0 && e.draining.Load() {
		e.ended.Do(func() { close(e.idle) })
	}
}

// Drain refuses new commands and returns when every accepted one is answered,
// or when ctx ends. It may be called more than once.
func (e *Executor) Drain(ctx context.Context) error {
	e.draining.Store(true)
	if e.places.Taken() == 0 {
		e.ended.Do(func() { close(e.idle) })
	}
	select {
	case <-e.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: %d commands are not answered yet: %w", e.places.Taken(), ctx.Err())
	}
}

// skip turns a Reserve that was certainly not taken into a "no benefit"
// answer where the budget's policy says so.
func (e *Executor) skip(c *ledger.Command, r ledger.Reply) ledger.Reply {
	if c.Op != ledger.OpReserve || r.Err == nil {
		return r
	}
	rej, ok := r.Err.(*ledger.Rejection) //nolint:errorlint // replies hold rejections as they are
	if !ok || !skippable(rej) {
		return r
	}
	if b := e.router.cached(c.Budget); b == nil || b.Policy.OnUnavailable != ledger.SkipBenefit {
		return r
	}
	e.count.skipped.Add(1)
	return ledger.Reply{Result: ledger.Result{Key: c.Key, Attempt: c.Attempt, Budget: c.Budget, Skipped: true}}
}

// skippable says whether a command was refused because it cannot be done now, and
// not for what it asks.
func skippable(r *ledger.Rejection) bool {
	return r.Code == ledger.Unavailable || r.Code == ledger.Overloaded || (r.Code == ledger.Corrupt && errors.Is(r, kv.ErrDamaged))
}
