package rpc

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// commandKey is the business key of a command within its tenant.
type commandKey struct {
	op, target     ledger.Op
	order, benefit string
	attempt        uint32
	id             string
}

func keyOf(c *ledger.Command) commandKey {
	return commandKey{op: c.Op, target: c.Target, order: c.Key.Order, benefit: c.Key.Benefit, attempt: max(c.Attempt, 1), id: c.ID}
}

func (k commandKey) String() string {
	op := k.op.String()
	if k.target != 0 {
		op += " " + k.target.String()
	}
	s := fmt.Sprintf("%s %.40q %.40q attempt %d", op, k.order, k.benefit, k.attempt)
	if k.id != "" {
		s += fmt.Sprintf(" id %.40q", k.id)
	}
	return s
}

// Execute answers each command by itself: what is wrong with one is in its own
// result, and its neighbours run.
func (s *reservationService) Execute(ctx context.Context, m *cofferv1.ExecuteRequest) (*cofferv1.ExecuteResponse, error) {
	n := len(m.GetCommands())
	s.metrics.batch.Observe(float64(n))
	res := &cofferv1.ExecuteResponse{Results: make([]*cofferv1.CommandResult, n)}
	cmds, index := make([]ledger.Command, 0, n), make([]int, 0, n)
	seen := make(map[commandKey]int, n)
	tenant := tenantOf(ctx)
	for i, msg := range m.GetCommands() {
		c, r := commandOf(tenant, msg)
		if r == nil {
			r = duplicate(seen, &c, i)
		}
		if r != nil {
			res.Results[i] = s.refused(i, r)
			continue
		}
		cmds, index = append(cmds, c), append(index, i)
	}
	if len(cmds) == 0 {
		return res, nil
	}
	replies := s.exec.DoAll(ctx, cmds)
	if len(replies) != len(cmds) {
		return nil, fmt.Errorf("%d commands got %d replies", len(cmds), len(replies))
	}
	for j := range replies {
		res.Results[index[j]] = s.answer(index[j], &cmds[j], &replies[j])
	}
	return res, nil
}

// duplicate refuses the second use of a key in a batch. A key that lacks its
// order or benefit is no key; the domain says so.
func duplicate(seen map[commandKey]int, c *ledger.Command, i int) *ledger.Rejection {
	if c.Key.Order == "" || c.Key.Benefit == "" {
		return nil
	}
	k := keyOf(c)
	first, again := seen[k]
	if !again {
		seen[k] = i
		return nil
	}
	return &ledger.Rejection{
		Code: ledger.DuplicateInBatch, Field: commandField(i), Value: k.String(), Limit: "one use of a key",
		Message: "has the same key as " + commandField(first),
	}
}

func commandField(i int) string { return fmt.Sprintf("commands[%d]", i) }

func (s *reservationService) refused(i int, r *ledger.Rejection) *cofferv1.CommandResult {
	s.metrics.rejected(r)
	inner := within(commandField(i), r)
	if r.Field == "command" { // names no member of the oneof: the command itself is at fault
		inner.Field = commandField(i)
	}
	return &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Error{Error: commandError(inner)}}
}

func (s *reservationService) answer(i int, c *ledger.Command, reply *ledger.Reply) *cofferv1.CommandResult {
	switch {
	case reply.Err != nil:
		return s.refused(i, rejectionOf(reply.Err))
	case c.Op == ledger.OpResolve:
		return &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Resolution{Resolution: resolutionOf(&reply.Result)}}
	}
	if reply.Result.Skipped {
		s.metrics.skipped.Inc()
	}
	return &cofferv1.CommandResult{Result: &cofferv1.CommandResult_Outcome{Outcome: resultOf(&reply.Result)}}
}
