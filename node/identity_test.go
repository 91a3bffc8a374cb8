package node

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/members"
)

// A second process with the id of one that runs does not start, whether or not
// the nodes share buckets; once the first has ended, another one starts at once.
func TestTwoProcessesWithOneID(t *testing.T) {
	testengine.OnlyEmbedded(t, "it shares one store among nodes of this process")
	for _, advertise := range []string{advertiseAuto, ""} {
		t.Run("advertise "+advertise, func(t *testing.T) {
			engine := testengine.Embedded(t, vfs.NewMem(), nil)
			create := func() *Node {
				cfg := testConfig()
				cfg.Cluster.Advertise = advertise
				cfg.Cluster.Heartbeat, cfg.Cluster.DeadAfter = 20*time.Millisecond, time.Minute
				n, err := New(cfg, Deps{
					OpenStore: func(context.Context) (kv.Store, error) { return open{engine}, nil },
					StoreKind: "shared", Log: zerolog.Nop(),
				})
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			first := start(t, create(), nil)
			st, err := store.Open(t.Context(), engine, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var row store.Member
			until(t, "the first node's address", func() bool { // it claims the id before it has one
				rows, _, err := st.Members(t.Context())
				if err != nil || len(rows) != 1 {
					t.Fatalf("rows %+v, %v", rows, err)
				}
				row = rows[0]
				return row.Beat > 1
			})
			if row.Node != "test" || row.Address != first.url || (len(row.Sees) == 1) != (advertise != "") {
				t.Errorf("sign of life %+v, the node is at %s", row, first.url)
			}
			var used *members.InUseError
			if err := create().Run(t.Context()); !errors.As(err, &used) || used.Node != "test" || used.Address != first.url || used.Lost {
				t.Errorf("second node: %v", err)
			} else if !strings.Contains(err.Error(), `node_id "test" is in use by another process over this store, at `+first.url) {
				t.Errorf("second node says: %v", err)
			}
			first.stop()
			if err := first.ended(t); err != nil {
				t.Error(err)
			}
			if rows, _, err := st.Members(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("rows %+v, %v", rows, err)
			}
			next := start(t, create(), nil)
			next.stop()
			if err := next.ended(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// A node that claimed its id and finds its address taken leaves no sign of life
// behind, which the next start would wait for.
func TestIDIsFreeAfterAFailedStart(t *testing.T) {
	testengine.OnlyEmbedded(t, "it looks into the store of a node")
	engine := testengine.Embedded(t, vfs.NewMem(), nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := testConfig()
	cfg.Listen, cfg.Cluster.Advertise = taken.Addr().String(), advertiseAuto
	n, err := New(cfg, Deps{
		OpenStore: func(context.Context) (kv.Store, error) { return open{engine}, nil }, StoreKind: "embedded", Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Run(t.Context()); !errors.Is(err, ErrAddressInUse) {
		t.Errorf("it ended with %v", err)
	}
	st, err := store.Open(t.Context(), engine, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rows, _, err := st.Members(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("rows %+v, %v", rows, err)
	}
}

// A server on all addresses says on which machine it is.
func TestOnThisHost(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	for in, want := range map[string]string{
		"http://127.0.0.1:7420": "http://127.0.0.1:7420", "https://[::]:7420": "https://" + host + ":7420", "http://0.0.0.0:1": "http://" + host + ":1",
		"http://localhost:7420": "http://" + host + ":7420", "http://:7420": "http://" + host + ":7420", "http://a.example:7420": "http://a.example:7420",
	} {
		if got := onThisHost(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}
