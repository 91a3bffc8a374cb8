package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Cluster tells of the nodes over the store, and makes them drain.
type Cluster interface {
	Cluster(ctx context.Context) (ClusterStatus, error)
	// Drain asks a node to drain, or takes that back. A node that is not there
	// is refused with NODE_NOT_FOUND.
	Drain(ctx context.Context, node string, undo bool) (ClusterNode, error)
}

// ClusterStatus is the cluster as one node sees it.
type ClusterStatus struct {
	NodeID string
	// Term and Leader are the store's; 0 where nobody has led yet.
	Term          uint64
	Leader        string
	Nodes         []ClusterNode
	OldestOverdue time.Duration
}

// ClusterNode is a node as another one sees it.
type ClusterNode struct {
	NodeID, Address string
	Live, Draining  bool
	LeadsTerm       uint64
	Buckets         uint64
	LastSeen        time.Duration
}

// NodeMissing refuses a request that names a node that is not there.
func NodeMissing(node string) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.NodeNotFound, Field: "node_id", Value: fmt.Sprintf("%.40q", node), Message: "is no node of this cluster"}
}

func (s *operatorService) GetCluster(ctx context.Context, _ *cofferv1.GetClusterRequest) (*cofferv1.GetClusterResponse, error) {
	if s.cluster == nil {
		return &cofferv1.GetClusterResponse{NodeId: s.status(ctx).NodeID}, nil
	}
	st, err := s.cluster.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	res := &cofferv1.GetClusterResponse{NodeId: st.NodeID, Term: st.Term, Leader: st.Leader, OldestOverdueSeconds: st.OldestOverdue.Seconds()}
	for i := range st.Nodes {
		res.Nodes = append(res.Nodes, nodeOf(&st.Nodes[i]))
	}
	return res, nil
}

func (s *operatorService) DrainNode(ctx context.Context, m *cofferv1.DrainNodeRequest) (*cofferv1.DrainNodeResponse, error) {
	if s.cluster == nil {
		return nil, NodeMissing(m.GetNodeId())
	}
	n, err := s.cluster.Drain(ctx, m.GetNodeId(), m.GetUndo())
	if err != nil {
		return nil, err
	}
	return &cofferv1.DrainNodeResponse{Node: nodeOf(&n)}, nil
}

func nodeOf(n *ClusterNode) *cofferv1.ClusterNode {
	return &cofferv1.ClusterNode{
		NodeId: n.NodeID, Address: n.Address, Live: n.Live, Draining: n.Draining, LeadsTerm: n.LeadsTerm,
		Buckets: n.Buckets, LastSeenSeconds: n.LastSeen.Seconds(),
	}
}

// GetCluster asks a node about all nodes.
func (c *Client) GetCluster(ctx context.Context) (*cofferv1.GetClusterResponse, error) {
	return call(ctx, c, kindRead, c.operator.GetCluster, &cofferv1.GetClusterRequest{})
}

// DrainNode makes a node give its buckets to the others, or takes that back.
func (c *Client) DrainNode(ctx context.Context, node string, undo bool) (*cofferv1.DrainNodeResponse, error) {
	return call(ctx, c, kindRead, c.operator.DrainNode, &cofferv1.DrainNodeRequest{NodeId: node, Undo: undo})
}
