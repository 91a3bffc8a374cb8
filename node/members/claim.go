package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// lives is how many changes of a sign of life prove that its process lives. One
// may be the last write of a process that was killed, which was still on its way.
const lives = 2

// InUseError says that another process over the store has this node's id.
type InUseError struct {
	Node string
	// Address is the other process's, empty where it has not said one.
	Address string
	// Lost: this process had the id, and the other one took it because it saw no
	// sign of life.
	Lost bool
}

// Error says what to change.
func (e *InUseError) Error() string {
	at := "which has not said its address"
	if e.Address != "" {
		at = "at " + e.Address
	}
	if e.Lost {
		return fmt.Sprintf("node_id %q was taken by another process over this store, %s, while this one gave no sign of life for cluster.dead_after; "+
			"if that is not this node started again, give each node a node_id of its own (node_id, COFFER_NODE_ID or --node-id)", e.Node, at)
	}
	return fmt.Sprintf("node_id %q is in use by another process over this store, %s; "+
		"give this node another node_id (node_id, COFFER_NODE_ID or --node-id), or stop the other one first", e.Node, at)
}

// Claim takes the node's id for this process, which will be at an address. Where the last sign of life is of
// another start it watches it: a process that was killed left it behind, and its
// id is free once the sign has not changed for DeadAfter, by this process's
// clock; one that lives changes it, and then the error is an *InUseError. A node
// that left takes its sign with it, so the next start does not wait. Of processes
// that claim one id at the same moment one gets it.
//
// What the store refuses for another reason than a moment's weakness is logged:
// then nobody has the id by this table, as in a table that is full.
func (m *Members) Claim(ctx context.Context, address string) error {
	defer m.claimed.Store(true)
	var other *watch
	for {
		stands, err := m.claim(ctx, address, other.dead(m.cfg.DeadAfter))
		switch {
		case err == nil && stands.Run == m.run:
			return nil
		case err == nil && other == nil:
			other = &watch{member: stands, since: time.Now()}
			m.log.Info().Str("address", stands.Address).Dur("patience_ms", m.cfg.DeadAfter).
				Msg("the last sign of life under this node_id is of another start; waiting to see whether that one lives")
		case err == nil:
			if other.look(stands); other.changes >= lives {
				return &InUseError{Node: m.self, Address: stands.Address}
			}
		case ctx.Err() != nil:
			return nil
		case !passes(err):
			m.log.Warn().Err(err).Msg("node_id could not be claimed")
			return nil
		}
		if !pause(ctx, other.next(m.cfg)) {
			return nil
		}
	}
}

// watch is a sign of life of another process, and for how long it is the same.
type watch struct {
	member  store.Member
	since   time.Time
	changes int
}

// look notes the sign that stands now.
func (w *watch) look(now store.Member) {
	if w.member.Run != now.Run || w.member.Beat != now.Beat {
		w.member, w.since = now, time.Now()
		w.changes++
	}
}

// dead is the sign, once it has been the same for so long that its process is
// taken for dead.
func (w *watch) dead(after time.Duration) store.Member {
	if w == nil || time.Since(w.since) < after {
		return store.Member{}
	}
	return w.member
}

// next is how long to wait before the next look.
func (w *watch) next(c Config) time.Duration {
	if w == nil {
		return c.Interval
	}
	return max(min(c.Interval, c.DeadAfter-time.Since(w.since)), time.Millisecond)
}

// passes says that the same may go well a moment later.
func passes(err error) bool {
	var r *ledger.Rejection
	return !errors.As(err, &r) || r.Code.SendAgain()
}

// claim writes a sign of life that takes no commands yet.
func (m *Members) claim(ctx context.Context, address string, dead store.Member) (store.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.DeadAfter)
	defer cancel()
	m.mu.Lock()
	m.beat++
	own := store.Member{Node: m.self, Address: address, Run: m.run, Beat: m.beat}
	m.mu.Unlock()
	return m.table.Heartbeat(ctx, own, dead)
}

// pause waits, or returns false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
