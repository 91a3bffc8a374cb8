package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/node"
	"github.com/coffer-ledger/coffer/node/election"
)

// demoNodes is how many nodes the demo runs.
const demoNodes = 3

// demoCluster is nodes in this process, over one store. Their ways to the store,
// to each other and to the callers can be held or cut, which for the others is
// as if the node were paused or dead.
type demoCluster struct {
	c      *cli
	loc    location
	engine kv.Store
	nodes  []*demoNode
	// byHost finds a node by the address in a URL.
	byHost sync.Map
	turn   atomic.Uint64
}

type demoNode struct {
	id, url string
	trans   *raft.InmemTransport
	data    *raft.InmemStore
	stop    context.CancelFunc
	done    chan error

	dead context.Context // ends when the node is killed
	kill context.CancelFunc
	mu   sync.Mutex
	held chan struct{} // not nil while the node is paused: closed when it goes on
}

// startDemo opens the store and starts the nodes. A node that ends by itself
// ends the run.
func (c *cli) startDemo(ctx context.Context, loc location, end context.CancelCauseFunc) (*demoCluster, error) {
	engine, err := loc.open(ctx, false)
	if err != nil {
		return nil, err
	}
	d := &demoCluster{c: c, loc: loc, engine: engine}
	for i := range demoNodes {
		d.nodes = append(d.nodes, newDemoNode(fmt.Sprint("n", i+1)))
	}
	for _, n := range d.nodes {
		d.link(n, true)
	}
	for _, n := range d.nodes {
		if err := d.start(ctx, n, end); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func newDemoNode(id string) *demoNode {
	n := &demoNode{id: id, data: raft.NewInmemStore(), done: make(chan error, 1)}
	_, n.trans = raft.NewInmemTransportWithTimeout(raft.ServerAddress(n.raft()), 100*time.Millisecond)
	n.dead, n.kill = context.WithCancel(context.Background())
	return n
}

// raft is the name of a node's Raft. It is no address that anybody dials.
func (n *demoNode) raft() string { return n.id + ":1" }

// link joins a node's Raft with the others, or takes it away from them.
func (d *demoCluster) link(n *demoNode, on bool) {
	for _, o := range d.nodes {
		switch {
		case o == n:
		case on:
			n.trans.Connect(o.trans.LocalAddr(), o.trans)
			o.trans.Connect(n.trans.LocalAddr(), n.trans)
		default:
			n.trans.Disconnect(o.trans.LocalAddr())
			o.trans.Disconnect(n.trans.LocalAddr())
		}
	}
}

func (d *demoCluster) start(ctx context.Context, n *demoNode, end context.CancelCauseFunc) error {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.Store, cfg.NodeID = "127.0.0.1:0", d.loc.String(), n.id
	cfg.Expiry.Interval = 100 * time.Millisecond
	cfg.Cluster.Advertise, cfg.Cluster.ElectionTimeout = "auto", 300*time.Millisecond
	cfg.Cluster.Heartbeat, cfg.Cluster.DeadAfter, cfg.Cluster.ForwardTimeout = 100*time.Millisecond, time.Second, 500*time.Millisecond
	var peers []string
	for _, o := range d.nodes {
		peers = append(peers, o.id+"="+o.raft())
	}
	// The peers do not listen: Raft's messages stay in the process.
	cfg.Cluster.Peers, cfg.Cluster.RaftListen = strings.Join(peers, ","), "127.0.0.1:0"
	ready := make(chan string, 1)
	run, err := node.New(cfg, node.Deps{
		OpenStore: func(context.Context) (kv.Store, error) { return demoStore{d.engine, n}, nil },
		StoreKind: d.loc.kind, Prefix: d.loc.keyPrefix(), Version: buildVersion(),
		Log:     zerolog.New(d.c.stderr).Level(zerolog.ErrorLevel).With().Timestamp().Logger(),
		OnReady: func(url string) { ready <- url },
		Raft: func() (election.Parts, error) {
			return election.Parts{Transport: n.trans, Logs: n.data, Stable: n.data}, nil
		},
		PeerTransport: &peerWire{d: d, from: n, next: &http.Transport{MaxIdleConnsPerHost: 4}},
	})
	if err != nil {
		return err
	}
	ctx, n.stop = context.WithCancel(ctx)
	go func() {
		err := run.Run(ctx)
		if n.dead.Err() == nil {
			end(err)
		} else {
			err = nil // it was killed; how it ends concerns nobody
		}
		n.done <- err
	}()
	select {
	case n.url = <-ready:
		if u, err := url.Parse(n.url); err == nil {
			d.byHost.Store(u.Host, n)
		}
		return nil
	case err := <-n.done:
		n.done <- err
		return fmt.Errorf("demo: start node: %w", err)
	}
}

// close ends all nodes and the store.
func (d *demoCluster) close() error {
	var errs []error
	for _, n := range d.nodes {
		d.link(n, false) // nobody is left to hand a lead over to
	}
	for _, n := range d.nodes {
		if n.stop != nil {
			n.resume()
			n.stop()
		}
	}
	for _, n := range d.nodes {
		if n.stop != nil {
			errs = append(errs, <-n.done)
		}
		errs = append(errs, n.trans.Close())
		n.kill()
	}
	return errors.Join(append(errs, d.engine.Close())...)
}

// pause holds all that a node does from now on.
func (n *demoNode) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = make(chan struct{})
}

func (n *demoNode) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held != nil {
		close(n.held)
		n.held = nil
	}
}

