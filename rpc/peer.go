package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// Bounds between nodes.
const (
	// maxForwardBytes is the largest call that takes commands to another node,
	// and the largest answer.
	maxForwardBytes = 64 << 20
	// maxForwarded is how many commands one call may bring.
	maxForwarded = 1000
	// maxPeers bounds the nodes whose clients are kept; when full all are made
	// anew.
	maxPeers = 64
)

// Peers is what makes a server take commands from other nodes.
type Peers struct {
	// Here runs what others forward, and forwards nothing itself.
	Here Executor
	// Run is this start of the node: a call that is meant for another one is
	// refused. 0 refuses all.
	Run uint64
	// Allow says whether a request comes from a node; nil allows all.
	Allow func(*http.Request) bool
}

// mountPeers puts the service for other nodes on a mux, behind its guard.
func mountPeers(mux connecthttp.ServeMux, s *connect.Server, allow func(*http.Request) bool) {
	inner := http.NewServeMux()
	connecthttp.Mount(inner, s, connecthttp.WithReadMaxBytes(maxForwardBytes), connecthttp.WithCompressMinBytes(compressMinBytes))
	mux.Handle("/"+cofferv1connect.ClusterServiceName+"/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allow != nil && !allow(r) {
			http.Error(w, "this service is for the nodes of the cluster", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
}

type clusterService struct {
	here Executor
	run  uint64
}

// Forward runs another node's commands.
func (s *clusterService) Forward(ctx context.Context, m *cofferv1.ForwardRequest) (*cofferv1.ForwardResponse, error) {
	if m.GetToRun() == 0 || m.GetToRun() != s.run {
		return nil, &ledger.Rejection{
			Code: ledger.NodeNotFound, Field: "to_run", Value: fmt.Sprint(m.GetToRun()), Limit: fmt.Sprint(s.run), Message: "is not the node at this address",
		}
	}
	var cmds []ledger.Command
	if err := decodeStrict(m.GetCommands(), &cmds); err != nil {
		return nil, &ledger.Rejection{Code: ledger.InvalidArgument, Field: "commands", Value: "unreadable", Message: "are in a form that this node does not know", Cause: err}
	}
	if len(cmds) > maxForwarded {
		return nil, &ledger.Rejection{
			Code: ledger.InvalidArgument, Field: "commands", Value: fmt.Sprint(len(cmds)), Limit: fmt.Sprint(maxForwarded), Message: "are too many for one call",
		}
	}
	for i := range cmds {
		if cmds[i].Op.OnBudget() {
			return nil, &ledger.Rejection{
				Code: ledger.InvalidArgument, Field: "commands", Value: cmds[i].Op.String(), Limit: "commands on orders", Message: "is not forwarded between nodes",
			}
		}
	}
	replies := s.here.DoAll(ctx, cmds)
	out := make([]wireReply, len(replies))
	for i := range replies {
		if replies[i].Err != nil {
			out[i].Rejection = wireOf(rejectionOf(replies[i].Err))
		} else {
			out[i].Result = &replies[i].Result
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode replies: %w", err)
	}
	return &cofferv1.ForwardResponse{Replies: raw}, nil
}

// wireReply is a reply between nodes: a result, or a rejection.
type wireReply struct {
	Result    *ledger.Result `json:",omitempty"`
	Rejection *wireRejection `json:",omitempty"`
}

// wireRejection is a rejection without its cause, which stays in the log of the
// node that met it.
type wireRejection struct {
	Code                 ledger.Code
	Field, Value, Limit  string   `json:",omitempty"`
	Message              string   `json:",omitempty"`
	Fields               []string `json:",omitempty"`
	State                string   `json:",omitempty"`
	Attempt              uint32   `json:",omitempty"`
	Requested, Available int64    `json:",omitempty"`
	RetryAfter           time.Duration
	Replayed             bool
}

func wireOf(r *ledger.Rejection) *wireRejection {
	return &wireRejection{
		Code: r.Code, Field: r.Field, Value: r.Value, Limit: r.Limit, Message: r.Message, Fields: r.Fields, State: r.State,
		Attempt: r.Attempt, Requested: r.Requested, Available: r.Available, RetryAfter: r.RetryAfter, Replayed: r.Replayed,
	}
}

func (w *wireRejection) rejection() *ledger.Rejection {
	return &ledger.Rejection{
		Code: w.Code, Field: w.Field, Value: w.Value, Limit: w.Limit, Message: w.Message, Fields: w.Fields, State: w.State,
		Attempt: w.Attempt, Requested: w.Requested, Available: w.Available, RetryAfter: w.RetryAfter, Replayed: w.Replayed,
	}
}

// decodeStrict refuses fields that it does not know: a node of a newer version
// may mean something by them.
func decodeStrict(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more follows")
	}
	return nil
}

// PeerClient calls other nodes. It is safe for concurrent use.
type PeerClient struct {
	from string
	http *http.Client

	mu      sync.Mutex
	clients map[string]cofferv1connect.ClusterServiceClient // by address
}

// NewPeerClient makes the client of a node; its own certificate in t, if not
// nil, proves it to the others.
func NewPeerClient(from string, t *tls.Config) *PeerClient {
	return NewPeerClientOver(from, &http.Transport{
		TLSClientConfig: t, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	})
}

// NewPeerClientOver makes the client of a node over a transport.
func NewPeerClientOver(from string, rt http.RoundTripper) *PeerClient {
	return &PeerClient{from: from, http: &http.Client{Transport: rt}, clients: map[string]cofferv1connect.ClusterServiceClient{}}
}

// Close drops idle connections.
func (p *PeerClient) Close() { p.http.CloseIdleConnections() }

func (p *PeerClient) client(address string) cofferv1connect.ClusterServiceClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.clients[address]; ok {
		return c
	}
	if len(p.clients) >= maxPeers {
		clear(p.clients)
	}
	c := cofferv1connect.NewClusterServiceClient(connect.NewClient(
		connecthttp.NewTransport(p.http, address, connecthttp.WithReadMaxBytes(maxForwardBytes))))
	p.clients[address] = c
	return c
}

// Forward runs commands on the node at address, once, and gives one reply each.
// run is the start of that node that is meant: any other process refuses. An error says nothing of what became of the commands.
func (p *PeerClient) Forward(ctx context.Context, address string, run uint64, cmds []ledger.Command) ([]ledger.Reply, error) {
	raw, err := json.Marshal(cmds)
	if err != nil {
		return nil, fmt.Errorf("encode commands: %w", err)
	}
	res, err := p.client(address).Forward(ctx, &cofferv1.ForwardRequest{From: p.from, Commands: raw, ToRun: run})
	if err != nil {
		return nil, err
	}
	var replies []wireReply
	if err := decodeStrict(res.GetReplies(), &replies); err != nil {
		return nil, fmt.Errorf("decode replies: %w", err)
	}
	out := make([]ledger.Reply, len(replies))
	for i, r := range replies {
		switch {
		case r.Rejection != nil:
			out[i].Err = r.Rejection.rejection()
		case r.Result != nil:
			out[i].Result = *r.Result
		default:
			return nil, errors.New("decode replies: one is empty")
		}
	}
	return out, nil
}
