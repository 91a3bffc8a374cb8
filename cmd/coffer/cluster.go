package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type clusterCmd struct {
	remote `embed:""`

	Status clusterStatus `cmd:"" help:"Who leads, which nodes there are, and how many buckets each has."`
	Drain  clusterDrain  `cmd:"" help:"Make a node give its buckets to the others."`
}

type clusterStatus struct{}

// Help is the long help.
func (clusterStatus) Help() string {
	return `Shows the nodes over the store as the node that is asked sees them. A node
appears when it has cluster.advertise. BUCKETS are those that it worked on in the
last minute or so, SEEN is the time since its sign of life changed.

Examples:
  coffer cluster status
  coffer cluster status --server http://127.0.0.1:7422 --json`
}

// Run shows.
func (clusterStatus) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.GetClusterResponse, error) { return s.GetCluster(ctx) })
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	leader := "none so far"
	if res.GetTerm() > 0 {
		leader = fmt.Sprintf("%s, in term %d", res.GetLeader(), res.GetTerm())
	}
	c.printf("leader   %s\noverdue  %s\nasked    %s\n\n", leader, seconds(res.GetOldestOverdueSeconds()), res.GetNodeId())
	if len(res.GetNodes()) == 0 {
		c.printf("this node shares no buckets with others; set cluster.advertise\n")
		return nil
	}
	t := c.table(table.Row{"node", "state", "leads", "buckets", "seen", "address"}, "buckets", "seen")
	for _, n := range res.GetNodes() {
		t.row(n.GetNodeId(), nodeState(n), leads(n), n.GetBuckets(), seconds(n.GetLastSeenSeconds()), n.GetAddress())
	}
	t.print()
	return nil
}

func nodeState(n *cofferv1.ClusterNode) string {
	switch {
	case !n.GetLive():
		return "silent"
	case n.GetDraining():
		return "draining"
	}
	return "live"
}

func leads(n *cofferv1.ClusterNode) string {
	if n.GetLeadsTerm() == 0 || !n.GetLive() {
		return ""
	}
	return fmt.Sprintf("term %d", n.GetLeadsTerm())
}

// seconds is a time as people read it.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}

type clusterDrain struct {
	Node string `arg:"" help:"Id of the node, as cluster status shows it."`
	Undo bool   `help:"Let a node have buckets again that was drained before."`
}

// Help is the long help.
func (clusterDrain) Help() string {
	return `The others stop sending commands to the node within a second or so, and it sends
what it gets to them. It serves on until it is stopped: a load balancer may still
use it. A node that starts again is drained no more. SIGTERM drains by itself;
this is for seeing first that the others manage without.

Examples:
  coffer cluster drain n2
  coffer cluster drain n2 --undo`
}

// Run asks.
func (d *clusterDrain) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.DrainNodeResponse, error) {
		return s.DrainNode(ctx, d.Node, d.Undo)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	if d.Undo {
		c.printf("node %s gets its buckets back\n", d.Node)
	} else {
		c.printf("node %s gives its buckets to the others; see it with \"coffer cluster status\", undo it with --undo\n", d.Node)
	}
	return nil
}
