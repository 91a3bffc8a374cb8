package shard

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/shard/places"
)

// ForwardLimit is the most commands that go to another node in one call.
const ForwardLimit = 1000

// Rests of a node that did not answer, in which nothing is forwarded to it:
// twice as long with each failure in a row, so that a node which is alive but out
// of reach costs callers its time-out less and less often.
const (
	firstRest = time.Second
	maxRest   = 32 * time.Second
)

// Peers are the other nodes over the same store. It must be safe for concurrent
// use.
type Peers interface {
	// Prefer names the node that a bucket's commands should run on: "" is this
	// one.
	Prefer(b ledger.BucketID) string
	// Forward runs commands on a node, which runs them itself, and gives one
	// reply each, in order. It is bounded in time. An error says nothing about
	// what became of the commands.
	Forward(ctx context.Context, node string, cmds []ledger.Command) ([]ledger.Reply, error)
}

// lane holds the commands that wait to be forwarded to one node. One call is in
// flight to a node; what queues meanwhile goes with the next, in turns of the
// tenants, each of which has room for as many commands as a queue.
type lane struct {
	e    *Executor
	node string

	mu       sync.Mutex
	tasks    places.Line[*task]
	running  bool
	rest     time.Time // until then nothing goes to the node
	failures int       // in a row
}

// place puts a task into the queue of its bucket: that of the preferred node,
// or this one's.
func (e *Executor) place(t *task) { e.placeIn(t, e.laneOf(t)) }

func (e *Executor) placeIn(t *task, l *lane) {
	if l != nil {
		l.add(t)
	} else {
		e.enqueue(t, false)
	}
}

// placeAll places the tasks of one call. Those of one bucket go the same way,
// and so keep their order, also when the nodes change in between.
func (e *Executor) placeAll(ready []*task) {
	if e.peers == nil || len(ready) == 1 {
		for _, t := range ready {
			e.place(t)
		}
		return
	}
	lanes := map[ledger.BucketID]*lane{}
	for _, t := range ready {
		if t.cmd.Op.OnBudget() {
			e.place(t)
			continue
		}
		l, known := lanes[t.at]
		if !known {
			l = e.laneOf(t)
			lanes[t.at] = l
		}
		e.placeIn(t, l)
	}
}

// laneOf gives the lane to the node that a task should go to, nil for none or
// where that node is given a rest. A command that was forwarded once stays here;
// one on a budget, or without a bucket, is too rare to be worth a hop.
func (e *Executor) laneOf(t *task) *lane {
	if e.peers == nil || t.group.here || !t.routed || t.cmd.Op.OnBudget() {
		return nil
	}
	node := e.peers.Prefer(t.at)
	if node == "" {
		return nil
	}
	if l := e.lane(node); !l.rests() {
		return l
	}
	return nil
}

func (e *Executor) lane(node string) *lane {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lanes[node]
	if l == nil {
		l = &lane{e: e, node: node}
		e.lanes[node] = l
	}
	return l
}

func (l *lane) rests() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.rest)
}

// add takes a task. One that its tenant has filled refuses it as a full queue
// would, unless the leader sends it.
func (l *lane) add(t *task) {
	if t.behindRefused() {
		t.turnAway(nil)
		return
	}
	l.mu.Lock()
	tenant, limit := t.cmd.Key.Tenant, l.e.cfg.QueueLimit // commands on budgets stay here
	if t.cmd.Term != 0 {
		limit = math.MaxInt
	}
	if n, ok := l.tasks.Add(tenant, t, limit); !ok {
		l.mu.Unlock()
		t.turnAway(&ledger.Rejection{
			Code: ledger.Overloaded, Field: "queue", Value: fmt.Sprint(n), Limit: fmt.Sprint(l.e.cfg.QueueLimit),
			Message: fmt.Sprintf("commands of tenant %q are waiting for the node that has their buckets", tenant), RetryAfter: 50 * time.Millisecond,
		})
		return
	}
	if !l.running {
		l.running = true
		go l.run()
	}
	l.mu.Unlock()
}