var errKilled = errors.New("the node is dead (the demo killed it)")

// pass waits while the node is paused, and fails once it is dead.
func (n *demoNode) pass() error {
	n.mu.Lock()
	held := n.held
	n.mu.Unlock()
	if held != nil {
		<-held
	}
	if n.dead.Err() != nil {
		return errKilled
	}
	return nil
}

// demoStore is a node's way to the store that all share.
type demoStore struct {
	kv.Store
	n *demoNode
}

// Begin starts a transaction.
func (s demoStore) Begin(ctx context.Context) (kv.Tx, error) {
	if s.n.pass() != nil {
		return nil, &kv.Error{Code: kv.CodeClosed, Op: "begin", Cause: errKilled}
	}
	tx, err := s.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return demoTx{tx, s.n}, nil
}

// Close leaves the store open for the other nodes.
func (demoStore) Close() error { return nil }

type demoTx struct {
	kv.Tx
	n *demoNode
}

// Commit commits, unless the node is dead by then.
func (t demoTx) Commit(ctx context.Context) (kv.Stamp, error) {
	if t.n.pass() != nil {
		return kv.Stamp{}, &kv.Error{Code: kv.CodeClosed, Op: "commit", Cause: errKilled}
	}
	return t.Tx.Commit(ctx)
}

// send makes a request of a node; it fails when the node dies meanwhile.
func (n *demoNode) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if n.dead.Err() != nil {
		return nil, errKilled
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(n.dead, func() { cancel(errKilled) })
	res, err := next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	res.Body = &endingBody{res.Body, func() { stop(); cancel(nil) }}
	return res, nil
}

// endingBody frees what a request held when its answer has been read.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close closes the body.
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// peerWire carries one node's calls to the others.
type peerWire struct {
	d    *demoCluster
	from *demoNode
	next *http.Transport
}

// RoundTrip makes one call.
func (w *peerWire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := w.from.pass(); err != nil {
		return nil, err
	}
	if to, ok := w.d.byHost.Load(r.URL.Host); ok {
		return to.(*demoNode).send(w.next, r) //nolint:errcheck // the map holds nothing else
	}
	return w.next.RoundTrip(r)
}

// CloseIdleConnections closes what the transport keeps open.
func (w *peerWire) CloseIdleConnections() { w.next.CloseIdleConnections() }

// balancer is what callers reach the nodes by, as through a load balancer: each
// request goes to the next node, and to another one where that does not answer.
// All commands have keys, so sending one twice does no harm.
type balancer struct {
	d    *demoCluster
	next *http.Transport
}

// RoundTrip sends a request to a node that answers.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	var last error
	for range 2 * demoNodes {
		n := b.d.nodes[b.d.turn.Add(1)%demoNodes]
		if n.dead.Err() != nil {
			continue
		}
		res, err := b.try(n, r, body)
		if err == nil || r.Context().Err() != nil {
			return res, err
		}
		last = err
	}
	return nil, fmt.Errorf("no node answers: %w", last)
}

// try sends a request to one node. A short answer is read to its end here, so
// that one that breaks off is no answer.
func (b *balancer) try(n *demoNode, r *http.Request, body []byte) (*http.Response, error) {
	u, err := url.Parse(n.url)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = u.Scheme, u.Host, ""
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	res, err := n.send(b.next, out)
	if err != nil || strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+") {
		return res, err // or a stream, such as an audit's
	}
	raw, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	if n.dead.Err() != nil {
		return nil, errKilled // what a dying node answers, it does not answer
	}
	res.Body = io.NopCloser(bytes.NewReader(raw))
	return res, nil
}

// CloseIdleConnections closes what the transport keeps open.
func (b *balancer) CloseIdleConnections() { b.next.CloseIdleConnections() }
