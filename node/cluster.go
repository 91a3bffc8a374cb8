package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/election"
)

// Cluster says with whom this node works together. All of them must be over
// one store.
type Cluster struct {
	// Peers are all nodes that take part in elections, this one too, as
	// ID=HOST:PORT of their Raft, with commas between. Empty: this node holds
	// no elections and leads by itself.
	Peers string `yaml:"peers"`
	// RaftListen is where Raft listens, the address in Peers where empty. With
	// an address beyond loopback it needs TLS and CAFile, or Insecure.
	RaftListen string `yaml:"raft_listen"`
	// DataDir keeps Raft's log. It belongs to this node alone and must outlive
	// a restart.
	DataDir string `yaml:"data_dir"`
	// ElectionTimeout is how long a leader may be silent before the others
	// elect a new one.
	ElectionTimeout time.Duration `yaml:"election_timeout"`
	// CAFile holds the certificates of the authority that has signed those of
	// the nodes, and of nobody else. Nodes prove themselves to each other with
	// their tls certificates, which must be good for clients, too.
	CAFile string `yaml:"ca_file"`
}

func defaultCluster() Cluster {
	return Cluster{DataDir: "coffer-raft", ElectionTimeout: time.Second}
}

// On reports whether this node has peers.
func (c Cluster) On() bool { return c.Peers != "" }

// election is the configuration of the node's elector, without TLS.
func (c Config) election() (election.Config, error) {
	peers, err := election.ParsePeers(c.Cluster.Peers)
	if err != nil {
		return election.Config{}, err
	}
	return election.Config{
		Node: c.NodeID, Peers: peers, Listen: c.Cluster.RaftListen, Dir: c.Cluster.DataDir,
		ElectionTimeout: c.Cluster.ElectionTimeout,
	}, nil
}

func (c Config) validateCluster(f *faults) {
	if c.Cluster.CAFile != "" && !c.TLS.On() {
		f.add("cluster.ca_file", c.Cluster.CAFile, "none without tls.cert_file and tls.key_file")
	}
	if !c.Cluster.On() {
		return
	}
	ec, err := c.election()
	if err != nil {
		f.all = append(f.all, fmt.Errorf("cluster.peers: %w", err))
		return
	}
	if err := ec.Validate(); err != nil {
		f.within("cluster", err)
		return
	}
	if c.Cluster.DataDir == "" {
		f.add("cluster.data_dir", "", "a directory of this node's own")
	}
	at := c.Cluster.RaftListen
	for _, p := range ec.Peers {
		if at == "" && p.ID == c.NodeID {
			at = p.Address
		}
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		f.add("cluster.raft_listen", at, "host:port")
		return
	}
	if !loopback(host) && !c.Insecure && (!c.TLS.On() || c.Cluster.CAFile == "") {
		f.add("cluster.raft_listen", at, "a loopback address; for any other set tls.cert_file, tls.key_file and cluster.ca_file, or insecure: true where something else encrypts")
	}
}

// elector makes the node's elector.
func (n *Node) elector(st *store.Store) (election.Elector, error) {
	log := n.log.With().Str("part", "election").Logger()
	if !n.cfg.Cluster.On() {
		return election.NewAlone(n.cfg.NodeID, st, log), nil
	}
	cfg, err := n.cfg.election()
	if err != nil {
		return nil, err
	}
	if n.cfg.Cluster.CAFile != "" {
		if cfg.TLS, err = n.cfg.mutual(); err != nil {
			return nil, err
		}
	}
	return election.NewRaft(cfg, n.deps.Raft, st, log)
}

// mutual is TLS between nodes: each side shows a certificate of the authority's.
func (c Config) mutual() (*tls.Config, error) {
	t, err := c.TLS.load()
	if err != nil {
		return nil, err
	}
	pool, err := c.Cluster.authority()
	if err != nil {
		return nil, err
	}
	t.RootCAs, t.ClientCAs, t.ClientAuth, t.MinVersion = pool, pool, tls.RequireAndVerifyClientCert, tls.VersionTLS13
	return t, nil
}

func (c Cluster) authority() (*x509.CertPool, error) {
	raw, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("load cluster.ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("load cluster.ca_file %s: %w", c.CAFile, errors.New("it holds no certificate"))
	}
	return pool, nil
}
