package election

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/scan"
)

var inTime = make([]time.Duration, 3) // three nodes whose clocks are right

// The leader dies while holds wait for their expiry: another one returns them.
func TestLeaderDies(t *testing.T) {
	cluster(t, time.Second, inTime, func(s *sim) {
		first := s.leader(nil)
		term := first.raft.Status().Term
		s.fund(first)
		s.hold(s.other(first), 0, 200, 10*time.Second)
		time.Sleep(9 * time.Second)
		died := time.Now()
		s.kill(first)
		next := s.leader(first)
		if got := next.raft.Status(); got.Term <= term || got.Leader != next.id {
			t.Errorf("next leader %+v, want a term above %d", got, term)
		}
		s.expired(next, 200)
		gap := next.raft.Status()
		s.mu.Lock()
		from := s.reigns[len(s.reigns)-1].from
		s.mu.Unlock()
		t.Logf("the leader died; %s later the scanners of %s ran in term %d (election timeout 1s)", from.Sub(died), next.id, gap.Term)
		if d := from.Sub(died); d > 15*time.Second {
			t.Errorf("%s without scanners", d)
		}
	})
}

// A leader is paused in the middle of a pass, at its commit, and resumes after
// another one has led for half a minute: its commands are answered FENCED and
// change nothing.
func TestLeaderPaused(t *testing.T) {
	cluster(t, time.Second, inTime, func(s *sim) {
		old := s.leader(nil)
		term := old.raft.Status().Term
		s.fund(old)
		s.hold(s.other(old), 0, 100, 10*time.Second)
		time.Sleep(9900 * time.Millisecond)
		old.gate.hold()
		// A scanner of the old term besides the elector's: its end can be seen.
		twin, err := scan.New(scan.DefaultConfig(), old.store, old.exec, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		passed := make(chan error, 1)
		cmds := make([]ledger.Command, 100)
		for i := range cmds {
			cmds[i] = ledger.Command{Op: ledger.OpExpire, Key: orderOf(i), Budget: pot}
		}
		time.Sleep(1200 * time.Millisecond) // the index names whole seconds
		replies := make(chan []ledger.Reply, 1)
		behind := store.WithTerm(context.Background(), term)
		go func() { replies <- old.exec.DoAll(behind, cmds) }()
		go func() { passed <- twin.Pass(behind) }()
		time.Sleep(100 * time.Millisecond)
		if old.gate.waits() == 0 {
			t.Fatal("the old leader was not caught at a commit")
		}
		s.cut(old)
		paused := time.Now()
		time.Sleep(30 * time.Second)
		next := s.leader(old)
		if got := len(s.expiries(next)); got != 100 {
			t.Errorf("while the old leader is paused %d holds expired, want 100", got)
		}
		before := entries(s, next)
		s.heal()
		old.gate.release()
		fenced := 0
		for _, r := range <-replies {
			if isFenced(r.Err) {
				fenced++
			}
		}
		if fenced != 100 {
			t.Errorf("%d of 100 commands of the old term were answered FENCED", fenced)
		}
		if err := <-passed; !isFenced(err) {
			t.Errorf("the old term's pass ended with %v", err)
		}
		if after := entries(s, next); after != before {
			t.Errorf("%d entries before the old leader woke up, %d after", before, after)
		}
		s.expired(next, 100)
		t.Logf("paused for 30s in term %d: 100 commands FENCED; longest time without scanners %s", term, s.gap(paused))
	})
}

func entries(s *sim, m *member) int {
	s.Helper()
	n := 0
	for _, k := range s.expiries(m) {
		n += k
	}
	return n
}

// A leader that the others do not reach steps down, they elect another one, and
// after the network has healed there is one leader. The store all of them reach
// throughout.
func TestPartition(t *testing.T) {
	cluster(t, time.Second, inTime, func(s *sim) {
		first := s.leader(nil)
		s.fund(first)
		s.hold(first, 0, 100, 5*time.Second)
		s.hold(s.other(first), 100, 200, 20*time.Second)
		split := time.Now()
		s.cut(first)
		time.Sleep(10 * time.Second)
		if first.raft.Status().Leading {
			t.Error("a leader without a majority still leads")
		}
		next := s.leader(first)
		s.hold(first, 200, 300, 20*time.Second) // a node that has lost the others serves on
		s.heal()
		time.Sleep(30 * time.Second)
		leaders := 0
		for _, m := range s.members {
			if m.raft.Status().Leading {
				leaders++
			}
		}
		if leaders != 1 {
			t.Errorf("%d leaders after the network healed", leaders)
		}
		s.expired(next, 300)
		t.Logf("network split: longest time without scanners %s", s.gap(split))
	})
}

// Clocks that are wrong by ten minutes move when a hold expires, and never how
// often.
func TestClocksOff(t *testing.T) {
	off := []time.Duration{0, 10 * time.Minute, -10 * time.Minute}
	cluster(t, 20*time.Second, off, func(s *sim) {
		s.fund(s.leader(nil))
		for i, m := range s.members {
			s.hold(m, i*50, (i+1)*50, 30*time.Second)
		}
		// Each node leads for a while, as far as the election lets it.
		for range 3 {
			led := s.leader(nil)
			s.cut(led)
			time.Sleep(3 * time.Minute)
			s.heal()
			time.Sleep(time.Minute)
		}
		time.Sleep(10 * time.Minute)
		s.expired(s.leader(nil), 150)
	})
}

// Raft data that is newer than the store's term, or older, does not keep a
// cluster from electing a leader: here the store was led alone before.
func TestTermAboveRaft(t *testing.T) {
	cluster(t, time.Second, inTime, func(s *sim) {
		first := s.leader(nil)
		outside, err := first.store.ClaimNext(s.Context(), "stranger")
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if outside, err = first.store.ClaimNext(s.Context(), "stranger"); err != nil {
				t.Fatal(err)
			}
		}
		s.fund(first)
		s.hold(first, 0, 50, 5*time.Second)
		s.expired(first, 50)
		got := first.book.one(s.T, ledElsewhere, time.Time{})
		if want := fmt.Sprintf("in which %q leads", "stranger"); got.Level != "warn" || !strings.Contains(got.Error, want) {
			t.Errorf("log %+v, want a warning with %q", got, want)
		}
		next := s.leader(nil)
		l, err := next.store.Leader(s.Context())
		if err != nil || l.Term <= outside || l.Node != next.id || next.raft.Status().Term != l.Term {
			t.Errorf("leader %+v, %v; want one of the cluster's above term %d, %+v", l, err, outside, next.raft.Status())
		}
	})
}

