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
	// Address is the base URL by which the other nodes reach it.
	Address string
	// Run tells one start of the node from another, Beat grows with each sign.
	Run, Beat uint64
	// Draining: the node gives its buckets to the others.
	Draining bool
	// Sees are the nodes that this one sends commands to, itself included.
	Sees []string
	// Buckets is how many buckets it worked on lately.
	Buckets uint64
	// Term is the term it leads in, 0 where it does not lead.
	Term uint64
}

// Heartbeat writes a node's sign of life. A node that is not there yet is
// refused when MaxMembers others are.
func (s *Store) Heartbeat(ctx context.Context, m Member) error {
	if m.Node == "" || len(m.Node) > ledger.MaxIDBytes || len(m.Address) > maxAddress || len(m.Sees) > MaxMembers {
		return &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "node", Value: fmt.Sprintf("%.40q", m.Node),
			Limit:   fmt.Sprintf("an id of 1 to %d bytes and an address of up to %d", ledger.MaxIDBytes, maxAddress),
			Message: "cannot be a member",
		}
	}
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		k := s.memberKey(memberRows, m.Node)
		_, known, err := tx.Get(k).Wait()
		if err != nil {
			return err
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
		tx.Set(k, encodeMember(&m))
		return nil
	})
}

// Leave removes a node's sign of life.
func (s *Store) Leave(ctx context.Context, node string) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		tx.Clear(s.memberKey(memberRows, node))
		return nil
	})
}

// Forget removes a node's sign of life and its mark, unless it has given another
// one than m since.
func (s *Store) Forget(ctx context.Context, m Member) error {
	return s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		k := s.memberKey(memberRows, m.Node)
		raw, ok, err := tx.Get(k).Wait()
		if err != nil || !ok {
			return err
		}
		now, err := decodeMember(m.Node, raw)
		if err != nil {
			return corrupt("member "+m.Node, err)
		}
		if now.Run == m.Run && now.Beat == m.Beat {
			tx.Clear(k)
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
