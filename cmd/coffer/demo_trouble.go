package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/store"
)

const (
	// pauseFor is how long the demo pauses the leader, at least.
	pauseFor = time.Second
	// leaderPatience bounds the wait for a leader.
	leaderPatience = 30 * time.Second
)

// demoTrouble is what the demo did to its nodes, and what came of it.
type demoTrouble struct {
	Nodes  int    `json:"nodes"`
	Paused string `json:"paused"`
	// Next led in Term, so long after the leader was paused.
	Next    string  `json:"next_leader"`
	Term    uint64  `json:"term"`
	Without float64 `json:"seconds_without_leader"`
	Killed  string  `json:"killed"`
}

// trouble pauses the leader when a third of the orders are done, until another
// node leads, and kills a node when two thirds are.
func (d *demo) trouble(ctx context.Context) (*demoTrouble, error) {
	st, err := store.Open(ctx, d.nodes.engine, store.Options{Prefix: d.nodes.loc.keyPrefix()})
	if err != nil {
		return nil, err
	}
	t := &demoTrouble{Nodes: demoNodes}
	if err := d.reach(ctx, 1); err != nil {
		return nil, err
	}
	was, err := d.leader(ctx, st, 0)
	if err != nil {
		return nil, err
	}
	for _, n := range d.nodes.nodes {
		if n.id == was.Node {
			t.Paused = n.id
			next, took, err := d.pauseLeader(ctx, st, n, was.Term)
			if err != nil {
				return nil, err
			}
			t.Next, t.Term, t.Without = next.Node, next.Term, took.Seconds()
		}
	}
	if err := d.reach(ctx, 2); err != nil {
		return nil, err
	}
	dead := d.nodes.nodes[d.cmd.Seed%demoNodes]
	t.Killed = dead.id
	d.say("killing node %s\n", dead.id)
	dead.kill()
	d.nodes.link(dead, false)
	dead.stop()
	return t, nil
}

// pauseLeader pauses a node until another one leads, and for a while at least.
func (d *demo) pauseLeader(ctx context.Context, st *store.Store, n *demoNode, term uint64) (next store.Leader, took time.Duration, err error) {
	d.say("pausing node %s, which leads in term %d\n", n.id, term)
	d.troubled.Store(true)
	start := time.Now()
	n.pause()
	d.nodes.link(n, false)
	defer d.nodes.link(n, true)
	defer n.resume()
	if next, err = d.leader(ctx, st, term); err != nil {
		return next, 0, err
	}
	took = time.Since(start)
	d.say("node %s leads in term %d, %.1fs later\n", next.Node, next.Term, took.Seconds())
	select {
	case <-time.After(pauseFor - took):
	case <-ctx.Done():
		return next, took, ctx.Err()
	}
	return next, took, nil
}

// reach waits until so many thirds of the orders are done.
func (d *demo) reach(ctx context.Context, thirds int64) error {
	return d.every(ctx, func() bool { return d.done.Load() >= thirds*int64(d.cmd.Orders)/3 })
}

// leader waits for a leader of a term above one.
func (d *demo) leader(ctx context.Context, st *store.Store, above uint64) (l store.Leader, err error) {
	within, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	err = d.every(within, func() bool {
		var lerr error
		l, lerr = st.Leader(within)
		return lerr == nil && l.Term > above
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("no node led above term %d within %s", above, leaderPatience)
	}
	return l, err
}

// every looks at a condition until it holds.
func (d *demo) every(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