// A node without peers over the store of a cluster is fenced off, also where the
// scanners find nothing to do, and stands by from then on: the cluster's leader
// gives signs of life.
func TestStrangerStandsBy(t *testing.T) {
	cluster(t, time.Second, inTime, func(s *sim) {
		s.leader(nil)
		began := time.Now()
		solo := startAlone(s.T, &gate{Store: s.engine}, "solo")
		defer func() {
			solo.stop()
			if err := <-solo.done; err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(5 * time.Minute)
		led := s.leader(nil)
		solo.expect(t, false, led.raft.Status().Term, led.id)
		got := solo.book.one(s.T, standsBy, time.Time{})
		if d := got.at.Sub(began); d > 15*time.Second || !strings.Contains(got.Error, fmt.Sprintf("in which %q leads", led.id)) {
			t.Errorf("after %s: %+v, want a warning that %s leads", d, got, led.id)
		}
		n := 0
		for _, m := range s.members {
			n += len(m.book.with(ledElsewhere, time.Time{}))
		}
		if n == 0 || n > 3 {
			t.Errorf("%d warnings that the lead was claimed elsewhere, want 1 to 3", n)
		}
	})
}

// A node that ends hands its leadership over at once.
func TestLeaderLeaves(t *testing.T) {
	cluster(t, 10*time.Second, inTime, func(s *sim) {
		first := s.leader(nil)
		left := time.Now()
		first.stop()
		next := s.leader(first)
		took := time.Since(left)
		t.Logf("a leader that leaves: %s until the next one led (election timeout 10s)", took)
		if took > 5*time.Second || next == first {
			t.Errorf("the next leader took %s", took)
		}
	})
}

// While leaders change, the store conflicts, answers that it does not know, and
// lets commits land late that it had given up. Each hold still expires once.
func TestStoreFaults(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	draw := embedded.RandomFaults(seed, embedded.FaultRates{
		Conflict: 200, UnknownLanded: 120, UnknownLost: 120, Late: 80, LateBy: 3 * time.Second, Latency: 20 * time.Millisecond,
	})
	var on atomic.Bool
	var befell atomic.Int64
	faults := &embedded.Faults{OnCommit: func() embedded.Fault {
		if !on.Load() {
			return embedded.Fault{}
		}
		f := draw()
		if f.Kind != embedded.FaultNone {
			befell.Add(1)
		}
		return f
	}}
	faultyCluster(t, time.Second, inTime, faults, func(s *sim) {
		s.fund(s.leader(nil))
		on.Store(true)
		n := 0
		for range 4 {
			led := s.leader(nil)
			for _, m := range s.members {
				s.hold(m, n, n+40, 3*time.Second)
				n += 40
			}
			time.Sleep(2 * time.Second)
			s.cut(led)
			next := s.leader(led)
			if l, err := next.store.Leader(s.Context()); err != nil || l.Node == led.id {
				t.Errorf("leader %+v, %v", l, err)
			}
			time.Sleep(3 * time.Second)
			s.heal()
		}
		time.Sleep(30 * time.Second)
		on.Store(false)
		time.Sleep(10 * time.Second) // the last late commits land, or do not
		s.expired(s.leader(nil), n)
		t.Logf("%d commits met a fault", befell.Load())
		if befell.Load() < 10 {
			t.Errorf("only %d commits met a fault", befell.Load())
		}
	})
}
