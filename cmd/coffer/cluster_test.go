package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
)

func TestClusterCommands(t *testing.T) {
	testengine.OnlyEmbedded(t, "it opens a directory")
	s := serveEnv(t, t.TempDir(), []string{"COFFER_CLUSTER_ADVERTISE=auto", "COFFER_CLUSTER_HEARTBEAT=20ms"}, "--node-id", "n1")
	until(t, "the node to be there and lead", func() bool {
		return strings.Contains(s.cli(t, "cluster", "status"), "term 1")
	})
	until(t, "the node to be live", func() bool { return strings.Contains(s.cli(t, "cluster", "status"), "live") })
	contains(t, s.cli(t, "cluster", "status"), "n1, in term 1", "overdue  0s", s.url)
	contains(t, s.cli(t, "cluster", "drain", "n1"), "node n1 gives its buckets to the others")
	type status struct {
		NodeID, Leader, Term string
		Nodes                []struct {
			NodeID, Address string
			Live, Draining  bool
		}
	}
	until(t, "the node to drain", func() bool {
		st := decode[status](t, s.cli(t, "cluster", "status", "--json"))
		return st.NodeID == "n1" && st.Leader == "n1" && st.Term == "1" && len(st.Nodes) == 1 && st.Nodes[0].Draining
	})
	contains(t, s.cli(t, "cluster", "status"), "draining")
	// Alone it serves on.
	s.cli(t, "budget", "create", "B", "--currency", "BRL")
	contains(t, s.cli(t, "cluster", "drain", "n1", "--undo"), "gets its buckets back")
	until(t, "the drain to end", func() bool {
		return !decode[status](t, s.cli(t, "cluster", "status", "--json")).Nodes[0].Draining
	})
	fails(t, exitFailed, "NODE_NOT_FOUND: node_id \"n9\" is no node of this cluster; coffer cluster status lists the nodes", "cluster", "drain", "n9", "--server", s.url)

	file := filepath.Join(t.TempDir(), "coffer.yaml")
	if err := os.WriteFile(file, []byte("cluster:\n  peers: n1=127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lone := serve(t, t.TempDir())
	contains(t, lone.cli(t, "cluster", "status"), "this node shares no buckets with others; set cluster.advertise")
	fails(t, exitUsage, "cluster.peers is set and the store is embedded:", "serve", "--store", t.TempDir(), "--node-id", "n1", "--config", file)
}
