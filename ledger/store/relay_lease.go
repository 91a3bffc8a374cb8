package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Relays share the partitions by leases. A lease has no time in it: its holder
// counts a beat up, and whoever sees for long enough, by its own clock, that
// the beat stands still takes the lease over with the next epoch. So clocks of
// two machines are never compared, and whether the holder was really gone does
// not matter: what it writes from then on is refused, because every transaction
// that moves a cursor checks the lease.

// maxMembers bounds the relays that are looked at.
const maxMembers = 256

// ErrLeaseLost says that another relay has the partition now.
var ErrLeaseLost = errors.New("the partition belongs to another relay")

// RelayLease is who delivers the events of a partition.
type RelayLease struct {
	Partition uint64
	// Token is the relay's, drawn at random when it started; empty when nobody
	// has the lease. Node is its name, for people.
	Token, Node string
	// Epoch counts the holders, Beat the signs of life of this one.
	Epoch, Beat uint64
}

// RelayMember is a relay that lives, whether it has a lease or not.
type RelayMember struct {
	Token, Node string
	Beat        uint64
}

// RelayView is what relays know of each other, at one moment.
type RelayView struct {
	Leases  []RelayLease // one a partition, in order
	Members []RelayMember
}

// RelayView reads the leases and the relays that live.
func (s *Store) RelayView(ctx context.Context) (v RelayView, err error) {
	err = s.readTx(ctx, func(r kv.Reader) error {
		v = RelayView{}
		members := r.Range(s.relayMembersAll().all(), kv.RangeOptions{Limit: maxMembers})
		var leases [Partitions]kv.Value
		for p := range leases {
			leases[p] = r.Get(s.relayLeaseKey(uint64(p)))
		}
		for p, value := range leases {
			l, err := s.relayLeaseIn(uint64(p), value)
			if err != nil {
				return err
			}
			v.Leases = append(v.Leases, l)
		}
		rows, _, err := members.Wait()
		if err != nil {
			return err
		}
		for _, row := range rows {
			token, err := s.readRelayMemberKey(row.Key)
			if err != nil {
				return corrupt("relay key", err)
			}
			m, err := decodeRelayMember(token, row.Value)
			if err != nil {
				return corrupt("relay", err)
			}
			v.Members = append(v.Members, m)
		}
		return nil
	})
	return v, err
}

func (s *Store) relayLeaseIn(partition uint64, v kv.Value) (RelayLease, error) {
	raw, ok, err := v.Wait()
	if err != nil || !ok {
		return RelayLease{Partition: partition}, err
	}
	l, err := decodeRelayLease(partition, raw)
	if err != nil {
		return l, corrupt(fmt.Sprintf("lease of partition %d", partition), err)
	}
	return l, nil
}

// RelayBeat is one sign of life of a relay.
type RelayBeat struct {
	Token, Node string
	// Keep are partitions whose leases the relay believes to hold.
	Keep []uint64
	// Take are leases as they were seen, to be taken over if they still are so.
	Take []RelayLease
	// Drop are partitions to give back; Gone says that the relay ends.
	Drop []uint64
	Gone bool
	// Forget are relays that are gone without a word.
	Forget []RelayMember
}

// BeatRelay writes a sign of life, and gives the leases that the relay has then.
func (s *Store) BeatRelay(ctx context.Context, b RelayBeat) (held []RelayLease, err error) {
	err = s.transact(ctx, func(tx kv.Tx, _ kv.Attempt) error {
		held = nil
		if err := s.beatMember(tx, &b); err != nil {
			return err
		}
		for _, p := range b.Drop {
			l, err := s.relayLeaseIn(p, tx.Get(s.relayLeaseKey(p)))
			if err != nil {
				return err
			}
			if l.Token == b.Token {
				l.Token, l.Node = "", ""
				tx.Set(s.relayLeaseKey(p), encodeRelayLease(&l))
			}
		}
		for _, p := range b.Keep {
			l, err := s.relayLeaseIn(p, tx.Get(s.relayLeaseKey(p)))
			if err != nil {
				return err
			}
			if l.Token != b.Token {
				continue
			}
			l.Beat++
			tx.Set(s.relayLeaseKey(p), encodeRelayLease(&l))
			held = append(held, l)
		}
		for _, seen := range b.Take {
			l, err := s.relayLeaseIn(seen.Partition, tx.Get(s.relayLeaseKey(seen.Partition)))
			if err != nil {
				return err
			}
			switch {
			case l.Token == b.Token: // an earlier attempt of this call
			case l != seen:
				continue
			default:
				l.Token, l.Node, l.Epoch, l.Beat = b.Token, b.Node, l.Epoch+1, 0
				tx.Set(s.relayLeaseKey(seen.Partition), encodeRelayLease(&l))
			}
			held = append(held, l)
		}
		return nil
	})
	return held, err
}

// beatMember counts the relay's own beat, and forgets those that are gone.
func (s *Store) beatMember(tx kv.Tx, b *RelayBeat) error {
	k := s.relayMemberKey(b.Token)
	if b.Gone {
		tx.Clear(k)
	} else {
		raw, ok, err := tx.Get(k).Wait()
		if err != nil {
			return err
		}
		me := RelayMember{Node: b.Node}
		if ok {
			if me, err = decodeRelayMember(b.Token, raw); err != nil {
				return corrupt("relay", err)
			}
		}
		me.Beat++
		tx.Set(k, encodeRelayMember(&me))
	}
	for _, m := range b.Forget {
		k := s.relayMemberKey(m.Token)
		raw, ok, err := tx.Get(k).Wait()
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if now, err := decodeRelayMember(m.Token, raw); err != nil || now.Beat == m.Beat {
			tx.Clear(k)
		}
	}
	return nil
}

// Fence is what a relay proves its lease with.
type Fence struct {
	Partition uint64
	Token     string
	Epoch     uint64
}

// hold fails the transaction when the lease is another's, also one that takes
// it at the same moment.
func (s *Store) hold(tx kv.Tx, f Fence) error {
	l, err := s.relayLeaseIn(f.Partition, tx.Get(s.relayLeaseKey(f.Partition)))
	if err != nil {
		return err
	}
	if l.Token != f.Token || l.Epoch != f.Epoch {
		return ErrLeaseLost
	}
	return nil
}
