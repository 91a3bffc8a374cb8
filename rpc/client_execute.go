package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Execute runs any number of commands, in batches of up to MaxBatch, and gives
// one result each, in order. A few commands travel with those of other callers
// (see WithoutBatching). Commands that were certainly not done, or got no
// answer, are sent again with the same keys.
//
// There is a result for every command even when the error is not nil: those
// that were given up carry an error with reason OUTCOME_UNKNOWN or UNAVAILABLE,
// and the error says why. Commands refused by the server are results, not
// errors.
func (c *Client) Execute(ctx context.Context, commands []*cofferv1.Command) ([]*cofferv1.CommandResult, error) {
	results := make([]*cofferv1.CommandResult, len(commands))
	for at := 0; at < len(commands); at += MaxBatch {
		index := make([]int, min(MaxBatch, len(commands)-at))
		for i := range index {
			index[i] = at + i
		}
		if err := c.executeBatch(ctx, commands, results, index); err != nil {
			giveUp(results, err)
			return results, err
		}
	}
	return results, nil
}

// executeBatch sends the commands at index until each has a result that
// sending it again cannot change, or attempts or time run out.
func (c *Client) executeBatch(ctx context.Context, commands []*cofferv1.Command, results []*cofferv1.CommandResult, index []int) error {
	attempts := 0
	for {
		req := &cofferv1.ExecuteRequest{Commands: make([]*cofferv1.Command, len(index))}
		for i, at := range index {
			req.Commands[i] = commands[at]
		}
		res, unknown, err := callTold(ctx, c, kindCommand, c.execute(ctx, req.Commands), req, &attempts)
		if err == nil && len(res.GetResults()) != len(index) {
			err = &Error{
				Code: connect.CodeInternal, Attempts: attempts, Unknown: true,
				Cause: fmt.Errorf("%d commands got %d results", len(index), len(res.GetResults())),
			}
		}
		if err != nil {
			for _, at := range index {
				open(results, at, err)
			}
			return doubt(err, results, index)
		}
		for i, r := range res.GetResults() {
			renumber(r.GetError().GetDetail(), func(i int) int {
				if i < 0 || i >= len(index) {
					return i
				}
				return index[i]
			})
			if unknown {
				open(results, index[i], ErrOutcomeUnknown)
			}
			results[index[i]] = settle(results[index[i]], r)
		}
		again, worst := unfinished(req.GetCommands(), res.GetResults(), index)
		if len(again) == 0 || attempts >= c.opt.maxAttempts || !wait(ctx, c.delay(attempts, worst)) {
			return nil
		}
		index = again
	}
}

// unfinished picks what to send again of commands that stand at index in the
// caller's list: what may pass then, and what was refused behind such a command
// on the same benefit. That one was decided without what should have come
// before it: a commit, say, that found no reservation. worst has the longest
// delay that was asked for.
func unfinished(msgs []*cofferv1.Command, got []*cofferv1.CommandResult, index []int) (again []int, worst *Error) {
	worst = &Error{}
	open := map[ledger.OrderKey]bool{}
	for i, r := range got {
		d := r.GetError().GetDetail()
		if d == nil {
			continue
		}
		c, _ := commandOf("", msgs[i])
		if !ledger.Code(d.GetReason()).SendAgain() {
			if open[c.Key] && ledger.Code(d.GetReason()) != ledger.DuplicateInBatch {
				again = append(again, index[i])
			}
			continue
		}
		open[c.Key] = true
		again = append(again, index[i])
		if d.GetRetryDelay().AsDuration() >= worst.Detail.GetRetryDelay().AsDuration() {
			worst.Detail = d
		}
	}
	return again, worst
}

// execute is how to send these commands: with what other callers send, where
// that is on and they are few, or by a request of their own.
func (c *Client) execute(ctx context.Context, msgs []*cofferv1.Command) func(context.Context, *cofferv1.ExecuteRequest) (*cofferv1.ExecuteResponse, error) {
	if len(msgs) > maxParcel || !c.gathers(ctx) {
		return c.reservations.Execute
	}
	keys, ok := shareable(msgs...)
	if !ok {
		return c.reservations.Execute
	}
	return func(ctx context.Context, req *cofferv1.ExecuteRequest) (*cofferv1.ExecuteResponse, error) {
		results, err := c.gather.send(ctx, req.GetCommands(), keys)
		if err != nil {
			return nil, err
		}
		return &cofferv1.ExecuteResponse{Results: results}, nil
	}
}

// settle picks what is known of a command after another answer. An outcome
// that was unknown stays so when the next attempt was not looked at.
func settle(before, now *cofferv1.CommandResult) *cofferv1.CommandResult {
	was, is := before.GetError().GetDetail(), now.GetError().GetDetail()
	if ledger.Code(was.GetReason()) == ledger.OutcomeUnknown && is != nil && ledger.Code(is.GetReason()).Unjudged() {
		return before
	}
	return now
}

// open marks a command whose batch got no answer.
func open(results []*cofferv1.CommandResult, at int, err error) {
	var e *Error
	r := &ledger.Rejection{Code: ledger.Unavailable, Message: "the server was not reached"}
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		r = &ledger.Rejection{Code: ledger.OutcomeUnknown, Message: "the server's answer was lost"}
	case errors.As(err, &e) && e.Detail != nil:
		fail := &cofferv1.CommandError{Code: e.Code.String(), Detail: e.Detail}
		results[at] = settle(results[at], &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: fail}})
		return
	}
	fail := &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: commandError(r)}}
	results[at] = settle(results[at], fail)
}

// doubt makes the error of a call match ErrOutcomeUnknown where one of its
// commands stays open, by an earlier request perhaps than the one that failed.
func doubt(err error, results []*cofferv1.CommandResult, index []int) error {
	var e *Error
	if !errors.As(err, &e) || e.Unknown {
		return err
	}
	for _, at := range index {
		if ledger.Code(results[at].GetError().GetDetail().GetReason()) == ledger.OutcomeUnknown {
			e.Unknown = true
		}
	}
	return err
}

// giveUp marks the commands that were never sent.
func giveUp(results []*cofferv1.CommandResult, err error) {
	for i, r := range results {
		if r == nil {
			fail := commandError(&ledger.Rejection{Code: ledger.Unavailable, Message: "not sent: an earlier batch failed: " + err.Error()})
			results[i] = &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: fail}}
		}
	}
}

// renumber turns the places of a batch, as the server counts them, into those
// of the caller's list. Places stand at the head of a field, and in what is said
// of duplicates; elsewhere such a text is a name that somebody chose.
func renumber(d *cofferv1.ErrorDetail, place func(int) int) {
	if d == nil {
		return
	}
	if strings.HasPrefix(d.GetField(), placePrefix) {
		d.Field = renumberText(d.GetField(), place)
	}
	if ledger.Code(d.GetReason()) == ledger.DuplicateInBatch {
		d.Message = renumberText(d.GetMessage(), place)
	}
}

// placePrefix begins the name of a command's place in a batch.
const placePrefix = "commands["

func renumberText(s string, place func(int) int) string {
	at := strings.Index(s, placePrefix)
	if at < 0 {
		return s
	}
	number, rest, ok := strings.Cut(s[at+len(placePrefix):], "]")
	i, err := strconv.Atoi(number)
	if !ok || err != nil {
		return s
	}
	return fmt.Sprintf("%s%s%d]%s", s[:at], placePrefix, place(i), rest)
}
