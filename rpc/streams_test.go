package rpc

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
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

// slowDeadline is the writer of a request, on which a deadline takes its time.
type slowDeadline struct {
	http.ResponseWriter
	began, goOn chan struct{}
}

func (s slowDeadline) SetWriteDeadline(time.Time) error {
	close(s.began)
	<-s.goOn
	return nil
}

// A stream is not over before it is left alone: its writer is gone then.
func TestStreamEndsWhileItIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving, over := make(chan struct{}), make(chan struct{})
		w := slowDeadline{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		h := cutOff(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-w.began }), leaving, time.Second)
		go func() {
			defer close(over)
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", http.NoBody))
		}()
		close(leaving)
		synctest.Wait()
		select {
		case <-over:
			t.Error("the stream ended while its writer was in use")
		default:
		}
		close(w.goOn)
		<-over
	})
}
