package store

import (
	"context"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Bounds of the nodes over one store.
const (
	MaxMembers = 64
	// maxAddress bounds the address of a node.
	maxAddress = 512
)

// Member is a node's sign of life, as the node wrote it last. What it says of
// time is nothing: that Beat changed, as an observer saw it by its own clock, is
// what tells that the node lives.
type Member struct {
	Node string
	// Address is the base URL by which the other nodes reach it, or where it says
	// that it is.
	Address string
	// Run tells one start of the node from another, Beat grows with each sign.
	Run, Beat uint64
	// Draining: the node gives its buckets to the others.
	Draining bool
	// Sees are the nodes that this one sends commands to, itself included; none
	// where it shares no buckets, or not yet.
	Sees []string
	// Buckets is how many buckets it worked on lately.
	Buckets uint64
	// Term is the term it leads in, 0 where it does not lead.
	Term uint64
}

// Heartbeat writes a node's sign of life and returns the one that stands then.
// It stands in for one of the same run, for none at all, and for dead, which the
// caller has watched in vain; any other is of another process with the same id,
// and is returned instead. A node that is not there yet is refused when
// MaxMembers others are.
func (s *Store) Heartbeat(ctx context.Context, m, dead Member) (stands Member, err error) {
	if m.Node == "" || len(m.Node) > ledger.MaxIDBytes || len(m.Address) > maxAddress || len(m.Sees) > MaxMembers {
		return Member{}, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "node", Value: fmt.Sprintf("%.40q", m.Node),
			Limit:   fmt.Sprintf("an id of 1 to %d bytes and an address of up to %d", ledger.MaxIDBytes, maxAddress),
			Message: "cannot be a member",
		}
	}
	err = s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		now, known, err := s.member(tx, m.Node)
		if err != nil {
			return err
		}
		if known && now.Run != m.Run && (now.Run != dead.Run || now.Beat != dead.Beat) {
			stands = now
			return nil
		}
		if !known {
			rows, _, err := tx.Snapshot().Range(s.membersOf(memberRows).all(), kv.RangeOptions{Limit: MaxMembers}).Wait()
			if err != nil {
				return err
			}
			if len(rows) >= MaxMembers {
				return &ledger.Rejection{
					Code: ledger.OperationLimit, Field: "node", Value: fmt.Sprintf("%.40q", m.Node), Limit: fmt.Sprintf("%d nodes", MaxMembers),
					Message: "cannot join",
				}
			}
		}
		stands = m
		tx.Set(s.memberKey(memberRows, m.Node), encodeMember(&m))
		return nil
	})
	if err != nil {
		return Member{}, err
	}
	return stands, nil
}

// member reads the sign of life of one node.
func (s *Store) member(tx kv.Tx, node string) (m Member, known bool, err error) {
	raw, known, err := tx.Get(s.memberKey(memberRows, node)).Wait()
	if err != nil || !known {
		return Member{}, false, err
	}
	if m, err = decodeMember(node, raw); err != nil {
		return Member{}, false, corrupt("member "+node, err)
	}
	return m, true, nil
}

// Leave removes the sign of life of a run of a node, and none of another run.
func (s *Store) Leave(ctx context.Context, node string, run uint64) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		if now, known, err := s.member(tx, node); err != nil || !known || now.Run != run {
			return err
		}
		tx.Clear(s.memberKey(memberRows, node))
		return nil
	})
}

// Forget removes a node's sign of life and its mark, unless it has given another
// one than m since.
func (s *Store) Forget(ctx context.Context, m Member) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		now, known, err := s.member(tx, m.Node)
		if err != nil || !known {
			return err
		}
		if now.Run == m.Run && now.Beat == m.Beat {
			tx.Clear(s.memberKey(memberRows, m.Node))
			tx.Clear(s.memberKey(memberDrain, m.Node))
		}
		return nil
	})
}

// MarkDrain asks a node to drain, or takes that back.
func (s *Store) MarkDrain(ctx context.Context, node string, drain bool) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		if k := s.memberKey(memberDrain, node); drain {
			tx.Set(k, nil)
		} else {
			tx.Clear(k)
		}
		return nil
	})
}

// Members reads the signs of life of all nodes, in the order of their ids, and
// which of them an operator has asked to drain.
func (s *Store) Members(ctx context.Context) (members []Member, drain map[string]bool, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		members, drain = nil, map[string]bool{}
		rows := r.Range(s.membersOf(memberRows).all(), kv.RangeOptions{Limit: MaxMembers})
		marks := r.Range(s.membersOf(memberDrain).all(), kv.RangeOptions{Limit: MaxMembers})
		kvs, _, err := rows.Wait()
		if err != nil {
			return err
		}
		for _, row := range kvs {
			node, err := s.readMemberKey(row.Key)
			if err != nil {
				return corrupt("member key", err)
			}
			m, err := decodeMember(node, row.Value)
			if err != nil {
				return corrupt("member "+node, err)
			}
			members = append(members, m)
		}
		if kvs, _, err = marks.Wait(); err != nil {
			return err
		}
		for _, row := range kvs {
			node, err := s.readMemberKey(row.Key)
			if err != nil {
				return corrupt("member key", err)
			}
			drain[node] = true
		}
		return nil
	})
	return members, drain, err
}

func encodeMember(m *Member) []byte {
	var e enc
	e.u(codecVersion)
	e.str(m.Address)
	e.u(m.Run)
	e.u(m.Beat)
	e.flag(m.Draining)
	e.u(m.Buckets)
	e.u(m.Term)
	e.u(uint64(len(m.Sees)))
	for _, n := range m.Sees {
		e.str(n)
	}
	return e
}

func decodeMember(node string, v []byte) (Member, error) {
	d := newDec(v)
	m := Member{Node: node, Address: d.str(), Run: d.u(), Beat: d.u(), Draining: d.flag(), Buckets: d.u(), Term: d.u()}
	for range d.max(MaxMembers) {
		m.Sees = append(m.Sees, d.str())
	}
	return m, d.end()
}