// run forwards batch after batch until nothing is left.
func (l *lane) run() {
	for {
		batch := l.next(ForwardLimit)
		if batch == nil {
			return
		}
		l.send(batch)
	}
}

// next takes what has gathered, up to a limit; nil when that is nothing, and
// then the lane runs no more.
func (l *lane) next(limit int) []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch []*task
	for len(batch) < limit {
		t, ok := l.tasks.Take()
		if !ok {
			break
		}
		if !t.state.CompareAndSwap(taskQueued, taskTaken) {
			continue
		}
		if t.taken = true; !t.park() {
			batch = append(batch, t)
		}
	}
	if len(batch) == 0 {
		l.running = false
		return nil
	}
	return batch
}

// send forwards one batch and answers its commands. What the node did not take,
// or may have taken without an answer, runs here: a command that took effect
// there finds its receipt. So does all that waits behind it, in its order.
func (l *lane) send(batch []*task) {
	e := l.e
	cmds := make([]ledger.Command, len(batch))
	for i, t := range batch {
		cmds[i] = t.cmd
	}
	e.count.forwards.Add(1)
	replies, err := e.peers.Forward(context.Background(), l.node, cmds)
	if err == nil && len(replies) != len(batch) {
		err = fmt.Errorf("%d commands got %d replies", len(batch), len(replies))
	}
	if err != nil {
		e.count.forwardFailed.Add(1)
		l.runHere(batch)
		return
	}
	l.mu.Lock()
	l.failures = 0
	l.mu.Unlock()
	e.count.forwarded.Add(uint64(len(batch)))
	var left []*task
	for i, t := range batch {
		if notTaken(replies[i].Err) {
			left = append(left, t)
			continue
		}
		if early(&t.cmd, replies[i].Err) {
			e.count.ranHere.Add(1)
			t.strayed.Store(true)
			e.enqueue(t, true)
			continue
		}
		e.answer(t, replies[i])
	}
	if len(left) > 0 {
		l.runHere(left)
	}
}

// notTaken says that a reply settles nothing: the other node is leaving, or its
// store did not answer.
func notTaken(err error) bool {
	r, ok := err.(*ledger.Rejection) //nolint:errorlint // replies hold rejections as they are
	return ok && (r.Code == ledger.Draining || r.Code == ledger.Unavailable || r.Code == ledger.OutcomeUnknown)
}

// early says that by the other node's clock a hold does not expire yet. Whoever
// sent the command went by this node's, and would find the hold due again and
// again: so it is this node's that decides, as it is where nothing is forwarded.
func early(c *ledger.Command, err error) bool {
	r, ok := err.(*ledger.Rejection) //nolint:errorlint // replies hold rejections as they are
	return ok && c.Op == ledger.OpExpire && r.Code == ledger.NotDue
}

// runHere puts tasks, and those that wait in the lane, into the queues of this
// node, and gives the other one a rest.
func (l *lane) runHere(tasks []*task) {
	l.mu.Lock()
	l.rest = time.Now().Add(min(firstRest<<min(l.failures, 10), maxRest))
	l.failures++
	waiting := l.tasks
	l.tasks = places.Line[*task]{}
	l.mu.Unlock()
	for t, ok := waiting.Take(); ok; t, ok = waiting.Take() {
		if t.state.CompareAndSwap(taskQueued, taskTaken) {
			t.taken = true
			tasks = append(tasks, t)
		}
	}
	l.e.count.ranHere.Add(uint64(len(tasks)))
	for _, t := range tasks {
		t.strayed.Store(true) // one behind it may still be on its way to the lane
		l.e.enqueue(t, true)
	}
}

// Here is an executor over the same queues that forwards nothing: for commands
// that another node has forwarded, which must not make a second hop.
type Here struct{ e *Executor }

// Here gives the executor for what other nodes forward.
func (e *Executor) Here() Here { return Here{e} }

// Do is as Executor.Do.
func (h Here) Do(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	r := h.DoAll(ctx, []ledger.Command{c})[0]
	return r.Result, r.Err
}

// DoAll is as Executor.DoAll.
func (h Here) DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply {
	return h.e.doAll(ctx, cmds, true)
}
