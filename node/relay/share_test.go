package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// cluster is leases and relays, as a store would keep them.
type cluster struct {
	view   store.RelayView
	relays []*observer
}

func newCluster(n int) *cluster {
	c := &cluster{}
	for p := range uint64(store.Partitions) {
		c.view.Leases = append(c.view.Leases, store.RelayLease{Partition: p})
	}
	for i := range n {
		c.relays = append(c.relays, &observer{token: fmt.Sprint("r", i), lease: time.Minute})
	}
	return c
}

// beat lets one relay act at a time of its own clock.
func (c *cluster) beat(i int, now time.Time) {
	o := c.relays[i]
	view := store.RelayView{Leases: slices.Clone(c.view.Leases), Members: slices.Clone(c.view.Members)}
	b := o.plan(now, view)
	me := slices.IndexFunc(c.view.Members, func(m store.RelayMember) bool { return m.Token == o.token })
	if me < 0 {
		c.view.Members = append(c.view.Members, store.RelayMember{Token: o.token})
		me = len(c.view.Members) - 1
	}
	c.view.Members[me].Beat++
	for _, p := range b.Keep {
		c.view.Leases[p].Beat++
	}
	for _, p := range b.Drop {
		c.view.Leases[p].Token = ""
	}
	for _, l := range b.Take {
		c.view.Leases[l.Partition] = store.RelayLease{Partition: l.Partition, Token: o.token, Epoch: l.Epoch + 1}
	}
	for _, m := range b.Forget {
		c.view.Members = slices.DeleteFunc(c.view.Members, func(k store.RelayMember) bool { return k == m })
	}
}

func (c *cluster) held() []int {
	n := make([]int, len(c.relays))
	for _, l := range c.view.Leases {
		for i, o := range c.relays {
			if l.Token == o.token {
				n[i]++
			}
		}
	}
	return n
}

// Partitions are spread evenly over the relays that live, whatever their clocks
// say; one that is gone loses them after a lease, not before.
func TestPartitionsAreShared(t *testing.T) {
	c := newCluster(3)
	clocks := []time.Time{time.Unix(0, 0), time.Unix(1<<30, 0), time.Unix(5, 0)} // years apart
	round := func(relays ...int) {
		for _, i := range relays {
			clocks[i] = clocks[i].Add(15 * time.Second)
			c.beat(i, clocks[i])
		}
	}
	round(0)
	if got := c.held(); got[0] != 16 {
		t.Fatalf("one relay has %v", got)
	}
	for range 3 {
		round(0, 1)
	}
	if got := c.held(); got[0] != 8 || got[1] != 8 {
		t.Fatalf("two relays have %v", got)
	}
	for range 3 {
		round(0, 1, 2)
	}
	if got := c.held(); slices.Max(got) != 6 || got[0]+got[1]+got[2] != 16 {
		t.Fatalf("three relays have %v", got)
	}
	dead := c.held()[1]
	round(0, 2) // the last change of relay 1 is seen
	for range 2 {
		round(0, 2)
		if got := c.held(); got[1] != dead {
			t.Fatalf("a relay lost its partitions within its lease: %v", got)
		}
	}
	for range 3 {
		round(0, 2)
	}
	if got := c.held(); got[0] != 8 || got[2] != 8 {
		t.Fatalf("after one is gone the others have %v", got)
	}
	if len(c.view.Members) != 3 {
		t.Fatalf("members are %v", c.view.Members)
	}
	for range 40 {
		round(0, 2)
	}
	if len(c.view.Members) != 2 {
		t.Errorf("a relay that is long gone is still there: %v", c.view.Members)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Retention: -1}
	if err := bad.Validate(); err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 9 {
		t.Errorf("faults are %v", err)
	}
}
