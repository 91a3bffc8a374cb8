package relay

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

// A NATS sink is pinged by a subject of its own tenant: a stream that has that
// tenant's subjects and no others answers, and another tenant's does not.
func TestPingOfATenantsStream(t *testing.T) {
	srv, port := natsServer(t, t.TempDir(), -1)
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"coffer.shop.>"}}); err != nil {
		t.Fatal(err)
	}
	c := sink.Config{Kind: sink.KindNATS, NATS: &sink.NATS{Servers: []string{fmt.Sprintf("nats://%s:%d", loopback(), port)}}}
	stored, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	d := NewDrivers(sink.Deps{Private: true})
	if err := d.Ping(t.Context(), &store.Sink{SinkID: store.SinkID{Tenant: "shop", Name: "bus"}, Config: stored}); err != nil {
		t.Errorf("ping: %v", err)
	}
	const want = "nats: no stream takes the subject coffer.other.sink.ping.v1; make one, or correct nats.subject: nats: API error: code=404 err_code=10059 description=stream not found"
	if err := d.Ping(t.Context(), &store.Sink{SinkID: store.SinkID{Tenant: "other", Name: "bus"}, Config: stored}); err == nil || err.Error() != want {
		t.Errorf("ping of another tenant's sink: %v", err)
	}
}
