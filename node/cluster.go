package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/election"
	"github.com/coffer-ledger/coffer/node/members"
	"github.com/coffer-ledger/coffer/rpc"
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
	// Advertise is the base URL by which the other nodes over the store reach
	// this one; "auto" is the address it listens on. Empty: it takes no part in
	// sharing buckets.
	Advertise string `yaml:"advertise"`
	// Heartbeat is the time between two signs of life, DeadAfter how long a
	// node may give none before it gets no more commands and its id is free for
	// another process, ForwardTimeout the bound of a call that takes commands to
	// another node. All nodes should have the same.
	Heartbeat      time.Duration `yaml:"heartbeat"`
	DeadAfter      time.Duration `yaml:"dead_after"`
	ForwardTimeout time.Duration `yaml:"forward_timeout"`
}

// advertiseAuto stands for the address that a node listens on.
const advertiseAuto = "auto"

func defaultCluster() Cluster {
	m := members.DefaultConfig()
	return Cluster{
		DataDir: "coffer-raft", ElectionTimeout: time.Second,
		Heartbeat: m.Interval, DeadAfter: m.DeadAfter, ForwardTimeout: m.ForwardTimeout,
	}
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
		ElectionTimeout: c.Cluster.ElectionTimeout, WarnAfter: c.Expiry.StallAfter,
	}, nil
}

func (c Cluster) members() members.Config {
	return members.Config{Interval: c.Heartbeat, DeadAfter: c.DeadAfter, ForwardTimeout: c.ForwardTimeout}
}

