package store

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Leader is who may run what one node alone shall run, and since when.
type Leader struct {
	// Term grows with every claim; 0: nobody has claimed one yet.
	Term uint64
	Node string
	// Since is the claim, by the claimant's clock.
	Since time.Time
	// Beats counts the leader's signs of life. Its value means nothing; that
	// it changed, as an observer saw it, does.
	Beats uint64
}

type termKey struct{}

// WithTerm puts what is done with the context behind the fence: every
// read-write transaction of the Store made with it, and every command an
// executor takes with it, is refused with FENCED once another term is claimed.
// Term 0 is no fence.
func WithTerm(ctx context.Context, term uint64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// TermOf is the term of the context, 0 where it has none.
func TermOf(ctx context.Context) uint64 {
	t, _ := ctx.Value(termKey{}).(uint64)
	return t
}

// Claim makes node the leader of a term. The fence only rises: a term below
// the current one is refused with FENCED, and so is the current one where
// another node has it. From its commit on nothing of an earlier term commits.
func (s *Store) Claim(ctx context.Context, term uint64, node string) error {
	return s.claim(ctx, node, func(cur Leader) (uint64, error) {
		if term == 0 || term < cur.Term || (term == cur.Term && node != cur.Node) {
			return 0, cur.refuse(term, "is not above the current one", fmt.Sprint("above ", cur.Term))
		}
		return term, nil
	})
}

// ClaimNext makes node the leader of the term after the current one, and
// returns it.
func (s *Store) ClaimNext(ctx context.Context, node string) (term uint64, err error) {
	err = s.claim(ctx, node, func(cur Leader) (uint64, error) {
		term = cur.Term + 1
		return term, nil
	})
	return term, err
}

func (s *Store) claim(ctx context.Context, node string, next func(Leader) (uint64, error)) error {
	if node == "" || len(node) > ledger.MaxIDBytes {
		return &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "node", Value: fmt.Sprintf("%.40q", node),
			Limit: fmt.Sprintf("1 to %d bytes", ledger.MaxIDBytes), Message: "cannot lead",
		}
	}
	now := s.now()
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		cur, err := leaderIn(tx.Get(s.leaderKey()))
		if err != nil {
			return err
		}
		term, err := next(cur)
		if err != nil || (term == cur.Term && node == cur.Node) {
			return err
		}
		tx.Set(s.leaderKey(), encodeLeader(Leader{Term: term, Node: node, Since: now}))
		return nil
	})
}

// Beat gives a sign of life of the leader whose term the context has.
func (s *Store) Beat(ctx context.Context) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		tx.Add(s.leaderBeatKey(), one)
		return nil
	})
}

// Leader reads who leads.
func (s *Store) Leader(ctx context.Context) (l Leader, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		row, beats := r.Get(s.leaderKey()), r.Get(s.leaderBeatKey())
		if l, err = leaderIn(row); err != nil {
			return err
		}
		raw, _, err := beats.Wait()
		l.Beats = uint64(decodeCount(raw))
		return err
	})
	return l, err
}

// fence makes a transaction read the leader's row, serializably, before all
// else where the context has a term: a claim of another term that commits
// first makes it fail, and when it runs again it finds that term.
func (s *Store) fence(ctx context.Context, fn func(kv.Tx, kv.Attempt) error) func(kv.Tx, kv.Attempt) error {
	term := TermOf(ctx)
	if term == 0 {
		return fn
	}
	return func(tx kv.Tx, a kv.Attempt) error {
		l, err := leaderIn(tx.Get(s.leaderKey()))
		if err != nil {
			return err
		}
		if l.Term != term {
			return l.fenceOff(term)
		}
		return fn(tx, a)
	}
}

// fenceOff refuses what was begun in another term than l's.
func (l Leader) fenceOff(term uint64) *ledger.Rejection {
	return l.refuse(term, "is not the current one", fmt.Sprint(l.Term))
}

// refuse refuses a term, and says who leads: two processes may have been given
// the same one where not all of them hold elections together.
func (l Leader) refuse(term uint64, why, allowed string) *ledger.Rejection {
	who := "nobody"
	if l.Node != "" {
		who = fmt.Sprintf("%q", l.Node)
	}
	return &ledger.Rejection{
		Code: ledger.Fenced, Field: "term", Value: fmt.Sprint(term), Limit: allowed,
		Message: fmt.Sprintf("%s, in which %s leads", why, who),
	}
}

// leaderIn decodes the leader's row; where there is none the term is 0.
func leaderIn(v kv.Value) (Leader, error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return Leader{}, err
	}
	l, err := decodeLeader(raw)
	if err != nil {
		return Leader{}, corrupt("leader row", err)
	}
	return l, nil
}

func encodeLeader(l Leader) []byte {
	var e enc
	e.u(codecVersion)
	e.u(l.Term)
	e.str(l.Node)
	e.time(l.Since)
	return e
}

func decodeLeader(v []byte) (Leader, error) {
	d := newDec(v)
	l := Leader{Term: d.u(), Node: d.str(), Since: d.time()}
	return l, d.end()
}
