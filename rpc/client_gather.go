package rpc

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
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
	maxFlights = 2
	// maxGathered is how many commands may wait for a batch.
	maxGathered = 1 << 14
)

// errNotSent says that a command never left the client.
var errNotSent = errors.New("the command was not sent")

// gatherer sends the single calls that many callers make at once as batches.
// A call costs most of its time in HTTP and framing, many times what the
// command itself costs, so a crowd is served faster together.
//
// No command waits for a timer: a lone one is sent at once. While batches are
// on their way, another leaves when as many commands wait as travel, or when
// one returns: were it sent earlier, a crowd that is answered together would
// fall into ever smaller batches. Each caller keeps its own deadline,
// cancellation and answer. Two commands with one key never share a
// batch, and the order of commands with one key is kept.
type gatherer struct {
	execute func(context.Context, []*cofferv1.Command) (*cofferv1.ExecuteResponse, error)

	mu      sync.Mutex
	queue   []*gathered
	flights int // batches on their way, and those about to leave
	aloft   int // commands in the batches on their way
}

// gathered is one command on its way.
type gathered struct {
	msg  *cofferv1.Command
	key  commandKey
	done chan struct{}
	res  *cofferv1.CommandResult
	err  error
	sent bool // guarded by gatherer.mu
}

// send runs one command once. Its error is the command's refusal, the error of
// the batch it went with, or the end of ctx. It works on a copy: a caller that
// left may change its message while the batch is still being written.
func (g *gatherer) send(ctx context.Context, msg *cofferv1.Command) (*cofferv1.CommandResult, error) {
	c, _ := commandOf("", msg)
	t := &gathered{msg: proto.CloneOf(msg), key: keyOf(&c), done: make(chan struct{})}
	g.mu.Lock()
	if len(g.queue) >= maxGathered {
		g.mu.Unlock()
		return nil, connect.NewError(connect.CodeUnavailable, "too many commands wait in this client").WithCause(errNotSent)
	}
	g.queue = append(g.queue, t)
	if g.flights == 0 || g.flights < maxFlights && len(g.queue) >= g.aloft {
		g.flights++
		go g.fly()
	}
	g.mu.Unlock()
	select {
	case <-t.done:
	case <-ctx.Done():
		if g.drop(t) {
			return nil, errors.Join(ctx.Err(), errNotSent)
		}
		select {
		case <-t.done: // the answer came with the end
		default:
			return nil, ctx.Err()
		}
	}
	if t.err != nil {
		return nil, t.err
	}
	if e := t.res.GetError(); e != nil {
		return nil, refusalError(e.GetDetail())
	}
	return t.res, nil
}

// drop takes a command back that was not sent yet.
func (g *gatherer) drop(t *gathered) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.sent {
		return false
	}
	for i, q := range g.queue {
		if q == t {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			break
		}
	}
	return true
}

// fly sends batch after batch until too few wait. Callers that are ready to
// run, such as those that the last batch has just answered, come first: they
// have more to send, most likely.
func (g *gatherer) fly() {
	for {
		runtime.Gosched()
		batch := g.next()
		if batch == nil {
			return
		}
		g.deliver(batch)
		g.mu.Lock()
		g.aloft -= len(batch)
		g.mu.Unlock()
	}
}

// next takes what waits, one command a key, up to a full batch. When that is
// nothing, or less than what travels, the flight ends; the last one leaves
// nothing behind.
func (g *gatherer) next() []*gathered {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 || len(g.queue) < g.aloft {
		g.flights--
		return nil
	}
	batch := make([]*gathered, 0, min(len(g.queue), MaxBatch))
	keys := make(map[commandKey]bool, cap(batch))
	rest := g.queue[:0]
	for _, t := range g.queue {
		if len(batch) == MaxBatch || keys[t.key] {
			rest = append(rest, t)
			continue
		}
		keys[t.key] = true
		t.sent = true
		batch = append(batch, t)
	}
	clear(g.queue[len(rest):])
	g.queue = rest
	g.aloft += len(batch)
	return batch
}

// deliver sends a batch and hands out the answers. A batch that is refused as
// a whole (one message in it is unreadable or far too large) is sent again in
// halves, so that no command suffers for another's fault.
func (g *gatherer) deliver(batch []*gathered) {
	msgs := make([]*cofferv1.Command, len(batch))
	for i, t := range batch {
		msgs[i] = t.msg
	}
	res, err := g.execute(context.Background(), msgs)
	if err != nil && len(batch) > 1 && certainlyRefused(err) {
		g.deliver(batch[:len(batch)/2])
		g.deliver(batch[len(batch)/2:])
		return
	}
	if err == nil && len(res.GetResults()) != len(batch) {
		err = connect.NewError(connect.CodeInternal, "the batch has another number of results than of commands")
	}
	for i, t := range batch {
		if err != nil {
			t.err = err
		} else {
			t.res = res.GetResults()[i]
		}
		close(t.done)
	}
}

// certainlyRefused reports that nothing of a batch was done and that sending
// it again as it is will not help.
func certainlyRefused(err error) bool {
	v := judge(err, true)
	return !v.again && !v.unknown
}

// sendable reports whether a command can share a message with others: a
// string that is not UTF-8 makes a whole message unreadable.
func sendable(msg *cofferv1.Command) bool {
	c, r := commandOf("", msg)
	if r != nil {
		return false
	}
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
	return c.Quote == nil || sendableQuote(c.Quote)
}

func sendableQuote(q *ledger.Quote) bool {
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
	d.Message = alone(d.GetMessage())
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

// alone cuts the place in the batch out of a text: "commands[3].ttl" is "ttl".
func alone(s string) string {
	at := strings.Index(s, "commands[")
	if at < 0 {
		return s
	}
	_, rest, _ := strings.Cut(s[at:], "]")
	return s[:at] + strings.TrimPrefix(rest, ".")
}

// command runs one command on an order: with the others that are waiting, or
// by a call of its own where gathering is off or the command cannot share a
// message.
func command[Req any, Res interface{ GetOutcome() *cofferv1.Outcome }](
	ctx context.Context, c *Client, msg *cofferv1.Command, alone func(context.Context, *Req) (Res, error), req *Req,
) (*cofferv1.Outcome, error) {
	if c.gather != nil && sendable(msg) {
		return outcome(call(ctx, c, kindCommand, c.gather.send, msg))
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
