package rpc

import (
	"context"
	"math/rand/v2"
	"time"
)

// kind says what repeating a call means.
type kind uint8

const (
	kindRead    kind = iota // changes nothing: its outcome is never unknown
	kindCommand             // takes effect once per key
)

// call sends req until it has an answer, attempts or time run out, or the
// error is one that sending it again cannot change.
func call[Req, Res any](
	ctx context.Context, c *Client, k kind, send func(context.Context, *Req) (*Res, error), req *Req,
) (*Res, error) {
	res, _, err := callTold(ctx, c, k, send, req, new(int))
	return res, err
}

// callTold is call; attempts counts those that were made. With an answer, unknown
// tells that an earlier attempt may have taken effect: a part of the answer that
// says "not done" speaks of the last attempt only.
func callTold[Req, Res any](
	ctx context.Context, c *Client, k kind, send func(context.Context, *Req) (*Res, error), req *Req, attempts *int,
) (res *Res, unknown bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, judge(err, false).err // nothing was sent
	}
	var before error
	for {
		*attempts++
		res, err := once(ctx, c.opt.attemptTimeout, send, req)
		if err == nil {
			return res, unknown, nil
		}
		v := judge(err, ctx.Err() == nil)
		v.err.Attempts = *attempts
		if ctx.Err() != nil {
			v.err.Before = before
		}
		before = err
		if k == kindCommand && v.unknown {
			unknown = true
		}
		// A lost attempt stays open until the server has judged its key; "not
		// done", "too busy" and "may not" speak of the last attempt only.
		v.err.Unknown = unknown && (v.again || v.unknown || v.err.Detail == nil || v.err.Reason().Unjudged())
		if !v.again || *attempts >= c.opt.maxAttempts || !wait(ctx, c.delay(*attempts, v.err)) {
			return nil, v.err.Unknown, v.err
		}
	}
}

// once sends req one time, within its own deadline.
func once[Req, Res any](
	ctx context.Context, timeout time.Duration, send func(context.Context, *Req) (*Res, error), req *Req,
) (*Res, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return send(ctx, req)
}

// delay is how long to wait before the next attempt: doubling from firstDelay
// to maxDelay with half of it random, and never less than the server asks.
func (c *Client) delay(attempt int, e *Error) time.Duration {
	d := min(c.opt.firstDelay<<min(attempt-1, 16), maxDelay)
	d = d/2 + rand.N(d/2+1)
	if asked := e.Detail.GetRetryDelay().AsDuration(); asked > d {
		d = asked + rand.N(asked/4+1) // so that those who were sent away do not return together
	}
	return d
}

// wait sleeps, unless the context ends first or would end meanwhile.
func wait(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
