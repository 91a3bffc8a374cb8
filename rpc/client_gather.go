package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/proto"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Bounds of gathering.
const (
	// maxFlights is how many batches of one client may be on their way.
	maxFlights = 3
	// maxGathered is how many commands may wait for a batch.
	maxGathered = 1 << 14
	// maxParcel is how many commands a call may have to travel with others.
	// A larger one is worth a request of its own.
	maxParcel = 16
	// maxBeside is how long a few commands wait for a crowd that travels. One
	// that is not back by then is stuck, or slow for reasons of its own.
	maxBeside = 100 * time.Millisecond
)

// errNotSent says that a call's commands never left the client.
var errNotSent = errors.New("the command was not sent")

// gatherer sends the small calls that many callers make at once as batches.
// A request costs most of its time in HTTP and framing, many times what a
// command itself costs, so a crowd is served faster together.
//
// No call waits for a timer: a lone one is sent at once. While batches are
// on their way, another leaves when as many commands wait as travel, or when
// one returns: were it sent earlier, a crowd that is answered together would
// fall into ever smaller batches. Where none returns for long, who comes then
// waits for none that travels. Each caller keeps its own deadline,
// cancellation and answer. Two calls that use one key never share a
// batch, and their order is kept. The commands of a call travel together, in
// their order.
type gatherer struct {
	most    int // batches on their way at once
	execute func(context.Context, []*cofferv1.Command) (*cofferv1.ExecuteResponse, error)

	mu      sync.Mutex
	queue   []*parcel
	waiting int       // commands in the queue
	flights int       // batches on their way, and those about to leave
	aloft   int       // commands in the batches on their way
	left    time.Time // when the last batch left
}

// parcel is the commands of one call on their way.
type parcel struct {
	msgs    []*cofferv1.Command
	keys    []commandKey
	done    chan struct{}
	results []*cofferv1.CommandResult
	err     error
	sent    bool // guarded by gatherer.mu
}

// send runs the commands of one call once and gives one result each. Its error
// is that of the batch they went with, or the end of ctx. keys are what
// shareable gave. It works on copies: a caller that left may change its
// messages while the batch is still being written.
func (g *gatherer) send(ctx context.Context, msgs []*cofferv1.Command, keys []commandKey) ([]*cofferv1.CommandResult, error) {
	p := &parcel{msgs: make([]*cofferv1.Command, len(msgs)), keys: keys, done: make(chan struct{})}
	for i, m := range msgs {
		p.msgs[i] = proto.CloneOf(m)
	}
	g.mu.Lock()
	if g.waiting+len(msgs) > maxGathered {
		g.mu.Unlock()
		return nil, connect.NewError(connect.CodeUnavailable, "too many commands wait in this client").WithCause(errNotSent)
	}
	g.queue = append(g.queue, p)
	g.waiting += len(msgs)
	if g.flights == 0 || g.flights < g.most && !g.few() {
		g.flights++
		go g.fly()
	}
	g.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		if g.drop(p) {
			return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		select {
		case <-p.done: // the answer came with the end
		default:
			return nil, ctx.Err()
		}
	}
	return p.results, p.err
}

// one runs a single command once. A refusal is an error, as that of a call of
// its own.
func (g *gatherer) one(ctx context.Context, msg *cofferv1.Command, keys []commandKey) (*cofferv1.CommandResult, error) {
	results, err := g.send(ctx, []*cofferv1.Command{msg}, keys)
	if err != nil {
		return nil, err
	}
	if e := results[0].GetError(); e != nil {
		return nil, refusalError(e.GetDetail())
	}
	if results[0].GetOutcome() == nil {
		return nil, connect.NewError(connect.CodeInternal, "the answer has neither an outcome nor an error")
	}
	return results[0], nil
}

// drop takes a call back that was not sent yet.
func (g *gatherer) drop(p *parcel) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.sent {
		return false
	}
	if i := slices.Index(g.queue, p); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		g.waiting -= len(p.msgs)
	}
	return true
}

// fly sends batch after batch until too few wait. Callers that are ready to
// run, such as those that the last batch has just answered, come first: they
// have more to send, most likely.
func (g *gatherer) fly() {
	for {
		runtime.Gosched()
		batch, n := g.next()
		if batch == nil {
			return
		}
		g.deliver(batch)
		g.mu.Lock()
		g.aloft -= n
		g.mu.Unlock()
	}
}

// few says that what waits had better wait for what travels. The caller holds mu.
func (g *gatherer) few() bool { return g.waiting < g.aloft && time.Since(g.left) < maxBeside }

// next takes what waits, no key twice, up to a full batch of n commands. When
// that is nothing, or less than what travels, the flight ends; the last one
// leaves nothing behind.
func (g *gatherer) next() (batch []*parcel, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == 0 || g.few() {
		g.flights--
		return nil, 0
	}
	batch = make([]*parcel, 0, len(g.queue))
	seen := make(map[commandKey]bool, min(g.waiting, MaxBatch))
	rest := g.queue[:0]
	full := false
	for _, p := range g.queue {
		full = full || n+len(p.msgs) > MaxBatch
		// The keys of a call that stays are seen, too: a later one must not overtake it.
		if full || anySeen(seen, p.keys) {
			rest = append(rest, p)
			continue
		}
		p.sent = true
		n += len(p.msgs)
		batch = append(batch, p)
	}
	clear(g.queue[len(rest):])
	g.queue = rest
	g.waiting -= n
	g.aloft += n
	g.left = time.Now()
	return batch, n
}

