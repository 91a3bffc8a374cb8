package election

import (
	"time"

	"github.com/hashicorp/raft"
)

// warnAgain is the longest pause between two warnings that there is no leader.
const warnAgain = 10 * time.Minute

const (
	noLeader = "this node finds no leader; while there is none, holds do not return, ledgers are not checked, and facts and queues are not " +
		"looked after; commands are still taken; see that more than half of cluster.peers run and reach each other"
	leaderAgain = "there is a leader again"
)

// absence is the time in which a node finds no leader.
type absence struct {
	after time.Duration // without a leader before it warns; 0: it never does

	since  time.Time // zero: there is a leader
	due    time.Time // the next warning
	pause  time.Duration
	warned bool
}

// see takes note of who leads, "" for nobody, and reports whether to warn now:
// when nobody has led for a.after, and then after pauses that double.
func (a *absence) see(leader string, now time.Time) (warn bool) {
	switch {
	case leader != "":
		*a = absence{after: a.after}
		return false
	case a.since.IsZero():
		a.since, a.due, a.pause = now, now.Add(a.after), a.after
	}
	if a.after <= 0 || now.Before(a.due) {
		return false
	}
	a.pause = min(2*a.pause, warnAgain)
	a.due = now.Add(a.pause)
	return true
}

// silent are the peers that do not answer, as the configuration names them. It
// takes as long as the transport waits for one of them.
func (r *Raft) silent(t raft.Transport) []string {
	var others []Peer
	for _, p := range r.cfg.Peers {
		if p.ID != r.cfg.Node {
			others = append(others, p)
		}
	}
	answers := make([]chan bool, len(others))
	for i, p := range others {
		answers[i] = make(chan bool, 1)
		go func() { answers[i] <- r.reaches(t, p) }()
	}
	out := []string{}
	for i, p := range others {
		if !<-answers[i] {
			out = append(out, p.ID+"="+p.Address)
		}
	}
	return out
}

// reaches reports whether a peer's Raft answers. It sends what a leader of term 0
// would say: no such term is ever current, so the peer refuses it, by an answer
// that says its own term, and changes nothing.
func (r *Raft) reaches(t raft.Transport, p Peer) bool {
	id, addr := raft.ServerID(r.cfg.Node), raft.ServerAddress(r.cfg.self().Address)
	req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: t.EncodePeer(id, addr),
	}}
	return t.AppendEntries(raft.ServerID(p.ID), raft.ServerAddress(p.Address), &req, &raft.AppendEntriesResponse{}) == nil
}
