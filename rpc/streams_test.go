package rpc

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// A stream that nobody reads ends when the node leaves, and not before.
func TestUnreadStreamEndsWithTheNode(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			leaving := make(chan struct{})
			full, ended := make(chan struct{}), make(chan error, 1)
			mux := http.NewServeMux()
			rpc := connect.NewServer()
			cofferv1connect.RegisterEventServiceHandler(rpc, &eventService{})
			cuttingStreams(mux, rpc, leaving, 10*time.Millisecond).Handle(cofferv1connect.EventServiceSubscribeProcedure, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				part := make([]byte, 1<<20)
				for n := range 1 << 10 {
					if n == 1 {
						close(full)
					}
					if _, err := w.Write(part); err != nil {
						ended <- err
						return
					}
				}
				ended <- errors.New("a gigabyte was written that nobody read")
			}))
			srv := httptest.NewUnstartedServer(mux)
			if srv.EnableHTTP2 = http2; http2 {
				srv.StartTLS()
			} else {
				srv.Start() // TLS says goodbye, and waits five seconds for room to
			}
			defer srv.Close()
			res, err := srv.Client().Post(srv.URL+cofferv1connect.EventServiceSubscribeProcedure, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.ProtoMajor == 2 != http2 {
				t.Fatalf("served by %s", res.Proto)
			}
			<-full
			close(leaving)
			if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the stream ended with %v", err)
			}
			if err := srv.Config.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
