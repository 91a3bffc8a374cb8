package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// fill gives every field a value that is not its zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(epoch.Add(time.Duration(*n) * time.Millisecond)))
		return
	case error:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString("text \x00 é " + strings.Repeat("x", *n%7))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1<<53 + int64(*n)) // more than a float holds
	case reflect.Int8, reflect.Int16, reflect.Int32:
		v.SetInt(-int64(*n % 100))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n % 200))
	case reflect.Interface:
	default:
		panic("no value for a " + v.Kind().String())
	}
}

// Commands, results and rejections survive the way between nodes, every field
// of them, but for a rejection's cause.
func TestBetweenNodesNothingIsLost(t *testing.T) {
	n := 0
	var cmds []ledger.Command
	var res ledger.Result
	var rej ledger.Rejection
	for _, v := range []any{&cmds, &res, &rej} {
		fill(reflect.ValueOf(v).Elem(), &n)
	}
	raw, err := json.Marshal(cmds)
	if err != nil {
		t.Fatal(err)
	}
	var gotCmds []ledger.Command
	if err := decodeStrict(raw, &gotCmds); err != nil || !reflect.DeepEqual(gotCmds, cmds) {
		t.Errorf("commands %+v, %v, want %+v", gotCmds, err, cmds)
	}
	if raw, err = json.Marshal([]wireReply{{Result: &res}, {Rejection: wireOf(&rej)}}); err != nil {
		t.Fatal(err)
	}
	var got []wireReply
	if err := decodeStrict(raw, &got); err != nil || !reflect.DeepEqual(*got[0].Result, res) || !reflect.DeepEqual(wireOf(got[1].Rejection.rejection()), wireOf(&rej)) {
		t.Errorf("replies %s, %v", raw, err)
	}
	for _, bad := range []string{`[{"Op":1,"Later":2}]`, `[] []`, `{`, ``} {
		if err := decodeStrict([]byte(bad), &gotCmds); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// peerServer is a server that takes commands of other nodes.
func peerServer(t *testing.T, exec Executor, allow func(*http.Request) bool) string {
	t.Helper()
	s, err := NewServer(DefaultConfig(), Deps{
		Executor: &fakeExec{}, Reader: &fakeStore{}, Maintainer: &fakeStore{}, Log: zerolog.Nop(),
		Status: func(context.Context) Status { return Status{NodeID: "n2"} }, Peers: &Peers{Here: exec, Run: 5, Allow: allow},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPeerClient(t *testing.T) {
	exec := &fakeExec{do: func(c ledger.Command) (ledger.Result, error) {
		if c.Key.Order == "bad" {
			return ledger.Result{}, &ledger.Rejection{Code: ledger.Fenced, Field: "term", Value: "3", Limit: "4", Message: "old", Cause: errors.New("secret")}
		}
		return accepted(c), nil
	}}
	var allowed bool
	url := peerServer(t, exec, func(*http.Request) bool { return allowed })
	p := NewPeerClient("n1", nil)
	defer p.Close()
	cmds := []ledger.Command{
		{Op: ledger.OpExpire, Key: ledger.OrderKey{Tenant: "shop", Order: "o", Benefit: "b"}, Attempt: 2, Term: 7, Correlation: "trace"},
		{Op: ledger.OpExpire, Key: ledger.OrderKey{Tenant: "other", Order: "bad", Benefit: "b"}, Attempt: 1},
	}
	if _, err := p.Forward(t.Context(), url, 5, cmds); err == nil || len(exec.commands()) != 0 {
		t.Errorf("a stranger's commands: %v, %d ran", err, len(exec.commands()))
	}
	allowed = true
	// What answers at an address may be over another store, where the commands
	// would be taken and the caller's ledger would know nothing of them.
	for _, run := range []uint64{0, 6} {
		if _, err := p.Forward(t.Context(), url, run, cmds); err == nil || !strings.Contains(err.Error(), "is not the node at this address") || len(exec.commands()) != 0 {
			t.Errorf("commands for another node, %d: %v, %d ran", run, err, len(exec.commands()))
		}
	}
	for _, op := range []ledger.Op{ledger.OpMove, ledger.OpReshard, ledger.OpFund, ledger.OpFreeze} {
		if _, err := p.Forward(t.Context(), url, 5, append(cmds[:1:1], ledger.Command{Op: op})); err == nil || len(exec.commands()) != 0 {
			t.Errorf("a forwarded %s: %v, %d ran", op, err, len(exec.commands()))
		}
	}
	got, err := p.Forward(t.Context(), url, 5, cmds)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(exec.commands(), cmds) {
		t.Errorf("ran %+v, want %+v", exec.commands(), cmds)
	}
	if want := accepted(cmds[0]); !reflect.DeepEqual(got[0].Result, want) || got[0].Err != nil {
		t.Errorf("reply %+v, want %+v", got[0], want)
	}
	want := &wireRejection{Code: ledger.Fenced, Field: "term", Value: "3", Limit: "4", Message: "old"}
	if r := rejectionOf(got[1].Err); !reflect.DeepEqual(wireOf(r), want) || r.Cause != nil {
		t.Errorf("reply %+v, want %+v", got[1].Err, want)
	}
	many := make([]ledger.Command, maxForwarded+1)
	if _, err := p.Forward(t.Context(), url, 5, many); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("%d commands: %v", len(many), err)
	}
	// A server without peers has no such service, and the API does not list it.
	w := newWorld(t)
	if _, err := p.Forward(t.Context(), w.url, 5, cmds); err == nil {
		t.Error("a node that shares nothing takes commands of others")
	}
	for _, s := range services {
		if strings.Contains(s, "ClusterService") {
			t.Errorf("%s is listed", s)
		}
	}
}

type fakeCluster struct{ asked []string }

func (*fakeCluster) Cluster(context.Context) (ClusterStatus, error) {
	return ClusterStatus{
		NodeID: "n1", Term: 9, Leader: "n2", OldestOverdue: 1500 * time.Millisecond,
		Nodes: []ClusterNode{{NodeID: "n2", Address: "http://n2", Live: true, Draining: true, LeadsTerm: 9, Buckets: 5, LastSeen: time.Second}},
	}, nil
}

func (f *fakeCluster) Drain(_ context.Context, node string, undo bool) (ClusterNode, error) {
	if node != "n2" {
		return ClusterNode{}, NodeMissing(node)
	}
	if undo {
		node = "undo " + node
	}
	f.asked = append(f.asked, node)
	return ClusterNode{NodeID: "n2"}, nil
}

func TestClusterStatus(t *testing.T) {
	f := &fakeCluster{}
	deps := Deps{
		Executor: &fakeExec{}, Reader: &fakeStore{}, Maintainer: &fakeStore{}, Log: zerolog.Nop(),
		Status: func(context.Context) Status { return Status{NodeID: "lone"} }, Cluster: f,
	}
	for _, withCluster := range []bool{true, false} {
		if !withCluster {
			deps.Cluster = nil
		}
		s, err := NewServer(DefaultConfig(), deps)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(s)
		c := NewClient(srv.URL)
		got, err := c.GetCluster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, missing := c.DrainNode(t.Context(), "n9", false)
		if ReasonOf(missing) != ledger.NodeNotFound {
			t.Errorf("draining a node that is not there: %v", missing)
		}
		if !withCluster {
			if got.GetNodeId() != "lone" || len(got.GetNodes()) != 0 {
				t.Errorf("alone: %v", got)
			}
		} else if n := got.GetNodes()[0]; got.GetTerm() != 9 || got.GetLeader() != "n2" || got.GetOldestOverdueSeconds() != 1.5 ||
			n.GetNodeId() != "n2" || n.GetAddress() != "http://n2" || !n.GetLive() || !n.GetDraining() || n.GetLeadsTerm() != 9 || n.GetBuckets() != 5 || n.GetLastSeenSeconds() != 1 {
			t.Errorf("cluster %v", got)
		}
		if withCluster {
			for _, undo := range []bool{false, true} {
				var res *cofferv1.DrainNodeResponse
				if res, err = c.DrainNode(t.Context(), "n2", undo); err != nil || res.GetNode().GetNodeId() != "n2" {
					t.Errorf("drain: %v, %v", res, err)
				}
			}
			if !reflect.DeepEqual(f.asked, []string{"n2", "undo n2"}) {
				t.Errorf("asked %q", f.asked)
			}
		}
		c.Close()
		srv.Close()
	}
}

// A rejection on the wire has every field of a rejection but its cause.
func TestWireRejectionIsWhole(t *testing.T) {
	from, to := reflect.TypeFor[ledger.Rejection](), reflect.TypeFor[wireRejection]()
	for i := range from.NumField() {
		f := from.Field(i)
		if g, ok := to.FieldByName(f.Name); f.Name != "Cause" && (!ok || g.Type != f.Type) {
			t.Errorf("a rejection's %s does not get to the other node", f.Name)
		}
	}
}
