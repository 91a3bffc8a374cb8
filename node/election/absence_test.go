package election

import (
	"slices"
	"testing"
	"time"
)

// Nodes that find no leader say so after a while, now and then, and which peers
// do not answer; and that there is one again.
func TestNoLeader(t *testing.T) {
	cluster(t, time.Second, inTime, func(s *sim) {
		s.leader(nil)
		n1, n2, n3 := s.members[0], s.members[1], s.members[2]
		time.Sleep(2 * time.Minute)
		s.cut(n1)
		s.cut(n3)
		cut := time.Now()
		time.Sleep(5 * time.Minute)
		for m, silent := range map[*member][]string{n1: {"n2=n2:1", "n3=n3:1"}, n2: {"n1=n1:1", "n3=n3:1"}} {
			got := m.book.with(noLeader, time.Time{})
			if len(got) != 3 {
				t.Fatalf("%s warned %d times in 5m, want 3: %+v", m.id, len(got), got)
			}
			for i, after := range []time.Duration{warnAfter, 3 * warnAfter, 7 * warnAfter} {
				l := got[i]
				if d := l.at.Sub(cut); l.Level != "warn" || d < after || d > after+5*time.Second {
					t.Errorf("%s: warning %d is of level %s, after %s, want warn after %s", m.id, i, l.Level, d, after)
				}
				if !slices.Equal(l.SilentPeers, silent) {
					t.Errorf("%s: peers %v do not answer, want %v", m.id, l.SilentPeers, silent)
				}
				if d := l.Since.Sub(cut); d < -time.Second || d > 5*time.Second {
					t.Errorf("%s: no leader since %s after the cut", m.id, d)
				}
			}
		}
		s.heal()
		healed := time.Now()
		led := s.leader(nil)
		time.Sleep(2 * time.Minute)
		for _, m := range s.members {
			l := m.book.one(s.T, leaderAgain, time.Time{})
			if l.Level != "info" || l.Leader != led.id || l.at.Before(healed) || time.Duration(l.LeaderlessMS)*time.Millisecond < 4*time.Minute {
				t.Errorf("%s: %+v, want leader %s after 5m", m.id, l, led.id)
			}
			if got := m.book.with(noLeader, healed); len(got) > 0 {
				t.Errorf("%s warns although %s leads: %+v", m.id, led.id, got)
			}
		}
	})
}

// Warnings come less and less often, and at once again after there was a leader.
func TestAbsence(t *testing.T) {
	a := absence{after: time.Minute}
	begin := time.Now()
	for i, want := range []struct {
		after  time.Duration
		leader string
		warn   bool
	}{
		{0, "", false},
		{59 * time.Second, "", false},
		{time.Minute, "", true},
		{2 * time.Minute, "", false},
		{3 * time.Minute, "", true},
		{4 * time.Minute, "n1", false},
		{5 * time.Minute, "", false}, // from here on anew
		{6 * time.Minute, "", true},
		{20 * time.Minute, "", true}, // late
		{29 * time.Minute, "", true},
		{30 * time.Minute, "", false},
		{39 * time.Minute, "", true},
		{48 * time.Minute, "", false},
		{49 * time.Minute, "", true}, // after warnAgain, and no longer
	} {
		if got := a.see(want.leader, begin.Add(want.after)); got != want.warn {
			t.Errorf("step %d: warn %v after %s, want %v", i, got, want.after, want.warn)
		}
	}
	never := absence{}
	if never.see("", begin) || never.see("", begin.Add(time.Hour)) {
		t.Error("it warns although it shall not")
	}
}