// anySeen reports whether one of the keys was seen before, and notes them all.
func anySeen(seen map[commandKey]bool, keys []commandKey) (again bool) {
	for _, k := range keys {
		again = again || seen[k]
	}
	for _, k := range keys {
		seen[k] = true
	}
	return again
}

// deliver sends a batch and hands out the answers. A batch that is refused as
// a whole (one message in it is unreadable or far too large) is sent again in
// halves, so that no call suffers for another's fault.
func (g *gatherer) deliver(batch []*parcel) {
	var msgs []*cofferv1.Command
	for _, p := range batch {
		msgs = append(msgs, p.msgs...)
	}
	res, err := g.execute(context.Background(), msgs)
	if err != nil && len(batch) > 1 && certainlyRefused(err) {
		g.deliver(batch[:len(batch)/2])
		g.deliver(batch[len(batch)/2:])
		return
	}
	results := res.GetResults()
	if err == nil && len(results) != len(msgs) {
		err = connect.NewError(connect.CodeInternal, "the batch has another number of results than of commands")
	}
	first := 0
	for _, p := range batch {
		if p.err = err; err == nil {
			p.results = results[first : first+len(p.msgs) : first+len(p.msgs)]
			for _, r := range p.results {
				renumber(r.GetError().GetDetail(), func(i int) int {
					if i < first || i >= first+len(p.msgs) {
						return i
					}
					return i - first
				})
			}
			first += len(p.msgs)
		}
		close(p.done)
	}
}

// certainlyRefused reports that nothing of a batch was done, that sending it again
// as it is will not help, and that it may be for what is in it.
func certainlyRefused(err error) bool {
	v := judge(err, true)
	return !v.again && !v.unknown && !v.caller
}

// shareable reports whether commands can share a message with others, and
// gives their keys: a string that is not UTF-8 makes a whole message
// unreadable.
func shareable(msgs ...*cofferv1.Command) ([]commandKey, bool) {
	keys := make([]commandKey, len(msgs))
	for i, m := range msgs {
		c, r := commandOf("", m)
		if r != nil || !readable(&c) {
			return nil, false
		}
		keys[i] = keyOf(&c)
	}
	return keys, true
}

func readable(c *ledger.Command) bool {
	for _, s := range [...]string{c.Key.Order, c.Key.Benefit, c.Budget.Funder, c.Budget.Key, c.ID, c.Currency, c.Correlation} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	for _, l := range c.Lines {
		if !utf8.ValidString(l.ID) {
			return false
		}
	}
	return c.Quote == nil || readableQuote(c.Quote)
}

func readableQuote(q *ledger.Quote) bool {
	ok := utf8.ValidString(q.ID)
	for _, l := range q.Lines {
		ok = ok && utf8.ValidString(l.ID)
	}
	for _, f := range q.Funders {
		ok = ok && utf8.ValidString(f.ID)
	}
	return ok
}

// refusalError is a refusal out of a batch as the command alone would have
// got it.
func refusalError(d *cofferv1.ErrorDetail) error {
	d.Field = alone(d.GetField())
	r := &ledger.Rejection{
		Code: ledger.Code(d.GetReason()), Field: d.GetField(), Value: d.GetValue(), Limit: d.GetLimit(), Message: d.GetMessage(),
	}
	e := connect.NewError(codeOf(r.Code), r.Error())
	detail, err := connectproto.NewErrorDetail(d)
	if err != nil {
		return e.WithCause(err)
	}
	return e.WithDetail(detail)
}

// alone cuts the place in the batch off a field: "commands[3].ttl" is "ttl".
func alone(field string) string {
	if !strings.HasPrefix(field, placePrefix) {
		return field
	}
	_, rest, _ := strings.Cut(field, "]")
	return strings.TrimPrefix(rest, ".")
}

// gathers says whether what a call sends may travel with others'. A caller that
// opened its call's headers may have put a tenant or credentials there.
func (c *Client) gathers(ctx context.Context) bool {
	if _, own := connect.CallInfoForClientContext(ctx); own {
		return false
	}
	return c.gather != nil
}

// command runs one command on an order: with the others that are waiting, or
// by a call of its own where gathering is off or the command cannot share a
// message.
func command[Req any, Res interface{ GetOutcome() *cofferv1.Outcome }](
	ctx context.Context, c *Client, msg *cofferv1.Command, alone func(context.Context, *Req) (Res, error), req *Req,
) (*cofferv1.Outcome, error) {
	if c.gathers(ctx) {
		if keys, ok := shareable(msg); ok {
			return outcome(call(ctx, c, kindCommand, func(ctx context.Context, msg *cofferv1.Command) (*cofferv1.CommandResult, error) {
				return c.gather.one(ctx, msg, keys)
			}, msg))
		}
	}
	send := func(ctx context.Context, req *Req) (*Res, error) {
		res, err := alone(ctx, req)
		return &res, err
	}
	res, err := call(ctx, c, kindCommand, send, req)
	if err != nil {
		return nil, err
	}
	return (*res).GetOutcome(), nil
}
