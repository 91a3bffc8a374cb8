package election

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/coffer-ledger/coffer/ledger"
)

// MaxPeers bounds a cluster.
const MaxPeers = 15

// Peer is a node that takes part in elections.
type Peer struct {
	ID string
	// Address is host:port, where the others reach its Raft.
	Address string
}

// ParsePeers reads "n1=host:port,n2=host:port".
func ParsePeers(s string) ([]Peer, error) {
	var out []Peer
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(part), "=")
		host, port, err := net.SplitHostPort(addr)
		if _, perr := strconv.ParseUint(port, 10, 16); !ok || err != nil || perr != nil || host == "" {
			return nil, fmt.Errorf("peer %.80q is not ID=HOST:PORT", part)
		}
		if id == "" || len(id) > ledger.MaxIDBytes {
			return nil, fmt.Errorf("peer %.80q has an id of %d bytes (allowed: 1 to %d)", part, len(id), ledger.MaxIDBytes)
		}
		if seen[id] || seen["="+addr] {
			return nil, fmt.Errorf("peer %.80q has the id or the address of another one", part)
		}
		seen[id], seen["="+addr] = true, true
		out = append(out, Peer{id, addr})
	}
	return out, nil
}

// Config shapes a Raft elector.
type Config struct {
	// Node is the id of this node, one of Peers.
	Node  string
	Peers []Peer
	// Listen is the address that Raft listens on; empty: the one in Peers.
	Listen string
	// Dir keeps Raft's log.
	Dir string
	// ElectionTimeout is how long a leader may be silent before the others
	// elect a new one.
	ElectionTimeout time.Duration
	// WarnAfter is how long there may be no leader, as this node sees it,
	// before the log says so; 0: it never does.
	WarnAfter time.Duration
	// TLS, if not nil, is what both sides of a connection between peers use;
	// each proves itself to the other.
	TLS *tls.Config
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	self := false
	for _, p := range c.Peers {
		self = self || p.ID == c.Node
	}
	if !self {
		errs = append(errs, fmt.Errorf("peers do not name this node, %q (allowed: a list of all nodes)", c.Node))
	}
	if n := len(c.Peers); n > MaxPeers {
		errs = append(errs, fmt.Errorf("peers has %d nodes (allowed: up to %d)", n, MaxPeers))
	}
	if c.ElectionTimeout < 50*time.Millisecond || c.ElectionTimeout > time.Minute {
		errs = append(errs, fmt.Errorf("election_timeout is %s (allowed: 50ms to 1m)", c.ElectionTimeout))
	}
	return errors.Join(errs...)
}

func (c Config) self() Peer {
	for _, p := range c.Peers {
		if p.ID == c.Node {
			return p
		}
	}
	return Peer{}
}

func (c Config) raft(log io.Writer) *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.Node)
	r.HeartbeatTimeout, r.ElectionTimeout, r.LeaderLeaseTimeout = c.ElectionTimeout, c.ElectionTimeout, c.ElectionTimeout/2
	r.CommitTimeout = min(r.CommitTimeout, c.ElectionTimeout/10)
	r.SnapshotThreshold = math.MaxUint64 // there is no state to take one of
	r.SnapshotInterval = time.Hour
	r.LogOutput, r.LogLevel, r.NoLegacyTelemetry = log, "WARN", true
	return r
}

// open listens, and opens the log in the directory.
func (c Config) open() (Parts, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return Parts{}, fmt.Errorf("make raft's directory: %w", err)
	}
	db, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(c.Dir, "raft.db"), BoltOptions: boltOptions})
	if err != nil {
		return Parts{}, fmt.Errorf("open raft's log in %s: %w; is another process using it?", c.Dir, err)
	}
	layer, err := c.listen()
	if err != nil {
		return Parts{}, errors.Join(err, db.Close())
	}
	t := raft.NewNetworkTransport(layer, 3, 2*c.ElectionTimeout, io.Discard)
	return Parts{Transport: t, Logs: db, Stable: db, Close: func() error { return errors.Join(t.Close(), db.Close()) }}, nil
}
