package relay

import (
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// observer remembers what it saw of leases and relays, and since when it has
// been so, by this machine's clock alone.
type observer struct {
	token  string
	lease  time.Duration
	leases [store.Partitions]seen[store.RelayLease]
	others map[string]seen[store.RelayMember]
}

// seen is something and the time since when it is as it is.
type seen[T comparable] struct {
	what  T
	since time.Time
}

func (s *seen[T]) see(now time.Time, what T) {
	if s.since.IsZero() || s.what != what {
		s.what, s.since = what, now
	}
}

// plan says what a relay does with its next beat.
func (o *observer) plan(now time.Time, view store.RelayView) (b store.RelayBeat) {
	b.Token = o.token
	alive := 1 + o.members(now, view.Members, &b)
	share := (store.Partitions + alive - 1) / alive
	var free []store.RelayLease
	first := int(ledger.Hash64(0, o.token) % store.Partitions) // not all begin with the same
	for i := range store.Partitions {
		l := view.Leases[(first+i)%store.Partitions]
		s := &o.leases[l.Partition]
		s.see(now, l)
		switch {
		case l.Token == o.token && len(b.Keep) < share:
			b.Keep = append(b.Keep, l.Partition)
		case l.Token == o.token:
			b.Drop = append(b.Drop, l.Partition)
		case l.Token == "" || now.Sub(s.since) >= o.lease:
			free = append(free, l)
		}
	}
	b.Take = free[:min(len(free), max(0, share-len(b.Keep)))]
	return b
}

// members counts the other relays that live, and names those to be forgotten.
func (o *observer) members(now time.Time, all []store.RelayMember, b *store.RelayBeat) (alive int) {
	known := map[string]seen[store.RelayMember]{}
	for _, m := range all {
		if m.Token == o.token {
			continue
		}
		s := o.others[m.Token]
		s.see(now, m)
		known[m.Token] = s
		switch quiet := now.Sub(s.since); {
		case quiet < o.lease:
			alive++
		case quiet >= 10*o.lease:
			b.Forget = append(b.Forget, m)
		}
	}
	o.others = known
	return alive
}