func (c Config) validateCluster(f *faults) {
	f.within("cluster", c.Cluster.members().Validate())
	c.validateAdvertise(f)
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

// validateAdvertise refuses an address by which a node would find itself and not
// this one, and a service for nodes that is open to everybody.
func (c Config) validateAdvertise(f *faults) {
	a := c.Cluster.Advertise
	if a == "" {
		return
	}
	scheme := "http"
	if c.TLS.On() {
		scheme = "https"
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return // said elsewhere
	}
	everywhere := host == "" || net.ParseIP(host).IsUnspecified()
	switch u, err := url.Parse(a); {
	case a == advertiseAuto && everywhere:
		f.add("cluster.advertise", a, scheme+"://HOST:PORT where listen is all addresses, "+c.Listen)
	case a != advertiseAuto && (err != nil || u.Scheme != scheme || u.Host == "" || (u.Path != "" && u.Path != "/")):
		f.add("cluster.advertise", a, scheme+"://HOST:PORT, auto, or empty")
	}
	if !loopback(host) && c.Cluster.CAFile == "" && !c.Insecure {
		f.add("cluster.ca_file", "", "the authority of the nodes where advertise is set and listen is beyond loopback, or insecure: true where something else keeps others out")
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

// joinPeers gives the node its place among those over the store, and makes the
// executor share buckets with them, where the configuration says how they reach
// this one.
func (n *Node) joinPeers(p *parts) (err error) {
	if n.cfg.Cluster.Advertise == "" && n.deps.StoreKind == embeddedKind {
		return nil // the directory's lock keeps other processes out
	}
	log := n.log.With().Str("part", "members").Logger()
	about := func() (int, uint64) {
		if s := p.leader.Status(); s.Leading {
			return p.exec.Stats().Active, s.Term
		}
		return p.exec.Stats().Active, 0
	}
	if n.cfg.Cluster.Advertise == "" {
		p.members, err = members.New(n.cfg.Cluster.members(), n.cfg.NodeID, p.ledger, nil, about, log)
		return err
	}
	call := func(ctx context.Context, to store.Member, cmds []ledger.Command) ([]ledger.Reply, error) {
		return p.peers.Forward(ctx, to.Address, to.Run, cmds)
	}
	p.members, err = members.New(n.cfg.Cluster.members(), n.cfg.NodeID, p.ledger, call, about, log)
	if err != nil {
		return err
	}
	if p.peers, err = n.peerClient(); err != nil {
		return err
	}
	p.exec.SetPeers(p.members)
	return nil
}

// embeddedKind is Deps.StoreKind of an engine that one process has to itself.
const embeddedKind = "embedded"

// peerClient calls the other nodes.
func (n *Node) peerClient() (*rpc.PeerClient, error) {
	switch {
	case n.deps.PeerTransport != nil:
		return rpc.NewPeerClientOver(n.cfg.NodeID, n.deps.PeerTransport), nil
	case n.cfg.Cluster.CAFile != "":
		t, err := n.cfg.mutual()
		if err != nil {
			return nil, err
		}
		return rpc.NewPeerClient(n.cfg.NodeID, t), nil
	}
	return rpc.NewPeerClient(n.cfg.NodeID, nil), nil
}

// claim makes sure that no other process over the store has this node's id.
func (n *Node) claim(ctx context.Context, p *parts) error {
	if p.members == nil {
		return nil
	}
	scheme := "http://"
	if n.cfg.TLS.On() {
		scheme = "https://"
	}
	return p.members.Claim(ctx, n.advertised(scheme+n.cfg.Listen))
}

// advertised is the base URL of this node for the others, by the one that it
// listens on. Where they do not call it, it tells people where it is.
func (n *Node) advertised(url string) string {
	switch a := n.cfg.Cluster.Advertise; a {
	case advertiseAuto:
		return url
	case "":
		return onThisHost(url)
	default:
		return a
	}
}

// onThisHost names the machine in the URL of a server on all addresses.
func onThisHost(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	host, err := os.Hostname()
	if ip := net.ParseIP(u.Hostname()); err == nil && (u.Hostname() == "" || u.Hostname() == "localhost" || ip.IsUnspecified()) {
		u.Host = net.JoinHostPort(host, u.Port())
	}
	return u.String()
}

// forPeers is what a server needs to take commands of other nodes.
func (n *Node) forPeers(p *parts) *rpc.Peers {
	if p.peers == nil {
		return nil
	}
	peers := &rpc.Peers{Here: p.exec.Here(), Run: p.members.Start()}
	if n.cfg.Cluster.CAFile != "" {
		// The listener has checked the certificate, if one was shown.
		peers.Allow = func(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }
	}
	return peers
}

// handOver gives this node's buckets to the others before it ends. That it
// failed costs conflicts, or a call to a node that has gone, and nothing else.
func (n *Node) handOver(ctx context.Context, p *parts) {
	// A node that says nothing is waited for until it counts as dead, but no
	// longer than the drain itself may take.
	ctx, cancel := context.WithTimeout(ctx, min(2*n.cfg.Cluster.DeadAfter, n.cfg.Shutdown.Timeout))
	defer cancel()
	if err := p.members.Drain(ctx); err != nil {
		n.log.Warn().Err(err).Msg("the other nodes may still send commands here")
	}
}

// leave takes the node's sign of life away, once it gives no more.
func (n *Node) leave(ctx context.Context, p *parts) {
	if p.members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := p.members.Leave(ctx); err != nil {
		n.log.Debug().Err(err).Msg("sign of life stays")
	}
	if p.peers != nil {
		p.peers.Close()
	}
}

// leaveTimeout bounds the removal of the sign of life: without it the others
// find out a little later, and the next start of this node waits that long.
const leaveTimeout = 5 * time.Second

// clusterView answers operators about all nodes.
type clusterView struct {
	n *Node
	p *parts
}

// Cluster tells who leads and which nodes there are.
func (v clusterView) Cluster(ctx context.Context) (rpc.ClusterStatus, error) {
	l, err := v.p.ledger.Leader(ctx)
	if err != nil {
		return rpc.ClusterStatus{}, err
	}
	st := rpc.ClusterStatus{NodeID: v.n.cfg.NodeID, Term: l.Term, Leader: l.Node, OldestOverdue: v.p.expiry.Status(ctx).OldestOverdue}
	for _, s := range v.sharing() {
		st.Nodes = append(st.Nodes, nodeSeen(s))
	}
	return st, nil
}

// sharing are the nodes that share buckets, where this one does.
func (v clusterView) sharing() []members.Seen {
	if v.p.peers == nil {
		return nil
	}
	return slices.DeleteFunc(v.p.members.Nodes(), func(s members.Seen) bool { return len(s.Sees) == 0 })
}

func nodeSeen(s members.Seen) rpc.ClusterNode {
	return rpc.ClusterNode{
		NodeID: s.Node, Address: s.Address, Live: s.Live, Draining: s.Draining, LeadsTerm: s.Term, Buckets: s.Buckets, LastSeen: s.Since,
	}
}

// Drain marks a node, which finds the mark at its next sign of life.
func (v clusterView) Drain(ctx context.Context, node string, undo bool) (rpc.ClusterNode, error) {
	for _, s := range v.sharing() {
		if s.Node == node {
			return nodeSeen(s), v.p.ledger.MarkDrain(ctx, node, !undo)
		}
	}
	return rpc.ClusterNode{}, rpc.NodeMissing(node)
}
