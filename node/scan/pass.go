package scan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// maxCommands is the most reservations that rows read together may hold, and
// the most sent to the executor at once.
const maxCommands = 512

// bursts is in how many pieces the reservations of one second are sent. One
// large piece a moment keeps the processors, the log and a bucket's queue from
// customers for longer than a customer's own command takes; many small ones at
// the same rate fit between theirs.
const bursts = 100

// pass walks all slots once, beginning behind the one where the last pass stopped,
// and ends early when it has expired its limit: so a bucket in which holds fall due
// faster than they expire leaves the other slots their turn. more says that due
// rows were left although nothing was wrong.
func (e *Expiry) pass(ctx context.Context) (more bool, err error) {
	// One read tells that nothing is due, which is most of the time. Where it
	// fails the slots are walked all the same: one row that cannot be read
	// must not keep the others from expiring.
	if err := e.look(ctx); err == nil && !e.anythingDue() {
		return false, nil
	}
	left := e.cfg.PassLimit
	var faults []error
	for range store.ExpirySlots {
		slot := e.next
		e.next = (e.next + 1) % store.ExpirySlots // also where this one makes the pass fail
		done, rest, err := e.slot(ctx, slot, left)
		left -= done
		if err != nil {
			if ctx.Err() != nil || fenced(err) { // nothing is wrong with the slot
				e.next, e.tried[slot] = slot, store.DueBlock{}
				return false, errors.Join(ctx.Err(), err)
			}
			faults = append(faults, fmt.Errorf("expiry slot %d: %w", slot, err))
		}
		if rest {
			more = true
		}
		if left <= 0 {
			break
		}
	}
	return more, errors.Join(faults...)
}

// slot expires what is due in one slot, from where the last pass stopped in it up
// to limit reservations. rest says that it left due rows that it did not try. Rows
// that had to be kept are tried again when it begins with the oldest row, which it
// does once it has come to the last one: so they hold up no others, however many
// they are, and nor does one that makes its pass fail.
func (e *Expiry) slot(ctx context.Context, slot uint64, limit int) (done int, rest bool, err error) {
	for {
		blocks, err := e.idx.DueBlocks(ctx, slot, e.tried[slot], e.cfg.PageRows)
		if err != nil {
			return done, false, err
		}
		for _, group := range groups(blocks) {
			e.tried[slot] = group[len(group)-1]
			n, err := e.expire(ctx, group)
			done += n
			if err != nil {
				return done, false, err
			}
			if done >= limit {
				return done, true, nil
			}
		}
		if len(blocks) < e.cfg.PageRows {
			e.tried[slot] = store.DueBlock{}
			return done, false, nil
		}
	}
}

// groups cuts rows into runs of at most maxCommands reservations; a row is
// never cut.
func groups(blocks []store.DueBlock) [][]store.DueBlock {
	var out [][]store.DueBlock
	n, from := 0, 0
	for i := range blocks {
		if n > 0 && n+len(blocks[i].Keys) > maxCommands {
			out = append(out, blocks[from:i])
			n, from = 0, i
		}
		n += len(blocks[i].Keys)
	}
	if from < len(blocks) {
		out = append(out, blocks[from:])
	}
	return out
}

// expire sends one EXPIRE for each reservation of the rows and drops the rows
// of which all are settled. It returns how many reservations it looked at.
func (e *Expiry) expire(ctx context.Context, blocks []store.DueBlock) (done int, err error) {
	replies, err := e.send(ctx, blocks)
	if err != nil {
		return 0, err
	}
	drop := make([]store.DueBlock, 0, len(blocks))
	for _, b := range blocks {
		settled, err := e.settled(ctx, b, replies[:len(b.Keys)])
		if err != nil {
			return done, err
		}
		replies = replies[len(b.Keys):]
		done += len(b.Keys)
		if settled {
			drop = append(drop, b)
		}
	}
	if len(drop) > 0 {
		if err := e.idx.DropDue(ctx, drop); err != nil {
			return done, err
		}
	}
	e.mu.Lock()
	e.count.Rows += uint64(len(drop))
	e.mu.Unlock()
	return done, nil
}

// expiring is the EXPIRE of one hold on its way.
type expiring struct {
	cmd    ledger.Command
	bucket ledger.BucketID
	reply  *ledger.Reply
}

