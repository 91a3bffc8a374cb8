package rpc

import (
	"net/http"
	"time"

	"connectrpc.com/connect/v2/connecthttp"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// streamGrace is how long a subscriber may take to read what is on its way to it
// when the node leaves.
const streamGrace = time.Second

// streamMux cuts streams of events off when the node leaves.
type streamMux struct {
	connecthttp.ServeMux
	leaving <-chan struct{}
	grace   time.Duration
}

func (m streamMux) Handle(pattern string, h http.Handler) {
	if pattern == cofferv1connect.EventServiceSubscribeProcedure {
		h = cutOff(h, m.leaving, m.grace)
	}
	m.ServeMux.Handle(pattern, h)
}

// cutOff gives an answer that is not read an end, d after the node began to
// leave: a write waits for its reader for as long as that likes, and the
// shutdown would wait with it. A subscriber goes on behind the last event it has.
func cutOff(next http.Handler, leaving <-chan struct{}, d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			select {
			case <-leaving:
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
			case <-ended:
			}
		}()
		next.ServeHTTP(w, r)
	})
}
