package main

import (
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// several is a command that a reservation may have more than once: an id of its
// own, given by a flag, tells each apart. Without one they all have the same key,
// and the second is the first again, or a conflict.
type several struct{ what, flag, id string }

// repeated says of an answer that the command was taken for an earlier one and
// had no effect now, where its caller may have meant another.
func (m several) repeated(c *cli, o *cofferv1.Outcome) {
	if o.GetReplayed() && m.id == "" && !c.JSON {
		c.printf("this is the same %s again, and did nothing now; for another one, give each its own --%s\n", m.what, m.flag)
	}
}

// conflict says in a refusal how to send another command beside the first.
func (m several) conflict(err error) error {
	if m.id == "" && rpc.ReasonOf(err) == ledger.IdempotencyConflict {
		return fmt.Errorf("%w; for another %s, give each its own --%s", err, m.what, m.flag)
	}
	return err
}