// send sends one EXPIRE for each hold of the rows, in small pieces at the
// configured rate, and returns their replies in order. Where nothing of a piece
// was taken for a bucket, its other holds are left for a later pass: each piece
// may take as long as a commit may, and a bucket that is stuck must not keep
// the pass from those that are not.
func (e *Expiry) send(ctx context.Context, blocks []store.DueBlock) ([]ledger.Reply, error) {
	n := 0
	for _, b := range blocks {
		n += len(b.Keys)
	}
	replies, queue := make([]ledger.Reply, n), make([]expiring, 0, n)
	for _, b := range blocks {
		for _, it := range b.Keys {
			cmd := ledger.Command{Op: ledger.OpExpire, Key: it.OrderKey, Attempt: it.Attempt, Budget: b.Bucket.Budget}
			queue = append(queue, expiring{cmd: cmd, bucket: b.Bucket, reply: &replies[len(queue)]})
		}
	}
	for len(queue) > 0 {
		start, rate := time.Now(), e.rate()
		piece := queue[:min(max(1, rate/bursts), maxCommands, len(queue))]
		queue = queue[len(piece):]
		cmds := make([]ledger.Command, len(piece))
		for i := range piece {
			cmds[i] = piece[i].cmd
		}
		for i, r := range e.exec.DoAll(ctx, cmds) {
			*piece[i].reply = r
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		queue = without(queue, stuckIn(piece))
		if err := pause(ctx, start, len(piece), rate); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// stuckIn gives the buckets of a piece for which nothing was taken, with a
// refusal of each.
func stuckIn(piece []expiring) map[ledger.BucketID]error {
	stuck, moved := map[ledger.BucketID]error{}, map[ledger.BucketID]bool{}
	for _, x := range piece {
		var r *ledger.Rejection
		if errors.As(x.reply.Err, &r) && r.Code.SendAgain() {
			stuck[x.bucket] = r
		} else {
			moved[x.bucket] = true
		}
	}
	for b := range moved {
		delete(stuck, b)
	}
	return stuck
}

// without answers the holds of stuck buckets with what those before them got,
// and returns the others.
func without(queue []expiring, stuck map[ledger.BucketID]error) []expiring {
	if len(stuck) == 0 {
		return queue
	}
	return slices.DeleteFunc(queue, func(x expiring) bool {
		err := stuck[x.bucket]
		if err != nil {
			x.reply.Err = err
		}
		return err != nil
	})
}

// settled counts the replies of one row and says whether the row may go:
// every reservation it names has expired, or needs this row no more.
func (e *Expiry) settled(ctx context.Context, b store.DueBlock, replies []ledger.Reply) (bool, error) {
	var expired, skipped, deferred uint64
	var early []int
	for i, r := range replies {
		var rej *ledger.Rejection
		switch {
		case r.Err == nil && r.Result.Replayed: // by another leader, just before
			skipped++
		case r.Err == nil:
			expired++
		case !errors.As(r.Err, &rej):
			deferred++
		case rej.Code == ledger.Fenced:
			return false, rej
		case rej.Code == ledger.NotDue:
			early = append(early, i)
		case rej.Code == ledger.IllegalState, rej.Code.Info().Class == ledger.ClassNotFound: // it is reserved no more
			skipped++
		default:
			deferred++
		}
	}
	n, err := e.extended(ctx, b, early)
	if err != nil {
		return false, err
	}
	skipped += n
	deferred += uint64(len(early)) - n
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count.Expired += expired
	e.count.Skipped += skipped
	e.count.Deferred += deferred
	return deferred == 0, nil
}

// extended counts the reservations that are not due because they were
// extended: those have a later row of their own. One that is not due for any
// other reason (a clock that stepped back) needs this row still.
func (e *Expiry) extended(ctx context.Context, b store.DueBlock, early []int) (n uint64, err error) {
	if len(early) == 0 {
		return 0, nil
	}
	keys := make([]ledger.OrderKey, len(early))
	for i, j := range early {
		keys[i] = b.Keys[j].OrderKey
	}
	rows, err := e.idx.Locate(ctx, keys)
	if err != nil {
		return 0, err
	}
	for i, j := range early {
		a := rows[i].Attempt(b.Keys[j].Attempt)
		if a == nil || a.State != ledger.StateReserved || a.Expires.After(b.Due) {
			n++
		}
	}
	return n, nil
}

// rate is how many reservations may expire in a second now.
func (e *Expiry) rate() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.overdue() > e.cfg.CatchUpAfter {
		return e.cfg.CatchUpRate
	}
	return e.cfg.Rate
}
