package election

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// boltOptions make a log that another process has open an error, and no wait
// without end.
var boltOptions = &bbolt.Options{Timeout: 2 * time.Second}

// layer is how peers reach each other: TCP, within TLS where that is on.
type layer struct {
	net.Listener
	advertise address
	tls       *tls.Config
}

// address is the name that the peers know this node by.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func (c Config) listen() (*layer, error) {
	self := c.self().Address
	at := c.Listen
	if at == "" {
		at = self
	}
	ln, err := net.Listen("tcp", at) //nolint:noctx // the listener lives as long as the node
	if err != nil {
		return nil, fmt.Errorf("listen %s for raft: %w; choose another address with cluster.raft_listen", at, err)
	}
	if c.TLS != nil {
		ln = tls.NewListener(ln, c.TLS)
	}
	return &layer{Listener: ln, advertise: address(self), tls: c.TLS}, nil
}

// Addr is the address the peers know.
func (l *layer) Addr() net.Addr { return l.advertise }

// Dial connects to a peer.
func (l *layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout}
	if l.tls != nil {
		return tls.DialWithDialer(d, "tcp", string(addr), l.tls)
	}
	return d.Dial("tcp", string(addr))
}
